// What the ops that move elements share with their gradients.
#pragma once

#include "stablehlo/compose.h"

namespace torch_tpu {

// Zeros of [..., rows, columns], then moved so that the rows are dim1 and the columns dim2 of the result, with the last
// dim of `x` along the diagonal that starts `offset` columns to the right. REQUIRES: it fits there.
Value embed_diagonal(Emitter& e, const Value& x, int64_t rows, int64_t columns, int64_t offset, int64_t dim1,
                     int64_t dim2);

// The [start, end) that a slice of `size` elements means: negative ones count from the end, all are clamped.
std::pair<int64_t, int64_t> slice_bounds(int64_t start, int64_t end, int64_t size);

}  // namespace torch_tpu
