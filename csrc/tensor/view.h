// A tensor as sizes, strides and offset over a cell's value, and the algebra that
// turns such a view into StableHLO: slice, reshape, transpose and broadcast where they
// suffice, and concatenate for windows that overlap; a gather (for reading) or a scatter (for
// writing) as the last resort.
// Pure functions; knows nothing of buffers.
#pragma once

#include <optional>
#include <vector>

#include "stablehlo/emitter.h"
#include "stablehlo/type.h"

namespace torch_tpu {

// Strides and offset count elements of `dtype`.
struct View {
  at::ScalarType dtype = at::kFloat;
  Dims sizes, strides;
  int64_t offset = 0;

  int64_t numel() const;
  // One more than the largest element address the view shows; 0 for an empty view.
  int64_t extent() const;
};

// A view of a dense row-major value as: reshapes, each followed by a slice; a reshape to `kept`
// (the view's dims that are neither 1 nor broadcast, by descending stride); a permutation.
struct ViewSteps {
  struct Cut {
    Dims refined;             // reshape to these dims,
    Dims start, limit, step;  // then slice; a limit beyond the dim: of the dim with padding
  };
  std::vector<Cut> cuts;
  Dims kept;
  Dims permutation;  // of `kept`, into the order the view has them
};

// The steps that show `view` of a value of `dims`, both of one dtype; nullopt if only
// a gather can. REQUIRES: view.extent() <= the value's elements, view.numel() > 0.
std::optional<ViewSteps> find_steps(c10::IntArrayRef dims, const View& view);

// The value that a fresh cell of this view gets: sizes in the order of the strides.
Type natural_type(const View& view);
// As natural_type, if the view shows each element of a dense block from offset 0 once.
bool is_dense(const View& view);

// --- emission (view_emit.cpp)
// The elements of `base` that `view` shows, in view.sizes and view.dtype. Elements beyond
// the end of `base` read as zero.
Value read(Emitter& e, const Value& base, const View& view);
// `base` with the elements that `view` shows replaced by `x`: the inverse of read().
// The type stays that of `base`, unless it is too short for the view: then it is flat.
// REQUIRES: x has view.sizes and view.dtype.
Value write(Emitter& e, const Value& base, const View& view, const Value& x);

}  // namespace torch_tpu
