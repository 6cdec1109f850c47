// Pooling over windows of one size: maximum and average with their gradients, unpooling, and the
// unfolding of windows to columns. Leading dims are a batch, or none.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/taps.h"
#include "lowerings/window_maximum.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMaxSizeByTaps = 32;

// A list argument of `rank` numbers; one number stands for all, none for `otherwise`.
Dims list_of(const Call& c, const char* name, size_t rank, const Dims& otherwise) {
  const auto values = c.integers(name);
  if (values.empty()) return otherwise;
  return values.size() == 1 ? Dims(rank, values[0]) : Dims(values.begin(), values.end());
}

Dims last_dims(const Value& x, size_t rank) { return Dims(x.dims().end() - rank, x.dims().end()); }

Windows windows_of(const Call& c, size_t rank, const Value& pooled, bool dilated) {
  const Dims sizes = list_of(c, "kernel_size", rank, {});
  const Dims ones(rank, 1);
  return {sizes, last_dims(pooled, rank), list_of(c, "stride", rank, sizes), list_of(c, "padding", rank, Dims(rank, 0)),
          dilated ? list_of(c, "dilation", rank, ones) : ones};
}

template <size_t kRank>
Values lower_max_pool(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  Value pooled;
  pooled.type = c.result(0);
  const Maximum best = window_maximum(e, self, windows_of(c, kRank, pooled, true));
  return {best.value, e.convert(best.position, at::kLong)};
}

template <size_t kRank>
Value lower_max_pool_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Value self = c.tensor("self");
  return window_maximum_backward(e, grad, c.tensor("indices"), windows_of(c, kRank, grad, true),
                                 last_dims(self, kRank));
}

// --- average

// One dim of an average pool.
struct Axis {
  int64_t dim, in, out, size, stride, padding;
};

std::vector<Axis> axes_of(const Windows& w, const Value& x, c10::IntArrayRef spatial) {
  std::vector<Axis> axes;
  for (const auto i : c10::irange(spatial.size())) {
    axes.push_back({x.rank() - static_cast<int64_t>(spatial.size() - i), spatial[i], w.out[i], w.sizes[i], w.stride[i],
                    w.padding[i]});
  }
  return axes;
}

// The window of one dim over all dims from it on.
Windows window_of(const Axis& a, const Value& x) {
  const auto rank = static_cast<size_t>(x.rank() - a.dim);
  Windows w{Dims(rank, 1), last_dims(x, rank), Dims(rank, 1), Dims(rank, 0), Dims(rank, 1)};
  w.sizes[0] = a.size;
  w.out[0] = a.out;
  w.stride[0] = a.stride;
  w.padding[0] = a.padding;
  return w;
}

Value sum_windows(Emitter& e, const Value& x, const Axis& a) {
  const Windows w = window_of(a, x);
  const Value zero = scalar(e, 0, x.dtype());
  if (a.size > kMaxSizeByTaps) {
    return e.reduce_window(x, zero, window_over(w, x.rank(), last_dims(x, w.sizes.size())), "add");
  }
  const Taps taps(e, x, zero, w);
  Value sum;
  for (const Dims& tap : taps.all()) {
    const Value part = taps.at(e, tap);
    sum = sum.defined() ? e.add(sum, part) : part;
  }
  return sum;
}

Value spread_windows(Emitter& e, const Value& x, const Axis& a) {
  const Windows w = window_of(a, x);
  if (a.size > kMaxSizeByTaps) {
    Window window;
    const auto rank = static_cast<size_t>(x.rank());
    window.sizes = window.base_dilations = Dims(rank, 1);
    window.low = window.high = Dims(rank, 0);
    window.sizes[a.dim] = a.size;
    window.base_dilations[a.dim] = a.stride;
    window.low[a.dim] = a.size - 1 - a.padding;
    window.high[a.dim] = a.in + a.size - 1 - ((a.out - 1) * a.stride + 1) - window.low[a.dim];
    return e.reduce_window(x, scalar(e, 0, x.dtype()), window, "add");
  }
  Dims spatial = last_dims(x, w.sizes.size());
  spatial[0] = a.in;
  Value sum;
  for (const Dims& tap : indices_of(w.sizes)) {
    const Value part = spread_tap(e, x, tap, w, spatial);
    sum = sum.defined() ? e.add(sum, part) : part;
  }
  return sum;
}

// What each window's sum is divided by, broadcast to `x`.
Value divisor(Emitter& e, const Call& c, const std::vector<Axis>& axes, const Value& x) {
  if (const int64_t given = c.integer_or("divisor_override", 0); given != 0) return e.constant_like(given, x);
  const bool include_pad = c.flag("count_include_pad");
  int64_t same = 1;
  Value product;
  for (const Axis& a : axes) {
    std::vector<int64_t> counts;
    for (const auto o : c10::irange(a.out)) {
      const int64_t start = o * a.stride - a.padding;
      const int64_t end = std::min(start + a.size, a.in + a.padding);
      counts.push_back(include_pad ? end - start : std::min(end, a.in) - std::max<int64_t>(start, 0));
    }
    if (std::all_of(counts.begin(), counts.end(), [&](int64_t n) { return n == counts[0]; })) {
      same *= counts.empty() ? 1 : counts[0];
      continue;
    }
    const Value list = e.broadcast_in_dim(e.convert(e.list(counts, at::kInt), x.dtype()), x.dims(), {a.dim});
    product = product.defined() ? e.multiply(product, list) : list;
  }
  if (!product.defined()) return e.constant_like(same, x);
  return same == 1 ? product : e.multiply(product, same);
}

template <size_t kRank>
Value lower_avg_pool(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Type type(self.dtype(), c.result(0).dims);
  if (type.numel() == 0) return e.constant(0, type);
  Value pooled;
  pooled.type = type;
  Value x = e.convert(self, opmath(self.dtype()));
  const std::vector<Axis> axes = axes_of(windows_of(c, kRank, pooled, false), x, last_dims(self, kRank));
  for (size_t i = axes.size(); i-- > 0;) x = sum_windows(e, x, axes[i]);
  return e.convert(e.divide(x, divisor(e, c, axes, x)), self.dtype());
}

template <size_t kRank>
Value lower_avg_pool_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value grad = c.tensor("grad_output");
  if (grad.type.numel() == 0) return e.constant(0, self.type.with(grad.dtype()));
  Value x = e.convert(grad, opmath(grad.dtype()));
  const std::vector<Axis> axes = axes_of(windows_of(c, kRank, grad, false), x, last_dims(self, kRank));
  x = e.divide(x, divisor(e, c, axes, x));
  for (const Axis& a : axes) x = spread_windows(e, x, a);
  return e.convert(x, grad.dtype());
}

// --- unpooling, columns

Value lower_max_unpool(Emitter& e, const Call& c) {
  return scatter_positions(e, c.tensor("self"), c.tensor("indices"), c.integers("output_size"), false);
}

// Windows over the two spatial dims of an image whose sizes are `spatial`.
Windows column_windows(const Call& c, c10::IntArrayRef spatial) {
  const Dims ones(2, 1), zeros(2, 0);
  Windows w{list_of(c, "kernel_size", 2, ones),
            {},
            list_of(c, "stride", 2, ones),
            list_of(c, "padding", 2, zeros),
            list_of(c, "dilation", 2, ones)};
  for (const size_t i : {0, 1}) {
    w.out.push_back((spatial[i] + 2 * w.padding[i] - w.dilation[i] * (w.sizes[i] - 1) - 1) / w.stride[i] + 1);
  }
  return w;
}

// (N, C, H, W) -> (N, C * taps, windows).
Value lower_im2col(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Windows w = column_windows(c, last_dims(self, 2));
  Dims lead(self.dims().begin(), self.dims().end() - 2);
  const int64_t positions = w.out[0] * w.out[1];
  Dims column = lead, result = lead;
  column.append({1, positions});
  result.back() *= w.count();
  result.push_back(positions);
  if (self.type.with(result).numel() == 0) return e.constant(0, self.type.with(result));
  const Taps taps(e, self, scalar(e, 0, self.dtype()), w);
  Values columns;
  for (const Dims& tap : taps.all()) columns.push_back(e.reshape(taps.at(e, tap), column));
  return e.reshape(e.concatenate(columns, static_cast<int64_t>(lead.size())), result);
}

// (N, C * taps, windows) -> (N, C, H, W); windows that overlap add up.
Value lower_col2im(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto spatial = c.integers("output_size");
  const Windows w = column_windows(c, spatial);
  const int64_t taps = w.count();
  Dims lead(self.dims().begin(), self.dims().end() - 1);
  lead.back() /= taps;
  Dims split = lead, image = lead, part = lead;
  split.append({taps, w.out[0], w.out[1]});
  image.append(spatial.begin(), spatial.end());
  part.append(w.out.begin(), w.out.end());
  if (self.type.numel() == 0) return e.constant(0, self.type.with(image));
  const Value x = e.reshape(e.convert(self, opmath(self.dtype())), split);
  const auto at = static_cast<int64_t>(lead.size());
  Value sum;
  int64_t i = 0;
  for (const Dims& tap : indices_of(w.sizes)) {
    const Value column = e.reshape(slice_dim(e, x, at, i, i + 1), part);
    const Value spread = spread_tap(e, column, tap, w, spatial);
    sum = sum.defined() ? e.add(sum, spread) : spread;
    ++i;
  }
  return e.convert(sum, self.dtype());
}

}  // namespace

void add_pool(Table& t) {
  t.add("aten::max_pool2d_with_indices", lower_max_pool<2>);
  t.add("aten::max_pool2d_with_indices_backward", lower_max_pool_backward<2>);
  t.add("aten::max_pool3d_with_indices", lower_max_pool<3>);
  t.add("aten::max_pool3d_with_indices_backward", lower_max_pool_backward<3>);
  t.add("aten::avg_pool2d", lower_avg_pool<2>);
  t.add("aten::avg_pool2d_backward", lower_avg_pool_backward<2>);
  t.add("aten::avg_pool3d", lower_avg_pool<3>);
  t.add("aten::avg_pool3d_backward", lower_avg_pool_backward<3>);
  t.add("aten::max_unpool2d", lower_max_unpool);
  t.add("aten::max_unpool3d", lower_max_unpool);
  t.add("aten::im2col", lower_im2col);
  t.add("aten::col2im", lower_col2im);
}

}  // namespace torch_tpu
