// Powers, and the functions of two numbers that are made of exponentials: pow,
// ldexp, logaddexp, hypot, atan2.
#include <c10/util/Exception.h>

#include <cmath>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

void refuse_bool(at::ScalarType dtype) {
  TORCH_CHECK_NOT_IMPLEMENTED(dtype != at::kBool,
                              "tpu: \"pow\" not implemented for 'Bool': got a bool base and a bool exponent; expected "
                              "one of another dtype.\nConvert the base: base.to(torch.int64).");
}

// By squaring, as far as the largest exponent goes: XLA's power of integers looks at six bits of it. A negative one
// gives 0, but for the bases 1 and -1.
Value integer_power(Emitter& e, const Value& base, const Value& exponent) {
  const Value zero = like(e, 0, base);
  const Value one = like(e, 1, base);
  const Value negative = e.compare("LT", exponent, zero);
  const Values end = e.while_loop(
      {base, e.select(negative, zero, exponent), one},
      [&](const Values& s) -> Values { return {any_of(e, e.compare("GT", s[1], 0))}; },
      [&](const Values& s) -> Values {
        const Value odd = e.compare("NE", e.remainder(s[1], 2), 0);
        return {e.multiply(s[0], s[0]), e.divide(s[1], 2), e.select(odd, e.multiply(s[2], s[0]), s[2])};
      });
  const Value is_odd = e.compare("NE", e.remainder(exponent, 2), 0);
  const Value of_minus_one = e.select(is_odd, like(e, -1, base), one);
  const Value inverse = e.select(e.compare("EQ", base, -1), of_minus_one, zero);
  return e.select(negative, e.select(e.compare("EQ", base, 1), one, inverse), end[2]);
}

Value power(Emitter& e, const Value& base, const Value& exponent) {
  const at::ScalarType dtype = base.dtype();
  refuse_bool(dtype);
  if (is_complex(base)) {
    const Value zero = like(e, 0, base);
    const Value vanishes = e.logical_and(e.compare("EQ", base, zero), e.compare("GT", e.real(exponent), 0));
    return e.select(vanishes, zero, e.power(base, exponent));
  }
  if (c10::isIntegralType(dtype, /*includeBool=*/false) && !c10::isSignedType(dtype)) {
    // An unsigned exponent's high bit would count as a sign.
    const at::ScalarType wide = c10::elementSize(dtype) < 4 ? at::kInt : at::kLong;
    return e.convert(integer_power(e, e.convert(base, wide), e.convert(exponent, wide)), dtype);
  }
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) return integer_power(e, base, exponent);
  return e.power(base, exponent);
}

// x^exponent where that has a cheaper form, the one PyTorch also takes; undefined otherwise.
Value cheap_power(Emitter& e, const Call& c, const Value& x) {
  const auto is = [&c](double exponent) { return c.equals("exponent", exponent); };
  if (is(2)) return square(e, x);
  if (is(1)) return x;
  if (is(3)) return e.multiply(square(e, x), x);
  if (is(0)) return like(e, 1, x);
  if (!is_floating(x) && !is_complex(x)) return {};
  if (is(0.5)) return e.unary("sqrt", x);
  if (is(-0.5) && !is_complex(x)) return e.unary("rsqrt", x);
  if (is(-1)) return reciprocal(e, x);
  if (is(-2)) return reciprocal(e, square(e, x));
  return {};
}

Value lower_pow_scalar(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "exponent"});
  const Value x = operand(e, c, "self", opmath(dtype));
  Value y = cheap_power(e, c, x);
  if (!y.defined()) y = power(e, x, c.number("exponent", x.type));
  return e.convert(y, dtype);
}

// self * 2^other
Value lower_ldexp(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self", "other"});
  const Values xs = operands(e, c, {"self", "other"}, opmath(dtype));
  return e.convert(e.multiply(xs[0], exp2(e, xs[1])), dtype);
}

// log(exp(a) + exp(b)), and the same of powers of 2 with `to_natural` = log(2).
Value log_sum(Emitter& e, const Value& a, const Value& b, double to_natural) {
  const auto times = [&e](const Value& x, double by) { return by == 1 ? x : scaled(e, x, by); };
  if (is_complex(a)) {
    const Value a_first = e.compare("GE", e.real(a), e.real(b));
    const Value high = e.select(a_first, a, b);
    const Value low = e.select(a_first, b, a);
    const Value ratio = e.unary("exponential", times(e.subtract(low, high), to_natural));
    return e.add(high, times(e.unary("log_plus_one", ratio), 1 / to_natural));
  }
  const Value distance = e.unary("abs", e.subtract(a, b));
  const Value rest = e.unary("log_plus_one", e.unary("exponential", times(e.negate(distance), to_natural)));
  const Value sum = e.add(e.maximum(a, b), times(rest, 1 / to_natural));
  // inf - inf is no distance.
  return e.select(e.logical_and(is_infinite(e, a), e.compare("EQ", a, b)), a, sum);
}
Value log_add_exp(Emitter& e, const Value& a, const Value& b) { return log_sum(e, a, b, 1); }
Value log_add_exp2(Emitter& e, const Value& a, const Value& b) { return log_sum(e, a, b, M_LN2); }

// sqrt(a^2 + b^2) without overflow on the way.
Value hypot(Emitter& e, const Value& a, const Value& b) {
  const Value x = e.unary("abs", a);
  const Value y = e.unary("abs", b);
  const Value high = e.maximum(x, y);
  const Value ratio = e.divide(e.minimum(x, y), high);
  const Value size = e.multiply(high, e.unary("sqrt", one_plus(e, square(e, ratio))));
  const Value result = e.select(e.compare("EQ", high, 0), high, size);
  const Value infinite = e.logical_or(is_infinite(e, a), is_infinite(e, b));
  return e.select(infinite, like(e, INFINITY, a), result);
}

Value atan2(Emitter& e, const Value& a, const Value& b) { return e.binary("atan2", a, b); }

}  // namespace

void add_power(Table& t) {
  add_math(t, "aten::pow.Tensor_Tensor", power, "self", "exponent", Promote::kDefault);
  add_math(t, "aten::pow.Scalar", power, "self", "exponent", Promote::kDefault);
  t.add("aten::pow.Tensor_Scalar", lower_pow_scalar);
  t.add("aten::ldexp.Tensor", lower_ldexp);
  add_math(t, "aten::logaddexp", log_add_exp);
  add_math(t, "aten::logaddexp2", log_add_exp2);
  add_math(t, "aten::hypot", hypot);
  add_math(t, "aten::atan2", atan2);
}

}  // namespace torch_tpu
