// Losses of elements against elements, and their gradients. They are computed
// and reduced in opmath, and rounded once.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

struct Pair {
  Value self, target;  // of equal type, in opmath
};

Pair operands(Emitter& e, const Call& c) {
  const at::ScalarType dtype = opmath(c.common_dtype(Promote::kDefault, {"self", "target"}));
  const auto [self, target] = broadcast(e, e.convert(c.tensor("self"), dtype), e.convert(c.tensor("target"), dtype));
  return {self, target};
}

// A tensor argument at the dims and dtype of `like`.
Value operand_like(Emitter& e, const Call& c, std::string_view name, const Value& like) {
  return broadcast_to(e, e.convert(c.tensor(name), like.dtype()), like.dims());
}

Value weighted(Emitter& e, const Call& c, const Value& x) {
  return c.has("weight") ? e.multiply(x, operand_like(e, c, "weight", x)) : x;
}

Value finish_loss(Emitter& e, const Call& c, const Value& loss) {
  return as_result(e, c, reduce_loss(e, loss, reduction_of(c)));
}

// `slope` (of the loss of each element) times grad_output, divided by the count for a mean.
Value finish_gradient(Emitter& e, const Call& c, const Value& slope) {
  Value gradient = e.multiply(slope, operand_like(e, c, "grad_output", slope));
  if (reduction_of(c) == Reduction::kMean) {
    gradient = e.divide(gradient, static_cast<double>(slope.type.numel()));
  }
  return as_result(e, c, gradient);
}

// --- squared and absolute differences

Value lower_mse_loss(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value difference = e.subtract(self, target);
  return finish_loss(e, c, e.multiply(difference, difference));
}

Value lower_mse_loss_backward(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  return finish_gradient(e, c, e.multiply(e.subtract(self, target), 2));
}

// z < beta ? z^2 / (2 beta) : z - beta / 2, with z the absolute difference.
Value lower_smooth_l1_loss(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value z = e.unary("abs", e.subtract(self, target));
  const Value beta = c.number("beta", z.type);
  const Value square = e.divide(e.multiply(e.multiply(z, z), 0.5), beta);
  const Value line = e.subtract(z, e.multiply(beta, 0.5));
  return finish_loss(e, c, e.select(e.compare("LT", z, beta), square, line));
}

// The difference clamped to [-bound, bound], exactly at and beyond the bounds: -bound for 0 if bound is 0.
Value clamped_difference(Emitter& e, const Value& difference, const Value& bound, const Value& inside,
                         const Value& outside) {
  const Value low = e.compare("LE", difference, e.negate(bound));
  const Value high = e.compare("GE", difference, bound);
  return e.select(low, e.negate(outside), e.select(high, outside, inside));
}

Value lower_smooth_l1_loss_backward(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value difference = e.subtract(self, target);
  const Value beta = c.number("beta", difference.type);
  return finish_gradient(
      e, c, clamped_difference(e, difference, beta, e.divide(difference, beta), e.constant_like(1, difference)));
}

// z < delta ? z^2 / 2 : delta (z - delta / 2).
Value lower_huber_loss(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value z = e.unary("abs", e.subtract(self, target));
  const Value delta = c.number("delta", z.type);
  const Value square = e.multiply(e.multiply(z, z), 0.5);
  const Value line = e.multiply(delta, e.subtract(z, e.multiply(delta, 0.5)));
  return finish_loss(e, c, e.select(e.compare("LT", z, delta), square, line));
}

Value lower_huber_loss_backward(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value difference = e.subtract(self, target);
  const Value delta = c.number("delta", difference.type);
  return finish_gradient(e, c, clamped_difference(e, difference, delta, difference, delta));
}

// --- log(1 + exp(-self * target))

Value lower_soft_margin_loss(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value z = e.unary("exponential", e.negate(e.multiply(self, target)));
  return finish_loss(e, c, e.unary("log_plus_one", z));
}

Value lower_soft_margin_loss_backward(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value z = e.unary("exponential", e.negate(e.multiply(self, target)));
  return finish_gradient(e, c, e.negate(e.divide(e.multiply(target, z), e.add(z, 1))));
}

// --- cross entropy of probabilities. Logarithms are kept above -100.

Value lower_binary_cross_entropy(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value log_of_one_minus = e.maximum(e.unary("log_plus_one", e.negate(self)), -100);
  const Value log_of_self = e.maximum(e.unary("log", self), -100);
  const Value loss = e.subtract(e.multiply(e.subtract(target, 1), log_of_one_minus), e.multiply(target, log_of_self));
  return finish_loss(e, c, weighted(e, c, loss));
}

// (self - target) / max((1 - self) self, 1e-12).
Value lower_binary_cross_entropy_backward(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value spread = e.maximum(e.multiply(e.subtract(1, self), self), 1e-12);
  return finish_gradient(e, c, weighted(e, c, e.divide(e.subtract(self, target), spread)));
}

// (1 - target) self + p log(1 + exp(-self)), with p = 1, or 1 + (pos_weight - 1) target.
Value lower_binary_cross_entropy_with_logits(Emitter& e, const Call& c) {
  const auto [self, target] = operands(e, c);
  const Value small = e.unary("log_plus_one", e.unary("exponential", e.negate(e.unary("abs", self))));
  Value softplus = e.add(small, e.maximum(e.negate(self), 0));
  if (c.has("pos_weight")) {
    const Value pos_weight = operand_like(e, c, "pos_weight", self);
    softplus = e.multiply(softplus, e.add(e.multiply(e.subtract(pos_weight, 1), target), 1));
  }
  const Value loss = e.add(e.multiply(e.subtract(1, target), self), softplus);
  return finish_loss(e, c, weighted(e, c, loss));
}

}  // namespace

void add_loss(Table& t) {
  t.add("aten::mse_loss", lower_mse_loss);
  t.add("aten::mse_loss_backward", lower_mse_loss_backward);
  t.add("aten::smooth_l1_loss", lower_smooth_l1_loss);
  t.add("aten::smooth_l1_loss_backward", lower_smooth_l1_loss_backward);
  t.add("aten::huber_loss", lower_huber_loss);
  t.add("aten::huber_loss_backward", lower_huber_loss_backward);
  t.add("aten::soft_margin_loss", lower_soft_margin_loss);
  t.add("aten::soft_margin_loss_backward", lower_soft_margin_loss_backward);
  t.add("aten::binary_cross_entropy", lower_binary_cross_entropy);
  t.add("aten::binary_cross_entropy_backward", lower_binary_cross_entropy_backward);
  t.add("aten::binary_cross_entropy_with_logits", lower_binary_cross_entropy_with_logits);
}

}  // namespace torch_tpu
