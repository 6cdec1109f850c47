// Padding with the tensor's own elements, its gradient, and the shuffles between channels and pixels.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/resample.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// The element that place `i`, which may lie outside, shows of a dim of `size`.
using Outside = int64_t (*)(int64_t i, int64_t size);

int64_t reflected(int64_t i, int64_t size) {
  if (i < 0) i = -i;
  return i >= size ? 2 * (size - 1) - i : i;
}

int64_t replicated(int64_t i, int64_t size) { return std::clamp<int64_t>(i, 0, size - 1); }

// `padding` goes from the last dim backwards: before, after.
Resample map_of(Outside outside, int64_t size, int64_t before, int64_t after) {
  std::vector<int64_t> index;
  for (int64_t o = 0; o < size + before + after; ++o) index.push_back(outside(o - before, size));
  return selection(size, index);
}

Value pad(Emitter& e, const Call& c, Outside outside) {
  const auto padding = c.integers("padding");
  Value x = c.tensor("self");
  for (size_t i = 0; i < padding.size(); i += 2) {
    const int64_t dim = x.rank() - 1 - static_cast<int64_t>(i / 2);
    x = resample(e, x, dim, map_of(outside, x.dim(dim), padding[i], padding[i + 1]));
  }
  return x;
}

Value pad_backward(Emitter& e, const Call& c, Outside outside) {
  const auto padding = c.integers("padding");
  const Value self = c.tensor("self");
  const Value grad = c.tensor("grad_output");
  Value x = e.convert(grad, opmath(grad.dtype()));
  for (size_t i = 0; i < padding.size(); i += 2) {
    const int64_t dim = self.rank() - 1 - static_cast<int64_t>(i / 2);
    x = resample(e, x, dim, map_of(outside, self.dim(dim), padding[i], padding[i + 1]).transposed());
  }
  return e.convert(x, grad.dtype());
}

// (.., C * r * r, H, W) -> (.., C, H * r, W * r).
Value lower_pixel_shuffle(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t r = c.integer("upscale_factor");
  const int64_t rank = self.rank();
  const int64_t channels = self.dim(rank - 3) / (r * r), h = self.dim(rank - 2), w = self.dim(rank - 1);
  Dims lead(self.dims().begin(), self.dims().end() - 3);
  const int64_t n = self.type.with(lead).numel();
  const Value split = e.reshape(self, {n, channels, r, r, h, w});
  lead.append({channels, h * r, w * r});
  return e.reshape(e.transpose(split, {0, 1, 4, 2, 5, 3}), lead);
}

// The inverse.
Value lower_pixel_unshuffle(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t r = c.integer("downscale_factor");
  const int64_t rank = self.rank();
  const int64_t channels = self.dim(rank - 3), h = self.dim(rank - 2) / r, w = self.dim(rank - 1) / r;
  Dims lead(self.dims().begin(), self.dims().end() - 3);
  const int64_t n = self.type.with(lead).numel();
  const Value split = e.reshape(self, {n, channels, h, r, w, r});
  lead.append({channels * r * r, h, w});
  return e.reshape(e.transpose(split, {0, 1, 3, 5, 2, 4}), lead);
}

Value lower_channel_shuffle(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t groups = c.integer("groups");
  Dims split = self.dims(), order;
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  for (const auto d : c10::irange(static_cast<int64_t>(split.size()))) order.push_back(d);
  std::swap(order[1], order[2]);
  return e.reshape(e.transpose(e.reshape(self, split), order), self.dims());
}

}  // namespace

void add_padding(Table& t) {
  const auto add = [&](const std::string& name, Outside outside) {
    t.add(name, [outside](Emitter& e, const Call& c) { return Values{pad(e, c, outside)}; }).in_format_of({"self"});
    t.add(name + "_backward", [outside](Emitter& e, const Call& c) {
       return Values{pad_backward(e, c, outside)};
     }).in_format_of({"self"});
  };
  for (const char* dims : {"1d", "2d", "3d"}) {
    add(std::string("aten::reflection_pad") + dims, reflected);
    add(std::string("aten::replication_pad") + dims, replicated);
  }
  t.add("aten::pixel_shuffle", lower_pixel_shuffle).in_format_of({"self"});
  t.add("aten::pixel_unshuffle", lower_pixel_unshuffle).in_format_of({"self"});
  t.add("aten::channel_shuffle", lower_channel_shuffle).in_format_of({"self"});
}

}  // namespace torch_tpu
