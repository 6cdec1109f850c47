// Fake quantization, for quantization-aware training: numbers are rounded to those that a quantized tensor could
// hold, and stay floating. Calls of other ops, which are rows.
#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <cstdlib>
#include <limits>
#include <tuple>
#include <vector>

namespace torch_tpu {

namespace {

using Result = std::tuple<at::Tensor, at::Tensor>;  // the rounded numbers, and which were in range

// In float32 at least, as on the CPU.
at::Tensor widened(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
}

void check_range(int64_t low, int64_t high) {
  TORCH_CHECK(low <= high, "`quant_min` should be less than or equal to `quant_max`: got ", low, " and ", high);
}

// `scale` and `zero_point` are numbers or tensors that broadcast.
template <typename Scale, typename ZeroPoint>
Result fake_quantize(const at::Tensor& self, const Scale& inverse, const Scale& scale, const ZeroPoint& zero_point,
                     int64_t low, int64_t high) {
  const at::Tensor q = widened(self).mul(inverse).round().add(zero_point);
  const at::Tensor in_range = q.ge(low).logical_and(q.le(high));
  return {q.clamp(low, high).sub(zero_point).mul(scale).to(self.scalar_type()), in_range};
}

Result per_tensor(const at::Tensor& self, double scale, int64_t zero_point, int64_t low, int64_t high) {
  check_range(low, high);
  TORCH_CHECK(zero_point >= low && zero_point <= high, "`zero_point` must be between `quant_min` and `quant_max`: got ",
              zero_point);
  const auto narrow = static_cast<float>(scale);
  return fake_quantize(self, at::Scalar(1.0F / narrow), at::Scalar(narrow), at::Scalar(zero_point), low, high);
}

Result per_tensor_of_tensors(const at::Tensor& self, const at::Tensor& scale, const at::Tensor& zero_point,
                             const at::Tensor& enabled, int64_t low, int64_t high) {
  check_range(low, high);
  const at::Tensor factor = scale.reshape({}).to(at::kFloat);
  const auto [rounded, in_range] = fake_quantize(self, factor.reciprocal(), factor, zero_point.reshape({}), low, high);
  const at::Tensor on = enabled.reshape({}).ne(0);
  return {at::where(on, rounded, self), in_range.logical_or(on.logical_not())};
}

Result per_channel(const at::Tensor& self, const at::Tensor& scale, const at::Tensor& zero_point, int64_t axis,
                   int64_t low, int64_t high) {
  check_range(low, high);
  TORCH_CHECK(axis >= 0 && axis < self.dim(), "`axis` must be between 0 and number of dimensions of input");
  TORCH_CHECK(scale.dim() == 1 && scale.numel() == self.size(axis) && zero_point.sizes() == scale.sizes(),
              "tpu: fake_quantize_per_channel_affine along axis ", axis, " of ", self.sizes(), ": got scale of ",
              scale.sizes(), " and zero_point of ", zero_point.sizes(), "; expected [", self.size(axis),
              "] for both.\nGive one of each per channel.");
  std::vector<int64_t> sizes(self.dim(), 1);
  sizes[axis] = -1;
  const at::Tensor factor = scale.reshape(sizes);
  return fake_quantize(self, factor.reciprocal(), factor, zero_point.reshape(sizes), low, high);
}

// --- observed ranges: running minima and maxima choose scale and zero point

// One range, or one a channel; float64, which is what CPU PyTorch chooses in.
struct Range {
  at::Tensor low, high;
};
struct Parameters {
  at::Tensor scale, zero_point;
};

// Of a range that is made to hold 0. As PyTorch's ChooseQuantizationParams.
Parameters choose_parameters(const Range& range, int64_t low, int64_t high, bool symmetric) {
  constexpr double kSmallScale = 6.1e-5F;
  at::Tensor min = range.low.clamp_max(0), max = range.high.clamp_min(0);
  const at::Tensor two_sided = min.lt(0).logical_and(max.gt(0));
  if (symmetric) {
    const auto most_negative = static_cast<double>(-((high - low) / 2 + 1));
    const auto most_positive = static_cast<double>((high - low) / 2);
    const at::Tensor step = at::maximum(min.div(most_negative).abs(), max.div(most_positive).abs());
    min = at::where(two_sided, step.mul(most_negative), min);
    max = at::where(two_sided, step.mul(most_positive), max);
  }
  const auto steps = static_cast<double>(high - low);
  at::Tensor scale = max.sub(min).div(steps);
  const at::Tensor narrow = scale.to(at::kFloat);
  scale = scale.masked_fill(narrow.eq(0).logical_or(narrow.reciprocal().isinf()), 0.1);
  const at::Tensor small = scale.lt(kSmallScale);
  const at::Tensor amplifier = scale.reciprocal().mul(kSmallScale);
  const at::Tensor wide_min = at::where(max.eq(0), at::full_like(min, -kSmallScale * steps), min.mul(amplifier));
  const at::Tensor wide_max = at::where(min.eq(0), at::full_like(max, kSmallScale * steps), max.mul(amplifier));
  min = at::where(small, wide_min.masked_fill(min.eq(0), 0), min);
  max = at::where(small, wide_max.masked_fill(max.eq(0), 0), max);
  scale = scale.clamp_min(kSmallScale);

  const at::Tensor from_min = min.div(scale), from_max = max.div(scale);
  const at::Tensor min_error = from_min.abs().neg().add(std::abs(low));
  const at::Tensor max_error = from_max.abs().neg().add(std::abs(high));
  at::Tensor zero = at::where(min_error.lt(max_error), from_min.neg().add(low), from_max.neg().add(high));
  if (symmetric) zero = zero.masked_fill(two_sided, static_cast<double>(low + high) / 2);
  return {scale, zero.clamp(static_cast<double>(low), static_cast<double>(high)).round()};
}

// The running range moved towards `seen`; one that was never set (infinite) becomes it.
void move_towards(at::Tensor& running, const at::Tensor& seen, double averaging) {
  const at::Tensor moved = running.add(seen.sub(running).mul(averaging));
  running.copy_(at::where(running.isinf(), seen, moved));
}

// Whether to observe and to quantize is read on the host, as on the CPU.
Result fused_moving_average(const at::Tensor& self, const at::Tensor& observer_on, const at::Tensor& fake_quant_on,
                            at::Tensor& running_min, at::Tensor& running_max, at::Tensor& scale, at::Tensor& zero_point,
                            double averaging, int64_t low, int64_t high, int64_t axis, bool by_channel,
                            bool symmetric) {
  TORCH_CHECK(axis < self.dim(), "Error in fused_moving_avg_obs_fake_quant_cpu: ch_axis must be < self.dim()");
  if (observer_on.item().toBool()) {
    const at::Tensor rows = by_channel ? self.transpose(0, axis).flatten(1) : self.flatten().unsqueeze(0);
    const at::Tensor min = rows.amin(1), max = rows.amax(1);
    if (running_min.numel() != min.numel()) {
      for (at::Tensor* t : {&running_min, &running_max, &scale, &zero_point}) t->resize_(min.sizes());
      running_min.fill_(std::numeric_limits<double>::infinity());
      running_max.fill_(-std::numeric_limits<double>::infinity());
    }
    move_towards(running_min, min.reshape(running_min.sizes()), averaging);
    move_towards(running_max, max.reshape(running_max.sizes()), averaging);
  }
  if (!fake_quant_on.item().toBool()) return {self.clone(), at::ones_like(self, self.options().dtype(at::kBool))};
  const Parameters chosen =
      choose_parameters({running_min.to(at::kDouble), running_max.to(at::kDouble)}, low, high, symmetric);
  scale.copy_(chosen.scale.reshape(scale.sizes()));
  zero_point.copy_(chosen.zero_point.reshape(zero_point.sizes()));
  if (by_channel) return per_channel(self, scale, zero_point, axis, low, high);
  return fake_quantize(self, scale.reshape({}).reciprocal(), scale.reshape({}), zero_point.reshape({}), low, high);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("fake_quantize_per_tensor_affine_cachemask", per_tensor);
  m.impl("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", per_tensor_of_tensors);
  m.impl("fake_quantize_per_channel_affine_cachemask", per_channel);
  m.impl("_fused_moving_avg_obs_fq_helper", fused_moving_average);
}

}  // namespace torch_tpu
