// The elementwise half of LSTM and GRU cells and its gradient, a whole step as one op: what nn.LSTM and
// nn.GRU call after the matrix products. Gates come side by side along dim 1 of (batch, n * hidden): input,
// forget, cell, output for an LSTM; reset, update, new for a GRU. Computes in float32 where the operands
// are narrower. The workspace is what the gradient here reads, in an order of its own.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Value wide(Emitter& e, const Value& x) { return e.convert(x, opmath(x.dtype())); }

Value chunk(Emitter& e, const Value& x, int64_t i, int64_t hidden) {
  return slice_dim(e, x, 1, i * hidden, (i + 1) * hidden);
}

// `gates` plus the bias, if the call has it, in opmath.
Value biased(Emitter& e, const Call& c, const char* gates, const char* bias) {
  const Value x = wide(e, c.tensor(gates));
  if (!c.has(bias)) return x;
  return e.add(x, e.broadcast_in_dim(e.convert(flatten(e, c.tensor(bias)), x.dtype()), x.dims(), {1}));
}

// The gradient of sigmoid and of tanh, by their results.
Value sigmoid_slope(Emitter& e, const Value& y) { return e.multiply(y, e.subtract(1, y)); }
Value tanh_slope(Emitter& e, const Value& y) { return e.subtract(1, e.multiply(y, y)); }

std::vector<Type> lstm_types(const Call& c) {
  const Type state = c.tensor("cx").type;
  return {state, state, c.tensor("input_gates").type};
}

Values lower_thnn_fused_lstm_cell(Emitter& e, const Call& c) {
  const std::vector<Type> types = lstm_types(c);
  const Value gates = e.add(biased(e, c, "input_gates", "input_bias"), biased(e, c, "hidden_gates", "hidden_bias"));
  const int64_t hidden = types[0].dims[1];
  Values g;
  for (const auto i : c10::irange(4)) {
    g.push_back(e.unary(i == 2 ? "tanh" : "logistic", chunk(e, gates, i, hidden)));
  }
  const Value cy = e.add(e.multiply(g[1], wide(e, c.tensor("cx"))), e.multiply(g[0], g[2]));
  const Value hy = e.multiply(g[3], e.unary("tanh", cy));
  return {e.convert(hy, types[0].dtype), e.convert(cy, types[1].dtype), e.convert(e.concatenate(g, 1), types[2].dtype)};
}

std::vector<Type> lstm_gradient_types(const Call& c) {
  const Type gates = c.tensor("workspace").type;
  std::vector<Type> types = {gates, c.tensor("cx").type, Type(gates.dtype, {gates.dims[1]})};
  const bool none = !c.has("grad_hy") && !c.has("grad_cy");
  for (const auto i : c10::irange(3)) {
    if (none || (i == 2 && !c.flag("has_bias"))) types[i].dtype = at::ScalarType::Undefined;
  }
  return types;
}

Values lower_thnn_fused_lstm_cell_backward_impl(Emitter& e, const Call& c) {
  Values results(3);
  if (!c.has("grad_hy") && !c.has("grad_cy")) return results;
  const Value cx = wide(e, c.tensor("cx"));
  const int64_t hidden = cx.dim(1);
  const Value workspace = wide(e, c.tensor("workspace"));
  Values g;
  for (const auto i : c10::irange(4)) g.push_back(chunk(e, workspace, i, hidden));
  const Value tanh_cy = e.unary("tanh", wide(e, c.tensor("cy")));
  const auto grad_of = [&](const char* name) {
    return c.has(name) ? e.convert(c.tensor(name), cx.dtype()) : e.constant_like(0, cx);
  };
  const Value grad_hy = grad_of("grad_hy");
  const Value grad_cy = e.add(e.multiply(e.multiply(grad_hy, g[3]), tanh_slope(e, tanh_cy)), grad_of("grad_cy"));
  const Value grad_gates = e.concatenate({e.multiply(e.multiply(grad_cy, g[2]), sigmoid_slope(e, g[0])),
                                          e.multiply(e.multiply(grad_cy, cx), sigmoid_slope(e, g[1])),
                                          e.multiply(e.multiply(grad_cy, g[0]), tanh_slope(e, g[2])),
                                          e.multiply(e.multiply(grad_hy, tanh_cy), sigmoid_slope(e, g[3]))},
                                         1);
  const at::ScalarType dtype = c.tensor("workspace").dtype();
  results[0] = e.convert(grad_gates, dtype);
  results[1] = e.convert(e.multiply(grad_cy, g[1]), c.tensor("cx").dtype());
  if (c.flag("has_bias")) results[2] = e.convert(sum(e, grad_gates, {0}), dtype);
  return results;
}

// GRU's workspace: reset, update, new, the state before, and the hidden half of new.
constexpr int64_t kKept = 5;

std::vector<Type> gru_types(const Call& c) {
  const Type state = c.tensor("hx").type;
  return {state, state.with({state.dims[0], kKept * state.dims[1]})};
}

Values lower_thnn_fused_gru_cell(Emitter& e, const Call& c) {
  const std::vector<Type> types = gru_types(c);
  const int64_t hidden = types[0].dims[1];
  const Value inputs = biased(e, c, "input_gates", "input_bias");
  const Value states = biased(e, c, "hidden_gates", "hidden_bias");
  const Value hx = wide(e, c.tensor("hx"));
  const auto gate = [&](int64_t i) {
    return e.unary("logistic", e.add(chunk(e, inputs, i, hidden), chunk(e, states, i, hidden)));
  };
  const Value reset = gate(0);
  const Value update = gate(1);
  const Value hidden_new = chunk(e, states, 2, hidden);
  const Value fresh = e.unary("tanh", e.add(chunk(e, inputs, 2, hidden), e.multiply(reset, hidden_new)));
  const Value hy = e.add(fresh, e.multiply(update, e.subtract(hx, fresh)));
  return {e.convert(hy, types[0].dtype),
          e.convert(e.concatenate({reset, update, fresh, hx, hidden_new}, 1), types[1].dtype)};
}

std::vector<Type> gru_gradient_types(const Call& c) {
  const Type grad = c.tensor("grad_hy").type;
  const int64_t hidden = grad.dims[1];
  const Type gates = grad.with({grad.dims[0], 3 * hidden});
  Type bias = grad.with({3 * hidden});
  if (!c.flag("has_bias")) bias.dtype = at::ScalarType::Undefined;
  return {gates, gates, grad, bias, bias};
}

Values lower_thnn_fused_gru_cell_backward(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.tensor("grad_hy").dtype();
  const Value grad = wide(e, c.tensor("grad_hy"));
  const int64_t hidden = grad.dim(1);
  const Value workspace = e.convert(c.tensor("workspace"), grad.dtype());
  Values kept;
  for (const auto i : c10::irange(kKept)) kept.push_back(chunk(e, workspace, i, hidden));
  const Value &reset = kept[0], &update = kept[1], &fresh = kept[2], &hx = kept[3], &hidden_new = kept[4];

  const Value grad_new = e.multiply(e.multiply(grad, e.subtract(1, update)), tanh_slope(e, fresh));
  const Value grad_reset = e.multiply(e.multiply(grad_new, hidden_new), sigmoid_slope(e, reset));
  const Value grad_update = e.multiply(e.multiply(grad, e.subtract(hx, fresh)), sigmoid_slope(e, update));
  const Value grad_inputs = e.concatenate({grad_reset, grad_update, grad_new}, 1);
  const Value grad_states = e.concatenate({grad_reset, grad_update, e.multiply(grad_new, reset)}, 1);
  Values results = {grad_inputs, grad_states, e.multiply(grad, update)};
  if (c.flag("has_bias")) {
    results.push_back(sum(e, grad_inputs, {0}));
    results.push_back(sum(e, grad_states, {0}));
  }
  for (Value& x : results) x = e.convert(x, dtype);
  results.resize(5);
  return results;
}

}  // namespace

void add_recurrent(Table& t) {
  t.add("aten::_thnn_fused_lstm_cell", lower_thnn_fused_lstm_cell).with_shape(lstm_types);
  t.add("aten::_thnn_fused_lstm_cell_backward_impl", lower_thnn_fused_lstm_cell_backward_impl)
      .with_shape(lstm_gradient_types);
  t.add("aten::_thnn_fused_gru_cell", lower_thnn_fused_gru_cell).with_shape(gru_types);
  t.add("aten::_thnn_fused_gru_cell_backward", lower_thnn_fused_gru_cell_backward).with_shape(gru_gradient_types);
}

}  // namespace torch_tpu
