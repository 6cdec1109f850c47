// Batch normalization over dim 1: forward, gradient, and the pieces that synchronized batch norm is made
// of. Statistics are computed in float32 where the input is narrower.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Dims all_but_channels(const Value& x) {
  Dims dims = {0};
  for (int64_t d = 2; d < x.rank(); ++d) dims.push_back(d);
  return dims;
}

Value wide(Emitter& e, const Value& x) { return e.convert(x, opmath(x.dtype())); }

// A value by channel, broadcast to x.
Value by_channel(Emitter& e, const Value& values, const Value& x) {
  const Value flat = e.reshape(e.convert(values, x.dtype()), {x.dim(1)});
  return e.broadcast_in_dim(flat, x.dims(), {1});
}

Value by_channel(Emitter& e, const Call& c, const char* name, const Value& x) {
  return by_channel(e, c.tensor(name), x);
}

Value inverse_deviation(Emitter& e, const Call& c, const Value& variance) {
  return e.unary("rsqrt", e.add(variance, c.number("eps", variance.type)));
}

// (x - mean) * invstd * weight + bias, in the input's dtype.
Value normalize(Emitter& e, const Call& c, const Value& mean, const Value& invstd) {
  const Value input = c.tensor("input");
  const Value x = wide(e, input);
  Value out = e.multiply(e.subtract(x, by_channel(e, mean, x)), by_channel(e, invstd, x));
  if (c.has("weight")) out = e.multiply(out, by_channel(e, c, "weight", x));
  if (c.has("bias")) out = e.add(out, by_channel(e, c, "bias", x));
  return e.convert(out, input.dtype());
}

// (1 - momentum) * old + momentum * now, in old's dtype.
Value moved(Emitter& e, const Call& c, const Value& old, const Value& now) {
  const Value momentum = c.number("momentum", now.type);
  const Value kept = e.multiply(e.subtract(1, momentum), e.convert(old, now.dtype()));
  return e.convert(e.add(kept, e.multiply(momentum, now)), old.dtype());
}

struct Statistics {
  Value mean, variance;  // by channel; of the population
  double count;
};

Statistics statistics(Emitter& e, const Value& input) {
  const Value x = wide(e, input);
  const Dims dims = all_but_channels(x);
  Statistics s;
  s.count = static_cast<double>(count_along(x, dims));
  s.mean = e.divide(sum(e, x, dims), s.count);
  const Value centered = e.subtract(x, by_channel(e, s.mean, x));
  s.variance = e.divide(sum(e, e.multiply(centered, centered), dims), s.count);
  return s;
}

// out, mean, 1 / deviation, `reserve` if the op has it, then the running statistics, if there are any.
// `first`: where `out` stands among the results of the call.
Values batch_norm(Emitter& e, const Call& c, bool training, bool has_running, bool reserve, size_t first = 0) {
  const Value input = c.tensor("input");
  const at::ScalarType computed = opmath(input.dtype());
  Value mean, invstd;
  Values running;
  const bool has_mean = has_running && c.has("running_mean");
  const bool has_var = has_running && c.has("running_var");
  if (training) {
    const Statistics s = statistics(e, input);
    mean = s.mean;
    invstd = inverse_deviation(e, c, s.variance);
    if (has_mean) running.push_back(moved(e, c, c.tensor("running_mean"), mean));
    if (has_var) {
      const Value unbiased = e.multiply(s.variance, s.count / (s.count - 1));
      running.push_back(moved(e, c, c.tensor("running_var"), unbiased));
    }
  } else {
    mean = e.convert(c.tensor("running_mean"), computed);
    invstd = inverse_deviation(e, c, e.convert(c.tensor("running_var"), computed));
    running = {c.tensor("running_mean"), c.tensor("running_var")};
  }
  const auto saved = [&](size_t i, const Value& x) {
    const Type& type = c.result(first + i);
    return type.dims == x.dims() ? e.convert(x, type.dtype) : e.constant(0, type);
  };
  Values results = {normalize(e, c, mean, invstd), saved(1, mean), saved(2, invstd)};
  if (reserve) results.push_back(e.constant(0, c.result(first + 3)));
  results.insert(results.end(), running.begin(), running.end());
  return results;
}

Values lower_native_batch_norm(Emitter& e, const Call& c) { return batch_norm(e, c, c.flag("training"), true, false); }

Values lower_native_batch_norm_legit_no_stats(Emitter& e, const Call& c) {
  return batch_norm(e, c, true, false, false);
}

// Where the running statistics are written arguments, they come before the results.
constexpr size_t kRunning = 2;

Values running_first(Values results, size_t fresh) {
  std::rotate(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(fresh), results.end());
  return results;
}

std::vector<Type> written_types(const Call& c, bool reserve) {
  const Type input = c.tensor("input").type;
  const Type saved(opmath(input.dtype), {input.dims[1]});
  std::vector<Type> types = {c.tensor("running_mean").type, c.tensor("running_var").type, input, saved, saved};
  if (reserve) types.emplace_back(at::kByte, Dims{0});
  return types;
}

Values lower_native_batch_norm_legit_out(Emitter& e, const Call& c) {
  return running_first(batch_norm(e, c, c.flag("training"), true, false, kRunning), 3);
}

Values lower_native_batch_norm_legit_no_training(Emitter& e, const Call& c) {
  Values results = batch_norm(e, c, false, true, false);
  results.resize(3);
  return results;
}

Values lower_batch_norm_with_update(Emitter& e, const Call& c) { return batch_norm(e, c, true, true, true); }

// The running statistics after are results, in the dtype that PyTorch's Meta kernels give them.
Values as_results(Emitter& e, const Call& c, Values values) {
  for (const auto i : c10::irange(values.size())) values[i] = e.convert(values[i], c.result(i).dtype);
  return values;
}

Values lower_native_batch_norm_legit_functional(Emitter& e, const Call& c) {
  return as_results(e, c, lower_native_batch_norm(e, c));
}

Values lower_batch_norm_with_update_functional(Emitter& e, const Call& c) {
  return as_results(e, c, lower_batch_norm_with_update(e, c));
}

Values lower_batch_norm_with_update_out(Emitter& e, const Call& c) {
  return running_first(batch_norm(e, c, true, true, true, kRunning), 4);
}

Values lower_batch_norm_no_update(Emitter& e, const Call& c) {
  Values results = batch_norm(e, c, false, true, true);
  results.resize(4);
  return results;
}

Values backward(Emitter& e, const Call& c, bool training, const char* saved_deviation) {
  const Value input = c.tensor("input");
  const Value x = wide(e, input);
  const Value grad = e.convert(c.tensor("grad_out"), x.dtype());
  const std::vector<bool> wanted = c.flags("output_mask");
  const Dims dims = all_but_channels(x);
  const auto count = static_cast<double>(count_along(x, dims));
  const at::ScalarType parameter = c.has("weight") ? c.tensor("weight").dtype() : input.dtype();

  const Value mean = e.convert(c.tensor(training ? "save_mean" : "running_mean"), x.dtype());
  const Value invstd = training ? e.convert(c.tensor(saved_deviation), x.dtype())
                                : inverse_deviation(e, c, e.convert(c.tensor("running_var"), x.dtype()));
  const Value centered = e.subtract(x, by_channel(e, mean, x));
  const Value along_one = sum(e, grad, dims);
  const Value along_x = sum(e, e.multiply(grad, centered), dims);
  Value scale = by_channel(e, invstd, x);
  if (c.has("weight")) scale = e.multiply(scale, by_channel(e, c, "weight", x));

  Value d = grad;
  if (training) {
    const Value slope = e.multiply(e.divide(along_x, count), e.multiply(invstd, invstd));
    d = e.subtract(d, e.multiply(centered, by_channel(e, slope, x)));
    d = e.subtract(d, by_channel(e, e.divide(along_one, count), x));
  }
  Values results(3);
  results[0] = e.convert(e.multiply(d, scale), input.dtype());
  if (wanted[1]) results[1] = e.convert(e.multiply(along_x, invstd), parameter);
  if (wanted[2]) results[2] = e.convert(along_one, parameter);
  return results;
}

Values lower_native_batch_norm_backward(Emitter& e, const Call& c) {
  return backward(e, c, c.flag("train"), "save_invstd");
}

Values lower_batch_norm_backward(Emitter& e, const Call& c) { return backward(e, c, c.flag("update"), "save_var"); }

// --- synchronized batch norm: statistics of this process, their union, and the gradient's two halves

Type channel_type(const Call& c) {
  const Value input = c.tensor("input");
  return Type(opmath(input.dtype()), {input.dim(1)});
}

std::vector<Type> two_channel_types(const Call& c) { return {channel_type(c), channel_type(c)}; }

Values lower_batch_norm_stats(Emitter& e, const Call& c) {
  const Statistics s = statistics(e, c.tensor("input"));
  return {s.mean, inverse_deviation(e, c, s.variance)};
}

Value lower_batch_norm_elemt(Emitter& e, const Call& c) {
  return normalize(e, c, c.tensor("mean"), c.tensor("invstd"));
}

// mean and invstd are (processes, channels), counts (processes).
Values lower_batch_norm_gather_stats_with_counts(Emitter& e, const Call& c) {
  const at::ScalarType dtype = opmath(c.tensor("input").dtype());
  const Value means = e.convert(c.tensor("mean"), dtype);
  const Value invstds = e.convert(c.tensor("invstd"), dtype);
  const Value counts = e.convert(flatten(e, c.tensor("counts")), dtype);
  const Value each = e.broadcast_in_dim(counts, means.dims(), {0});
  const Value total = e.broadcast_in_dim(sum(e, counts, {0}), {means.dim(1)}, {});

  const Value mean = e.divide(sum(e, e.multiply(means, each), {0}), total);
  const Value variances = e.subtract(e.divide(1, e.multiply(invstds, invstds)), c.number("eps", means.type));
  const Value apart = e.subtract(means, e.broadcast_in_dim(mean, means.dims(), {1}));
  const Value squares = sum(e, e.multiply(each, e.add(variances, e.multiply(apart, apart))), {0});
  Values results = {mean, inverse_deviation(e, c, e.divide(squares, total))};
  if (c.has("running_mean")) results.push_back(moved(e, c, c.tensor("running_mean"), mean));
  if (c.has("running_var")) {
    results.push_back(moved(e, c, c.tensor("running_var"), e.divide(squares, e.subtract(total, 1))));
  }
  return results;
}

Values lower_batch_norm_backward_reduce(Emitter& e, const Call& c) {
  const Value x = wide(e, c.tensor("input"));
  const Value grad = e.convert(c.tensor("grad_out"), x.dtype());
  const Dims dims = all_but_channels(x);
  const Value along_one = sum(e, grad, dims);
  const Value along_x = sum(e, e.multiply(grad, e.subtract(x, by_channel(e, c, "mean", x))), dims);
  const at::ScalarType parameter = c.has("weight") ? c.tensor("weight").dtype() : x.dtype();
  Values results(4);
  if (c.flag("input_g")) {
    results[0] = along_one;
    results[1] = along_x;
  }
  if (c.flag("weight_g")) {
    results[2] = e.convert(e.multiply(along_x, e.convert(c.tensor("invstd"), x.dtype())), parameter);
  }
  if (c.flag("bias_g")) results[3] = e.convert(along_one, parameter);
  return results;
}

Value lower_batch_norm_backward_elemt(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Value x = wide(e, input);
  const Value grad = e.convert(c.tensor("grad_out"), x.dtype());
  const Value count = sum(e, e.convert(flatten(e, c.tensor("count")), x.dtype()), {0});
  const auto mean_of = [&](const char* name) {
    return e.divide(by_channel(e, c, name, x), e.broadcast_in_dim(count, x.dims(), {}));
  };
  const Value invstd = by_channel(e, c, "invstd", x);
  const Value centered = e.subtract(x, by_channel(e, c, "mean", x));
  const Value slope = e.multiply(mean_of("sum_dy_xmu"), e.multiply(invstd, invstd));
  Value d = e.subtract(e.subtract(grad, mean_of("sum_dy")), e.multiply(centered, slope));
  d = e.multiply(d, invstd);
  if (c.has("weight")) d = e.multiply(d, by_channel(e, c, "weight", x));
  return e.convert(d, input.dtype());
}

}  // namespace

void add_batch_norm(Table& t) {
  const auto add = [&](const char* name, Values (*lower)(Emitter&, const Call&)) -> Row& {
    return t.add(name, lower).in_format_of({"input"});
  };
  add("aten::native_batch_norm", lower_native_batch_norm).also_writes({"running_mean", "running_var"});
  add("aten::_native_batch_norm_legit", lower_native_batch_norm);
  add("aten::_native_batch_norm_legit.out", lower_native_batch_norm_legit_out).with_shape([](const Call& c) {
    return written_types(c, false);
  });
  add("aten::_native_batch_norm_legit.no_stats", lower_native_batch_norm_legit_no_stats);
  add("aten::_native_batch_norm_legit_no_training", lower_native_batch_norm_legit_no_training);
  add("aten::_native_batch_norm_legit_functional", lower_native_batch_norm_legit_functional);
  add("aten::_batch_norm_with_update", lower_batch_norm_with_update);
  add("aten::_batch_norm_with_update.out", lower_batch_norm_with_update_out).with_shape([](const Call& c) {
    return written_types(c, true);
  });
  add("aten::_batch_norm_with_update_functional", lower_batch_norm_with_update_functional);
  add("aten::_batch_norm_no_update", lower_batch_norm_no_update);
  add("aten::native_batch_norm_backward", lower_native_batch_norm_backward);
  add("aten::batch_norm_backward", lower_batch_norm_backward);

  t.add("aten::batch_norm_stats", lower_batch_norm_stats).with_shape(two_channel_types);
  t.add("aten::batch_norm_elemt", lower_batch_norm_elemt).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("input").type};
  });
  t.add("aten::batch_norm_gather_stats_with_counts", lower_batch_norm_gather_stats_with_counts)
      .also_writes({"running_mean", "running_var"})
      .with_shape(two_channel_types);
  t.add("aten::batch_norm_backward_reduce", lower_batch_norm_backward_reduce).with_shape([](const Call& c) {
    const Type channel = channel_type(c);
    const Type parameter = c.has("weight") ? channel.with(c.tensor("weight").dtype()) : channel;
    const auto if_wanted = [&](const char* flag, const Type& type) {
      return c.flag(flag) ? type : type.with(at::ScalarType::Undefined);
    };
    return std::vector<Type>{if_wanted("input_g", channel), if_wanted("input_g", channel),
                             if_wanted("weight_g", parameter), if_wanted("bias_g", parameter)};
  });
  t.add("aten::batch_norm_backward_elemt", lower_batch_norm_backward_elemt).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("input").type};
  });
}

}  // namespace torch_tpu
