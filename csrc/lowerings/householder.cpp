#include "lowerings/householder.h"

#include <algorithm>

#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// One number a matrix, [batch, 1, 1], for every element of `dims`.
Value spread(Emitter& e, const Value& x, c10::IntArrayRef dims) { return e.broadcast_in_dim(x, dims, {0, 1, 2}); }

// 0 becomes 1, so that dividing by x is harmless.
Value nonzero(Emitter& e, const Value& x) { return e.select(e.compare("EQ", x, 0), e.constant_like(1, x), x); }

// c - tau v (v^H c)
Value reflect(Emitter& e, const Value& c, const Value& v, const Value& tau) {
  const Value overlap = e.reduce(e.multiply(broadcast_to(e, conjugate(e, v), c.dims()), c), 0, {1}, "add");
  const Value scaled = broadcast_to(e, e.multiply(v, spread(e, tau, v.dims())), c.dims());
  return e.subtract(c, e.multiply(scaled, e.broadcast_in_dim(overlap, c.dims(), {0, 2})));
}

struct Reflection {
  Value v;     // [batch, m, 1], 1 at row k and 0 above
  Value tau;   // [batch, 1, 1]
  Value beta;  // [batch, 1, 1]: what stands at row k of the reflected column
};

// The reflection that makes `column` [batch, m, 1] zero below row k.
Reflection make_reflection(Emitter& e, const Value& column, const Value& k) {
  const at::ScalarType dtype = column.dtype();
  const Value below = position_is(e, "GT", column.dims(), 1, k);
  const Value rest = e.select(below, column, zeros(e, column.type));
  const Value alpha = row_at(e, column, k);
  const Value parts = e.maximum(magnitude(e, e.real(rest)), magnitude(e, e.imag(rest)));
  // Of the largest element, so that squares do not overflow.
  const Value scale = nonzero(e, unsqueeze(e, max(e, parts, {1}), 1));
  const Value sized = magnitude(e, e.divide(rest, e.convert(spread(e, scale, rest.dims()), dtype)));
  const Value squares = unsqueeze(e, sum(e, e.multiply(sized, sized), {1}), 1);
  const Value rest_norm = e.multiply(scale, e.unary("sqrt", squares));

  const Value re = e.real(alpha);
  const Value head = magnitude(e, alpha);
  const Value larger = nonzero(e, e.maximum(head, rest_norm));
  const Value smaller = e.minimum(head, rest_norm);
  const Value ratio = e.divide(smaller, larger);
  const Value norm = e.multiply(larger, e.unary("sqrt", e.add(e.multiply(ratio, ratio), 1)));
  const Value beta = e.select(e.compare("GE", re, 0), e.negate(norm), norm);

  Value trivial = e.compare("EQ", rest_norm, 0);
  if (c10::isComplexType(dtype)) trivial = e.logical_and(trivial, e.compare("EQ", e.imag(alpha), 0));
  const Value safe = e.select(trivial, e.constant_like(1, beta), beta);
  Value tau = e.divide(e.subtract(safe, re), safe);
  if (c10::isComplexType(dtype)) tau = e.complex(tau, e.divide(e.negate(e.imag(alpha)), safe));
  tau = e.select(trivial, zeros(e, tau.type), tau);

  const Value divisor = e.subtract(alpha, e.convert(beta, dtype));
  const Value v = e.divide(rest, spread(e, e.select(trivial, e.constant_like(1, divisor), divisor), rest.dims()));
  const Value at_k = position_is(e, "EQ", column.dims(), 1, k);
  return {e.select(at_k, e.constant_like(1, v), v), tau, e.select(trivial, alpha, e.convert(beta, dtype))};
}

}  // namespace

Reflectors householder_qr(Emitter& e, const Value& a) {
  const int64_t batch = a.dim(0);
  const int64_t steps = std::min(a.dim(1), a.dim(2));
  const Values init = {a, zeros(e, a.type.with({batch, steps}))};
  if (a.type.numel() == 0) return {init[0], init[1]};
  const Dims whole = a.dims();
  const Values end = repeat(e, 0, 1, steps, init, [&](const Value& k, const Values& state) -> Values {
    const Value column = column_at(e, state[0], k);
    const Reflection h = make_reflection(e, column, k);
    const Value reflected = reflect(e, state[0], h.v, conjugate(e, h.tau));
    const Value at_k = position_is(e, "EQ", column.dims(), 1, k);
    const Value above = position_is(e, "LT", column.dims(), 1, k);
    const Value stored = e.select(above, column, e.select(at_k, spread(e, h.beta, column.dims()), h.v));
    const Value right = position_is(e, "GT", whole, 2, k);
    const Value is_column = position_is(e, "EQ", whole, 2, k);
    const Value next = e.select(right, reflected, e.select(is_column, broadcast_to(e, stored, whole), state[0]));
    return {next, with_element(e, state[1], k, e.reshape(h.tau, {batch}))};
  });
  return {end[0], end[1]};
}

Value apply_reflectors(Emitter& e, const Reflectors& q, const Value& c, bool adjoint) {
  const int64_t count = q.tau.dim(1);
  if (c.type.numel() == 0) return c;
  const int64_t first = adjoint ? 0 : count - 1;
  return repeat(e, first, adjoint ? 1 : -1, count, {c}, [&](const Value& k, const Values& state) {
    const Value column = column_at(e, q.factors, k);
    const Value below = position_is(e, "GT", column.dims(), 1, k);
    const Value at_k = position_is(e, "EQ", column.dims(), 1, k);
    const Value v = e.select(below, column, e.convert(at_k, column.dtype()));
    const Value tau = unsqueeze(e, e.dynamic_slice(q.tau, {scalar(e, 0, at::kInt), k}, {q.tau.dim(0), 1}), 2);
    return Values{reflect(e, state[0], v, adjoint ? conjugate(e, tau) : tau)};
  })[0];
}

Value reflectors_product(Emitter& e, const Reflectors& q, int64_t columns) {
  const Dims dims = {q.factors.dim(0), q.factors.dim(1), columns};
  return apply_reflectors(e, q, identity(e, q.factors.type.with(dims)), /*adjoint=*/false);
}

}  // namespace torch_tpu
