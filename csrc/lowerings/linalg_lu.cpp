// LU factorization, and what is computed from it: solutions, inverses, determinants.
#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/lu.h"
#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// An argument whose size 0 says that it was not asked for.
Value nothing(Emitter& e, at::ScalarType dtype) { return zeros(e, {dtype, {0}}); }

// PyTorch's own choice for determinants, on which their derivative formulas rely: a row-major real
// matrix is factorized as the column-major matrix that it also is, its transpose.
bool factorizes_transpose(const Call& c) { return c.contiguous("A") && !c10::isComplexType(c.tensor("A").dtype()); }

Lu factorize(Emitter& e, const Call& c, bool transpose) {
  const Value a = as_batch(e, c.tensor("A"));
  return lu_factor(e, transpose ? transposed(e, a) : a);
}

Values lower_linalg_lu_factor_ex(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Lu lu = lu_factor(e, as_batch(e, a), c.flag("pivot"));
  const Dims batch = batch_of(a.dims());
  return {from_batch(e, lu.factors, batch), from_batch(e, lu.pivots, batch), from_batch(e, lu.info, batch)};
}

// L, with ones on its diagonal, and U of packed factors [b, m, n].
std::pair<Value, Value> unpacked(Emitter& e, const Value& factors) {
  const int64_t k = std::min(factors.dim(1), factors.dim(2));
  const Value l = lower_triangle(e, with_columns(e, factors, k), -1);
  return {e.add(l, identity(e, l.type)), upper_triangle(e, with_rows(e, factors, k))};
}

Values lower_linalg_lu(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const Lu lu = lu_factor(e, as_batch(e, a), c.flag("pivot"));
  const auto [l, u] = unpacked(e, lu.factors);
  const Value p =
      c.flag("pivot") ? from_batch(e, permutation_matrix(e, lu.permutation, a.dtype()), batch) : nothing(e, a.dtype());
  return {p, from_batch(e, l, batch), from_batch(e, u, batch)};
}

// Pivots [..., k] as [b, k].
Value pivots_batch(Emitter& e, const Value& pivots) {
  return squeeze(e, as_batch(e, unsqueeze(e, pivots, pivots.rank() - 1)), 1);
}

Values lower_lu_unpack(Emitter& e, const Call& c) {
  const Value data = c.tensor("LU_data");
  const Dims batch = batch_of(data.dims());
  Values results(3, nothing(e, data.dtype()));
  if (c.flag("unpack_pivots")) {
    const Value pivots = e.convert(pivots_batch(e, c.tensor("LU_pivots")), at::kInt);
    const Value permutation = permutation_from_pivots(e, pivots, data.dim(data.rank() - 2));
    results[0] = from_batch(e, permutation_matrix(e, permutation, data.dtype()), batch);
  }
  if (c.flag("unpack_data")) {
    const auto [l, u] = unpacked(e, as_batch(e, data));
    results[1] = from_batch(e, l, batch);
    results[2] = from_batch(e, u, batch);
  }
  return results;
}

Value lower_linalg_lu_solve(Emitter& e, const Call& c) {
  const Value data = c.tensor("LU");
  const Value b = c.tensor("B");
  const Dims batch = broadcast_dims(batch_of(data.dims()), batch_of(b.dims()));
  const Value pivots = c.tensor("pivots");
  const Value all_pivots = broadcast_batch(e, unsqueeze(e, pivots, pivots.rank() - 1), batch);
  const Value factors = broadcast_batch(e, data, batch);
  const Value permutation = permutation_from_pivots(e, e.convert(squeeze(e, all_pivots, 1), at::kInt), factors.dim(1));
  const auto solve = c.flag("left") ? lu_solve : lu_solve_right;
  return from_batch(e, solve(e, factors, permutation, broadcast_batch(e, b, batch), c.flag("adjoint")), batch);
}

Values lower_linalg_solve_ex(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  Value b = c.tensor("B");
  const Dims own = batch_of(a.dims());
  const Dims rows = batch_of(a.dims(), 1);
  const bool is_vector = b.rank() == 1 || b.dims() == rows;
  if (is_vector) b = unsqueeze(e, b, b.rank());
  const Lu lu = factorize(e, c, /*transpose=*/false);
  const Dims batch = broadcast_dims(own, batch_of(b.dims()));
  const Value factors = from_batch(e, lu.factors, own);
  const Value permutation = from_batch(e, unsqueeze(e, lu.permutation, 1), own);
  const auto solve = c.flag("left") ? lu_solve : lu_solve_right;
  Value x = solve(e, broadcast_batch(e, factors, batch), squeeze(e, broadcast_batch(e, permutation, batch), 1),
                  broadcast_batch(e, b, batch), /*adjoint=*/false);
  x = from_batch(e, x, batch);
  if (is_vector) x = squeeze(e, x, x.rank() - 1);
  return {x, factors, from_batch(e, lu.pivots, own), from_batch(e, lu.info, own)};
}

Values lower_linalg_inv_ex(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const Lu lu = factorize(e, c, /*transpose=*/false);
  const Value inverse = lu_solve(e, lu.factors, lu.permutation, identity(e, lu.factors.type), /*adjoint=*/false);
  return {from_batch(e, inverse, batch), from_batch(e, lu.info, batch)};
}

Values lower_linalg_det(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const Lu lu = factorize(e, c, factorizes_transpose(c));
  const Value magnitude = e.reduce(diagonals(e, lu.factors), 1, {1}, "multiply");
  const Value result = e.multiply(magnitude, permutation_sign(e, lu.pivots, a.dtype()));
  return {from_batch(e, result, batch), from_batch(e, lu.factors, batch), from_batch(e, lu.pivots, batch)};
}

Values lower_linalg_slogdet(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const Lu lu = factorize(e, c, factorizes_transpose(c));
  const Value diagonal = diagonals(e, lu.factors);
  const Value signs = e.reduce(e.unary("sign", diagonal), 1, {1}, "multiply");
  const Value logarithm = e.reduce(e.unary("log", magnitude(e, diagonal)), 0, {1}, "add");
  return {from_batch(e, e.multiply(signs, permutation_sign(e, lu.pivots, a.dtype())), batch),
          from_batch(e, logarithm, batch), from_batch(e, lu.factors, batch), from_batch(e, lu.pivots, batch)};
}

}  // namespace

void add_linalg_lu(Table& t) {
  t.add("aten::linalg_lu_factor_ex", lower_linalg_lu_factor_ex);
  t.add("aten::linalg_lu", lower_linalg_lu);
  t.add("aten::lu_unpack", lower_lu_unpack);
  t.add("aten::linalg_lu_solve", lower_linalg_lu_solve);
  t.add("aten::_linalg_solve_ex", lower_linalg_solve_ex);
  t.add("aten::linalg_inv_ex", lower_linalg_inv_ex);
  t.add("aten::_linalg_det", lower_linalg_det);
  t.add("aten::_linalg_slogdet", lower_linalg_slogdet);
}

}  // namespace torch_tpu
