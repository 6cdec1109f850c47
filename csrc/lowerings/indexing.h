// What the families that read or write at computed positions share: positions as
// StableHLO wants them, rows and elements written at positions, running sums.
#pragma once

#include "lowerings/reduction.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

// Positions along a dim of `size` elements, in int32 where that suffices. Out of range stays out of
// range, so reads clamp it and writes drop it. `wrap`: negative positions count from the end.
Value normalized_index(Emitter& e, const Value& index, int64_t size, bool wrap);

// `x` with `updates` written at rows `index` (1-D) along `dim`; `name` as in scatter_along: the operation
// that combines old and new, empty to replace. REQUIRES: updates' dims are x's, with index's length at `dim`.
// Sums and products of bfloat16 and half are accumulated in float32.
Value scatter_rows(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                   std::string_view name);
// As Tensor.scatter, with every liberty it allows: 0-d operands, an index smaller than x or than `updates`.
Value scatter_elements(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                       std::string_view name);

// Inclusive running sums along the last dim, in x's dtype.
Value running_sum(Emitter& e, const Value& x);
// The running number of true elements along the last dim of a bool: int32, or int64 if it has to be.
Value running_count(Emitter& e, const Value& mask);
// The positions of the first `size` true elements of a 1-D bool, in running_count's dtype; -1 where there are fewer.
Value true_positions(Emitter& e, const Value& mask, int64_t size);

}  // namespace torch_tpu
