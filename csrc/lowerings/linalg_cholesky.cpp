// Cholesky factorization and triangular solves.
#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// Column by column, as far as the leading minors are positive: the factor, in the lower triangle, and
// the number, from 1, of the first minor that is not (0: none). [batch, n, n] and [batch] int32.
Values cholesky_by_columns(Emitter& e, const Value& a) {
  const int64_t batch = a.dim(0);
  const Dims whole = a.dims();
  return repeat(
      e, 0, 1, a.dim(1), {a, zeros(e, {at::kInt, {batch}})}, [&](const Value& k, const Values& state) -> Values {
        const Value column = column_at(e, state[0], k);
        const Value pivot = e.reshape(e.real(row_at(e, column, k)), {batch});
        const Value ok = e.logical_and(e.compare("EQ", state[1], 0), e.compare("GT", pivot, 0));
        const Value root = e.unary("sqrt", e.select(ok, pivot, e.constant_like(1, pivot)));
        const Value divided = e.divide(column, e.broadcast_in_dim(e.convert(root, a.dtype()), column.dims(), {0}));
        const Value below = position_is(e, "GE", column.dims(), 1, k);
        const Value l = e.select(below, divided, column);
        const Value rest = e.select(position_is(e, "GT", column.dims(), 1, k), divided, zeros(e, column.type));
        const Value outer = e.multiply(broadcast_to(e, rest, whole), broadcast_to(e, adjoint(e, rest), whole));
        const Value reduced = e.subtract(state[0], outer);
        const Value next = e.select(position_is(e, "EQ", whole, 2, k), broadcast_to(e, l, whole), reduced);
        const Value number = e.broadcast_in_dim(e.add(k, 1), {batch}, {});
        const Value failed = e.logical_and(e.compare("EQ", state[1], 0), e.logical_not(ok));
        return {e.select(e.broadcast_in_dim(ok, whole, {0}), next, state[0]), e.select(failed, number, state[1])};
      });
}

// The factor and info of batches [b, n, n]; only the lower or upper triangle is read.
Values cholesky(Emitter& e, const Value& self, bool upper) {
  const Type info(at::kInt, {self.dim(0)});
  if (self.type.numel() == 0) return {self, zeros(e, info)};
  const Value a = hermitian(e, self, !upper);
  const Value l = lower_triangle(e, e.cholesky(a, /*lower=*/true));
  // The compiler's factor is NaN where a minor is not positive; which one it was is worth a second,
  // slower factorization.
  const Value good = e.convert(e.unary("is_finite", e.real(diagonals(e, l))), at::kInt);
  const Value all = e.reduce(good, scalar(e, 1, at::kInt), {0, 1}, "minimum");
  const Values results = e.if_else(
      e.compare("EQ", all, 1), [&] { return Values{l, zeros(e, info)}; },
      [&] {
        const Values columns = cholesky_by_columns(e, a);
        return Values{lower_triangle(e, columns[0]), columns[1]};
      });
  return {upper ? adjoint(e, results[0]) : results[0], results[1]};
}

Values lower_linalg_cholesky_ex(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Values results = cholesky(e, as_batch(e, self), c.flag("upper"));
  const Dims batch = batch_of(self.dims());
  return {from_batch(e, results[0], batch), e.reshape(results[1], batch)};
}

// x of A x = b, from the factor of A.
Value solve_by_factor(Emitter& e, const Value& factor, const Value& b, bool upper) {
  const Value y = solve_triangular(e, factor, b, true, !upper, false, upper ? "ADJOINT" : "NO_TRANSPOSE");
  return solve_triangular(e, factor, y, true, !upper, false, upper ? "NO_TRANSPOSE" : "ADJOINT");
}

Value lower_cholesky_inverse(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value factor = as_batch(e, self);
  return from_batch(e, solve_by_factor(e, factor, identity(e, factor.type), c.flag("upper")), batch_of(self.dims()));
}

Value lower_cholesky_solve_helper(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  return from_batch(e, solve_by_factor(e, as_batch(e, c.tensor("A")), as_batch(e, self), c.flag("upper")),
                    batch_of(self.dims()));
}

Value lower_linalg_solve_triangular(Emitter& e, const Call& c) {
  const Value a = c.tensor("self");
  const Value b = c.tensor("B");
  const Dims batch = broadcast_dims(batch_of(a.dims()), batch_of(b.dims()));
  const Value x = solve_triangular(e, broadcast_batch(e, a, batch), broadcast_batch(e, b, batch), c.flag("left"),
                                   !c.flag("upper"), c.flag("unitriangular"));
  return from_batch(e, x, batch);
}

// The solution, and a copy of the matrix.
Values lower_triangular_solve(Emitter& e, const Call& c) {
  const Value b = c.tensor("self");
  const Dims batch = broadcast_dims(batch_of(c.tensor("A").dims()), batch_of(b.dims()));
  const Value a = broadcast_batch(e, c.tensor("A"), batch);
  const Value x = solve_triangular(e, a, broadcast_batch(e, b, batch), true, !c.flag("upper"), c.flag("unitriangular"),
                                   c.flag("transpose") ? "TRANSPOSE" : "NO_TRANSPOSE");
  return {from_batch(e, x, batch), from_batch(e, a, batch)};
}

}  // namespace

void add_linalg_cholesky(Table& t) {
  t.add("aten::linalg_cholesky_ex", lower_linalg_cholesky_ex);
  t.add("aten::cholesky_inverse", lower_cholesky_inverse);
  t.add("aten::_cholesky_solve_helper", lower_cholesky_solve_helper);
  t.add("aten::linalg_solve_triangular", lower_linalg_solve_triangular);
  t.add("aten::triangular_solve", lower_triangular_solve);
}

}  // namespace torch_tpu
