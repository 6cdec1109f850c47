// softmax, log_softmax, their masked and safe forms, and their gradients.
// Everything is computed in opmath along one dimension.
#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A tensor in opmath, at least 1-d.
Value operand(Emitter& e, const Call& c, std::string_view name) {
  const Value x = at_least_1d(e, c.tensor(name));
  return e.convert(x, opmath(x.dtype()));
}

Value softmax(Emitter& e, const Value& x, int64_t dim) {
  if (x.type.numel() == 0) return x;
  const auto along = [&](const Value& v) { return broadcast_along(e, v, x.dims(), {dim}); };
  const Value powers = e.unary("exponential", e.subtract(x, along(max(e, x, {dim}))));
  return e.divide(powers, along(accurate_sum(e, powers, {dim})));
}

Value log_softmax(Emitter& e, const Value& x, int64_t dim) {
  if (x.type.numel() == 0) return x;
  const auto along = [&](const Value& v) { return broadcast_along(e, v, x.dims(), {dim}); };
  const Value shifted = e.subtract(x, along(max(e, x, {dim})));
  const Value total = accurate_sum(e, e.unary("exponential", shifted), {dim});
  return e.subtract(shifted, along(e.unary("log", total)));
}

// (grad - sum(grad * output)) * output.
Value softmax_gradient(Emitter& e, const Value& grad, const Value& output, int64_t dim) {
  const Value product = e.multiply(grad, output);
  const Value total = broadcast_along(e, accurate_sum(e, product, {dim}), grad.dims(), {dim});
  return e.multiply(e.subtract(grad, total), output);
}

Value lower_softmax(Emitter& e, const Call& c) {
  const Value x = operand(e, c, "self");
  return as_result(e, c, softmax(e, x, Call::wrap(c.integer("dim"), x.rank())));
}

Value lower_log_softmax(Emitter& e, const Call& c) {
  const Value x = operand(e, c, "self");
  return as_result(e, c, log_softmax(e, x, Call::wrap(c.integer("dim"), x.rank())));
}

Value lower_softmax_backward_data(Emitter& e, const Call& c) {
  const Value grad = operand(e, c, "grad_output");
  const Value output = operand(e, c, "output");
  return as_result(e, c, softmax_gradient(e, grad, output, Call::wrap(c.integer("dim"), grad.rank())));
}

// grad - exp(output) * sum(grad).
Value lower_log_softmax_backward_data(Emitter& e, const Call& c) {
  const Value grad = operand(e, c, "grad_output");
  const Value output = operand(e, c, "output");
  const int64_t dim = Call::wrap(c.integer("dim"), grad.rank());
  const Value total = broadcast_along(e, accurate_sum(e, grad, {dim}), grad.dims(), {dim});
  return as_result(e, c, e.subtract(grad, e.multiply(e.unary("exponential", output), total)));
}

// Zero where every element along `dim` is -inf.
Value lower_safe_softmax(Emitter& e, const Call& c) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  const Value x = e.convert(e.convert(self, c.result().dtype), opmath(c.result().dtype));
  const Value masked = extreme(e, e.compare("EQ", x, -kInfinity), {dim}, /*largest=*/false);
  const Value all = broadcast_along(e, masked, x.dims(), {dim});
  return as_result(e, c, e.select(all, e.constant_like(0, x), softmax(e, x, dim)));
}

int64_t last_dim_or(const Call& c, int64_t rank) {
  return c.has("dim") ? Call::wrap(c.integer("dim"), rank) : rank - 1;
}

// The mask at x's dims. Smaller ones are of attention: [L, L] (type 0) or of keys, [B, L] (type 1), for [B, H, L, L].
Value mask_of(Emitter& e, const Call& c, const Value& x) {
  constexpr int64_t kOfKeys = 1;
  const Value mask = e.convert(at_least_1d(e, c.tensor("mask")), at::kBool);
  if (mask.dims() == x.dims()) return mask;
  if (c.integer_or("mask_type", 0) == kOfKeys && x.rank() == 4 && mask.rank() == 2) {
    return e.broadcast_in_dim(mask, x.dims(), {0, 3});
  }
  return broadcast_to(e, mask, x.dims());
}

// softmax over the elements whose mask is false; the others are 0. Only NaN where all are masked.
Value lower_masked_softmax(Emitter& e, const Call& c) {
  const Value x = operand(e, c, "self");
  const int64_t dim = last_dim_or(c, x.rank());
  const Value masked = e.select(mask_of(e, c, x), e.constant_like(-kInfinity, x), x);
  return as_result(e, c, softmax(e, masked, dim));
}

Value lower_masked_softmax_backward(Emitter& e, const Call& c) {
  const Value grad = operand(e, c, "grad_output");
  const Value output = operand(e, c, "output");
  const int64_t dim = last_dim_or(c, grad.rank());
  const Value mask = broadcast_to(e, e.convert(at_least_1d(e, c.tensor("mask")), at::kBool), grad.dims());
  const Value zero = e.constant_like(0, grad);
  const Value kept = softmax_gradient(e, e.select(mask, zero, grad), e.select(mask, zero, output), dim);
  return as_result(e, c, kept);
}

}  // namespace

void add_softmax(Table& t) {
  t.add("aten::_softmax", lower_softmax);
  t.add("aten::_log_softmax", lower_log_softmax);
  t.add("aten::_softmax_backward_data", lower_softmax_backward_data);
  t.add("aten::_log_softmax_backward_data", lower_log_softmax_backward_data);
  t.add("aten::_safe_softmax", lower_safe_softmax);
  t.add("aten::_masked_softmax", lower_masked_softmax).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
  t.add("aten::_masked_softmax_backward", lower_masked_softmax_backward).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("grad_output").type};
  });
}

}  // namespace torch_tpu
