// Losses against class indices, and their gradients: nll_loss, multi_margin_loss,
// multilabel_margin_loss. Indices that are no class give what clamped ones would.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

Value in_opmath(Emitter& e, const Value& x) { return e.convert(x, opmath(x.dtype())); }

// Positions along the class dimension, of `like`'s dims, in the dtype of `classes`.
Value class_positions(Emitter& e, const Value& classes, const Value& like, int64_t dim) {
  return e.iota(like.type.with(classes.dtype()), dim);
}

// --- nll_loss, over [C], [N, C] or [N, C, ...]: classes are dim 1, a vector is a batch of one.

struct NegativeLogLikelihood {
  Value self;     // [N, C, ...] in opmath
  Value classes;  // [N, ...] int32, any value where not valid
  Value valid;    // [N, ...]: not the ignored class
  Value weights;  // [N, ...]: of the classes, 0 where not valid
  bool batched;
};

NegativeLogLikelihood nll_operands(Emitter& e, const Call& c) {
  NegativeLogLikelihood nll;
  const Value self = c.tensor("self");
  const Value target = e.convert(c.tensor("target"), at::kLong);
  nll.batched = self.rank() > 1;
  nll.self = in_opmath(e, nll.batched ? self : e.reshape(self, {1, self.type.numel()}));
  Dims dims = nll.self.dims();
  dims.erase(dims.begin() + 1);
  const Value long_classes = e.reshape(target, dims);
  nll.valid = e.compare("NE", long_classes, c.integer("ignore_index"));
  nll.classes = e.convert(long_classes, at::kInt);
  const Type type(nll.self.dtype(), dims);
  Value weights = e.constant(1, type);
  if (c.has("weight")) {
    const Value of_class = e.convert(c.tensor("weight"), type.dtype);
    weights = e.reshape(take(e, of_class, 0, flatten(e, nll.classes)), dims);
  }
  nll.weights = e.select(nll.valid, weights, e.constant(0, type));
  return nll;
}

Value total(Emitter& e, const Value& x) { return reduce_loss(e, x, Reduction::kSum); }

// The loss, and the weights' sum (0 where the losses of a batch are not reduced).
Values lower_nll_loss_forward(Emitter& e, const Call& c) {
  const NegativeLogLikelihood nll = nll_operands(e, c);
  const Reduction reduction = reduction_of(c);
  const Value picked = squeeze(e, gather_along(e, nll.self, 1, unsqueeze(e, nll.classes, 1)), 1);
  const Value zero = e.constant_like(0, picked);
  const Value loss = e.select(nll.valid, e.negate(e.multiply(nll.weights, picked)), zero);
  if (reduction == Reduction::kNone && nll.batched) {
    return {as_result(e, c, loss, 0), e.constant(0, c.result(1))};
  }
  const Value weight = total(e, nll.weights);
  const Value sum = total(e, loss);
  const Value output = reduction == Reduction::kMean ? e.divide(sum, weight) : sum;
  return {as_result(e, c, output, 0), as_result(e, c, weight, 1)};
}

// -weight * grad_output (divided by total_weight for a mean) at each target, 0 elsewhere.
Value lower_nll_loss_backward(Emitter& e, const Call& c) {
  const NegativeLogLikelihood nll = nll_operands(e, c);
  Value grad = in_opmath(e, c.tensor("grad_output"));
  if (reduction_of(c) == Reduction::kMean) {
    const Value weight = e.reshape(e.convert(c.tensor("total_weight"), grad.dtype()), {});
    grad = e.divide(e.reshape(grad, {}), weight);
  }
  if (grad.type.numel() == 1 && grad.rank() != nll.weights.rank()) grad = e.reshape(grad, {});
  grad = broadcast_to(e, e.convert(grad, nll.self.dtype()), nll.weights.dims());
  const Value slope = e.select(nll.valid, e.negate(e.multiply(nll.weights, grad)), e.constant_like(0, grad));
  const auto along = [&](const Value& v) { return broadcast_along(e, v, nll.self.dims(), {1}); };
  const Value here = e.compare("EQ", along(nll.classes), class_positions(e, nll.classes, nll.self, 1));
  return as_result(e, c, e.select(here, along(slope), e.constant_like(0, nll.self)));
}

// --- margin losses, over [N, C]; a vector is a batch of one, a number a vector.

Value as_matrix(Emitter& e, const Value& x) { return x.rank() == 2 ? x : e.reshape(x, {1, x.type.numel()}); }

// 1 / C, or 1 / (N C) for a mean: what one term adds to the loss.
double term_weight(const Value& self, Reduction how) {
  const double classes = static_cast<double>(self.dim(1));
  return how == Reduction::kMean ? 1 / (classes * static_cast<double>(self.dim(0))) : 1 / classes;
}

// Sums of each row, [N], to the call's result.
Value finish_rows(Emitter& e, const Call& c, const Value& rows) {
  const Reduction how = reduction_of(c);
  return as_result(e, c, how == Reduction::kNone ? rows : reduce_loss(e, rows, how));
}

// `gradient` of the rows' unreduced sums times grad_output, which is one a row or one of all.
Value finish_row_gradient(Emitter& e, const Call& c, const Value& gradient) {
  const Value output = e.convert(c.tensor("grad_output"), gradient.dtype());
  const Value scale = output.type.numel() == 1
                          ? broadcast_to(e, e.reshape(output, {}), gradient.dims())
                          : broadcast_along(e, e.reshape(output, {gradient.dim(0)}), gradient.dims(), {1});
  return as_result(e, c, e.multiply(e.multiply(gradient, term_weight(gradient, reduction_of(c))), scale));
}

struct MultiMargin {
  Value self;       // [N, C] in opmath
  Value z;          // [N, C] margin - self[target] + self, where positive and not the target; else 0
  Value weights;    // [N, C] of the target's class; undefined: 1
  Value is_target;  // [N, C]
};

MultiMargin multi_margin(Emitter& e, const Call& c) {
  MultiMargin m;
  const Value self = c.tensor("self");
  const auto nonempty = [&](int64_t dim) { return self.dim(dim) != 0; };
  TORCH_CHECK((self.rank() == 1 && nonempty(0)) || (self.rank() == 2 && nonempty(1)) || self.rank() == 0,
              "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.dims());
  m.self = in_opmath(e, as_matrix(e, self));
  const Dims& dims = m.self.dims();
  TORCH_CHECK(c.tensor("target").dtype() == at::kLong, "expected scalar type Long but found ",
              c.tensor("target").dtype());
  TORCH_CHECK(c.tensor("target").rank() <= 1 && c.tensor("target").type.numel() == dims[0],
              "inconsistent target size, expected ", dims[0], " but got ", c.tensor("target").dims());
  TORCH_CHECK(c.equals("p", 1) || c.equals("p", 2), "only p == 1 and p == 2 supported");
  TORCH_CHECK(!c.has("weight") || (c.tensor("weight").rank() <= 1 && c.tensor("weight").type.numel() == dims[1]),
              "inconsistent weight size, expected ", dims[1], " but got ", c.tensor("weight").dims());
  const Value target = e.reshape(e.convert(c.tensor("target"), at::kInt), {dims[0]});
  const auto along = [&](const Value& v) { return broadcast_along(e, v, dims, {1}); };
  const Value picked = squeeze(e, gather_along(e, m.self, 1, unsqueeze(e, target, 1)), 1);
  m.is_target = e.compare("EQ", along(target), class_positions(e, target, m.self, 1));
  const Value zero = e.constant_like(0, m.self);
  const Value z = e.add(e.subtract(c.number("margin", m.self.type), along(picked)), m.self);
  m.z = e.select(e.logical_and(e.compare("GT", z, zero), e.logical_not(m.is_target)), z, zero);
  if (c.has("weight")) m.weights = along(take(e, e.convert(c.tensor("weight"), m.self.dtype()), 0, target));
  return m;
}

Value lower_multi_margin_loss(Emitter& e, const Call& c) {
  const MultiMargin m = multi_margin(e, c);
  Value loss = c.equals("p", 1) ? m.z : e.multiply(m.z, m.z);
  if (m.weights.defined()) loss = e.multiply(loss, m.weights);
  const Value rows = accurate_sum(e, loss, {1});
  return finish_rows(e, c, e.divide(rows, static_cast<double>(m.self.dim(1))));
}

Value lower_multi_margin_loss_backward(Emitter& e, const Call& c) {
  const MultiMargin m = multi_margin(e, c);
  const Value zero = e.constant_like(0, m.z);
  const Value positive = e.compare("GT", m.z, zero);
  Value slope = c.equals("p", 1) ? e.convert(positive, m.z.dtype()) : e.multiply(m.z, 2);
  if (m.weights.defined()) slope = e.multiply(slope, m.weights);
  slope = e.select(positive, slope, zero);
  const Value others = e.negate(accurate_sum(e, slope, {1}));
  const Value gradient = e.select(m.is_target, broadcast_along(e, others, m.z.dims(), {1}), slope);
  return finish_row_gradient(e, c, gradient);
}

// Targets are the classes before the first -1.
struct MultiLabel {
  Value self;       // [N, C] in opmath
  Value classes;    // [N, C] int32
  Value valid;      // [N, C]: before the first -1
  Value is_target;  // [N, C] of classes
};

// [N, J, C]: is target j of a row the class c?
Value targets_by_class(Emitter& e, const MultiLabel& m) {
  const Dims cube = {m.self.dim(0), m.self.dim(1), m.self.dim(1)};
  const Value at = e.compare("EQ", broadcast_along(e, m.classes, cube, {2}), e.iota(Type(at::kInt, cube), 2));
  return e.logical_and(at, broadcast_along(e, m.valid, cube, {2}));
}

MultiLabel multi_label(Emitter& e, const Call& c) {
  MultiLabel m;
  m.self = in_opmath(e, as_matrix(e, c.tensor("self")));
  m.classes = e.convert(as_matrix(e, c.tensor("target")), at::kInt);
  const Value where = e.iota(m.classes.type, 1);
  const Value count = e.constant_like(m.self.dim(1), where);
  const Value ends = extreme(e, e.select(e.compare("EQ", m.classes, -1), where, count), {1}, /*largest=*/false);
  m.valid = e.compare("LT", where, broadcast_along(e, ends, where.dims(), {1}));
  m.is_target = extreme(e, targets_by_class(e, m), {1}, /*largest=*/true);
  return m;
}

// [N, J, C]: 1 - self[target j] + self[c] for valid j and c no target; else 0.
Value label_margins(Emitter& e, const MultiLabel& m, const Value& is_target) {
  const Dims cube = {m.self.dim(0), m.self.dim(1), m.self.dim(1)};
  const Value picked = gather_along(e, m.self, 1, e.maximum(m.classes, 0));
  const Value z = e.add(e.subtract(1, broadcast_along(e, picked, cube, {2})), broadcast_along(e, m.self, cube, {1}));
  const Value counts =
      e.logical_and(broadcast_along(e, m.valid, cube, {2}), e.logical_not(broadcast_along(e, is_target, cube, {1})));
  return e.select(e.logical_and(counts, e.compare("GT", z, 0)), z, e.constant_like(0, z));
}

Values lower_multilabel_margin_loss_forward(Emitter& e, const Call& c) {
  const MultiLabel m = multi_label(e, c);
  const Value rows = accurate_sum(e, label_margins(e, m, m.is_target), {1, 2});
  const Value loss = finish_rows(e, c, e.divide(rows, static_cast<double>(m.self.dim(1))));
  return {loss, as_result(e, c, m.is_target, 1)};
}

Value lower_multilabel_margin_loss_backward(Emitter& e, const Call& c) {
  const MultiLabel m = multi_label(e, c);
  const Value is_target = e.convert(as_matrix(e, c.tensor("is_target")), at::kBool);
  const Value z = label_margins(e, m, is_target);
  const Value active = e.convert(e.compare("GT", z, 0), z.dtype());
  const Value of_classes = accurate_sum(e, active, {1});
  // Every target j loses what its margins add to the classes.
  const Value of_targets = broadcast_along(e, accurate_sum(e, active, {2}), z.dims(), {2});
  const Value at_class = e.select(targets_by_class(e, m), of_targets, e.constant_like(0, z));
  return finish_row_gradient(e, c, e.subtract(of_classes, accurate_sum(e, at_class, {1})));
}

std::vector<Type> self_type(const Call& c) { return {c.tensor("self").type}; }

// The CPU kernel's: of a single target one number, where PyTorch's Meta kernel says a vector of one.
std::vector<Type> multi_margin_loss_type(const Call& c) {
  const bool by_row = reduction_of(c) == Reduction::kNone && c.tensor("target").rank() > 0;
  return {c.tensor("self").type.with(by_row ? c.tensor("target").dims() : Dims{})};
}

// Likewise; and what it checks, since PyTorch's Meta kernel takes a number and a vector of one for different sizes.
std::vector<Type> multilabel_margin_loss_type(const Call& c) {
  const Type& self = c.tensor("self").type;
  const Type& target = c.tensor("target").type;
  const bool matrix = self.rank() == 2;
  TORCH_CHECK(
      self.rank() == 0 || ((matrix || self.rank() == 1) && self.dims.back() != 0),
      "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", c10::IntArrayRef(self.dims));
  TORCH_CHECK(matrix ? target.dims == self.dims : target.rank() <= 1 && target.numel() == self.numel(),
              "inconsistent target size: ", c10::IntArrayRef(target.dims),
              " for input of size: ", c10::IntArrayRef(self.dims));
  const bool by_row = reduction_of(c) == Reduction::kNone && matrix;
  return {self.with(by_row ? Dims{self.dims[0]} : Dims{}), self.with(target.dims)};
}

}  // namespace

void add_class_loss(Table& t) {
  t.add("aten::nll_loss_forward", lower_nll_loss_forward);
  t.add("aten::nll_loss_backward", lower_nll_loss_backward);
  t.add("aten::nll_loss2d_forward", lower_nll_loss_forward);
  t.add("aten::nll_loss2d_backward", lower_nll_loss_backward);
  t.add("aten::multi_margin_loss", lower_multi_margin_loss).with_shape(multi_margin_loss_type);
  t.add("aten::multi_margin_loss_backward", lower_multi_margin_loss_backward).with_shape(self_type);
  t.add("aten::multilabel_margin_loss_forward", lower_multilabel_margin_loss_forward)
      .with_shape(multilabel_margin_loss_type);
  t.add("aten::multilabel_margin_loss_backward", lower_multilabel_margin_loss_backward).with_shape(self_type);
}

}  // namespace torch_tpu
