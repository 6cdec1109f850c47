// A TPU has no 64-bit integers. XLA's own division of their halves goes bit by bit, unrolled: libtpu takes 15 seconds
// to compile one (1 for a constant divisor). Here a quotient is estimated in float32, from below, and what remains is
// divided again.
//
// With an estimate of relative error under 2^-18 before the factor, q <= r / d, and the rest is at most
// r * 2^-17 + d: 2^64, 2^47 + d, 2^30 + d (1 + 2^-16), 2^13 + d (1 + 2^-16), and after kRounds less than 2 d.
#include "stablehlo/wide_division.h"

#include <c10/util/irange.h>

namespace torch_tpu {
namespace {

constexpr int kRounds = 4;
// float32 rounds four times (2^-24 each) on the way to an estimate; the rest is for hardware that divides less exactly.
constexpr double kFromBelow = 1 - 0x1p-18;

Type with_dtype(const Value& x, at::ScalarType dtype) { return {dtype, x.dims()}; }

// |x| without overflow: of the least int64, 2^63.
Value magnitude(Emitter& e, const Value& x) {
  return x.dtype() == at::kUInt64 ? x : e.bitcast(e.unary("abs", x), with_dtype(x, at::kUInt64));
}

// Of unsigned numbers, d > 0.
std::pair<Value, Value> quotient_and_rest(Emitter& e, const Value& n, const Value& d) {
  const Value scale = e.divide(kFromBelow, e.convert(d, at::kFloat));
  Value quotient = e.constant_like(0, n);
  Value rest = n;
  for ([[maybe_unused]] const auto round : c10::irange(kRounds)) {
    const Value part = e.convert(e.multiply(e.convert(rest, at::kFloat), scale), at::kUInt64);
    quotient = e.add(quotient, part);
    rest = e.subtract(rest, e.multiply(part, d));
  }
  const Value once_more = e.compare("GE", rest, d);
  return {e.select(once_more, e.add(quotient, 1), quotient), e.select(once_more, e.subtract(rest, d), rest)};
}

struct Division {
  Value quotient, rest;  // of the magnitudes; of anything where the divisor is zero
  Value by_zero;
};

Division divide(Emitter& e, const Value& a, const Value& b) {
  const Value d = magnitude(e, b);
  const auto [quotient, rest] = quotient_and_rest(e, magnitude(e, a), e.maximum(d, 1));
  return {quotient, rest, e.compare("EQ", b, 0)};
}

// `magnitude` in x's type, negated where `like` is negative.
Value with_sign(Emitter& e, const Value& magnitude, const Value& like) {
  if (like.dtype() == at::kUInt64) return magnitude;
  const Value x = e.bitcast(magnitude, like.type);
  return e.select(e.compare("LT", like, 0), e.negate(x), x);
}

}  // namespace

Value wide_quotient(Emitter& e, const Value& a, const Value& b) {
  const Division division = divide(e, a, b);
  const Value none = e.unary("not", e.constant_like(0, a));  // every bit set: -1
  return e.select(division.by_zero, none, with_sign(e, division.quotient, e.logical_xor(a, b)));
}

Value wide_remainder(Emitter& e, const Value& a, const Value& b) {
  const Division division = divide(e, a, b);
  return e.select(division.by_zero, a, with_sign(e, division.rest, a));
}

}  // namespace torch_tpu
