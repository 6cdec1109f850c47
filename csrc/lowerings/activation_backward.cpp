// Gradients of activation functions with respect to their input.
#include <cmath>
#include <limits>

#include "lowerings/activation.h"
#include "lowerings/families.h"

namespace torch_tpu {

namespace {

Value threshold(const Activation& a) {
  return a.e.select(a.e.compare("LE", a.x, a.number("threshold")), a.constant(0), a.grad);
}

Value leaky_relu(const Activation& a) {
  return a.e.select(a.e.compare("GT", a.x, 0), a.grad, a.e.multiply(a.grad, a.number("negative_slope")));
}

// From the input, or (is_result) from the output.
Value elu(const Activation& a) {
  Emitter& e = a.e;
  const Value coefficient = e.multiply(a.number("alpha"), a.number("scale"));
  const Value input_scale = a.number("input_scale");
  const Value slope = a.c.flag("is_result")
                          ? e.add(a.x, coefficient)
                          : e.multiply(coefficient, e.unary("exponential", e.multiply(a.x, input_scale)));
  const Value negative = e.multiply(a.grad, e.multiply(input_scale, slope));
  return e.select(e.compare("LE", a.x, 0), negative, e.multiply(a.grad, a.number("scale")));
}

Value gelu(const Activation& a) {
  Emitter& e = a.e;
  const Value& x = a.x;
  if (a.c.text("approximate") == "tanh") {
    const Value tanh = gelu_tanh(e, x);
    const Value inner = e.multiply(one_plus(e, e.multiply(square(e, x), 3 * kGeluCube)), kGeluScale);
    const Value through_tanh = e.multiply(e.multiply(x, one_minus(e, square(e, tanh))), inner);
    return e.multiply(a.grad, e.multiply(e.add(one_plus(e, tanh), through_tanh), 0.5));
  }
  const Value density =
      e.multiply(e.unary("exponential", e.multiply(square(e, x), -0.5)), M_2_SQRTPI * M_SQRT1_2 * 0.5);
  return e.multiply(a.grad, e.add(normal_cdf(e, x), e.multiply(x, density)));
}

Value silu(const Activation& a) {
  Emitter& e = a.e;
  const Value gate = sigmoid(e, a.x);
  const Value slope = e.multiply(gate, one_plus(e, e.multiply(a.x, one_minus(e, gate))));
  return e.multiply(a.grad, slope);
}

Value mish(const Activation& a) {
  Emitter& e = a.e;
  const Value tanh = tanh_softplus(e, a.x);
  const Value rest = e.multiply(e.multiply(a.x, e.unary("logistic", a.x)), one_minus(e, square(e, tanh)));
  return e.multiply(a.grad, e.add(tanh, rest));
}

Value hardtanh(const Activation& a) {
  Emitter& e = a.e;
  const Value outside =
      e.logical_or(e.compare("LE", a.x, a.number("min_val")), e.compare("GE", a.x, a.number("max_val")));
  return e.select(outside, a.constant(0), a.grad);
}

Value hardsigmoid(const Activation& a) {
  return a.e.select(between(a.e, a.x, -3, 3), a.e.divide(a.grad, 6), a.constant(0));
}

Value hardswish(const Activation& a) {
  Emitter& e = a.e;
  const Value middle = e.multiply(a.grad, e.add(e.divide(a.x, 3), 0.5));
  const Value right = e.select(e.compare("LT", a.x, 3), middle, a.grad);
  return e.select(e.compare("LE", a.x, -3), a.constant(0), right);
}

Value shrink(const Activation& a) { return a.e.select(within_lambda(a), a.constant(0), a.grad); }

Value softplus(const Activation& a) {
  Emitter& e = a.e;
  const Value scaled = e.multiply(a.x, a.number("beta"));
  const Value soft = e.multiply(a.grad, e.unary("logistic", scaled));
  return e.select(e.compare("GT", scaled, a.number("threshold")), a.grad, soft);
}

Value log_sigmoid(const Activation& a) { return a.e.multiply(a.grad, a.e.unary("logistic", a.e.negate(a.x))); }

// x is the output here.
Value sigmoid_from_output(const Activation& a) {
  return a.e.multiply(a.grad, conjugate(a.e, a.e.multiply(one_minus(a.e, a.x), a.x)));
}

Value tanh_from_output(const Activation& a) {
  return a.e.multiply(a.grad, conjugate(a.e, one_minus(a.e, square(a.e, a.x))));
}

// Without eps the ends give inf and what is beyond them NaN; with it both give 0.
Value logit(const Activation& a) {
  Emitter& e = a.e;
  const Value slope = e.divide(a.grad, e.multiply(a.x, one_minus(e, a.x)));
  const Value beyond = e.logical_or(e.compare("LT", a.x, 0), e.compare("GT", a.x, 1));
  const Value open = e.select(beyond, a.constant(std::numeric_limits<double>::quiet_NaN()), slope);
  if (!a.c.has("eps")) return open;
  const Value low = a.number("eps");
  const Value outside = e.logical_or(e.compare("LT", a.x, low), e.compare("GT", a.x, one_minus(e, low)));
  const Value held = e.select(outside, a.constant(0), slope);
  return e.select(e.compare("LT", low, 0), open, held);
}

Value lower_glu_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const at::ScalarType wide = opmath(self.dtype());
  const int64_t dim = c.integer("dim");
  const auto [value, gate] = glu_halves(e, e.convert(self, wide), dim);
  const Value grad = e.convert(c.tensor("grad_output"), wide);
  const Value opened = sigmoid(e, gate);
  const Value of_value = e.multiply(grad, opened);
  const Value of_gate = e.multiply(e.multiply(of_value, one_minus(e, opened)), value);
  return e.convert(e.concatenate({of_value, of_gate}, Call::wrap(dim, self.rank())), self.dtype());
}

Values lower_prelu_backward(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.tensor("self").dtype();
  const Values xs = operands(e, c, {"grad_output", "self", "weight"}, opmath(dtype));
  const Value positive = e.compare("GT", xs[1], 0);
  const Value of_self = e.select(positive, xs[0], e.multiply(xs[2], xs[0]));
  const Value of_weight = e.select(positive, e.constant_like(0, xs[0]), e.multiply(xs[1], xs[0]));
  return {e.convert(of_self, dtype), e.convert(of_weight, dtype)};
}

}  // namespace

void add_activation_backward(Table& t) {
  const auto add = [&t](std::string_view name, Value (*math)(const Activation&), std::string_view x = "self",
                        std::string_view gradient = "grad_output") {
    add_activation_row(t, name, math, true, gradient, x);
  };
  add("aten::threshold_backward", threshold);
  add("aten::leaky_relu_backward", leaky_relu);
  add("aten::elu_backward", elu, "self_or_result");
  add("aten::gelu_backward", gelu);
  add("aten::silu_backward", silu);
  add("aten::mish_backward", mish);
  add("aten::hardtanh_backward", hardtanh);
  add("aten::hardsigmoid_backward", hardsigmoid);
  add("aten::hardswish_backward", hardswish);
  add("aten::hardshrink_backward", shrink, "self", "grad_out");
  add("aten::softshrink_backward", shrink);
  add("aten::softplus_backward", softplus);
  add("aten::log_sigmoid_backward", log_sigmoid);
  add("aten::sigmoid_backward", sigmoid_from_output, "output");
  add("aten::tanh_backward", tanh_from_output, "output");
  add("aten::logit_backward", logit);
  t.add("aten::glu_backward", lower_glu_backward);
  t.add("aten::_prelu_kernel_backward", lower_prelu_backward);
}

}  // namespace torch_tpu
