// Batches of matrices: values of rank 3, [batch, rows, columns]. What the linear-algebra
// families share; products are exact to the dtype whatever the matmul precision is.
#pragma once

#include <functional>

#include "stablehlo/emitter.h"

namespace torch_tpu {

// x of rank >= 2 with its leading dims as one.
Value as_batch(Emitter& e, const Value& x);
// x [batch, ...] with its first dim as the dims `batch`.
Value from_batch(Emitter& e, const Value& x, c10::IntArrayRef batch);
// The leading dims of a matrix (all but 2) or, with matrix_dims 1, of a vector.
Dims batch_of(c10::IntArrayRef dims, int64_t matrix_dims = 2);
// x with its leading dims broadcast to `batch`, as one.
Value broadcast_batch(Emitter& e, const Value& x, c10::IntArrayRef batch);

// The transposed, and the conjugate transposed, of a batch.
Value transposed(Emitter& e, const Value& x);
Value adjoint(Emitter& e, const Value& x);
// a b of two batches.
Value product(Emitter& e, const Value& a, const Value& b);
// Ones on the main diagonal of every matrix.
Value identity(Emitter& e, const Type& type);
// x where column - row <= diagonal (lower) or >= diagonal (upper), else 0.
Value lower_triangle(Emitter& e, const Value& x, int64_t diagonal = 0);
Value upper_triangle(Emitter& e, const Value& x, int64_t diagonal = 0);
// The main diagonals, [batch, min(rows, columns)].
Value diagonals(Emitter& e, const Value& x);
// The Hermitian matrix that one triangle states; the diagonal's imaginary parts are dropped.
Value hermitian(Emitter& e, const Value& x, bool lower);
// The first `size` rows or columns: zeros are appended where there are fewer.
Value with_rows(Emitter& e, const Value& x, int64_t size);
Value with_columns(Emitter& e, const Value& x, int64_t size);
// The solution x of a x = b (left) or x a = b, for triangular batches.
Value solve_triangular(Emitter& e, const Value& a, const Value& b, bool left, bool lower, bool unit_diagonal,
                       std::string_view transpose = "NO_TRANSPOSE");

// `state` after body(k, state) for k = first, first + step, ... `count` times; k is a 0-d int32.
Values repeat(Emitter& e, int64_t first, int64_t step, int64_t count, const Values& state,
              const std::function<Values(const Value& k, const Values& state)>& body);
// Column (or row) k of a batch: [batch, rows, 1] (or [batch, 1, columns]).
Value column_at(Emitter& e, const Value& x, const Value& k);
Value row_at(Emitter& e, const Value& x, const Value& k);
// x [batch, n] with element k replaced by value [batch].
Value with_element(Emitter& e, const Value& x, const Value& k, const Value& value);
// iota(type, dim) compared with a 0-d k.
Value position_is(Emitter& e, std::string_view direction, c10::IntArrayRef dims, int64_t dim, const Value& k);
// 0 with the kind of number that `dtype` holds.
Value zeros(Emitter& e, const Type& type);

}  // namespace torch_tpu
