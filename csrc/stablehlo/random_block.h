// The shape in which random bits are drawn.
#pragma once

#include "stablehlo/type.h"

namespace torch_tpu {

// XLA makes the bits of a shape in two halves that it interleaves, along a dimension of its own choice. Where that is
// the last one, or the last is short, a TPU's tiles of 8 x 128 fill to a 64th, which takes 30 times as long: such
// shapes are drawn as rows of 1,024, of which the first numbers are taken. Others are drawn as they are.
inline Type random_block(const Type& type) {
  constexpr int64_t kFew = 4096, kLane = 128, kRow = 1024;
  const int64_t n = type.numel();
  if (n < kFew || (type.rank() > 1 && type.dims.back() >= kLane)) return type;
  const int64_t rows = (n + 2 * kRow - 1) / (2 * kRow) * 2;
  return Type(type.dtype, {rows, kRow});
}

}  // namespace torch_tpu
