#include "lowerings/jacobi.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
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

// A number a vector, [batch, h], for every element of [batch, h, length].
Value along(Emitter& e, const Value& x, const Value& like) {
  return e.broadcast_in_dim(e.convert(x, like.dtype()), like.dims(), {0, 1});
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

struct Rotated {
  Value top, bottom;
  Value any;  // 0-d bool: some pair was not orthogonal
};

// Rotates top[j] and bottom[j] into orthogonal ones, for all j at once.
Rotated rotate_pairs(Emitter& e, const Value& top, const Value& bottom, int64_t length, const Value& tiny) {
  const Value alpha = squared_norms(e, top, length);
  const Value beta = squared_norms(e, bottom, length);
  const Value gamma = inner(e, top, bottom, length);
  const Value size = magnitude(e, gamma);
  const double tolerance = epsilon(top.dtype()) * std::max(2.0, std::sqrt(static_cast<double>(length)));
  const Value bound = e.multiply(e.multiply(e.unary("sqrt", alpha), e.unary("sqrt", beta)), tolerance);
  const Value threshold = e.broadcast_in_dim(tiny, alpha.dims(), {0});
  Value active = e.compare("GT", size, bound);
  active = e.logical_and(active, e.compare("GT", e.minimum(alpha, beta), threshold));

  const Value one = e.constant_like(1, size);
  const Value overlap = e.select(active, size, one);
  const Value zeta = e.divide(e.subtract(beta, alpha), e.multiply(overlap, 2));
  const Value root = e.unary("sqrt", e.add(e.multiply(zeta, zeta), 1));
  const Value magnitude_t = e.divide(1, e.add(magnitude(e, zeta), root));
  const Value t = e.select(e.compare("LT", zeta, 0), e.negate(magnitude_t), magnitude_t);
  const Value cosine = e.select(active, e.unary("rsqrt", e.add(e.multiply(t, t), 1)), one);
  const Value sine = e.select(active, e.multiply(cosine, t), e.constant_like(0, t));

  // The phase that makes the inner product real and positive.
  const Value phase = e.select(active, e.divide(conjugate(e, gamma), e.convert(overlap, gamma.dtype())),
                               e.constant_like(1, gamma));
  const Value turned = e.multiply(bottom, along(e, phase, bottom));
  const Value c = along(e, cosine, top);
  const Value s = along(e, sine, top);
  const Value any = e.reduce(e.convert(active, at::kInt), scalar(e, 0, at::kInt), {0, 1}, "maximum");
  return {e.subtract(e.multiply(c, top), e.multiply(s, turned)),
          e.add(e.multiply(s, top), e.multiply(c, turned)), e.compare("GT", any, 0)};
}

// The next round of a round-robin tournament: all but the first of `top` move on by one place.
std::pair<Value, Value> next_round(Emitter& e, const Value& top, const Value& bottom) {
  const int64_t h = top.dim(1);
  if (h == 1) return {top, bottom};
  const auto part = [&](const Value& x, int64_t start, int64_t stop) { return slice_dim(e, x, 1, start, stop); };
  return {e.concatenate({part(top, 0, 1), part(bottom, 0, 1), part(top, 1, h - 1)}, 1),
          e.concatenate({part(bottom, 1, h), part(top, h - 1, h)}, 1)};
}

// Rotates the vectors x[b, j, :length] of each batch until they are orthogonal; what follows in
// them takes part in the rotations only. A vector of zeros may be appended, and the order is lost.
// Those whose squared norm is `tiny` [batch] or less count as zero.
Value orthogonalize(Emitter& e, const Value& x, int64_t length, const Value& tiny) {
  const int64_t n = x.dim(1);
  if (n < 2) return x;
  const int64_t h = (n + 1) / 2;
  const Value even = with_rows(e, x, 2 * h);
  const int64_t rounds = 2 * h - 1;
  const Value zero = scalar(e, 0, at::kInt);
  // State: rounds done, rounds without a rotation since the last one, the pairs.
  const Values end = e.while_loop(
      {zero, zero, slice_dim(e, even, 1, 0, h), slice_dim(e, even, 1, h, 2 * h)},
      [&](const Values& in) {
        return Values{
            e.logical_and(e.compare("LT", in[0], kMaxSweeps * rounds), e.compare("LT", in[1], rounds))};
      },
      [&](const Values& in) -> Values {
        const Rotated r = rotate_pairs(e, in[2], in[3], length, tiny);
        const auto [top, bottom] = next_round(e, r.top, r.bottom);
        return {e.add(in[0], 1), e.select(r.any, e.constant_like(0, in[1]), e.add(in[1], 1)), top, bottom};
      });
  return e.concatenate({end[2], end[3]}, 1);
}

// Rows of x in the order `positions` [batch, k].
Value rows_at(Emitter& e, const Value& x, const Value& positions) {
  const Dims dims = {x.dim(0), positions.dim(1), x.dim(2)};
  return gather_along(e, x, 1, e.broadcast_in_dim(positions, dims, {0, 1}));
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

  const Value norms = e.unary("sqrt", squared_norms(e, x, m));
  Value key = norms;
  if (vectors) {
    // Behind all others: a vector that is no column of V.
    const Value of_v = squared_norms(e, slice_dim(e, x, 2, m, m + n), n);
    key = e.select(e.compare("LT", of_v, 0.5), e.constant_like(-1, norms), norms);
  }
  const auto [sorted, order] = sort_with_indices(e, key, 1, /*descending=*/true);
  Svd result;
  result.singular = e.multiply(slice_dim(e, sorted, 1, 0, n), e.broadcast_in_dim(scale, {batch, n}, {0}));
  if (!vectors) return result;

  x = rows_at(e, x, slice_dim(e, order, 1, 0, n));
  result.vh = conjugate(e, slice_dim(e, x, 2, m, m + n));
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
    const auto square = [&](int64_t rows, int64_t columns) { return identity(e, a.type.with({a.dim(0), rows, columns})); };
    return {square(m, full ? m : k), zeros(e, Type(c10::toRealValueType(a.dtype()), {a.dim(0), k})), square(full ? n : k, n)};
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
  if (a.type.numel() == 0) return {zeros(e, Type(c10::toRealValueType(a.dtype()), {batch, n})), a};
  const Value scale = scale_of(e, a);
  const Value x = divided(e, a, scale);
  // Twice a bound of the eigenvalues: with it added to the diagonal, all are positive and of one size,
  // the singular values are the eigenvalues, and both have the same vectors.
  const Value sizes = magnitude(e, x);
  const Value frobenius = e.unary("sqrt", e.reduce(e.multiply(sizes, sizes), 0, {1, 2}, "add"));
  const Value rows = max(e, sum(e, sizes, {2}), {1});
  Value shift = e.multiply(e.minimum(frobenius, rows), 2);
  shift = e.select(e.compare("EQ", shift, 0), e.constant_like(1, shift), shift);
  const Value on_diagonal = e.multiply(identity(e, x.type), e.broadcast_in_dim(e.convert(shift, x.dtype()), x.dims(), {0}));
  const Value rotated = orthogonalize(e, transposed(e, e.add(x, on_diagonal)), n, e.constant_like(0, shift));

  const Value norms = e.unary("sqrt", squared_norms(e, rotated, n));
  const Value is_zero = e.compare("EQ", norms, 0);
  const Value unit = e.divide(rotated, along(e, e.select(is_zero, e.constant_like(1, norms), norms), rotated));
  // v^H A v
  Value values = e.real(inner(e, unit, product(e, unit, transposed(e, x)), n));
  values = e.select(is_zero, e.broadcast_in_dim(e.highest(values.type), values.dims(), {}), values);
  const auto [sorted, order] = sort_with_indices(e, values, 1, /*descending=*/false);
  return {e.multiply(slice_dim(e, sorted, 1, 0, n), e.broadcast_in_dim(scale, {batch, n}, {0})),
          transposed(e, rows_at(e, unit, slice_dim(e, order, 1, 0, n)))};
}

}  // namespace torch_tpu
