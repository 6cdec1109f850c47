// Maximum pooling whose windows start at places drawn for each plane: the samples are data.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "lowerings/window_maximum.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// Where the `out` windows of one dim start, for each of the samples (planes): (planes, out), int32.
Value starts_of(Emitter& e, const Value& samples, int64_t in, int64_t out, int64_t size) {
  const Dims dims = {samples.dim(0), out};
  const Value last = e.constant(in - size, Type(at::kInt, dims));
  if (out == 1) return last;
  // As the CPU kernel: (int)((i + sample) * alpha) - (int)(sample * alpha), in the samples' dtype.
  const Value sample = e.broadcast_in_dim(samples, dims, {0});
  const Value i = e.iota(sample.type, 1);
  const Value alpha = e.divide(e.constant_like(in - size, sample), e.constant_like(out - 1, sample));
  const Value place = e.convert(e.multiply(e.add(i, sample), alpha), at::kInt);
  const Value shift = e.convert(e.multiply(sample, alpha), at::kInt);
  const Value is_last = e.compare("EQ", e.iota(last.type, 1), out - 1);
  return e.select(is_last, last, e.subtract(place, shift));
}

Values lower_fractional_max_pool(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto sizes = c.integers("kernel_size");
  const auto out = c.integers("output_size");
  const size_t rank = out.size();
  const Dims spatial(self.dims().end() - rank, self.dims().end());
  Dims lead(self.dims().begin(), self.dims().end() - rank), result = lead;
  result.append(out.begin(), out.end());
  const Type type = self.type.with(result);
  if (type.numel() == 0) return {e.constant(0, type), e.constant(0, type.with(at::kLong))};

  const int64_t planes = self.type.with(lead).numel();
  const int64_t elements = self.type.numel() / planes;
  const Value samples = e.reshape(c.tensor("random_samples"), {planes, static_cast<int64_t>(rank)});
  // (planes, out 0, size 0, out 1, size 1, ..): flat positions of every window's elements.
  Dims dims = {planes}, inner;
  for (const auto d : c10::irange(rank)) {
    inner.push_back(static_cast<int64_t>(dims.size()) + 1);
    dims.append({out[d], sizes[d]});
  }
  Value position = e.constant(0, Type(at::kInt, dims));
  for (const auto d : c10::irange(rank)) {
    // Two dims come from the samples backwards, three forwards.
    const auto column = static_cast<int64_t>(rank == 2 ? 1 - d : d);
    const Value sample = e.reshape(slice_dim(e, samples, 1, column, column + 1), {planes});
    const Value starts = starts_of(e, sample, spatial[d], out[d], sizes[d]);
    const Value at = e.add(e.broadcast_in_dim(starts, dims, {0, inner[d] - 1}), e.iota(position.type, inner[d]));
    position = e.add(e.multiply(position, spatial[d]), at);
  }
  const Value flat = e.reshape(position, {planes, position.type.numel() / planes});
  const Value elements_of_windows = gather_along(e, e.reshape(self, {planes, elements}), 1, flat);
  const Maximum best = maximum_along(e, e.reshape(elements_of_windows, dims), position, inner);
  return {e.reshape(best.value, result), e.convert(e.reshape(best.position, result), at::kLong)};
}

Value lower_fractional_max_pool_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const size_t rank = c.integers("output_size").size();
  const Dims spatial(self.dims().end() - rank, self.dims().end());
  return scatter_positions(e, c.tensor("grad_output"), c.tensor("indices"), spatial, true);
}

}  // namespace

void add_fractional_pool(Table& t) {
  t.add("aten::fractional_max_pool2d", lower_fractional_max_pool);
  t.add("aten::fractional_max_pool2d_backward", lower_fractional_max_pool_backward);
  t.add("aten::fractional_max_pool3d", lower_fractional_max_pool);
  t.add("aten::fractional_max_pool3d_backward", lower_fractional_max_pool_backward).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
}

}  // namespace torch_tpu
