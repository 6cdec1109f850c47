// Linear maps along one dim whose matrix is sparse and known when lowering: interpolation, padding by
// reflection, averages over windows, and their gradients, which are the transposed maps.
#pragma once

#include <utility>
#include <vector>

#include "stablehlo/emitter.h"

namespace torch_tpu {

// out[o] = sum of weight * in[index] over the terms of row o.
struct Resample {
  struct Term {
    int64_t index;
    double weight;
  };
  int64_t in = 0;
  std::vector<std::vector<Term>> rows;

  int64_t out() const { return static_cast<int64_t>(rows.size()); }
  Resample transposed() const;
};

// Each out[o] is in[index[o]].
Resample selection(int64_t in, const std::vector<int64_t>& index);

// `x` mapped along `dim`. A NaN or infinity reaches only rows that use its element, unless a row has many
// terms (then the map is a matrix product). REQUIRES: x is floating, or every weight is an integer.
Value resample(Emitter& e, const Value& x, int64_t dim, const Resample& map);

}  // namespace torch_tpu
