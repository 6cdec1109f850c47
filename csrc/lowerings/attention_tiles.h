// Attention by tiles of the scores: the (L, S) matrix of a head is never whole, forward or backward. Loops run over
// tiles of query rows (and of the batch) and, inside, over tiles of keys, with a running maximum and sum; the backward
// computes each tile's probabilities again from the saved log-sum-exp. Where all scores are one tile there is no loop.
// Knows nothing of ATen's ops.
#pragma once

#include "lowerings/partition.h"
#include "stablehlo/emitter.h"

namespace torch_tpu {

// query (B, Hk, G, L, E), key (B, Hk, S, E), value (B, Hk, S, Ev), all of one dtype: query head h uses key head h / G.
struct Attention {
  Value query, key, value;
  Value scale;  // 0-d, of the dtype that scores are computed in
  Value mask;   // or undefined: (B, Hk, G, L, S) with any dims 1; bool: where true counts; else added
  bool causal = false;
  Value dropout;  // or undefined: 0-d float, the share of probabilities that become 0
  Value seed;     // tensor<2xui64>, where there is dropout
  Precision precision = Precision::kHighest;

  at::ScalarType wide() const { return scale.dtype(); }
};

// Elements of a tile along the batch, the query's rows and the keys.
struct TileSize {
  int64_t batch, rows, keys;
};

// The tiles for an attention over devices that share the batch or the heads as `parts` says. A device's part of the
// scores of a tile takes 32 MiB in float32 at most, where that is possible: with them a TPU keeps it in its vector
// memory.
TileSize tile_size(const Attention& a, const Parts& parts);

struct AttentionResult {
  Value out;      // (B, Hk, G, L, Ev), of the query's dtype; a row that is wholly masked gives zeros
  Value log_sum;  // (B, Hk, G, L), of the wide dtype; -inf for such a row
};
AttentionResult attend(Emitter& e, const Attention& a, const TileSize& tile);

struct AttentionGradients {
  Value query, key, value;  // of the dtypes and dims of the operands
  Value mask;               // of the mask's dims, in the wide dtype, if asked for
};
// `grad`: of out, in the query's dtype.
AttentionGradients attend_backward(Emitter& e, const Attention& a, const AttentionResult& result, const Value& grad,
                                   bool with_mask, const TileSize& tile);

}  // namespace torch_tpu
