#include "lowerings/window_maximum.h"

#include <c10/util/irange.h>

#include <limits>

#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMaxTaps = 64;
constexpr auto kNowhere = std::numeric_limits<int32_t>::max();

// The better of (value, position) pairs (a, i) and (b, j).
Values better(Emitter& e, const Values& in) {
  const Value &a = in[0], &i = in[1], &b = in[2], &j = in[3];
  Value takes = e.logical_or(e.compare("GT", b, a), e.logical_and(e.compare("EQ", a, b), e.compare("LT", j, i)));
  if (c10::isFloatingType(a.dtype())) {
    const Value a_nan = is_nan(e, a), b_nan = is_nan(e, b);
    const Value later = e.logical_or(e.logical_not(a_nan), e.compare("GT", j, i));
    takes = e.logical_or(takes, e.logical_and(b_nan, later));
  }
  return {e.select(takes, b, a), e.select(takes, j, i)};
}

Dims leading_of(const Value& x, size_t spatial) { return Dims(x.dims().begin(), x.dims().end() - spatial); }

// `position`, of the last dims of `dims`, broadcast to it.
Value over(Emitter& e, const Value& position, const Dims& dims) { return broadcast_to(e, position, dims); }

// Positions of tap 0 of every window; negative or beyond in the padding.
Value first_positions(Emitter& e, const Windows& w, c10::IntArrayRef spatial) {
  std::vector<std::vector<int64_t>> index(w.sizes.size());
  for (const auto d : c10::irange(w.sizes.size())) {
    for (const auto o : c10::irange(w.out[d])) index[d].push_back(o * w.stride[d] - w.padding[d]);
  }
  return flat_positions(e, index, spatial);
}

// Positions of the first element of every window that is not padding.
Value first_inside(Emitter& e, const Windows& w, c10::IntArrayRef spatial) {
  std::vector<std::vector<int64_t>> index(w.sizes.size());
  for (const auto d : c10::irange(w.sizes.size())) {
    for (const auto o : c10::irange(w.out[d])) {
      int64_t i = o * w.stride[d] - w.padding[d];
      while (i < 0) i += w.dilation[d];
      index[d].push_back(i);
    }
  }
  return flat_positions(e, index, spatial);
}

int64_t offset_of(const Dims& tap, const Windows& w, c10::IntArrayRef spatial) {
  int64_t offset = 0;
  for (const auto d : c10::irange(tap.size())) offset = offset * spatial[d] + tap[d] * w.dilation[d];
  return offset;
}

}  // namespace

Value flat_positions(Emitter& e, const std::vector<std::vector<int64_t>>& index, c10::IntArrayRef spatial) {
  Dims dims;
  for (const auto& list : index) dims.push_back(static_cast<int64_t>(list.size()));
  Value sum;
  for (const auto d : c10::irange(index.size())) {
    std::vector<int64_t> scaled = index[d];
    for (size_t inner = d + 1; inner < spatial.size(); ++inner) {
      for (int64_t& i : scaled) i *= spatial[inner];
    }
    const Value part = e.broadcast_in_dim(e.list(scaled, at::kInt), dims, {static_cast<int64_t>(d)});
    sum = sum.defined() ? e.add(sum, part) : part;
  }
  return sum;
}

Maximum maximum_along(Emitter& e, const Value& x, const Value& position, c10::IntArrayRef dims) {
  const Values out = e.reduce({x, position}, {e.lowest(x.type), scalar(e, kNowhere, at::kInt)}, dims,
                              [&](const Values& in) { return better(e, in); });
  return {out[0], out[1]};
}

Maximum window_maximum(Emitter& e, const Value& x, const Windows& w) {
  const size_t spatial_rank = w.sizes.size();
  const Dims spatial(x.dims().end() - spatial_rank, x.dims().end());
  Dims dims = leading_of(x, spatial_rank);
  dims.append(w.out.begin(), w.out.end());
  const Type type(x.dtype(), dims);
  if (type.numel() == 0) return {e.constant(0, type), e.constant(0, type.with(at::kInt))};

  if (w.count() > kMaxTaps) {
    std::vector<std::vector<int64_t>> all(spatial_rank);
    for (const auto d : c10::irange(spatial_rank)) {
      for (const auto i : c10::irange(spatial[d])) all[d].push_back(i);
    }
    const Value position = over(e, flat_positions(e, all, spatial), x.dims());
    const Values out =
        e.reduce_window({x, position}, {e.lowest(x.type), scalar(e, kNowhere, at::kInt)},
                        window_over(w, x.rank(), spatial), [&](const Values& in) { return better(e, in); });
    return {out[0], out[1]};
  }

  const Value lowest = e.lowest(x.type);
  const Value base = first_positions(e, w, spatial);
  Maximum best{broadcast_to(e, lowest, dims), over(e, first_inside(e, w, spatial), dims)};
  const Taps taps(e, x, lowest, w);
  for (const Dims& tap : taps.all()) {
    const Value value = taps.at(e, tap);
    Value takes = e.compare("GT", value, best.value);
    if (c10::isFloatingType(x.dtype())) takes = e.logical_or(takes, is_nan(e, value));
    const Value position = e.add(base, offset_of(tap, w, spatial));
    best = {e.select(takes, value, best.value), e.select(takes, over(e, position, dims), best.position)};
  }
  return best;
}

Value window_maximum_backward(Emitter& e, const Value& grad, const Value& position, const Windows& w,
                              c10::IntArrayRef spatial) {
  if (w.count() > kMaxTaps || grad.type.numel() == 0) return scatter_positions(e, grad, position, spatial, true);
  const Value wide = e.convert(grad, opmath(grad.dtype()));
  const Value base = first_positions(e, w, spatial);
  const Value where = e.convert(position, at::kInt);
  Value sum;
  for (const Dims& tap : indices_of(w.sizes)) {
    const Value here = over(e, e.add(base, offset_of(tap, w, spatial)), grad.dims());
    const Value part = e.select(e.compare("EQ", where, here), wide, e.constant_like(0, wide));
    const Value spread = spread_tap(e, part, tap, w, spatial);
    sum = sum.defined() ? e.add(sum, spread) : spread;
  }
  return e.convert(sum, grad.dtype());
}

Value scatter_positions(Emitter& e, const Value& updates, const Value& position, c10::IntArrayRef spatial, bool adds) {
  Dims result = leading_of(updates, spatial.size());
  const int64_t planes = updates.type.with(result).numel();
  result.append(spatial.begin(), spatial.end());
  const Type type(updates.dtype(), result);
  if (type.numel() == 0 || updates.type.numel() == 0) return e.constant(0, type);
  const at::ScalarType computed = adds ? opmath(updates.dtype()) : updates.dtype();
  const int64_t count = updates.type.numel() / planes;
  const Value zeros = e.constant(0, Type(computed, {planes, type.numel() / planes}));
  const Value out = scatter_along(e, zeros, 1, e.reshape(position, {planes, count}),
                                  e.reshape(e.convert(updates, computed), {planes, count}), adds ? "add" : "");
  return e.convert(e.reshape(out, result), updates.dtype());
}

}  // namespace torch_tpu
