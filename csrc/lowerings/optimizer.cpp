// Fused optimizer steps and gradient scaling, as PyTorch's fused kernels define
// them: in the parameter's opmath dtype, hyperparameters combined in double.
// A step with found_inf changes nothing, by selecting what was there.
// The written lists come back in schema order.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// What every fused step does with gradients and found_inf, around its own arithmetic.
class Step {
 public:
  Step(Emitter& e, const Call& c)
      : e_(e), c_(c), parameters_(c.tensors("self")), gradients_(c.tensors("grads")), maximize_(c.flag("maximize")) {
    if (c.has("found_inf")) skip_ = e.compare("EQ", c.number("found_inf", at::kFloat), 1);
  }

  size_t size() const { return parameters_.size(); }
  at::ScalarType dtype(size_t i) const { return opmath(parameters_[i].dtype()); }
  Value parameter(size_t i) const { return e_.convert(parameters_[i], dtype(i)); }

  // The i-th gradient to descend along. Unscales the one to be written back.
  Value gradient(size_t i) {
    Value gradient = e_.convert(gradients_[i], dtype(i));
    if (c_.has("grad_scale")) {
      gradient = e_.divide(gradient, c_.number("grad_scale", gradient.type));
      gradients_[i] = kept_if_skipped(gradient, gradients_[i]);
    }
    return maximize_ ? e_.negate(gradient) : gradient;
  }
  const Values& gradients() const { return gradients_; }

  // `value` in the dtype of `before`, or `before` if the step is to be skipped.
  Value kept_if_skipped(const Value& value, const Value& before) const {
    const Value rounded = e_.convert(value, before.dtype());
    return skip_.defined() ? e_.select(skip_, before, rounded) : rounded;
  }
  Value updated(size_t i, const Value& value) const { return kept_if_skipped(value, parameters_[i]); }

  // Adds weight_decay * parameter.
  Value decayed(const Value& gradient, const Value& parameter) const {
    if (c_.equals("weight_decay", 0)) return gradient;
    return e_.add(gradient, e_.multiply(c_.number("weight_decay", parameter.type), parameter));
  }

 private:
  Emitter& e_;
  const Call& c_;
  Values parameters_, gradients_;
  bool maximize_;
  Value skip_;  // 0-d bool; undefined: never
};

Value one_minus(Emitter& e, const Value& x) { return e.subtract(1, x); }

Value splat(Emitter& e, const Value& x, const Type& type) {
  return e.broadcast_in_dim(e.convert(x, type.dtype), type.dims, {});
}

// The step counts as one vector of doubles: what depends on them is computed once, for all parameters.
Value step_counts(Emitter& e, const Call& c) {
  Values counts;
  for (const Value& step : c.tensors("state_steps")) {
    counts.push_back(e.reshape(e.convert(step, at::kDouble), {1}));
  }
  return e.concatenate(counts, 0);
}

// The i-th element of a vector, 0-d.
Value element(Emitter& e, const Value& vector, size_t i) {
  const int64_t at = static_cast<int64_t>(i);
  return e.reshape(slice_dim(e, vector, 0, at, at + 1), {});
}

Values in_order(std::initializer_list<Values> lists) {
  Values all;
  for (const Values& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

Values lower_adam(Emitter& e, const Call& c, bool decoupled) {
  Step step(e, c);
  if (step.size() == 0) return {};
  const bool amsgrad = c.flag("amsgrad");
  const Value lr = c.number("lr", at::kDouble);
  const Value beta1 = c.number("beta1", at::kDouble);
  const Value beta2 = c.number("beta2", at::kDouble);
  const Value counts = step_counts(e, c);
  const auto bias_correction = [&](const Value& beta) {
    return one_minus(e, e.power(splat(e, beta, counts.type), counts));
  };
  const Value step_sizes = e.divide(splat(e, lr, counts.type), bias_correction(beta1));
  const Value corrections = e.unary("sqrt", bias_correction(beta2));
  const bool decays = decoupled && !c.equals("weight_decay", 0);
  const Value shrinkage = decays ? e.multiply(lr, c.number("weight_decay", at::kDouble)) : Value();

  const Values averages = c.tensors("exp_avgs");
  const Values squares = c.tensors("exp_avg_sqs");
  const Values maxima = c.tensors("max_exp_avg_sqs");
  Values parameters, new_averages, new_squares, new_maxima;
  for (const auto i : c10::irange(step.size())) {
    Value parameter = step.parameter(i);
    const Type type = parameter.type;
    Value gradient = step.gradient(i);
    if (decays) {
      parameter = e.subtract(parameter, e.multiply(splat(e, shrinkage, type), parameter));
    } else if (!decoupled) {
      gradient = step.decayed(gradient, parameter);
    }
    const Value old_average = e.convert(averages[i], type.dtype);
    const Value average =
        e.add(old_average, e.multiply(splat(e, one_minus(e, beta1), type), e.subtract(gradient, old_average)));
    const Value square = e.add(e.multiply(splat(e, beta2, type), e.convert(squares[i], type.dtype)),
                               e.multiply(splat(e, one_minus(e, beta2), type), e.multiply(gradient, gradient)));
    Value largest = square;
    if (amsgrad) {
      largest = e.maximum(e.convert(maxima[i], type.dtype), square);
      new_maxima.push_back(step.kept_if_skipped(largest, maxima[i]));
    }
    const Value denominator =
        e.add(e.divide(e.unary("sqrt", largest), splat(e, element(e, corrections, i), type)), c.number("eps", type));
    const Value change = e.divide(e.multiply(splat(e, element(e, step_sizes, i), type), average), denominator);
    parameters.push_back(step.updated(i, e.subtract(parameter, change)));
    new_averages.push_back(step.kept_if_skipped(average, averages[i]));
    new_squares.push_back(step.kept_if_skipped(square, squares[i]));
  }
  return in_order({parameters, step.gradients(), new_averages, new_squares, amsgrad ? new_maxima : maxima});
}

Values lower_fused_adam(Emitter& e, const Call& c) { return lower_adam(e, c, /*decoupled=*/false); }

Values lower_fused_adamw(Emitter& e, const Call& c) { return lower_adam(e, c, /*decoupled=*/true); }

Values lower_fused_sgd(Emitter& e, const Call& c) {
  Step step(e, c);
  const bool nesterov = c.flag("nesterov");
  const bool first = c.flag("is_first_step");
  const Values buffers = c.tensors("momentum_buffer_list");
  Values parameters, new_buffers;
  for (const auto i : c10::irange(step.size())) {
    const Value parameter = step.parameter(i);
    const Type type = parameter.type;
    Value gradient = step.decayed(step.gradient(i), parameter);
    if (!buffers.empty()) {
      const Value momentum = c.number("momentum", type);
      Value buffer = gradient;
      if (!first) {
        const Value fresh = splat(e, one_minus(e, c.number("dampening", at::kDouble)), type);
        buffer = e.add(e.multiply(momentum, e.convert(buffers[i], type.dtype)), e.multiply(fresh, gradient));
      }
      gradient = nesterov ? e.add(gradient, e.multiply(momentum, buffer)) : buffer;
      new_buffers.push_back(step.kept_if_skipped(buffer, buffers[i]));
    }
    parameters.push_back(step.updated(i, e.subtract(parameter, e.multiply(c.number("lr", type), gradient))));
  }
  return in_order({parameters, step.gradients(), new_buffers});
}

Values lower_fused_adagrad(Emitter& e, const Call& c) {
  Step step(e, c);
  if (step.size() == 0) return {};
  const Value counts = step_counts(e, c);
  const Value slowdown = e.add(e.multiply(e.subtract(counts, 1), c.number("lr_decay", counts.type)), 1);
  const Value rates = e.divide(c.number("lr", counts.type), slowdown);
  const Values sums = c.tensors("state_sums");
  Values parameters, new_sums;
  for (const auto i : c10::irange(step.size())) {
    const Value parameter = step.parameter(i);
    const Type type = parameter.type;
    const Value gradient = step.decayed(step.gradient(i), parameter);
    const Value sum = e.add(e.convert(sums[i], type.dtype), e.multiply(gradient, gradient));
    const Value deviation = e.add(e.unary("sqrt", sum), c.number("eps", type));
    const Value change = e.divide(e.multiply(splat(e, element(e, rates, i), type), gradient), deviation);
    parameters.push_back(step.updated(i, e.subtract(parameter, change)));
    new_sums.push_back(step.kept_if_skipped(sum, sums[i]));
  }
  Values results = in_order({parameters, step.gradients(), new_sums});
  // One overload's schema says that the step counts are written; the kernel leaves them alone.
  if (c.num_results() > results.size()) results = in_order({results, c.tensors("state_steps")});
  return results;
}

// found_inf becomes 1 where any gradient has a value that is not finite; gradients are multiplied by inv_scale.
Values lower_amp_unscale(Emitter& e, const Call& c) {
  Values results;
  Value found = e.compare("NE", c.number("found_inf", at::kFloat), 0);
  for (const Value& gradient : c.tensors("self")) {
    const Value x = e.convert(gradient, opmath(gradient.dtype()));
    const Value scale = c.number("inv_scale", x.type);
    results.push_back(e.convert(e.multiply(x, scale), gradient.dtype()));
    const Value infinite = e.logical_not(e.unary("is_finite", x));
    found = e.logical_or(found, e.reduce(infinite, false, c.dims("dim", x.rank()), "or"));
  }
  const Value before = c.tensor("found_inf");
  results.push_back(e.reshape(e.select(found, scalar(e, 1, before.dtype()), e.reshape(before, {})), before.dims()));
  return results;
}

// The scale shrinks after an overflow, and grows after growth_interval steps without one, unless it would overflow.
Values lower_amp_update_scale(Emitter& e, const Call& c) {
  const Value scale = c.tensor("self");
  const Value tracker = c.tensor("growth_tracker");
  const auto scaled_by = [&](const char* factor) {
    const Value product = e.multiply(c.number("self", at::kDouble), c.number(factor, at::kDouble));
    return e.convert(product, scale.dtype());
  };
  const Value overflowed = e.compare("NE", c.number("found_inf", at::kFloat), 0);
  const Value old_scale = e.reshape(scale, {});
  const Value successes = e.add(e.reshape(tracker, {}), 1);
  const Value due = e.compare("EQ", successes, c.integer("growth_interval"));
  const Value grown = scaled_by("scale_growth_factor");
  const Value grows = e.logical_and(due, e.unary("is_finite", grown));
  const Value new_scale = e.select(overflowed, scaled_by("scale_backoff_factor"), e.select(grows, grown, old_scale));
  const Value new_tracker = e.select(e.logical_or(overflowed, due), scalar(e, 0, tracker.dtype()), successes);
  return {e.reshape(new_scale, scale.dims()), e.reshape(new_tracker, tracker.dims())};
}

}  // namespace

void add_optimizer(Table& t) {
  t.add("aten::_fused_adam_", lower_fused_adam).by_element();
  t.add("aten::_fused_adam_.tensor_lr", lower_fused_adam).by_element();
  t.add("aten::_fused_adamw_", lower_fused_adamw).by_element();
  t.add("aten::_fused_adamw_.tensor_lr", lower_fused_adamw).by_element();
  t.add("aten::_fused_sgd_", lower_fused_sgd).by_element();
  t.add("aten::_fused_sgd_.tensor_lr", lower_fused_sgd).by_element();
  t.add("aten::_fused_adagrad_", lower_fused_adagrad).by_element();
  t.add("aten::_fused_adagrad_.tensor_lr", lower_fused_adagrad).by_element();
  t.add("aten::_amp_foreach_non_finite_check_and_unscale_", lower_amp_unscale);
  t.add("aten::_amp_update_scale_", lower_amp_update_scale);
}

}  // namespace torch_tpu
