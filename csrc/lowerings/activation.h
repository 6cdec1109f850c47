// What activations and their gradients share.
#pragma once

#include <cmath>

#include "lowerings/pointwise.h"

namespace torch_tpu {

// An activation's operands, in opmath: its input (or, in some gradients, its
// result), the incoming gradient where there is one, and its numbers.
struct Activation {
  Emitter& e;
  const Call& c;
  Value x;
  Value grad;

  Value number(std::string_view name) const;  // in x's type
  Value constant(double value) const;
};

// A row whose result, rounded once, has the common dtype of the operands named.
Row& add_activation_row(Table& t, std::string_view name, Value (*math)(const Activation&), bool has_gradient,
                        std::string_view gradient, std::string_view x);

// gelu's approximation: tanh(kGeluScale (x + kGeluCube x^3)).
constexpr double kGeluScale = M_SQRT2 * M_2_SQRTPI * 0.5;
constexpr double kGeluCube = 0.044715;
Value gelu_tanh(Emitter& e, const Value& x);
Value normal_cdf(Emitter& e, const Value& x);
// tanh(log(1 + exp(x)))
Value tanh_softplus(Emitter& e, const Value& x);
// -lambd <= x <= lambd
Value within_lambda(const Activation& a);
// Both halves of `x` along `dim`.
std::pair<Value, Value> glu_halves(Emitter& e, const Value& x, int64_t dim);

}  // namespace torch_tpu
