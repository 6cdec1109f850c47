// Singular values, Hermitian eigenvalues, and the matrix exponential.
#include <algorithm>
#include <cmath>

#include "lowerings/families.h"
#include "lowerings/jacobi.h"
#include "lowerings/matrix.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Values lower_linalg_eigh(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const std::string triangle = c.text("UPLO");
  const bool lower = triangle == "L" || triangle == "l";
  const Eigh result = eigh(e, hermitian(e, as_batch(e, a), lower));
  const Value vectors = c.flag("compute_v") ? from_batch(e, result.vectors, batch) : zeros(e, {a.dtype(), {0}});
  return {from_batch(e, result.values, batch), vectors};
}

Values lower_linalg_svd(Emitter& e, const Call& c) {
  const Value a = c.tensor("A");
  const Dims batch = batch_of(a.dims());
  const bool vectors = c.flag("compute_uv");
  const Svd result = svd(e, as_batch(e, a), vectors, c.flag("full_matrices"));
  const Value nothing = zeros(e, {a.dtype(), {0}});
  return {vectors ? from_batch(e, result.u, batch) : nothing, from_batch(e, result.singular, batch),
          vectors ? from_batch(e, result.vh, batch) : nothing};
}

// Largest 1-norm for which the Taylor polynomial of degree 18 is exact to the dtype
// (Bader, Blanes and Casas, "Computing the matrix exponential with an optimized Taylor polynomial approximation").
double taylor_reach(at::ScalarType dtype) { return c10::toRealValueType(dtype) == at::kDouble ? 1.09 : 3.01; }

// The Taylor polynomial of degree 18, in powers of the cube of x.
Value taylor(Emitter& e, const Value& x) {
  const Value one = identity(e, x.type);
  const Value square = product(e, x, x);
  const Value cube = product(e, square, x);
  const auto coefficient = [](int64_t n) { return 1 / std::tgamma(static_cast<double>(n + 1)); };
  const auto block = [&](int64_t n) {
    const Value low = e.add(e.multiply(one, coefficient(n)), e.multiply(x, coefficient(n + 1)));
    return e.add(low, e.multiply(square, coefficient(n + 2)));
  };
  Value sum = e.add(block(15), e.multiply(cube, coefficient(18)));
  for (int64_t n = 12; n >= 0; n -= 3) sum = e.add(block(n), product(e, cube, sum));
  return sum;
}

// Scaled by a power of 2, and squared as often.
Value matrix_exponential(Emitter& e, const Value& x) {
  const Value norm = max(e, sum(e, magnitude(e, x), {1}), {1});
  const Value excess = e.unary("log", e.divide(norm, taylor_reach(x.dtype())));
  const Value halvings = e.unary("ceil", e.multiply(excess, 1 / std::log(2.0)));
  const Value count = e.clamp(scalar(e, 0, norm.dtype()), halvings, scalar(e, 1100, norm.dtype()));
  const Value factor = e.power(e.constant_like(0.5, count), count);
  const Value scaled = e.multiply(x, e.broadcast_in_dim(e.convert(factor, x.dtype()), x.dims(), {0}));
  const Value most = max(e, count, {0});
  const Values end = e.while_loop(
      {scalar(e, 0, norm.dtype()), taylor(e, scaled), count, most},
      [&](const Values& in) { return Values{e.compare("LT", in[0], in[3])}; },
      [&](const Values& in) -> Values {
        const Value due = e.compare("LT", e.broadcast_in_dim(in[0], count.dims(), {}), in[2]);
        const Value squared = product(e, in[1], in[1]);
        return {e.add(in[0], 1), e.select(e.broadcast_in_dim(due, x.dims(), {0}), squared, in[1]), in[2], in[3]};
      });
  return end[1];
}

Value lower_linalg_matrix_exp(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  const Value x = e.convert(as_batch(e, self), opmath(self.dtype()));
  return e.convert(from_batch(e, matrix_exponential(e, x), batch_of(self.dims())), self.dtype());
}

}  // namespace

void add_linalg_spectrum(Table& t) {
  t.add("aten::_linalg_eigh", lower_linalg_eigh);
  t.add("aten::_linalg_svd", lower_linalg_svd);
  t.add("aten::linalg_matrix_exp", lower_linalg_matrix_exp);
}

}  // namespace torch_tpu
