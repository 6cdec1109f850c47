#include "lowerings/lu.h"

#include <algorithm>

#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// The row, at or below k, of the largest element of `column` [batch, m].
Value pivot_row(Emitter& e, const Value& column, const Value& k) {
  Value size = magnitude(e, e.real(column));
  if (c10::isComplexType(column.dtype())) size = e.add(size, magnitude(e, e.imag(column)));
  const Value above = position_is(e, "LT", size.dims(), 1, k);
  size = e.select(above, e.constant_like(-1, size), size);
  const Value rows = e.iota(size.type.with(at::kInt), 1);
  const Values best =
      e.reduce({size, rows}, {scalar(e, -2, size.dtype()), scalar(e, 0, at::kInt)}, {1}, [&](const Values& in) {
        const Value earlier = e.compare("LT", in[3], in[1]);
        const Value tie = e.logical_and(e.compare("EQ", in[2], in[0]), earlier);
        const Value wins = e.logical_or(e.compare("GT", in[2], in[0]), tie);
        return Values{e.select(wins, in[2], in[0]), e.select(wins, in[3], in[1])};
      });
  // A column of NaNs has no largest element.
  return e.maximum(best[1], e.broadcast_in_dim(k, best[1].dims(), {}));
}

// x [batch, m] with elements k (0-d) and p [batch] exchanged.
Value exchanged(Emitter& e, const Value& x, const Value& k, const Value& p) {
  const Value at_k = e.dynamic_slice(x, {scalar(e, 0, at::kInt), k}, {x.dim(0), 1});
  const Value at_p = gather_along(e, x, 1, unsqueeze(e, p, 1));
  const Value is_k = position_is(e, "EQ", x.dims(), 1, k);
  const Value is_p = e.compare("EQ", e.iota(x.type.with(at::kInt), 1), e.broadcast_in_dim(p, x.dims(), {0}));
  return e.select(is_k, broadcast_to(e, at_p, x.dims()), e.select(is_p, broadcast_to(e, at_k, x.dims()), x));
}

Value rows_permuted(Emitter& e, const Value& x, const Value& permutation) {
  return gather_along(e, x, 1, e.broadcast_in_dim(permutation, x.dims(), {0, 1}));
}

Value inverse_permutation(Emitter& e, const Value& permutation) {
  return scatter_along(e, permutation, 1, permutation, e.iota(permutation.type, 1), {});
}

}  // namespace

Lu lu_factor(Emitter& e, const Value& a, bool pivot) {
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t steps = std::min(m, n);
  const Type whole = a.type;
  const Values init = {a, zeros(e, {at::kInt, {batch, steps}}), e.iota({at::kInt, {batch, m}}, 1),
                       zeros(e, {at::kInt, {batch}})};
  if (a.type.numel() == 0) return {init[0], init[1], init[2], init[3]};
  const auto step = [&](const Value& k, const Values& state) -> Values {
    const Value column = squeeze(e, column_at(e, state[0], k), 2);
    const Value p = pivot ? pivot_row(e, column, k) : e.broadcast_in_dim(k, {batch}, {});

    const Dims index = {batch, 1, n};
    const Value row_k = row_at(e, state[0], k);
    const Value row_p = gather_along(e, state[0], 1, e.broadcast_in_dim(p, index, {0}));
    const Value rows = e.iota(whole.with(at::kInt), 1);
    const Value is_k = position_is(e, "EQ", whole.dims, 1, k);
    const Value is_p = e.compare("EQ", rows, e.broadcast_in_dim(p, whole.dims, {0}));
    const Value swapped = e.select(is_k, broadcast_to(e, row_p, whole.dims),
                                   e.select(is_p, broadcast_to(e, row_k, whole.dims), state[0]));

    const Value pivot_value = column_at(e, row_p, k);
    const Value singular = e.compare("EQ", pivot_value, 0);
    const Value divisor = e.select(singular, e.constant_like(1, pivot_value), pivot_value);
    const Value factors =
        e.divide(unsqueeze(e, exchanged(e, column, k, p), 2), e.broadcast_in_dim(divisor, {batch, m, 1}, {0, 1, 2}));
    const Value below = position_is(e, "GT", whole.dims, 1, k);
    const Value spread = broadcast_to(e, factors, whole.dims);
    const Value reduced = e.subtract(swapped, e.multiply(spread, broadcast_to(e, row_p, whole.dims)));
    const Value right = position_is(e, "GT", whole.dims, 2, k);
    const Value at_column = position_is(e, "EQ", whole.dims, 2, k);
    const Value updated = e.select(right, reduced, e.select(at_column, spread, swapped));

    const Value info = state[3];
    const Value first = e.logical_and(e.reshape(singular, {batch}), e.compare("EQ", info, 0));
    const Value number = e.broadcast_in_dim(e.add(k, 1), {batch}, {});
    return {e.select(below, updated, swapped), with_element(e, state[1], k, e.add(p, 1)),
            pivot ? exchanged(e, state[2], k, p) : state[2], e.select(first, number, info)};
  };
  const Values end = repeat(e, 0, 1, steps, init, step);
  return {end[0], end[1], end[2], end[3]};
}

Value permutation_from_pivots(Emitter& e, const Value& pivots, int64_t m) {
  const int64_t batch = pivots.dim(0);
  const Value start = e.iota({at::kInt, {batch, m}}, 1);
  if (start.type.numel() == 0) return start;
  return repeat(e, 0, 1, pivots.dim(1), {start}, [&](const Value& k, const Values& state) {
    const Value p = e.reshape(e.dynamic_slice(pivots, {scalar(e, 0, at::kInt), k}, {batch, 1}), {batch});
    return Values{exchanged(e, state[0], k, e.subtract(p, 1))};
  })[0];
}

Value permutation_matrix(Emitter& e, const Value& permutation, at::ScalarType dtype) {
  const Dims dims = {permutation.dim(0), permutation.dim(1), permutation.dim(1)};
  const Value row = e.iota({at::kInt, dims}, 1);
  return e.convert(e.compare("EQ", row, e.broadcast_in_dim(permutation, dims, {0, 2})), dtype);
}

Value permutation_sign(Emitter& e, const Value& pivots, at::ScalarType dtype) {
  const Value own = e.add(e.iota(pivots.type, 1), 1);
  const Value exchanges = e.reduce(e.convert(e.compare("NE", pivots, own), at::kInt), 0, {1}, "add");
  const Value odd = e.compare("EQ", e.remainder(exchanges, 2), 1);
  const Type type(dtype, exchanges.dims());
  return e.select(odd, e.constant(-1, type), e.constant(1, type));
}

Value lu_solve(Emitter& e, const Value& factors, const Value& permutation, const Value& b, bool adjoint) {
  if (b.type.numel() == 0) return b;
  if (!adjoint) {
    const Value y = solve_triangular(e, factors, rows_permuted(e, b, permutation), true, true, true);
    return solve_triangular(e, factors, y, true, false, false);
  }
  const Value y = solve_triangular(e, factors, b, true, false, false, "ADJOINT");
  const Value x = solve_triangular(e, factors, y, true, true, true, "ADJOINT");
  return rows_permuted(e, x, inverse_permutation(e, permutation));
}

Value lu_solve_right(Emitter& e, const Value& factors, const Value& permutation, const Value& b, bool is_adjoint) {
  return adjoint(e, lu_solve(e, factors, permutation, adjoint(e, b), !is_adjoint));
}

}  // namespace torch_tpu
