// Operands, rows and small functions of the pointwise families.
#include "lowerings/pointwise.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

namespace torch_tpu {

Value operand(Emitter& e, const Call& c, std::string_view name, at::ScalarType dtype) {
  const bool number = c.is_number(name) || c.is_integral_number(name);
  return number ? c.number(name, dtype) : e.convert(c.tensor(name), dtype);
}

Values broadcast_all(Emitter& e, const Values& values) {
  Dims dims;
  for (const Value& value : values) dims = broadcast_dims(dims, value.dims());
  Values all;
  for (const Value& value : values) all.push_back(broadcast_to(e, value, dims));
  return all;
}

Values operands(Emitter& e, const Call& c, const Names& names, at::ScalarType dtype) {
  Values values;
  for (const auto name : names) values.push_back(operand(e, c, name, dtype));
  return broadcast_all(e, values);
}

Row& add_exact(Table& t, std::string_view name, UnaryMath math, std::string_view x) {
  return t.add(name, [math, x](Emitter& e, const Call& c) -> Values { return {math(e, c.tensor(x))}; });
}

Row& add_exact(Table& t, std::string_view name, BinaryMath math, std::string_view a, std::string_view b) {
  return t.add(name, [math, a, b](Emitter& e, const Call& c) -> Values {
    const Values xs = operands(e, c, {a, b}, c.common_dtype(Promote::kDefault, {a, b}));
    return {math(e, xs[0], xs[1])};
  });
}

Row& add_math(Table& t, std::string_view name, UnaryMath math, std::string_view x, Promote how) {
  return t.add(name, [math, x, how](Emitter& e, const Call& c) -> Values {
    const at::ScalarType dtype = c.common_dtype(how, {x});
    return {e.convert(math(e, operand(e, c, x, opmath(dtype))), dtype)};
  });
}

Row& add_math(Table& t, std::string_view name, BinaryMath math, std::string_view a, std::string_view b, Promote how) {
  return t.add(name, [math, a, b, how](Emitter& e, const Call& c) -> Values {
    const at::ScalarType dtype = c.common_dtype(how, {a, b});
    const Values xs = operands(e, c, {a, b}, dtype);
    return {e.convert(math(e, e.convert(xs[0], opmath(dtype)), e.convert(xs[1], opmath(dtype))), dtype)};
  });
}

Row& add_arithmetic(Table& t, std::string_view name, BinaryMath math, Promote how) {
  return t.add(name, [math, how](Emitter& e, const Call& c) -> Values {
    const at::ScalarType dtype = c.common_dtype(how, {"self", "other"});
    const Values xs = operands(e, c, {"self", "other"}, opmath(dtype));
    return {e.convert(math(e, xs[0], xs[1]), dtype)};
  });
}

Row& add_math(Table& t, std::string_view name, std::string_view operation) {
  return t.add(name, [operation](Emitter& e, const Call& c) -> Values {
    const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self"});
    return {e.convert(e.unary(operation, operand(e, c, "self", opmath(dtype))), dtype)};
  });
}

bool is_floating(const Value& x) { return c10::isFloatingType(x.dtype()); }

bool is_complex(const Value& x) { return c10::isComplexType(x.dtype()); }

Value like(Emitter& e, const at::Scalar& value, const Value& x) { return e.constant_like(value, x); }

Value any_of(Emitter& e, const Value& pred) {
  Dims all;
  for (const auto d : c10::irange(pred.rank())) all.push_back(d);
  return all.empty() ? pred : e.reduce(pred, at::Scalar(false), all, "or");
}

Value conjugate(Emitter& e, const Value& x) { return is_complex(x) ? e.complex(e.real(x), e.negate(e.imag(x))) : x; }

Value sigmoid(Emitter& e, const Value& x) {
  return is_complex(x) ? reciprocal(e, one_plus(e, e.unary("exponential", e.negate(x)))) : e.unary("logistic", x);
}

Value scaled(Emitter& e, const Value& x, double factor) {
  if (!is_complex(x)) return e.multiply(x, factor);
  return e.complex(e.multiply(e.real(x), factor), e.multiply(e.imag(x), factor));
}

Value magnitude(Emitter& e, const Value& x) {
  if (is_complex(x)) {
    const Value size = e.unary("abs", x);  // infinite and NaN gives NaN
    const Value infinite = e.logical_or(is_infinite(e, e.real(x)), is_infinite(e, e.imag(x)));
    return e.select(infinite, like(e, INFINITY, size), size);
  }
  const bool has_sign = !c10::isIntegralType(x.dtype(), /*includeBool=*/true) || c10::isSignedType(x.dtype());
  return has_sign && x.dtype() != at::kBool ? e.unary("abs", x) : x;
}

Value square(Emitter& e, const Value& x) { return e.multiply(x, x); }

Value one_minus(Emitter& e, const Value& x) { return e.subtract(1, x); }

Value one_plus(Emitter& e, const Value& x) { return e.add(x, 1); }

Value reciprocal(Emitter& e, const Value& x) { return e.divide(1, x); }

Value between(Emitter& e, const Value& x, double low, double high) {
  return e.logical_and(e.compare("GT", x, low), e.compare("LT", x, high));
}

Value within(Emitter& e, const Value& x, double low, double high) {
  return e.logical_and(e.compare("GE", x, low), e.compare("LE", x, high));
}

Value is_infinite(Emitter& e, const Value& x) {
  return e.compare("EQ", e.unary("abs", x), std::numeric_limits<double>::infinity());
}

at::ScalarType bits_dtype(at::ScalarType dtype) {
  switch (c10::elementSize(dtype)) {
    case 1:
      return at::kChar;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

Value bits_of(Emitter& e, const Value& x) { return e.bitcast(x, x.type.with(bits_dtype(x.dtype()))); }

Value has_sign_bit(Emitter& e, const Value& x) { return e.compare("LT", bits_of(e, x), 0); }

Value copy_sign(Emitter& e, const Value& x, const Value& sign) {
  const Value size = e.unary("abs", x);
  return e.select(has_sign_bit(e, sign), e.negate(size), size);
}

namespace {

struct Layout {
  int64_t mantissa_bits, bias, exponent_mask;
};

// Of f32 and f64, which are what math is computed in.
Layout layout_of(const Value& x) {
  TORCH_INTERNAL_ASSERT(x.dtype() == at::kFloat || x.dtype() == at::kDouble, "bit layout of ", x.type);
  return x.dtype() == at::kFloat ? Layout{23, 127, 0xFF} : Layout{52, 1023, 0x7FF};
}

// 2^n for integers n (in bits_dtype) of normal results.
Value power_of_two(Emitter& e, const Value& n, const Value& like) {
  const Layout layout = layout_of(like);
  const Value bits = e.binary("shift_left", e.add(n, layout.bias), layout.mantissa_bits);
  return e.bitcast(bits, like.type);
}

}  // namespace

Value exp2(Emitter& e, const Value& x) {
  if (is_complex(x)) return e.unary("exponential", scaled(e, x, M_LN2));
  const Layout layout = layout_of(x);
  // Beyond these the result is 0 or inf whatever the factors are.
  const double limit = static_cast<double>(layout.bias + layout.mantissa_bits + 10);
  const Value low = scalar(e, -limit, x.dtype());
  const Value high = scalar(e, limit, x.dtype());
  const Value held = e.clamp(low, x, high);
  const Value whole = e.unary("round_nearest_even", held);
  const Value rest = e.unary("exponential", e.multiply(e.subtract(held, whole), M_LN2));
  // Two factors, as neither 2^-140 nor 2^128 is a normal float.
  const Value n = e.convert(whole, bits_dtype(x.dtype()));
  const Value half = e.binary("shift_right_arithmetic", n, 1);
  const Value scaled = e.multiply(e.multiply(rest, power_of_two(e, half, x)), power_of_two(e, e.subtract(n, half), x));
  return e.select(is_nan(e, x), x, scaled);
}

std::pair<Value, Value> split_exponent(Emitter& e, const Value& x) {
  const Layout layout = layout_of(x);
  const double smallest_normal = std::ldexp(1.0, static_cast<int>(1 - layout.bias));
  const double lift = std::ldexp(1.0, static_cast<int>(layout.mantissa_bits + 2));
  const Value size = e.unary("abs", x);
  const Value tiny = e.compare("LT", size, smallest_normal);
  const Value normal = e.select(tiny, e.multiply(x, lift), x);
  const Value bits = bits_of(e, normal);
  const Value field = e.logical_and(e.binary("shift_right_logical", bits, layout.mantissa_bits), layout.exponent_mask);
  const Value shift =
      e.select(tiny, like(e, layout.bias - 1 + layout.mantissa_bits + 2, field), like(e, layout.bias - 1, field));
  const Value exponent = e.subtract(field, shift);
  const int64_t rest = ~(layout.exponent_mask << layout.mantissa_bits);
  const Value kept =
      e.logical_and(bits, x.dtype() == at::kFloat ? static_cast<int64_t>(static_cast<int32_t>(rest)) : rest);
  const Value mantissa = e.bitcast(e.logical_or(kept, (layout.bias - 1) << layout.mantissa_bits), x.type);
  const Value plain = e.logical_or(e.compare("EQ", x, 0), e.logical_not(e.unary("is_finite", x)));
  return {e.select(plain, x, mantissa), e.convert(e.select(plain, like(e, 0, exponent), exponent), at::kInt)};
}

Value log2(Emitter& e, const Value& x) {
  if (is_complex(x)) return scaled(e, e.unary("log", x), M_LOG2E);
  auto [mantissa, exponent] = split_exponent(e, x);
  const Value low = e.compare("LT", mantissa, M_SQRT1_2);
  // A mantissa in [sqrt(1/2), sqrt(2)): log2 of numbers near 1 does not cancel.
  mantissa = e.select(low, e.multiply(mantissa, 2), mantissa);
  const Value whole = e.subtract(e.convert(exponent, x.dtype()), e.convert(low, x.dtype()));
  const Value sum = e.add(whole, e.multiply(e.unary("log", mantissa), M_LOG2E));
  const Value regular = e.logical_and(e.compare("GT", x, 0), e.unary("is_finite", x));
  return e.select(regular, sum, e.unary("log", x));
}

Value sign_of(Emitter& e, const Value& x) {
  if (x.dtype() == at::kBool) return x;
  if (is_complex(x)) return e.unary("sign", x);
  if (c10::isIntegralType(x.dtype(), /*includeBool=*/false)) {
    return c10::isSignedType(x.dtype()) ? e.unary("sign", x) : e.minimum(x, 1);
  }
  const Value zero = like(e, 0, x);
  return e.select(e.compare("GT", x, 0), like(e, 1, x), e.select(e.compare("LT", x, 0), like(e, -1, x), zero));
}

Value truncate(Emitter& e, const Value& x) {
  return e.select(e.compare("LT", x, 0), e.unary("ceil", x), e.unary("floor", x));
}

Value chebyshev_sum(Emitter& e, const Value& t, c10::ArrayRef<double> c) {
  double largest = 0;
  for (const double x : c) largest = std::max(largest, std::abs(x));
  const double visible = t.dtype() == at::kDouble ? 0 : largest * 1e-9;
  size_t n = c.size();
  while (n > 2 && std::abs(c[n - 1]) < visible) --n;
  TORCH_INTERNAL_ASSERT(n >= 2, "a Chebyshev sum of ", n, " terms");
  const Value twice = e.add(t, t);
  Value next = like(e, c[n - 1], t);
  Value after;
  for (size_t k = n - 2; k > 0; --k) {
    Value current = e.add(e.multiply(twice, next), c[k]);
    if (after.defined()) current = e.subtract(current, after);
    after = std::exchange(next, current);
  }
  const Value sum = e.add(e.multiply(t, next), c[0]);
  return after.defined() ? e.subtract(sum, after) : sum;
}

}  // namespace torch_tpu
