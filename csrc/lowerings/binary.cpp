// Arithmetic and comparison of two operands. Powers are in power.cpp, integer
// functions in bitwise.cpp.
#include <cmath>
#include <limits>
#include <string>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

bool is_bool(const Value& x) { return x.dtype() == at::kBool; }

// first + sign * alpha * second, before rounding; of bools, `or`.
Value sum_of(Emitter& e, const Call& c, std::string_view first, std::string_view second, bool subtract,
             at::ScalarType dtype) {
  const Values xs = operands(e, c, {first, second}, opmath(dtype));
  Value scaled = xs[1];
  if (!c.equals("alpha", 1)) {
    const Value alpha = c.number("alpha", scaled.type);
    scaled = is_bool(scaled) ? e.logical_and(scaled, alpha) : e.multiply(scaled, alpha);
  }
  if (is_bool(scaled)) return e.logical_or(xs[0], scaled);
  return subtract ? e.subtract(xs[0], scaled) : e.add(xs[0], scaled);
}

Value lower_add(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  return e.convert(sum_of(e, c, "self", "other", false, dtype), dtype);
}

void refuse_bools(const Call& c) {
  const bool self = c.common_dtype(Promote::kDefault, {"self"}) == at::kBool;
  const bool other = c.common_dtype(Promote::kDefault, {"other"}) == at::kBool;
  TORCH_CHECK(!self || !other,
              "Subtraction, the `-` operator, with two bool tensors is not supported. "
              "Use the `^` or `logical_xor()` operator instead.");
  TORCH_CHECK(!self && !other,
              "Subtraction, the `-` operator, with a bool tensor is not supported. "
              "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.");
}

Value lower_sub(Emitter& e, const Call& c) {
  refuse_bools(c);
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  return e.convert(sum_of(e, c, "self", "other", true, dtype), dtype);
}

Value lower_rsub(Emitter& e, const Call& c) {
  refuse_bools(c);
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  return e.convert(sum_of(e, c, "other", "self", true, dtype), dtype);
}

Value lower_add_relu(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  return e.convert(e.maximum(sum_of(e, c, "self", "other", false, dtype), 0), dtype);
}

// PyTorch's Meta kernels know the Tensor overload alone.
std::vector<Type> add_relu_type(const Call& c) {
  return {c.tensor("self").type.with(c.common_dtype(Promote::kDefault, {"self", "other"}))};
}

Value product(Emitter& e, const Value& a, const Value& b) {
  return is_bool(a) ? e.logical_and(a, b) : e.multiply(a, b);
}

// --- division

Value quotient(Emitter& e, const Value& a, const Value& b) { return e.divide(a, b); }

// Whether a remainder by `divisor` is on the other side of zero.
Value wrong_side(Emitter& e, const Value& remainder, const Value& divisor) {
  const Value zero = like(e, 0, remainder);
  const Value opposite = e.compare("NE", e.compare("LT", remainder, zero), e.compare("LT", divisor, zero));
  return e.logical_and(e.compare("NE", remainder, zero), opposite);
}

// PyTorch's: sign of the divisor.
Value modulo(Emitter& e, const Value& a, const Value& b) {
  const Value remainder = e.remainder(a, b);
  if (c10::isIntegralType(a.dtype(), false) && !c10::isSignedType(a.dtype())) return remainder;
  return e.select(wrong_side(e, remainder, b), e.add(remainder, b), remainder);
}

Value c_remainder(Emitter& e, const Value& a, const Value& b) { return e.remainder(a, b); }

Value floor_quotient(Emitter& e, const Value& a, const Value& b) {
  if (!is_floating(a)) {
    const Value towards_zero = e.divide(a, b);
    if (!c10::isSignedType(a.dtype())) return towards_zero;
    const Value remainder = e.subtract(a, e.multiply(towards_zero, b));
    return e.select(wrong_side(e, remainder, b), e.subtract(towards_zero, 1), towards_zero);
  }
  // Through the exact remainder, as Python does: flooring the rounded quotient may be one too high.
  const Value ratio = e.divide(a, b);
  const Value remainder = e.remainder(a, b);
  const Value whole = e.divide(e.subtract(a, remainder), b);
  const Value lowered = e.select(wrong_side(e, remainder, b), e.subtract(whole, 1), whole);
  const Value floored = e.unary("floor", lowered);
  const Value rounded = e.select(e.compare("GT", e.subtract(lowered, floored), 0.5), e.add(floored, 1), floored);
  const Value result = e.select(e.compare("EQ", lowered, 0), copy_sign(e, like(e, 0, a), ratio), rounded);
  return e.select(e.compare("EQ", b, 0), ratio, result);
}

Value truncated_quotient(Emitter& e, const Value& a, const Value& b) {
  const Value ratio = e.divide(a, b);
  return is_floating(a) ? truncate(e, ratio) : ratio;
}

Value lower_div_mode(Emitter& e, const Call& c) {
  const std::string mode = c.has("rounding_mode") ? c.text("rounding_mode") : "";
  TORCH_CHECK(mode.empty() || mode == "floor" || mode == "trunc",
              "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '", mode, "'");
  const at::ScalarType dtype =
      c.common_dtype(mode.empty() ? Promote::kIntToFloat : Promote::kDefault, {"self", "other"});
  const Values xs = operands(e, c, {"self", "other"}, opmath(dtype));
  const BinaryMath math = mode.empty() ? quotient : mode == "floor" ? floor_quotient : truncated_quotient;
  return e.convert(math(e, xs[0], xs[1]), dtype);
}

// --- selections

template <Value (Emitter::*Choose)(const Value&, const Value&)>
Value ignoring_nan(Emitter& e, const Value& a, const Value& b) {
  const Value chosen = (e.*Choose)(a, b);
  if (!is_floating(a)) return chosen;
  return e.select(is_nan(e, a), b, e.select(is_nan(e, b), a, chosen));
}

Value heaviside(Emitter& e, const Value& x, const Value& values) {
  const Value step = e.convert(e.compare("GT", x, 0), x.dtype());
  return e.select(e.compare("EQ", x, 0), values, step);
}

Value lower_copysign(Emitter& e, const Call& c) {
  const Values xs = operands(e, c, {"self", "other"}, c.common_dtype(Promote::kIntToFloat, {"self", "other"}));
  return copy_sign(e, xs[0], xs[1]);
}

// A step of the bits, which are ordered like the absolute values.
Value nextafter(Emitter& e, const Value& x, const Value& towards) {
  const Value zero = like(e, 0, x);
  const Value bits = bits_of(e, x);
  const Value grows = e.compare("EQ", e.compare("LT", x, towards), e.compare("GT", x, zero));
  const Value stepped = e.bitcast(e.select(grows, e.add(bits, 1), e.subtract(bits, 1)), x.type);
  const Value smallest = copy_sign(e, e.bitcast(like(e, 1, bits), x.type), towards);
  const Value moved = e.select(e.compare("EQ", x, zero), smallest, stepped);
  const Value result = e.select(e.compare("EQ", x, towards), towards, moved);
  const Value unordered = e.logical_or(is_nan(e, x), is_nan(e, towards));
  return e.select(unordered, like(e, std::numeric_limits<double>::quiet_NaN(), x), result);
}

}  // namespace

void add_binary(Table& t) {
  for (const std::string overload : {".Tensor", ".Scalar"}) {
    t.add("aten::add" + overload, lower_add);
    t.add("aten::sub" + overload, lower_sub);
    t.add("aten::rsub" + overload, lower_rsub);
    add_arithmetic(t, "aten::mul" + overload, product);
    add_arithmetic(t, "aten::div" + overload, quotient, Promote::kIntToFloat);
    t.add("aten::div" + overload + "_mode", lower_div_mode);
    add_math(t, "aten::remainder" + overload, modulo, "self", "other", Promote::kDefault);
    add_math(t, "aten::fmod" + overload, c_remainder, "self", "other", Promote::kDefault);
    t.add("aten::copysign" + overload, lower_copysign);
    for (const auto& [name, direction] :
         {std::pair{"eq", "EQ"}, {"ne", "NE"}, {"lt", "LT"}, {"le", "LE"}, {"gt", "GT"}, {"ge", "GE"}}) {
      t.comparison(std::string("aten::") + name + overload, direction);
    }
  }
  add_math(t, "aten::remainder.Scalar_Tensor", modulo, "self", "other", Promote::kDefault);
  t.add("aten::_add_relu.Tensor", lower_add_relu);
  t.add("aten::_add_relu.Scalar", lower_add_relu).with_shape(add_relu_type).in_format_of({"self"});
  add_arithmetic(t, "aten::floor_divide", floor_quotient);
  add_arithmetic(t, "aten::floor_divide.Scalar", floor_quotient);
  t.binary("aten::maximum", "maximum");
  t.binary("aten::minimum", "minimum");
  add_exact(t, "aten::fmax", ignoring_nan<&Emitter::maximum>);
  add_exact(t, "aten::fmin", ignoring_nan<&Emitter::minimum>);
  add_exact(t, "aten::heaviside", heaviside, "self", "values");
  add_exact(t, "aten::nextafter", nextafter);
}

}  // namespace torch_tpu
