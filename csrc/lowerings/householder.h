// QR factorization by Householder reflections, in LAPACK's storage: R on and above the
// diagonal, the reflectors H_i = 1 - tau_i v_i v_i^H below it. Batches are of rank 3.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

struct Reflectors {
  Value factors;  // [batch, m, n]
  Value tau;      // [batch, min(m, n)]
};

// A = H_0 H_1 ... R. R's diagonal is real, with LAPACK's signs.
Reflectors householder_qr(Emitter& e, const Value& a);
// Q c, or Q^H c, for Q = H_0 H_1 ... of the columns that `tau` counts.
Value apply_reflectors(Emitter& e, const Reflectors& q, const Value& c, bool adjoint);
// The first `columns` columns of Q.
Value reflectors_product(Emitter& e, const Reflectors& q, int64_t columns);

}  // namespace torch_tpu
