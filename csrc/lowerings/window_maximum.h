// Maxima with their positions, as PyTorch's pooling counts them: a NaN wins (the last one), then the
// greatest element, then the first of equals.
#pragma once

#include "lowerings/taps.h"
#include "stablehlo/emitter.h"

namespace torch_tpu {

struct Maximum {
  Value value;
  Value position;  // int32, flat in the spatial dims
};

// Of every window over the last dims of x: leading dims, then windows.out.
Maximum window_maximum(Emitter& e, const Value& x, const Windows& windows);

// Along `dims`, which disappear. `position` has x's dims.
Maximum maximum_along(Emitter& e, const Value& x, const Value& position, c10::IntArrayRef dims);

// The gradient of window_maximum: zeros of the last dims `spatial`, plus `grad` at its positions.
Value window_maximum_backward(Emitter& e, const Value& grad, const Value& position, const Windows& windows,
                              c10::IntArrayRef spatial);

// Zeros of the last dims `spatial`, with `updates` put (or, if `adds`, added) at flat positions.
Value scatter_positions(Emitter& e, const Value& updates, const Value& position, c10::IntArrayRef spatial, bool adds);

// int32 positions of `index[i][j]`, along dim i of the spatial dims: their sum in row-major order, of
// dims index[0].size(), index[1].size(), ..
Value flat_positions(Emitter& e, const std::vector<std::vector<int64_t>>& index, c10::IntArrayRef spatial);

}  // namespace torch_tpu
