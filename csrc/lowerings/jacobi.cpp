#include "lowerings/jacobi.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lowerings/householder.h"
#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMaxSweeps = 40;

double epsilon(at::ScalarType dtype) {
  return c10::toRealValueType(dtype) == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
}

// Sum of conj(a) b of the first `length` elements.
Value inner(Emitter& e, const Value& a, const Value& b, int64_t length) {
  const Value left = slice_dim(e, a, 2, 0, length);
  const Value right = slice_dim(e, b, 2, 0, length);
  return e.reduce(e.multiply(conjugate(e, left), right), 0, {2}, "add");
}

Value squared_norms(Emitter& e, const Value& x, int64_t length) {
  const Value part = slice_dim(e, x, 2, 0, length);
  if (!c10::isComplexType(x.dtype())) return e.reduce(e.multiply(part, part), 0, {2}, "add");
  const Value re = e.real(part);
  const Value im = e.imag(part);
  return e.reduce(e.add(e.multiply(re, re), e.multiply(im, im)), 0, {2}, "add");
}

// The rotations that make pairs of vectors orthogonal, given their squared norms alpha and beta and inner
// products gamma, [batch, h]; or that diagonalize Hermitian matrices [alpha, gamma; ., beta].
struct Rotation {
  Value cosine, sine;  // real
  Value phase;         // conj(gamma) / |gamma|: turns the second vector
  Value any;           // 0-d bool: some pair is rotated
};

// Pairs that are not `active` [batch, h] stay as they are.
Rotation make_rotation(Emitter& e, const Value& alpha, const Value& beta, const Value& gamma, const Value& active) {
  const Value size = magnitude(e, gamma);
  const Value one = e.constant_like(1, size);
  const Value overlap = e.select(active, size, one);
  const Value zeta = e.divide(e.subtract(beta, alpha), e.multiply(overlap, 2));
  const Value root = e.unary("sqrt", e.add(e.multiply(zeta, zeta), 1));
  const Value tangent = e.divide(1, e.add(magnitude(e, zeta), root));
  const Value t = e.select(e.compare("LT", zeta, 0), e.negate(tangent), tangent);
  const Value cosine = e.divide(1, e.unary("sqrt", e.add(e.multiply(t, t), 1)));
  const Value phase = e.divide(conjugate(e, gamma), e.convert(overlap, gamma.dtype()));
  const Value any = e.reduce(e.convert(active, at::kInt), scalar(e, 0, at::kInt), {0, 1}, "maximum");
  return {e.select(active, cosine, one), e.select(active, e.multiply(cosine, t), e.constant_like(0, t)),
          e.select(active, phase, e.constant_like(1, phase)), e.compare("GT", any, 0)};
}

// x with its slices j and h + j along `dim`, 1 or 2, rotated for all j at once.
Value rotate(Emitter& e, const Value& x, int64_t dim, const Rotation& r, bool conjugated) {
  const int64_t h = x.dim(dim) / 2;
  const Value top = slice_dim(e, x, dim, 0, h);
  const Value bottom = slice_dim(e, x, dim, h, 2 * h);
  const auto spread = [&](const Value& v) { return e.broadcast_in_dim(e.convert(v, x.dtype()), top.dims(), {0, dim}); };
  const Value c = spread(r.cosine);
  const Value s = spread(r.sine);
  const Value turned = e.multiply(bottom, spread(conjugated ? conjugate(e, r.phase) : r.phase));
  return e.concatenate(
      {e.subtract(e.multiply(c, top), e.multiply(s, turned)), e.add(e.multiply(s, top), e.multiply(c, turned))}, dim);
}

// The next round of a round-robin tournament, where j plays h + j: all but the first move on by one place.
Value next_round(Emitter& e, const Value& x, int64_t dim) {
  const int64_t h = x.dim(dim) / 2;
  if (h == 1) return x;
  const auto part = [&](int64_t start, int64_t stop) { return slice_dim(e, x, dim, start, stop); };
  return e.concatenate({part(0, 1), part(h, h + 1), part(1, h - 1), part(h + 1, 2 * h), part(h - 1, h)}, dim);
}

// Plays rounds until none of a whole tournament rotates anything. `play` returns the state after a
// round, and whether it rotated. REQUIRES: `size` is even.
Values play_rounds(Emitter& e, int64_t size, const Values& state,
                   const std::function<std::pair<Values, Value>(const Values&)>& play) {
  const int64_t rounds = size - 1;
  const Value zero = scalar(e, 0, at::kInt);
  Values init = {zero, zero};  // rounds played, and those without a rotation since the last one
  init.insert(init.end(), state.begin(), state.end());
  const Values end = e.while_loop(
      init,
      [&](const Values& in) {
        return Values{e.logical_and(e.compare("LT", in[0], kMaxSweeps * rounds), e.compare("LT", in[1], rounds))};
      },
      [&](const Values& in) {
        const auto [played, any] = play(Values(in.begin() + 2, in.end()));
        Values next = {e.add(in[0], 1), e.select(any, e.constant_like(0, in[1]), e.add(in[1], 1))};
        next.insert(next.end(), played.begin(), played.end());
        return next;
      });
  return Values(end.begin() + 2, end.end());
}

// Whether pairs are worth a rotation: vectors that are neither orthogonal nor `tiny`.
Value overlapping(Emitter& e, const Value& alpha, const Value& beta, const Value& gamma, int64_t length,
                  const Value& tiny) {
  const double tolerance = epsilon(gamma.dtype()) * std::max(2.0, std::sqrt(static_cast<double>(length)));
  const Value bound = e.multiply(e.multiply(e.unary("sqrt", alpha), e.unary("sqrt", beta)), tolerance);
  const Value threshold = e.broadcast_in_dim(tiny, alpha.dims(), {0});
  return e.logical_and(e.compare("GT", magnitude(e, gamma), bound), e.compare("GT", e.minimum(alpha, beta), threshold));
}

// Rotates the vectors x[b, j, :length] of each batch until they are orthogonal; what follows in
// them takes part in the rotations only. A vector of zeros may be appended, and the order is lost.
// Those whose squared norm is `tiny` [batch] or less count as zero.
Value orthogonalize(Emitter& e, const Value& x, int64_t length, const Value& tiny) {
  const int64_t n = x.dim(1);
  if (n < 2) return x;
  const int64_t h = (n + 1) / 2;
  return play_rounds(e, 2 * h, {with_rows(e, x, 2 * h)}, [&](const Values& in) -> std::pair<Values, Value> {
    const Value top = slice_dim(e, in[0], 1, 0, h);
    const Value bottom = slice_dim(e, in[0], 1, h, 2 * h);
    const Value alpha = squared_norms(e, top, length);
    const Value beta = squared_norms(e, bottom, length);
    const Value gamma = inner(e, top, bottom, length);
    const Rotation r = make_rotation(e, alpha, beta, gamma, overlapping(e, alpha, beta, gamma, length, tiny));
    return {{next_round(e, rotate(e, in[0], 1, r, /*conjugated=*/false), 1)}, r.any};
  })[0];
}

// Rows of x in the order `positions` [batch, k].
Value rows_at(Emitter& e, const Value& x, const Value& positions) {
  const Dims dims = {x.dim(0), positions.dim(1), x.dim(2)};
  return gather_along(e, x, 1, e.broadcast_in_dim(positions, dims, {0, 1}));
}

// A nearly unitary matrix made unitary to the dtype: one step of Newton's method.
Value polished(Emitter& e, const Value& q) {
  const Value correction = product(e, product(e, q, adjoint(e, q)), q);
  return e.subtract(e.multiply(q, 1.5), e.multiply(correction, 0.5));
}

// The largest magnitude of each matrix, [batch], or 1 if it is 0 or not finite.
Value scale_of(Emitter& e, const Value& a) {
  const Value largest = max(e, e.maximum(magnitude(e, e.real(a)), magnitude(e, e.imag(a))), {1, 2});
  const Value usable = e.logical_and(e.unary("is_finite", largest), e.compare("GT", largest, 0));
  return e.select(usable, largest, e.constant_like(1, largest));
}

Value divided(Emitter& e, const Value& a, const Value& scale) {
  return e.divide(a, e.broadcast_in_dim(e.convert(scale, a.dtype()), a.dims(), {0}));
}

// Of a with at least as many rows as columns.
Svd tall_svd(Emitter& e, const Value& a, bool vectors, bool full) {
  const int64_t batch = a.dim(0);
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const Value scale = scale_of(e, a);
  Value x = transposed(e, divided(e, a, scale));
  const Value total = e.reduce(squared_norms(e, x, m), 0, {1}, "add");
  const double relative = epsilon(a.dtype());
  if (vectors) x = e.concatenate({x, identity(e, a.type.with({batch, n, n}))}, 2);
  x = orthogonalize(e, x, m, e.multiply(total, relative * relative));

  Value key = e.unary("sqrt", squared_norms(e, x, m));
  if (vectors) {
    // Columns of V have lost their exact length, and those of A V as much. Behind all others: what is none.
    const Value of_v = e.unary("sqrt", squared_norms(e, slice_dim(e, x, 2, m, m + n), n));
    const Value is_none = e.compare("LT", of_v, 0.5);
    key = e.select(is_none, e.constant_like(-1, key), e.divide(key, e.select(is_none, e.constant_like(1, of_v), of_v)));
  }
  const auto [sorted, order] = sort_with_indices(e, key, 1, /*descending=*/true);
  Svd result;
  result.singular = e.multiply(slice_dim(e, sorted, 1, 0, n), e.broadcast_in_dim(scale, {batch, n}, {0}));
  if (!vectors) return result;

  x = rows_at(e, x, slice_dim(e, order, 1, 0, n));
  result.vh = polished(e, conjugate(e, slice_dim(e, x, 2, m, m + n)));
  // The columns of U are those of A V, made orthonormal where singular values are tiny.
  const Reflectors qr = householder_qr(e, transposed(e, slice_dim(e, x, 2, 0, m)));
  const Value q = reflectors_product(e, qr, full ? m : n);
  const Value r = e.real(diagonals(e, qr.factors));
  Value sign = e.select(e.compare("LT", r, 0), e.constant_like(-1, r), e.constant_like(1, r));
  if (full) sign = e.pad(sign, scalar(e, 1, sign.dtype()), {0, 0}, {0, m - n});
  result.u = e.multiply(q, e.broadcast_in_dim(e.convert(sign, q.dtype()), q.dims(), {0, 2}));
  return result;
}

}  // namespace

Svd svd(Emitter& e, const Value& a, bool vectors, bool full) {
  const int64_t m = a.dim(1);
  const int64_t n = a.dim(2);
  const int64_t k = std::min(m, n);
  if (a.type.numel() == 0) {
    const auto square = [&](int64_t rows, int64_t columns) {
      return identity(e, a.type.with({a.dim(0), rows, columns}));
    };
    return {square(m, full ? m : k), zeros(e, Type(c10::toRealValueType(a.dtype()), {a.dim(0), k})),
            square(full ? n : k, n)};
  }
  if (m >= n) return tall_svd(e, a, vectors, full);
  Svd flipped = tall_svd(e, adjoint(e, a), vectors, full);
  if (vectors) {
    std::swap(flipped.u, flipped.vh);
    flipped.u = adjoint(e, flipped.u);
    flipped.vh = adjoint(e, flipped.vh);
  }
  return flipped;
}

Eigh eigh(Emitter& e, const Value& a) {
  const int64_t batch = a.dim(0);
  const int64_t n = a.dim(2);
  const at::ScalarType real = c10::toRealValueType(a.dtype());
  if (a.type.numel() == 0) return {zeros(e, {real, {batch, n}}), a};
  if (n == 1) return {e.reshape(e.real(a), {batch, 1}), e.constant_like(1, a)};
  const int64_t h = (n + 1) / 2;
  const int64_t size = 2 * h;
  const Value scale = scale_of(e, a);
  const Value x = with_columns(e, with_rows(e, divided(e, a, scale), size), size);
  const Value sizes = magnitude(e, x);
  const Value total = e.unary("sqrt", e.reduce(e.multiply(sizes, sizes), 0, {1, 2}, "add"));
  const Value tolerance =
      e.broadcast_in_dim(e.multiply(total, epsilon(a.dtype()) / static_cast<double>(n)), {batch, h}, {0});

  // State: V^H A V, V^H. Rows and columns are rotated alike; what a rotation makes zero is set to it.
  const Values end = play_rounds(e, size, {x, identity(e, x.type)}, [&](const Values& in) -> std::pair<Values, Value> {
    const auto block = [&](int64_t row, int64_t column) {
      return diagonals(e, e.slice(in[0], {0, row, column}, {batch, row + h, column + h}));
    };
    const Value gamma = block(0, h);
    const Value active = e.compare("GT", magnitude(e, gamma), tolerance);
    const Rotation r = make_rotation(e, e.real(block(0, 0)), e.real(block(h, h)), gamma, active);
    const Value rotated = rotate(e, rotate(e, in[0], 1, r, /*conjugated=*/true), 2, r, /*conjugated=*/false);
    const Type positions = rotated.type.with(at::kInt);
    const Value distance = magnitude(e, e.subtract(e.iota(positions, 1), e.iota(positions, 2)));
    const Value both = e.concatenate({active, active}, 1);
    const Value pair = e.logical_and(e.compare("EQ", distance, h), e.broadcast_in_dim(both, rotated.dims(), {0, 1}));
    const Value cleared = e.select(pair, zeros(e, rotated.type), rotated);
    return {
        {next_round(e, next_round(e, cleared, 1), 2), next_round(e, rotate(e, in[1], 1, r, /*conjugated=*/true), 1)},
        r.any};
  });

  Value values = e.real(diagonals(e, end[0]));
  const Value vectors = end[1];
  if (size > n) {
    // Behind all others: the vector that was appended.
    const Value appended =
        e.compare("GT", magnitude(e, e.reshape(slice_dim(e, vectors, 2, n, size), {batch, size})), 0.5);
    values = e.select(appended, e.broadcast_in_dim(e.highest(values.type), values.dims(), {}), values);
  }
  const Value order = sort_with_indices(e, values, 1, /*descending=*/false).second;
  const Value rows = polished(e, with_columns(e, rows_at(e, vectors, slice_dim(e, order, 1, 0, n)), n));
  const Value columns = adjoint(e, rows);
  // v^H A v: the rotated diagonal has gathered the rounding of every rotation.
  const Value quotients =
      e.real(e.reduce(e.multiply(rows, transposed(e, product(e, divided(e, a, scale), columns))), 0, {2}, "add"));
  const Value ascending = sort_with_indices(e, quotients, 1, /*descending=*/false).first;
  return {e.multiply(ascending, e.broadcast_in_dim(scale, {batch, n}, {0})), columns};
}

}  // namespace torch_tpu
