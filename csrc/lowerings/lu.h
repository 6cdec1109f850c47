// LU factorization with partial pivoting, and what follows from the factors. Batches
// are of rank 3 (lowerings/matrix.h).
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

struct Lu {
  Value factors;      // [batch, m, n]: L below the diagonal, whose own is 1, and U
  Value pivots;       // [batch, min(m, n)] int32, from 1: row k was exchanged with this one
  Value permutation;  // [batch, m] int32: row i of the product L U is this row of the matrix
  Value info;         // [batch] int32: 0, or the first k, from 1, where U[k, k] is exactly 0
};

// Pivots are LAPACK's: the largest magnitude, of complex numbers |re| + |im|, the first of equals.
Lu lu_factor(Emitter& e, const Value& a, bool pivot = true);
// Lu::permutation, from pivots [batch, k], for m rows.
Value permutation_from_pivots(Emitter& e, const Value& pivots, int64_t m);
// P of A = P L U, from Lu::permutation.
Value permutation_matrix(Emitter& e, const Value& permutation, at::ScalarType dtype);
// +1 or -1 for an even or odd number of exchanges, [batch].
Value permutation_sign(Emitter& e, const Value& pivots, at::ScalarType dtype);
// x of a x = b, or, with `adjoint`, of a^H x = b. a is square.
Value lu_solve(Emitter& e, const Value& factors, const Value& permutation, const Value& b, bool adjoint);
// As lu_solve, for x a = b.
Value lu_solve_right(Emitter& e, const Value& factors, const Value& permutation, const Value& b, bool adjoint);

}  // namespace torch_tpu
