// The taps of a sliding window over the last dims of a value: for each offset inside the window, the
// elements that all windows see there. Sums and maxima over a few taps fuse into one loop, where a
// windowed operation does not.
#pragma once

#include "stablehlo/emitter.h"

namespace torch_tpu {

// By spatial dim. `out` counts the windows; window o of a dim starts at o * stride - padding.
struct Windows {
  Dims sizes, out, stride, padding, dilation;
  int64_t count() const;  // taps
};

class Taps {
 public:
  // Windows over the last windows.sizes.size() dims of x; `outside` (0-d) is what lies beyond them.
  Taps(Emitter& e, const Value& x, const Value& outside, Windows windows);

  const std::vector<Dims>& all() const { return all_; }
  // x's leading dims, then windows.out.
  Value at(Emitter& e, const Dims& tap) const;

 private:
  Windows windows_;
  Value padded_;
  std::vector<Dims> all_;
};

// Every index into an array of `sizes`, in row-major order.
std::vector<Dims> indices_of(c10::IntArrayRef sizes);

// The inverse of a tap: `part` (leading dims, windows.out) put where `tap` sees it in a value whose last
// dims are `spatial`; zeros elsewhere.
Value spread_tap(Emitter& e, const Value& part, const Dims& tap, const Windows& windows, c10::IntArrayRef spatial);

// reduce_window arguments for the last dims of a value of `rank`, padded so that there are windows.out windows.
Window window_over(const Windows& windows, int64_t rank, c10::IntArrayRef spatial);

}  // namespace torch_tpu
