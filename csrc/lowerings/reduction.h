// What the reducing families share: which dims a call names, sums that stay
// accurate over many elements, and results in the shape that PyTorch states.
#pragma once

#include "lowerings/call.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

// `x`, or its only element as a vector.
Value at_least_1d(Emitter& e, const Value& x);

// The dims of `x` (at least 1-d) that a call reduces: those of its `dim`, an int or a list;
// all if it is empty, None, or not there at all.
Dims reduced_dims(const Call& c, const Value& x);
Dims all_dims(const Value& x);

// `v` with the dims and dtype of the call's result `i`: keepdim and 0-d operands need nothing else.
Value as_result(Emitter& e, const Call& c, const Value& v, size_t i = 0);

// Sum along `dims`, which disappear, in x's dtype. Over many rows it adds blocks, then the blocks' sums.
Value accurate_sum(Emitter& e, const Value& x, c10::IntArrayRef dims);

// A constant of `dims` as long as the positions along `dim` fit: int32, else int64.
Value positions(Emitter& e, c10::IntArrayRef dims, int64_t dim);

// The largest (or smallest) elements along `dims`, which disappear; NaN wins.
Value extreme(Emitter& e, const Value& x, c10::IntArrayRef dims, bool largest);
// The same and where it first stands, counted row-major over `dims`.
std::pair<Value, Value> extreme_with_index(Emitter& e, const Value& x, c10::IntArrayRef dims, bool largest);

// |x|_p along `dims`, which disappear. `ord` names the call's number: 2 if it is None. `x` is floating or
// complex, not narrower than float32; the result is real.
Value vector_norm(Emitter& e, const Call& c, const Value& x, std::string_view ord, c10::IntArrayRef dims);

// at::Reduction's values.
enum class Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };
Reduction reduction_of(const Call& c);
// `loss` reduced as `how` says.
Value reduce_loss(Emitter& e, const Value& loss, Reduction how);

}  // namespace torch_tpu
