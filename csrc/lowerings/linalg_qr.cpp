// QR factorization, and products of Householder reflectors.
#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/householder.h"
#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// The coefficients [..., k] as [b, k].
Value tau_batch(Emitter& e, const Value& tau) { return squeeze(e, as_batch(e, unsqueeze(e, tau, tau.rank() - 1)), 1); }

Values lower_geqrf(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Dims batch = batch_of(self.dims());
  const Reflectors qr = householder_qr(e, as_batch(e, self));
  return {from_batch(e, qr.factors, batch), from_batch(e, qr.tau, batch)};
}

std::vector<Type> geqrf_types(const Call& c) {
  const Type self = c.tensor("self").type;
  Dims tau = batch_of(self.dims);
  tau.push_back(std::min(self.dims[self.rank() - 2], self.dims[self.rank() - 1]));
  return {self, self.with(tau)};
}

Values lower_linalg_qr(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const Value matrices = as_batch(e, a);
  const std::string mode = c.text("mode");
  const int64_t m = matrices.dim(1);
  const int64_t rows = mode == "complete" ? m : std::min(m, matrices.dim(2));
  const Reflectors qr = householder_qr(e, matrices);
  const Value r = upper_triangle(e, with_rows(e, qr.factors, rows));
  const Value q = mode == "r" ? zeros(e, {a.dtype(), {0}}) : from_batch(e, reflectors_product(e, qr, rows), batch);
  return {q, from_batch(e, r, batch)};
}

Value lower_linalg_householder_product(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Reflectors q = {as_batch(e, input), tau_batch(e, c.tensor("tau"))};
  return from_batch(e, reflectors_product(e, q, q.factors.dim(2)), batch_of(input.dims()));
}

Value lower_ormqr(Emitter& e, const Call& c) {
  const Value other = c.tensor("input3");
  const Reflectors q = {as_batch(e, c.tensor("self")), tau_batch(e, c.tensor("input2"))};
  const bool transpose = c.flag("transpose");
  Value x = as_batch(e, other);
  // C Q is (Q^H C^H)^H.
  x = c.flag("left") ? apply_reflectors(e, q, x, transpose)
                     : adjoint(e, apply_reflectors(e, q, adjoint(e, x), !transpose));
  return from_batch(e, x, batch_of(other.dims()));
}

}  // namespace

void add_linalg_qr(Table& t) {
  t.add("aten::geqrf", lower_geqrf).with_shape(geqrf_types);
  t.add("aten::linalg_qr", lower_linalg_qr);
  t.add("aten::linalg_householder_product", lower_linalg_householder_product);
  t.add("aten::ormqr", lower_ormqr);
}

}  // namespace torch_tpu
