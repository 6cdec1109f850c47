// Compositions of StableHLO operations that several lowering families use.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

// PyTorch's broadcasting: aligned at the last dimension.
Dims broadcast_dims(c10::IntArrayRef a, c10::IntArrayRef b);
Value broadcast_to(Emitter& e, const Value& x, c10::IntArrayRef dims);
// Both operands at their common dims. Dtypes are left alone.
std::pair<Value, Value> broadcast(Emitter& e, const Value& a, const Value& b);
// Number of elements along `dims`.
int64_t count_along(const Value& x, c10::IntArrayRef dims);
// `x`, which lacks `dims` of a value of `full` dims, broadcast back along them.
Value broadcast_along(Emitter& e, const Value& x, c10::IntArrayRef full, c10::IntArrayRef dims);
// `x` without `dims` -> with `dims` as size 1 (if keepdim), else as it is.
Value keep_dims(Emitter& e, const Value& x, c10::IntArrayRef full, c10::IntArrayRef dims, bool keepdim);
Value unsqueeze(Emitter& e, const Value& x, int64_t dim);
Value squeeze(Emitter& e, const Value& x, int64_t dim);
Value flatten(Emitter& e, const Value& x);
// Sum or maximum along `dims`, which disappear; accumulates bfloat16 and half in float32.
Value sum(Emitter& e, const Value& x, c10::IntArrayRef dims);
Value max(Emitter& e, const Value& x, c10::IntArrayRef dims);
// x != x.
Value is_nan(Emitter& e, const Value& x);
// 0-d of a dtype.
Value scalar(Emitter& e, const at::Scalar& value, at::ScalarType dtype);
// One slice of `dim`: [start, stop) with a step, other dims whole.
Value slice_dim(Emitter& e, const Value& x, int64_t dim, int64_t start, int64_t stop, int64_t step = 1);
// Rows of `x` along `dim` at 1-D integer `indices`: as torch.index_select. Indices are clamped.
Value take(Emitter& e, const Value& x, int64_t dim, const Value& indices);
// as torch.gather: result[i][j] = x[index[i][j]][j] for dim 0. Indices are clamped.
Value gather_along(Emitter& e, const Value& x, int64_t dim, const Value& index);
// as Tensor.scatter: x[index[i][j]][j] op= updates[i][j]. `name` empty: replaces. Out of range: dropped.
Value scatter_along(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                    std::string_view name);
// Values and int64 positions of `x` sorted along `dim`, stable, NaN last (first if descending), as torch.sort.
std::pair<Value, Value> sort_with_indices(Emitter& e, const Value& x, int64_t dim, bool descending);
// Matrix product of the last two dims, leading dims equal; accumulates in float32 where the operands are narrower.
Value matmul(Emitter& e, const Value& a, const Value& b, Precision precision);
// bfloat16/half -> float, otherwise unchanged: PyTorch's opmath type.
at::ScalarType opmath(at::ScalarType dtype);

}  // namespace torch_tpu
