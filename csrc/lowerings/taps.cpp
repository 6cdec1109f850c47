#include "lowerings/taps.h"

#include <c10/util/irange.h>

#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// Elements that windows need beyond the end of a dim of `size`; negative if they do not reach it.
int64_t beyond(const Windows& w, size_t i, int64_t size) {
  return (w.out[i] - 1) * w.stride[i] + (w.sizes[i] - 1) * w.dilation[i] + 1 - size - w.padding[i];
}

}  // namespace

int64_t Windows::count() const {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  return n;
}

std::vector<Dims> indices_of(c10::IntArrayRef sizes) {
  std::vector<Dims> all = {{}};
  for (const int64_t size : sizes) {
    std::vector<Dims> longer;
    for (const Dims& index : all) {
      for (const auto i : c10::irange(size)) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    }
    all = std::move(longer);
  }
  return all;
}

Taps::Taps(Emitter& e, const Value& x, const Value& outside, Windows windows)
    : windows_(std::move(windows)), all_(indices_of(windows_.sizes)) {
  const auto spatial = windows_.sizes.size();
  const size_t leading = x.dims().size() - spatial;
  Dims low(x.dims().size(), 0), high = low;
  for (const auto i : c10::irange(spatial)) {
    low[leading + i] = windows_.padding[i];
    high[leading + i] = beyond(windows_, i, x.dims()[leading + i]);
  }
  padded_ = e.pad(x, outside, low, high);
}

Value Taps::at(Emitter& e, const Dims& tap) const {
  const size_t leading = padded_.dims().size() - tap.size();
  Dims start(padded_.dims().size(), 0), limit = padded_.dims(), step(padded_.dims().size(), 1);
  for (const auto i : c10::irange(tap.size())) {
    start[leading + i] = tap[i] * windows_.dilation[i];
    limit[leading + i] = start[leading + i] + (windows_.out[i] - 1) * windows_.stride[i] + 1;
    step[leading + i] = windows_.stride[i];
  }
  return e.slice(padded_, start, limit, step);
}

Value spread_tap(Emitter& e, const Value& part, const Dims& tap, const Windows& windows, c10::IntArrayRef spatial) {
  const size_t leading = part.dims().size() - tap.size();
  Dims low(part.dims().size(), 0), high = low, interior = low;
  for (const auto i : c10::irange(tap.size())) {
    const int64_t first = tap[i] * windows.dilation[i] - windows.padding[i];
    low[leading + i] = first;
    high[leading + i] = spatial[i] - first - ((windows.out[i] - 1) * windows.stride[i] + 1);
    interior[leading + i] = windows.stride[i] - 1;
  }
  return e.pad(part, scalar(e, 0, part.dtype()), low, high, interior);
}

Window window_over(const Windows& windows, int64_t rank, c10::IntArrayRef spatial) {
  const size_t leading = static_cast<size_t>(rank) - spatial.size();
  Window window;
  window.sizes = window.strides = window.window_dilations = Dims(static_cast<size_t>(rank), 1);
  window.low = window.high = Dims(static_cast<size_t>(rank), 0);
  for (const auto i : c10::irange(spatial.size())) {
    window.sizes[leading + i] = windows.sizes[i];
    window.strides[leading + i] = windows.stride[i];
    window.window_dilations[leading + i] = windows.dilation[i];
    window.low[leading + i] = windows.padding[i];
    window.high[leading + i] = beyond(windows, i, spatial[i]);
  }
  return window;
}

}  // namespace torch_tpu
