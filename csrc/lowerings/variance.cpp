// var, std and vector norms, with what is made of norms: dist and renorm.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

struct Moments {
  Value mean;     // in x's dtype
  Value squares;  // sum of |x - mean|^2: real
};

Moments moments(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  const Value mean = e.divide(accurate_sum(e, x, dims), static_cast<double>(count_along(x, dims)));
  const Value centered = e.subtract(x, broadcast_along(e, mean, x.dims(), dims));
  const Value re = e.real(centered);
  Value squares = e.multiply(re, re);
  if (c10::isComplexType(x.dtype())) {
    const Value im = e.imag(centered);
    squares = e.add(squares, e.multiply(im, im));
  }
  return {mean, accurate_sum(e, squares, dims)};
}

// `self` in the dtype to compute in, at least 1-d.
Value operand(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  TORCH_CHECK(c10::isFloatingType(x.dtype()) || c10::isComplexType(x.dtype()),
              "std and var only support floating point and complex dtypes");
  return e.convert(x, opmath(x.dtype()));
}

// squares / max(count - correction, 0).
Value variance(Emitter& e, const Call& c, const Value& squares, int64_t count) {
  const Value correction =
      c.has("correction") ? c.number("correction", squares.dtype()) : scalar(e, 1, squares.dtype());
  const Value degrees = e.maximum(e.subtract(static_cast<double>(count), correction), 0);
  return e.divide(squares, broadcast_to(e, degrees, squares.dims()));
}

template <bool kRoot>
Value lower_var(Emitter& e, const Call& c) {
  const Value x = operand(e, c);
  const Dims dims = reduced_dims(c, x);
  const Value var = variance(e, c, moments(e, x, dims).squares, count_along(x, dims));
  return as_result(e, c, kRoot ? e.unary("sqrt", var) : var);
}

template <bool kRoot>
Values lower_var_mean(Emitter& e, const Call& c) {
  const Value x = operand(e, c);
  const Dims dims = reduced_dims(c, x);
  const Moments m = moments(e, x, dims);
  const Value var = variance(e, c, m.squares, count_along(x, dims));
  return {as_result(e, c, kRoot ? e.unary("sqrt", var) : var, 0), as_result(e, c, m.mean, 1)};
}

// `x` in the dtype whose norm is the call's result, not narrower than float32.
Value norm_operand(Emitter& e, const Call& c, const Value& x) {
  const at::ScalarType real = opmath(c10::toRealValueType(c.result().dtype));
  return e.convert(at_least_1d(e, x), c10::isComplexType(x.dtype()) ? c10::toComplexType(real) : real);
}

Value lower_norm(Emitter& e, const Call& c) {
  const Value x = norm_operand(e, c, c.tensor("self"));
  return as_result(e, c, vector_norm(e, c, x, "p", reduced_dims(c, x)));
}

Value lower_linalg_vector_norm(Emitter& e, const Call& c) {
  const Value x = norm_operand(e, c, c.tensor("self"));
  return as_result(e, c, vector_norm(e, c, x, "ord", reduced_dims(c, x)));
}

Value lower_dist(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  const auto [self, other] = broadcast(e, e.convert(c.tensor("self"), dtype), e.convert(c.tensor("other"), dtype));
  const Value x = norm_operand(e, c, e.subtract(self, other));
  return as_result(e, c, vector_norm(e, c, x, "p", all_dims(x)));
}

// Slices of `dim` scaled down to norm `maxnorm` where theirs is larger.
Value lower_renorm(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value x = e.convert(self, opmath(self.dtype()));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  Dims others;
  for (const auto d : c10::irange(x.rank())) {
    if (d != dim) others.push_back(d);
  }
  const Value norm = vector_norm(e, c, x, "p", others);
  const Value limit = c.number("maxnorm", norm.type);
  const Value scale =
      e.select(e.compare("GT", norm, limit), e.divide(limit, e.add(norm, 1e-7)), e.constant_like(1, norm));
  return as_result(e, c, e.multiply(x, broadcast_along(e, e.convert(scale, x.dtype()), x.dims(), others)));
}

}  // namespace

void add_variance(Table& t) {
  t.add("aten::var.correction", lower_var<false>);
  t.add("aten::std.correction", lower_var<true>);
  t.add("aten::var_mean.correction", lower_var_mean<false>);
  t.add("aten::std_mean.correction", lower_var_mean<true>);
  t.add("aten::norm.ScalarOpt_dim", lower_norm);
  t.add("aten::norm.ScalarOpt_dim_dtype", lower_norm);
  t.add("aten::linalg_vector_norm", lower_linalg_vector_norm);
  t.add("aten::dist", lower_dist);
  t.add("aten::renorm", lower_renorm);
}

}  // namespace torch_tpu
