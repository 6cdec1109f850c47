// Activation functions. Their gradients are in activation_backward.cpp.
#include "lowerings/activation.h"

#include <cmath>

#include "lowerings/draws.h"
#include "lowerings/families.h"

namespace torch_tpu {

Value Activation::number(std::string_view name) const { return c.number(name, x.type); }

Value Activation::constant(double value) const { return e.constant(value, x.type); }

Value tanh_softplus(Emitter& e, const Value& x) {
  return e.unary("tanh", e.unary("log_plus_one", e.unary("exponential", x)));
}

Value gelu_tanh(Emitter& e, const Value& x) {
  const Value inner = e.multiply(e.add(x, e.multiply(e.multiply(square(e, x), x), kGeluCube)), kGeluScale);
  return e.unary("tanh", inner);
}

Value normal_cdf(Emitter& e, const Value& x) {
  return e.multiply(one_plus(e, e.unary("chlo.erf", e.multiply(x, M_SQRT1_2))), 0.5);
}

namespace {

// NaN and -0 stay.
Value relu(Emitter& e, const Value& x) { return e.select(e.compare("LT", x, 0), like(e, 0, x), x); }

Value leaky_relu(const Activation& a) {
  return a.e.select(a.e.compare("GT", a.x, 0), a.x, a.e.multiply(a.x, a.number("negative_slope")));
}

Value threshold(const Activation& a) {
  return a.e.select(a.e.compare("LE", a.x, a.number("threshold")), a.number("value"), a.x);
}

Value elu(const Activation& a) {
  Emitter& e = a.e;
  const Value exponent = e.multiply(a.x, a.number("input_scale"));
  const Value negative =
      e.multiply(e.unary("exponential_minus_one", exponent), e.multiply(a.number("alpha"), a.number("scale")));
  return e.select(e.compare("LT", a.x, 0), negative, e.multiply(a.x, a.number("scale")));
}

Value gelu(const Activation& a) {
  Emitter& e = a.e;
  if (a.c.text("approximate") == "tanh") {
    return e.multiply(e.multiply(a.x, 0.5), one_plus(e, gelu_tanh(e, a.x)));
  }
  return e.multiply(a.x, normal_cdf(e, a.x));
}

Value silu(Emitter& e, const Value& x) { return e.multiply(x, sigmoid(e, x)); }

Value mish(Emitter& e, const Value& x) { return e.multiply(x, tanh_softplus(e, x)); }

Value hardtanh(const Activation& a) { return a.e.minimum(a.e.maximum(a.x, a.number("min_val")), a.number("max_val")); }

// min(max(x + 3, 0), 6)
Value six_step(Emitter& e, const Value& x) { return e.minimum(e.maximum(e.add(x, 3), 0), 6); }

Value hardsigmoid(Emitter& e, const Value& x) { return e.divide(six_step(e, x), 6); }

Value hardswish(Emitter& e, const Value& x) { return e.divide(e.multiply(x, six_step(e, x)), 6); }

Value hardshrink(const Activation& a) { return a.e.select(within_lambda(a), a.constant(0), a.x); }

Value softshrink(const Activation& a) {
  Emitter& e = a.e;
  const Value lambda = a.number("lambd");
  const Value below = e.select(e.compare("LT", a.x, e.negate(lambda)), e.add(a.x, lambda), e.multiply(a.x, 0));
  return e.select(e.compare("GT", a.x, lambda), e.subtract(a.x, lambda), below);
}

Value softplus(const Activation& a) {
  Emitter& e = a.e;
  const Value beta = a.number("beta");
  const Value scaled = e.multiply(a.x, beta);
  const Value soft = e.divide(e.unary("log_plus_one", e.unary("exponential", scaled)), beta);
  return e.select(e.compare("GT", scaled, a.number("threshold")), a.x, soft);
}

// The output, and exp(-|x|), which PyTorch's CPU backward reads.
Values lower_log_sigmoid(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value x = e.convert(self, opmath(self.dtype()));
  const Value z = e.unary("exponential", e.negate(e.unary("abs", x)));
  const Value output = e.subtract(e.minimum(x, 0), e.unary("log_plus_one", z));
  const Value buffer = e.convert(z, self.dtype());
  const Type& wanted = c.result(1);
  return {e.convert(output, self.dtype()), wanted.dims == buffer.dims() ? buffer : e.constant(0, wanted)};
}

Value lower_glu(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto [value, gate] = glu_halves(e, e.convert(self, opmath(self.dtype())), c.integer("dim"));
  return e.convert(e.multiply(value, sigmoid(e, gate)), self.dtype());
}

Value lower_prelu(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.tensor("self").dtype();
  const Values xs = operands(e, c, {"self", "weight"}, opmath(dtype));
  return e.convert(e.select(e.compare("GT", xs[0], 0), xs[0], e.multiply(xs[0], xs[1])), dtype);
}

// The output and the noise, which in training is the slope of each element. Otherwise it stays as it was.
Values lower_rrelu(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const at::ScalarType dtype = self.dtype();
  const Value x = e.convert(self, opmath(dtype));
  const Value lower = c.number("lower", x.type);
  const Value upper = c.number("upper", x.type);
  Value output, noise;
  if (c.flag("training")) {
    const Value drawn =
        e.add(lower, e.multiply(draw_uniform(e, bits_of(c), x.dtype(), x.dims()), e.subtract(upper, lower)));
    const Value slope = e.select(e.compare("LE", x, 0), drawn, e.constant_like(1, x));
    output = e.convert(e.multiply(x, slope), dtype);
    noise = e.convert(slope, dtype);
  } else {
    const Value slope = e.multiply(e.add(lower, upper), 0.5);
    output = e.convert(e.select(e.compare("GT", x, 0), x, e.multiply(x, slope)), dtype);
    noise = c.tensor("noise");
  }
  return {output, noise};
}

// The schema of out= has noise first.
Values lower_rrelu_out(Emitter& e, const Call& c) {
  const Values values = lower_rrelu(e, c);
  return {values[1], values[0]};
}

}  // namespace

Value within_lambda(const Activation& a) {
  const Value lambda = a.number("lambd");
  return a.e.logical_and(a.e.compare("GE", a.x, a.e.negate(lambda)), a.e.compare("LE", a.x, lambda));
}

std::pair<Value, Value> glu_halves(Emitter& e, const Value& x, int64_t dim) {
  TORCH_CHECK(x.rank() > 0, "glu does not support 0-dimensional tensors");
  const int64_t d = Call::wrap(dim, x.rank());
  const int64_t half = x.dim(d) / 2;
  return {slice_dim(e, x, d, 0, half), slice_dim(e, x, d, half, 2 * half)};
}

Row& add_activation_row(Table& t, std::string_view name, Value (*math)(const Activation&), bool has_gradient,
                        std::string_view gradient, std::string_view x) {
  return t.add(name, [=](Emitter& e, const Call& c) -> Values {
    const Names names = has_gradient ? Names{x, gradient} : Names{x};
    const at::ScalarType dtype = c.common_dtype(Promote::kDefault, names);
    const Values xs = operands(e, c, names, opmath(dtype));
    const Activation activation{e, c, xs[0], has_gradient ? xs[1] : Value()};
    return {e.convert(math(activation), dtype)};
  });
}

void add_activation(Table& t) {
  const auto add = [&t](std::string_view name, Value (*math)(const Activation&)) {
    add_activation_row(t, name, math, false, {}, "self");
  };
  const auto add_plain = [&t](std::string_view name, UnaryMath math) {
    add_math(t, name, math, "self", Promote::kDefault);
  };
  add_exact(t, "aten::relu", relu);
  add("aten::leaky_relu", leaky_relu);
  add("aten::threshold", threshold);
  add("aten::elu", elu);
  add("aten::gelu", gelu);
  add_plain("aten::silu", silu);
  add_plain("aten::mish", mish);
  add("aten::hardtanh", hardtanh);
  add_plain("aten::hardsigmoid", hardsigmoid);
  add_plain("aten::hardswish", hardswish);
  add("aten::hardshrink", hardshrink);
  add("aten::softshrink", softshrink);
  add("aten::softplus", softplus);
  t.add("aten::log_sigmoid_forward", lower_log_sigmoid);
  t.add("aten::glu", lower_glu);
  t.add("aten::_prelu_kernel", lower_prelu);
  t.add("aten::rrelu_with_noise", lower_rrelu).draws_random();
  t.add("aten::rrelu_with_noise_", lower_rrelu).draws_random();
  t.add("aten::rrelu_with_noise.out", lower_rrelu_out).draws_random();
}

}  // namespace torch_tpu
