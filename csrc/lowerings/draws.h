// Random values of the elementary distributions from random bits: what every random op is made of.
// `dtype` is kFloat or kDouble; the bits come from the call's generator, or inside a loop from
// a state that the loop carries.
#pragma once

#include <functional>

#include "lowerings/call.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

// Fresh bits each time it is called; the dtype is kUInt32 or kUInt64.
using Bits = std::function<Value(at::ScalarType dtype, c10::IntArrayRef dims)>;

Bits bits_of(const Call& c);

// In [0, 1), a multiple of 2^-24 (2^-53).
Value draw_uniform(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims);
// In (0, 1), both ends excluded.
Value draw_open_uniform(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims);
// Of mean 0 and variance 1, out to 6.7 (9.4) standard deviations.
Value draw_normal(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims);
// Of mean 1, never 0.
Value draw_exponential(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims);
// int64 in [low, low + range); a range of 0 means 2^64.
Value draw_integers(Emitter& e, const Bits& bits, int64_t low, uint64_t range, c10::IntArrayRef dims);

// What a distribution is computed in: float, or double for a double.
at::ScalarType draw_dtype(at::ScalarType dtype);

// Repeats `body`, with fresh bits each time, until no element of its first carried value, a bool, is false.
// `body` gets the carried values and returns their successors; it may use no others but constants.
Values draw_until(Emitter& e, const Bits& bits, const Values& carried,
                  const std::function<Values(const Bits&, const Values&)>& body);

}  // namespace torch_tpu
