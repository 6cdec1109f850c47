// Logical and bitwise operations, shifts, and the greatest common divisor.
#include <string>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

template <Value (Emitter::*Operation)(const Value&, const Value&)>
Value lower_logical(Emitter& e, const Call& c) {
  const Values xs = operands(e, c, {"self", "other"}, at::kBool);
  return (e.*Operation)(xs[0], xs[1]);
}

template <Value (Emitter::*Operation)(const Value&, const Value&)>
Value bitwise(Emitter& e, const Value& a, const Value& b) {
  return (e.*Operation)(a, b);
}

// True where a shift by `count` leaves bits of x.
Value shifts_in_range(Emitter& e, const Value& count) {
  const int64_t width = static_cast<int64_t>(c10::elementSize(count.dtype())) * 8;
  const Value below = e.compare("LT", count, width);
  if (!c10::isSignedType(count.dtype())) return below;
  return e.logical_and(e.compare("GE", count, 0), below);
}

Value shift_left(Emitter& e, const Value& x, const Value& count) {
  const Value good = shifts_in_range(e, count);
  const Value zero = like(e, 0, x);
  return e.select(good, e.binary("shift_left", x, e.select(good, count, zero)), zero);
}

// Keeps the sign; all bits become the sign where the count is out of range.
Value shift_right(Emitter& e, const Value& x, const Value& count) {
  const Value good = shifts_in_range(e, count);
  const Value zero = like(e, 0, x);
  if (!c10::isSignedType(x.dtype())) {
    return e.select(good, e.binary("shift_right_logical", x, e.select(good, count, zero)), zero);
  }
  const int64_t width = static_cast<int64_t>(c10::elementSize(x.dtype())) * 8;
  const Value held = e.select(good, count, like(e, width - 1, count));
  return e.binary("shift_right_arithmetic", x, held);
}

// Euclid's loop on absolute values.
Value greatest_divisor(Emitter& e, const Value& a, const Value& b) {
  return e.while_loop(
      {magnitude(e, a), magnitude(e, b)},
      [&](const Values& s) -> Values { return {any_of(e, e.compare("NE", s[1], 0))}; },
      [&](const Values& s) -> Values {
        const Value pending = e.compare("NE", s[1], 0);
        const Value divisor = e.select(pending, s[1], like(e, 1, s[1]));
        const Value rest = e.remainder(s[0], divisor);
        return {e.select(pending, divisor, s[0]), e.select(pending, rest, s[1])};
      })[0];
}

Value least_multiple(Emitter& e, const Value& a, const Value& b) {
  // In int, as C computes it.
  if (c10::elementSize(a.dtype()) < 4) {
    return e.convert(least_multiple(e, e.convert(a, at::kInt), e.convert(b, at::kInt)), a.dtype());
  }
  const Value divisor = greatest_divisor(e, a, b);
  const Value none = e.compare("EQ", divisor, 0);
  const Value safe = e.select(none, like(e, 1, divisor), divisor);
  return magnitude(e, e.multiply(e.divide(a, safe), b));
}

}  // namespace

void add_bitwise(Table& t) {
  t.add("aten::logical_and", lower_logical<&Emitter::logical_and>);
  t.add("aten::logical_or", lower_logical<&Emitter::logical_or>);
  t.add("aten::logical_xor", lower_logical<&Emitter::logical_xor>);
  for (const std::string overload : {".Tensor", ".Scalar", ".Scalar_Tensor"}) {
    add_exact(t, "aten::bitwise_and" + overload, bitwise<&Emitter::logical_and>);
    add_exact(t, "aten::bitwise_or" + overload, bitwise<&Emitter::logical_or>);
    add_exact(t, "aten::bitwise_xor" + overload, bitwise<&Emitter::logical_xor>);
  }
  for (const std::string overload : {".Tensor", ".Tensor_Scalar", ".Scalar_Tensor"}) {
    add_exact(t, "aten::bitwise_left_shift" + overload, shift_left);
    add_exact(t, "aten::bitwise_right_shift" + overload, shift_right);
  }
  for (const std::string overload : {".Tensor", ".Scalar"}) {
    add_exact(t, "aten::__ilshift__" + overload, shift_left);
    add_exact(t, "aten::__irshift__" + overload, shift_right);
  }
  add_exact(t, "aten::gcd", greatest_divisor);
  add_exact(t, "aten::lcm", least_multiple);
}

}  // namespace torch_tpu
