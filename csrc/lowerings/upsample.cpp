// Interpolation to another size, by any of PyTorch's filters, and its gradient. A filter is separable: one
// sparse map a dim, whose indices and weights are computed here as PyTorch's CPU kernels compute them.
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "lowerings/families.h"
#include "lowerings/resample.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

enum class Filter {
  kNearest,
  kNearestExact,
  kLinear,
  kCubic,
  kLinearAntialiased,
  kCubicAntialiased,
  kLanczosAntialiased
};

// One dim of an interpolation.
struct Axis {
  int64_t in, out;
  bool align_corners = false;
  std::optional<double> scale;  // as the caller gave it
};

template <typename T>
T step_of(const Axis& a) {
  if (a.align_corners) return a.out > 1 ? static_cast<T>(a.in - 1) / (a.out - 1) : T(0);
  return a.scale && *a.scale > 0 ? static_cast<T>(1.0 / *a.scale) : static_cast<T>(a.in) / a.out;
}

// Indices are float even where values are double.
int64_t nearest_index(const Axis& a, int64_t o, bool exact) {
  if (!exact && a.out == a.in) return o;
  if (!exact && a.out == 2 * a.in) return o / 2;
  const float step = step_of<float>(a);
  const float position = exact ? std::floor(static_cast<float>((o + 0.5) * step)) : std::floor(o * step);
  return std::min(static_cast<int64_t>(position), a.in - 1);
}

// Where o lies between input elements: the one below, and how far beyond it.
template <typename T>
std::pair<int64_t, T> source_of(const Axis& a, int64_t o, bool cubic) {
  const T step = step_of<T>(a);
  T position = a.align_corners ? step * o : step * (o + T(0.5)) - T(0.5);
  if (!a.align_corners && !cubic && position < 0) position = 0;
  const int64_t index = std::min(static_cast<int64_t>(std::floor(static_cast<float>(position))), a.in - 1);
  return {index, std::clamp<T>(position - index, 0, 1)};
}

template <typename T>
T cubic_near(T x, T a) {
  return ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <typename T>
T cubic_far(T x, T a) {
  return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

template <typename T>
T antialias_weight(Filter filter, T x) {
  x = std::abs(x);
  switch (filter) {
    case Filter::kLinearAntialiased:
      return x < 1 ? 1 - x : T(0);
    case Filter::kCubicAntialiased: {
      const T a = -0.5;
      return x < 1 ? cubic_near(x, a) : x < 2 ? cubic_far(x, a) : T(0);
    }
    default: {
      const auto sinc = [](T y) { return y == 0 ? T(1) : std::sin(y) / y; };
      const T y = x * std::numbers::pi_v<T>;
      return x < 3 ? sinc(y) * sinc(y / 3) : T(0);
    }
  }
}

template <typename T>
std::vector<Resample::Term> antialiased_row(Filter filter, const Axis& a, int64_t o) {
  const T radius = filter == Filter::kLinearAntialiased ? 1 : filter == Filter::kCubicAntialiased ? 2 : 3;
  const T step = step_of<T>(a);
  const T support = step >= 1 ? radius * step : radius;
  const T inverse = step >= 1 ? 1 / step : T(1);
  const T center = step * (o + T(0.5));
  const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + T(0.5)), 0);
  const int64_t last = std::min<int64_t>(static_cast<int64_t>(center + support + T(0.5)), a.in);
  std::vector<T> weights;
  T total = 0;
  for (int64_t i = first; i < last; ++i) {
    weights.push_back(antialias_weight<T>(filter, (i - center + T(0.5)) * inverse));
    total += weights.back();
  }
  std::vector<Resample::Term> row;
  for (const auto i : c10::irange(weights.size())) {
    row.push_back({first + static_cast<int64_t>(i), total == 0 ? weights[i] : weights[i] / total});
  }
  return row;
}

template <typename T>
std::vector<Resample::Term> row_of(Filter filter, const Axis& a, int64_t o) {
  switch (filter) {
    case Filter::kNearest:
      return {{nearest_index(a, o, false), 1}};
    case Filter::kNearestExact:
      return {{nearest_index(a, o, true), 1}};
    case Filter::kLinear: {
      if (a.in == a.out) return {{o, 1}};
      const auto [index, beyond] = source_of<T>(a, o, false);
      if (beyond == 0) return {{index, 1}};
      return {{index, T(1) - beyond}, {std::min(index + 1, a.in - 1), beyond}};
    }
    case Filter::kCubic: {
      const auto [index, t] = source_of<T>(a, o, true);
      const T a_cubic = -0.75;
      const T weights[] = {cubic_far<T>(t + 1, a_cubic), cubic_near<T>(t, a_cubic), cubic_near<T>(1 - t, a_cubic),
                           cubic_far<T>(2 - t, a_cubic)};
      std::vector<Resample::Term> row;
      for (const int64_t j : {0, 1, 2, 3}) {
        if (weights[j] != 0) row.push_back({std::clamp<int64_t>(index + j - 1, 0, a.in - 1), weights[j]});
      }
      return row;
    }
    default:
      return antialiased_row<T>(filter, a, o);
  }
}

Resample map_of(Filter filter, const Axis& a, bool in_double) {
  Resample map;
  map.in = a.in;
  for (const auto o : c10::irange(a.out)) {
    map.rows.push_back(in_double ? row_of<double>(filter, a, o) : row_of<float>(filter, a, o));
  }
  return map;
}

// The axes of a call, of which the last dims of `in` and output_size tell the sizes.
std::vector<Axis> axes_of(const Call& c, Filter filter, c10::IntArrayRef in) {
  const auto out = c.integers("output_size");
  const size_t spatial = out.size();
  constexpr const char* kNames[] = {"scales_d", "scales_h", "scales_w"};
  const bool corners = filter != Filter::kNearest && filter != Filter::kNearestExact && c.flag("align_corners");
  std::vector<Axis> axes;
  for (const auto i : c10::irange(spatial)) {
    const char* name = spatial == 1 ? "scales" : kNames[3 - spatial + i];
    Axis axis{in[in.size() - spatial + i], out[i], corners, std::nullopt};
    if (c.is_number(name)) axis.scale = c.real(name);
    axes.push_back(axis);
  }
  return axes;
}

// CPU PyTorch interpolates bytes in fixed point: weights are multiples of 2^-bits, with as many bits as keep the
// largest below 2^15. Here the weights are the multiples.
struct FixedPoint {
  Resample map;
  int bits = 0;
};

FixedPoint in_fixed_point(const Resample& map) {
  FixedPoint fixed;
  fixed.map.in = map.in;
  double largest = 0;
  for (const auto& row : map.rows) {
    std::vector<Resample::Term> merged;
    for (const Resample::Term& term : row) {
      const auto same = [&](const Resample::Term& t) { return t.index == term.index; };
      const auto it = std::find_if(merged.begin(), merged.end(), same);
      if (it == merged.end()) {
        merged.push_back(term);
      } else {
        it->weight += term.weight;
      }
    }
    for (const Resample::Term& term : merged) largest = std::max(largest, term.weight);
    fixed.map.rows.push_back(std::move(merged));
  }
  while (fixed.bits < 22 && 0.5 + std::ldexp(largest, fixed.bits + 1) < (1 << 15)) ++fixed.bits;
  for (auto& row : fixed.map.rows) {
    for (Resample::Term& term : row) term.weight = std::round(std::ldexp(term.weight, fixed.bits));
  }
  return fixed;
}

// uint8 values along one dim, held in int32.
Value resample_bytes(Emitter& e, const Value& x, int64_t dim, const Resample& map) {
  const FixedPoint fixed = in_fixed_point(map);
  Value out = resample(e, x, dim, fixed.map);
  if (fixed.bits > 0) {
    out = e.add(out, 1 << (fixed.bits - 1));
    out = e.binary("shift_right_arithmetic", out, e.constant_like(fixed.bits, out));
  }
  return e.clamp(scalar(e, 0, at::kInt), out, scalar(e, 255, at::kInt));
}

Value resize(Emitter& e, const Call& c, Filter filter) {
  const Value self = c.tensor("self");
  const std::vector<Axis> axes = axes_of(c, filter, self.dims());
  const bool nearest = filter == Filter::kNearest || filter == Filter::kNearestExact;
  const bool bytes = self.dtype() == at::kByte && !nearest;
  Value x = nearest ? self : e.convert(self, bytes ? at::kInt : opmath(self.dtype()));
  for (size_t i = axes.size(); i-- > 0;) {
    const int64_t dim = x.rank() - static_cast<int64_t>(axes.size() - i);
    if (!bytes) {
      x = resample(e, x, dim, map_of(filter, axes[i], x.dtype() == at::kDouble));
    } else if (axes[i].in != axes[i].out) {
      x = resample_bytes(e, x, dim, map_of(filter, axes[i], true));
    }
  }
  return e.convert(x, self.dtype());
}

Value resize_backward(Emitter& e, const Call& c, Filter filter) {
  const Value grad = c.tensor("grad_output");
  const std::vector<Axis> axes = axes_of(c, filter, c.integers("input_size"));
  Value x = e.convert(grad, opmath(grad.dtype()));
  for (const auto i : c10::irange(axes.size())) {
    const int64_t dim = x.rank() - static_cast<int64_t>(axes.size() - i);
    x = resample(e, x, dim, map_of(filter, axes[i], x.dtype() == at::kDouble).transposed());
  }
  return e.convert(x, grad.dtype());
}

}  // namespace

void add_upsample(Table& t) {
  const auto add = [&](const std::string& name, Filter filter) {
    t.add("aten::" + name, [filter](Emitter& e, const Call& c) { return Values{resize(e, c, filter)}; });
    t.add("aten::" + name + "_backward",
          [filter](Emitter& e, const Call& c) { return Values{resize_backward(e, c, filter)}; });
  };
  for (const char* dims : {"1d", "2d", "3d"}) {
    add(std::string("upsample_nearest") + dims, Filter::kNearest);
    add(std::string("_upsample_nearest_exact") + dims, Filter::kNearestExact);
  }
  add("upsample_linear1d", Filter::kLinear);
  add("upsample_bilinear2d", Filter::kLinear);
  add("upsample_trilinear3d", Filter::kLinear);
  add("upsample_bicubic2d", Filter::kCubic);
  add("_upsample_bilinear2d_aa", Filter::kLinearAntialiased);
  add("_upsample_bicubic2d_aa", Filter::kCubicAntialiased);
  add("_upsample_lanczos2d_aa", Filter::kLanczosAntialiased);
}

}  // namespace torch_tpu
