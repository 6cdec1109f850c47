// Functions of one tensor: signs, rounding, exponentials, logarithms, trigonometry.
// Special functions are in special.cpp, gamma.cpp and bessel.cpp.
#include <cmath>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Value lower_abs(Emitter& e, const Call& c) { return magnitude(e, c.tensor("self")); }

Value lower_neg(Emitter& e, const Call& c) { return e.negate(c.tensor("self")); }

Value angle(Emitter& e, const Value& x) {
  if (is_complex(x)) return e.binary("atan2", e.imag(x), e.real(x));
  const Value half_turn = e.select(e.compare("LT", x, 0), like(e, M_PI, x), like(e, 0, x));
  return e.select(is_nan(e, x), x, half_turn);
}

Value lower_angle(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self"});
  const Value result = angle(e, operand(e, c, "self", opmath(dtype)));
  return c10::isComplexType(dtype) ? result : e.convert(result, dtype);
}

// --- rounding: integers are whole already

template <Value (*Round)(Emitter&, const Value&)>
Value of_floating(Emitter& e, const Value& x) {
  return is_floating(x) ? Round(e, x) : x;
}
Value floor(Emitter& e, const Value& x) { return e.unary("floor", x); }
Value ceil(Emitter& e, const Value& x) { return e.unary("ceil", x); }
Value round(Emitter& e, const Value& x) { return e.unary("round_nearest_even", x); }
Value fraction(Emitter& e, const Value& x) { return e.subtract(x, truncate(e, x)); }

Value lower_round_decimals(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t decimals = c.integer("decimals");
  if (!is_floating(self)) return self;
  if (decimals == 0) return round(e, self);
  const Value x = e.convert(self, opmath(self.dtype()));
  const double power = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  const Value rounded =
      decimals > 0 ? e.divide(round(e, e.multiply(x, power)), power) : e.multiply(round(e, e.divide(x, power)), power);
  return e.convert(rounded, self.dtype());
}

// --- tests

Value test_nan(Emitter& e, const Value& x) {
  if (is_floating(x) || is_complex(x)) return is_nan(e, x);
  return e.constant(false, x.type.with(at::kBool));
}

Value test_infinite(Emitter& e, const Value& x) {
  if (is_complex(x)) return e.logical_or(is_infinite(e, e.real(x)), is_infinite(e, e.imag(x)));
  return is_floating(x) ? is_infinite(e, x) : e.constant(false, x.type.with(at::kBool));
}

Value test_positive_infinite(Emitter& e, const Value& x) {
  return is_floating(x) ? e.compare("EQ", x, kInfinity) : e.constant(false, x.type.with(at::kBool));
}

Value test_negative_infinite(Emitter& e, const Value& x) {
  return is_floating(x) ? e.compare("EQ", x, -kInfinity) : e.constant(false, x.type.with(at::kBool));
}

Value test_sign_bit(Emitter& e, const Value& x) {
  if (is_floating(x)) return has_sign_bit(e, x);
  if (x.dtype() == at::kBool) return e.constant(false, x.type);
  return e.compare("LT", x, 0);
}

Value logical_not(Emitter& e, const Value& x) { return e.logical_not(e.convert(x, at::kBool)); }

Value bitwise_not(Emitter& e, const Value& x) { return e.logical_not(x); }

// The largest finite number of `dtype`.
double largest(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 65504;
    case at::kBFloat16:
      return 0x1.FEp127;
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Value lower_nan_to_num(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto replace = [&](const Value& x) {
    const auto number = [&](std::string_view name, double otherwise) {
      return c.has(name) ? c.number(name, x.type) : like(e, otherwise, x);
    };
    Value y = e.select(is_nan(e, x), number("nan", 0), x);
    y = e.select(e.compare("EQ", x, kInfinity), number("posinf", largest(x.dtype())), y);
    return e.select(e.compare("EQ", x, -kInfinity), number("neginf", -largest(x.dtype())), y);
  };
  if (is_complex(self)) return e.complex(replace(e.real(self)), replace(e.imag(self)));
  return is_floating(self) ? replace(self) : self;
}

// --- exponentials and logarithms

Value log10(Emitter& e, const Value& x) {
  if (is_complex(x)) return scaled(e, e.unary("log", x), M_LOG10E);
  // Dividing gives whole numbers at more powers of ten than multiplying by the inverse.
  return e.divide(e.unary("log", x), M_LN10);
}

Value reciprocal_root(Emitter& e, const Value& x) {
  return is_complex(x) ? reciprocal(e, e.unary("sqrt", x)) : e.unary("rsqrt", x);
}

// log(x / (1 - x)), of x held in [eps, 1 - eps] if eps is given.
Value lower_logit(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self"});
  Value x = operand(e, c, "self", opmath(dtype));
  if (c.has("eps")) {
    const Value low = c.number("eps", x.type);
    const Value high = one_minus(e, low);
    const Value held = e.select(e.compare("LT", x, low), low, e.select(e.compare("GT", x, high), high, x));
    // Below zero is PyTorch's way to say none.
    x = e.select(e.compare("LT", low, 0), x, held);
  }
  return e.convert(e.unary("log", e.divide(x, one_minus(e, x))), dtype);
}

// --- trigonometry

// sin(pi x) / (pi x)
Value sinc(Emitter& e, const Value& x) {
  const Value angle = e.multiply(x, M_PI);
  return e.select(e.compare("EQ", x, 0), like(e, 1, x), e.divide(e.unary("sine", angle), angle));
}

// On its cuts, the imaginary axis beyond 1, the side is that of the real part's sign, of a zero too.
Value asinh(Emitter& e, const Value& x) {
  const Value y = e.unary("chlo.asinh", x);
  return is_complex(x) ? e.complex(copy_sign(e, e.real(y), e.real(x)), e.imag(y)) : y;
}

Value to_radians(Emitter& e, const Value& x) { return e.multiply(x, M_PI / 180); }
Value to_degrees(Emitter& e, const Value& x) { return e.multiply(x, 180 / M_PI); }

// --- parts

Values lower_frexp(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  auto [mantissa, exponent] = split_exponent(e, e.convert(self, opmath(self.dtype())));
  return {e.convert(mantissa, self.dtype()), exponent};
}

// The two parts of complex numbers, which PyTorch does not promote.
Values parts(Emitter& e, const Call& c, std::string_view first, std::string_view second) {
  const at::ScalarType a = c.tensor(first).dtype();
  const at::ScalarType b = c.tensor(second).dtype();
  const auto has_complex = [](at::ScalarType t) { return t == at::kHalf || t == at::kFloat || t == at::kDouble; };
  TORCH_CHECK(has_complex(a) && has_complex(b), "Expected both inputs to be Half, Float or Double tensors but got ", a,
              " and ", b);
  TORCH_CHECK(a == b, "Expected object of scalar type ", a, " but got scalar type ", b, " for second argument");
  return operands(e, c, {first, second}, a);
}

Value lower_polar(Emitter& e, const Call& c) {
  const Values xs = parts(e, c, "abs", "angle");
  return e.complex(e.multiply(xs[0], e.unary("cosine", xs[1])), e.multiply(xs[0], e.unary("sine", xs[1])));
}

Value lower_complex(Emitter& e, const Call& c) {
  const Values xs = parts(e, c, "real", "imag");
  return e.complex(xs[0], xs[1]);
}

}  // namespace

void add_unary(Table& t) {
  t.add("aten::abs", lower_abs);
  t.add("aten::neg", lower_neg);
  t.add("aten::angle", lower_angle);
  add_exact(t, "aten::sign", sign_of);
  add_exact(t, "aten::sgn", sign_of);
  add_exact(t, "aten::_conj_physical", conjugate);
  add_exact(t, "aten::conj_physical.out", conjugate);
  add_exact(t, "aten::conj_physical_", conjugate);
  t.add("aten::complex", lower_complex);
  t.add("aten::polar", lower_polar);
  t.add("aten::frexp.Tensor", lower_frexp);

  add_exact(t, "aten::floor", of_floating<floor>);
  add_exact(t, "aten::ceil", of_floating<ceil>);
  add_exact(t, "aten::trunc", of_floating<truncate>);
  add_exact(t, "aten::round", of_floating<round>);
  add_exact(t, "aten::frac", of_floating<fraction>);
  t.add("aten::round.decimals", lower_round_decimals);

  add_exact(t, "aten::isnan", test_nan);
  add_exact(t, "aten::isinf", test_infinite);
  add_exact(t, "aten::isposinf", test_positive_infinite);
  add_exact(t, "aten::isneginf", test_negative_infinite);
  add_exact(t, "aten::signbit", test_sign_bit);
  add_exact(t, "aten::logical_not", logical_not);
  add_exact(t, "aten::bitwise_not", bitwise_not);
  t.add("aten::nan_to_num", lower_nan_to_num);

  add_math(t, "aten::exp", "exponential");
  add_math(t, "aten::exp2", exp2);
  add_math(t, "aten::expm1", "exponential_minus_one");
  add_math(t, "aten::log", "log");
  add_math(t, "aten::log2", log2);
  add_math(t, "aten::log10", log10);
  add_math(t, "aten::log1p", "log_plus_one");
  add_math(t, "aten::sqrt", "sqrt");
  add_math(t, "aten::rsqrt", reciprocal_root);
  add_math(t, "aten::reciprocal", reciprocal);
  add_math(t, "aten::sigmoid", sigmoid);
  t.add("aten::logit", lower_logit);

  add_math(t, "aten::sin", "sine");
  add_math(t, "aten::cos", "cosine");
  add_math(t, "aten::tan", "chlo.tan");
  add_math(t, "aten::asin", "chlo.asin");
  add_math(t, "aten::acos", "chlo.acos");
  add_math(t, "aten::atan", "chlo.atan");
  add_math(t, "aten::sinh", "chlo.sinh");
  add_math(t, "aten::cosh", "chlo.cosh");
  add_math(t, "aten::tanh", "tanh");
  add_math(t, "aten::asinh", asinh);
  add_math(t, "aten::acosh", "chlo.acosh");
  add_math(t, "aten::atanh", "chlo.atanh");
  add_math(t, "aten::sinc", sinc);
  add_math(t, "aten::deg2rad", to_radians);
  add_math(t, "aten::rad2deg", to_degrees);
}

}  // namespace torch_tpu
