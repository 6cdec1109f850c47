// Layer, group and RMS normalization, weight normalization, and their gradients. All compute in float32
// where the operands are narrower; statistics are of the whole population.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Dims range(int64_t begin, int64_t end) {
  Dims dims;
  for (int64_t d = begin; d < end; ++d) dims.push_back(d);
  return dims;
}

Value wide(Emitter& e, const Value& x) { return e.convert(x, opmath(x.dtype())); }

// Result i in the dtype PyTorch states for it.
Value as_result(Emitter& e, const Call& c, size_t i, const Value& x) { return e.convert(x, c.result(i).dtype); }

struct Moments {
  Value mean, rstd;  // without the reduced dims
  Value centered;    // x - mean
};

Moments moments(Emitter& e, const Value& x, const Dims& dims, const Value& eps) {
  const auto count = static_cast<double>(count_along(x, dims));
  Moments m;
  m.mean = e.divide(sum(e, x, dims), count);
  m.centered = e.subtract(x, broadcast_along(e, m.mean, x.dims(), dims));
  const Value variance = e.divide(sum(e, e.multiply(m.centered, m.centered), dims), count);
  m.rstd = e.unary("rsqrt", e.add(variance, broadcast_to(e, eps, variance.dims())));
  return m;
}

// --- layer norm: the last dims of the input, which `weight` and `bias` have too

Value affine(Emitter& e, const Call& c, Value x) {
  if (c.has("weight")) x = e.multiply(x, broadcast_to(e, e.convert(c.tensor("weight"), x.dtype()), x.dims()));
  if (c.has("bias")) x = e.add(x, broadcast_to(e, e.convert(c.tensor("bias"), x.dtype()), x.dims()));
  return x;
}

int64_t first_normalized(const Call& c, const Value& x) {
  return x.rank() - static_cast<int64_t>(c.integers("normalized_shape").size());
}

Values lower_native_layer_norm(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Value x = wide(e, input);
  const Dims inner = range(first_normalized(c, x), x.rank());
  const Moments m = moments(e, x, inner, c.number("eps", x.dtype()));
  const Value normalized = e.multiply(m.centered, broadcast_along(e, m.rstd, x.dims(), inner));
  return {e.convert(affine(e, c, normalized), input.dtype()),
          as_result(e, c, 1, keep_dims(e, m.mean, x.dims(), inner, true)),
          as_result(e, c, 2, keep_dims(e, m.rstd, x.dims(), inner, true))};
}

// A saved statistic, broadcast to x along the dims it was taken over.
Value statistic(Emitter& e, const Call& c, const char* name, const Value& x, const Dims& inner) {
  const Dims outer(x.dims().begin(), x.dims().begin() + inner[0]);
  return broadcast_along(e, e.reshape(e.convert(c.tensor(name), x.dtype()), outer), x.dims(), inner);
}

Values lower_native_layer_norm_backward(Emitter& e, const Call& c) {
  const Value x = wide(e, c.tensor("input"));
  const Value grad = e.convert(c.tensor("grad_out"), x.dtype());
  const std::vector<bool> wanted = c.flags("output_mask");
  const int64_t axis = first_normalized(c, x);
  const Dims inner = range(axis, x.rank());
  const Dims outer = range(0, axis);
  const Value rstd = statistic(e, c, "rstd", x, inner);
  const Value x_hat = e.multiply(e.subtract(x, statistic(e, c, "mean", x, inner)), rstd);
  Values results(3);
  if (wanted[0]) {
    Value g = grad;
    if (c.has("weight")) g = e.multiply(g, broadcast_to(e, e.convert(c.tensor("weight"), x.dtype()), x.dims()));
    const auto count = static_cast<double>(count_along(x, inner));
    const Value along_one = e.divide(sum(e, g, inner), count);
    const Value along_x = e.divide(sum(e, e.multiply(g, x_hat), inner), count);
    Value d = e.subtract(g, broadcast_along(e, along_one, x.dims(), inner));
    d = e.subtract(d, e.multiply(x_hat, broadcast_along(e, along_x, x.dims(), inner)));
    results[0] = as_result(e, c, 0, e.multiply(d, rstd));
  }
  const bool empty = x.type.numel() == 0;
  if (wanted[1] && (empty || c.has("weight"))) {
    results[1] = as_result(e, c, 1, sum(e, e.multiply(grad, x_hat), outer));
  }
  if (wanted[2] && (empty || c.has("bias"))) results[2] = as_result(e, c, 2, sum(e, grad, outer));
  return results;
}

// --- RMS norm

Values lower_fused_rms_norm(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Value x = wide(e, input);
  const Dims inner = range(first_normalized(c, x), x.rank());
  const Value mean = e.divide(sum(e, e.multiply(x, x), inner), static_cast<double>(count_along(x, inner)));
  const double smallest = x.dtype() == at::kDouble ? 2.220446049250313e-16 : 1.1920928955078125e-07;
  const Value eps = c.is_number("eps") ? c.number("eps", x.dtype()) : scalar(e, smallest, x.dtype());
  const Value rstd = e.unary("rsqrt", e.add(mean, broadcast_to(e, eps, mean.dims())));
  Value out = e.multiply(x, broadcast_along(e, rstd, x.dims(), inner));
  if (c.has("weight")) out = e.multiply(out, broadcast_to(e, e.convert(c.tensor("weight"), x.dtype()), x.dims()));
  return {e.convert(out, input.dtype()), as_result(e, c, 1, keep_dims(e, rstd, x.dims(), inner, true))};
}

Values lower_fused_rms_norm_backward(Emitter& e, const Call& c) {
  const Value x = wide(e, c.tensor("input"));
  const Value grad = e.convert(c.tensor("grad_out"), x.dtype());
  const std::vector<bool> wanted = c.flags("output_mask");
  const int64_t axis = first_normalized(c, x);
  const Dims inner = range(axis, x.rank());
  const Value rstd = statistic(e, c, "rstd", x, inner);
  const Value x_hat = e.multiply(x, rstd);
  Values results(2);
  if (wanted[0]) {
    Value g = grad;
    if (c.has("weight")) g = e.multiply(g, broadcast_to(e, e.convert(c.tensor("weight"), x.dtype()), x.dims()));
    const Value along = e.divide(sum(e, e.multiply(g, x_hat), inner), static_cast<double>(count_along(x, inner)));
    const Value d = e.subtract(g, e.multiply(x_hat, broadcast_along(e, along, x.dims(), inner)));
    results[0] = as_result(e, c, 0, e.multiply(d, rstd));
  }
  if (wanted[1] && c.has("weight")) {
    results[1] = as_result(e, c, 1, sum(e, e.multiply(grad, x_hat), range(0, axis)));
  }
  return results;
}

// --- group norm: (N, C, HxW) seen as (N, group, C / group, HxW)

struct Groups {
  int64_t n, channels, positions, groups, per_group;
  Dims dims() const { return {n, groups, per_group, positions}; }
};

Groups groups_of(const Call& c) {
  const int64_t group = c.integer("group");
  return {c.integer("N"), c.integer("C"), c.integer("HxW"), group, c.integer("C") / group};
}

// A value by channel, broadcast to the grouped view.
Value by_channel(Emitter& e, const Value& x, const Groups& g, at::ScalarType dtype) {
  return e.broadcast_in_dim(e.reshape(e.convert(x, dtype), {g.groups, g.per_group}), g.dims(), {1, 2});
}

Values lower_native_group_norm(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Groups g = groups_of(c);
  const Value x = e.reshape(wide(e, input), g.dims());
  const Moments m = moments(e, x, {2, 3}, c.number("eps", x.dtype()));
  Value out = e.multiply(m.centered, broadcast_along(e, m.rstd, x.dims(), {2, 3}));
  if (c.has("weight")) out = e.multiply(out, by_channel(e, c.tensor("weight"), g, x.dtype()));
  if (c.has("bias")) out = e.add(out, by_channel(e, c.tensor("bias"), g, x.dtype()));
  return {e.convert(e.reshape(out, input.dims()), input.dtype()), as_result(e, c, 1, m.mean),
          as_result(e, c, 2, m.rstd)};
}

Values lower_native_group_norm_backward(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Groups g = groups_of(c);
  const std::vector<bool> wanted = c.flags("output_mask");
  const Value x = e.reshape(wide(e, input), g.dims());
  const Value grad = e.reshape(e.convert(c.tensor("grad_out"), x.dtype()), g.dims());
  const auto saved = [&](const char* name) {
    const Value value = e.reshape(e.convert(c.tensor(name), x.dtype()), {g.n, g.groups});
    return broadcast_along(e, value, x.dims(), {2, 3});
  };
  const Value rstd = saved("rstd");
  const Value x_hat = e.multiply(e.subtract(x, saved("mean")), rstd);
  Values results(3);
  if (wanted[0]) {
    Value weighted = grad;
    if (c.has("weight")) weighted = e.multiply(weighted, by_channel(e, c.tensor("weight"), g, x.dtype()));
    const auto count = static_cast<double>(g.per_group * g.positions);
    const Value along_one = e.divide(sum(e, weighted, {2, 3}), count);
    const Value along_x = e.divide(sum(e, e.multiply(weighted, x_hat), {2, 3}), count);
    Value d = e.subtract(weighted, broadcast_along(e, along_one, x.dims(), {2, 3}));
    d = e.subtract(d, e.multiply(x_hat, broadcast_along(e, along_x, x.dims(), {2, 3})));
    results[0] = as_result(e, c, 0, e.reshape(e.multiply(d, rstd), input.dims()));
  }
  if (wanted[1]) {
    results[1] = as_result(e, c, 1, e.reshape(sum(e, e.multiply(grad, x_hat), {0, 3}), {g.channels}));
  }
  if (wanted[2]) results[2] = as_result(e, c, 2, e.reshape(sum(e, grad, {0, 3}), {g.channels}));
  return results;
}

// --- weight norm: v scaled to the norms g, which it has along `dim`

Dims all_but(int64_t dim, int64_t rank) {
  Dims dims = range(0, rank);
  dims.erase(dims.begin() + dim);
  return dims;
}

Values lower_weight_norm_interface(Emitter& e, const Call& c) {
  const Value v = c.tensor("v");
  const Value x = wide(e, v);
  const Dims dims = all_but(Call::wrap(c.integer("dim"), x.rank()), x.rank());
  const Value norm = e.unary("sqrt", sum(e, e.multiply(x, x), dims));
  const Value g = e.reshape(e.convert(c.tensor("g"), x.dtype()), norm.dims());
  const Value w = e.multiply(x, broadcast_along(e, e.divide(g, norm), x.dims(), dims));
  return {e.convert(w, v.dtype()), as_result(e, c, 1, e.reshape(norm, c.tensor("g").dims()))};
}

Values lower_weight_norm_interface_backward(Emitter& e, const Call& c) {
  const Value v = wide(e, c.tensor("saved_v"));
  const Value grad = e.convert(c.tensor("grad_w"), v.dtype());
  const Value saved_g = c.tensor("saved_g");
  const Dims dims = all_but(Call::wrap(c.integer("dim"), v.rank()), v.rank());
  const Value along = sum(e, e.multiply(grad, v), dims);
  const Value norm = e.reshape(e.convert(c.tensor("saved_norms"), v.dtype()), along.dims());
  const Value g = e.reshape(e.convert(saved_g, v.dtype()), along.dims());
  const Value projected = e.divide(along, e.multiply(norm, norm));
  const Value inner = e.subtract(grad, e.multiply(v, broadcast_along(e, projected, v.dims(), dims)));
  const Value grad_v = e.multiply(inner, broadcast_along(e, e.divide(g, norm), v.dims(), dims));
  const Value grad_g = e.reshape(e.divide(along, norm), saved_g.dims());
  return {as_result(e, c, 0, grad_v), as_result(e, c, 1, grad_g)};
}

}  // namespace

void add_norm(Table& t) {
  t.add("aten::native_layer_norm", lower_native_layer_norm);
  t.add("aten::native_layer_norm_backward", lower_native_layer_norm_backward);
  t.add("aten::_fused_rms_norm", lower_fused_rms_norm);
  t.add("aten::_fused_rms_norm_backward", lower_fused_rms_norm_backward);
  t.add("aten::native_group_norm", lower_native_group_norm).in_format_of({"input"});
  t.add("aten::native_group_norm_backward", lower_native_group_norm_backward);
  t.add("aten::_weight_norm_interface", lower_weight_norm_interface);
  t.add("aten::_weight_norm_interface_backward", lower_weight_norm_interface_backward);
}

}  // namespace torch_tpu
