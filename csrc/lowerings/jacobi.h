// Singular values (one-sided) and Hermitian eigenvalues (two-sided) by Jacobi rotations of
// pairs of columns, n / 2 pairs at once. Batches are of rank 3.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

struct Svd {
  Value u;         // [batch, m, min(m, n)], or [batch, m, m]
  Value singular;  // [batch, min(m, n)], real, descending
  Value vh;        // [batch, min(m, n), n], or [batch, n, n]
};
// Without `vectors` u and vh are undefined; `full`: square ones.
Svd svd(Emitter& e, const Value& a, bool vectors, bool full);

struct Eigh {
  Value values;   // [batch, n], real, ascending
  Value vectors;  // [batch, n, n], in columns
};
// REQUIRES: a is Hermitian.
Eigh eigh(Emitter& e, const Value& a);

}  // namespace torch_tpu
