// Sampling an image at places given by a grid, and the gradients for both. Every output is a sum of terms,
// an element of the input times a weight that depends on the place; the gradients differentiate that sum.
#include <c10/util/irange.h>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// PyTorch's GridSamplerInterpolation and GridSamplerPadding.
enum Interpolation : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

// One spatial dim: its size, and the places along it (N, P) in elements.
struct Axis {
  int64_t size;
  Value place;
  Value slope;  // d place / d grid
};

// One element of each output: all (N, P).
struct Term {
  Value index;   // flat in the spatial dims, in bounds
  Value inside;  // bool: whether it counts
  Value weight;
  std::vector<Value> slopes;  // d weight / d place, by spatial dim; empty for nearest
};

struct Sampler {
  Emitter& e;
  int64_t padding;
  bool align_corners;

  Value like(const Value& x, double value) const { return e.constant_like(value, x); }

  // Places of grid coordinates from -1 to 1.
  Value unnormalized(const Value& g, int64_t size) const {
    const Value shifted = e.add(g, 1);
    if (align_corners) return e.multiply(e.divide(shifted, 2), static_cast<double>(size - 1));
    return e.divide(e.subtract(e.multiply(shifted, static_cast<double>(size)), 1), 2);
  }

  Value clipped(const Value& x, int64_t size) const {
    return e.minimum(e.maximum(x, 0), static_cast<double>(size - 1));
  }

  // `x` reflected into the image; `sign`, if asked for, is d result / d x.
  Value reflected(const Value& x, int64_t size, Value* sign) const {
    const double low = align_corners ? 0 : -0.5;
    const double span = align_corners ? static_cast<double>(size - 1) : static_cast<double>(size);
    if (span == 0) {
      if (sign != nullptr) *sign = like(x, 0);
      return like(x, 0);
    }
    const Value from_low = e.subtract(x, low);
    const Value distance = e.unary("abs", from_low);
    const Value extra = e.remainder(distance, span);
    const Value flips = e.unary("floor", e.divide(distance, span));
    const Value even = e.compare("EQ", e.remainder(flips, 2), at::Scalar(0));
    if (sign != nullptr) {
      const Value before = e.select(e.compare("LT", from_low, at::Scalar(0)), like(x, -1), like(x, 1));
      *sign = e.select(even, before, e.negate(before));
    }
    return e.add(e.select(even, extra, e.subtract(span, extra)), low);
  }

  // A place after the padding mode has moved it.
  Value padded(const Value& x, int64_t size) const {
    if (padding == kBorder) return clipped(x, size);
    if (padding == kReflection) return clipped(reflected(x, size, nullptr), size);
    return x;
  }

  // The place and its slope for interpolations that move the place itself.
  Axis moved(const Axis& a) const {
    if (padding == kZeros) return a;
    Value x = a.place, slope = a.slope;
    if (padding == kReflection) {
      Value sign;
      x = reflected(x, a.size, &sign);
      slope = e.multiply(slope, sign);
    }
    const Value free = e.logical_and(e.compare("GT", x, at::Scalar(0)),
                                     e.compare("LT", x, at::Scalar(static_cast<double>(a.size - 1))));
    slope = e.select(free, slope, like(slope, 0));
    return {a.size, clipped(x, a.size), slope};
  }

  // Fills index and inside of a term at whole-numbered places, one a dim.
  Term term_at(const std::vector<Axis>& axes, const std::vector<Value>& whole) const {
    Term term;
    for (const auto d : c10::irange(axes.size())) {
      const int64_t size = axes[d].size;
      const Value within = e.logical_and(e.compare("GE", whole[d], at::Scalar(0)),
                                         e.compare("LE", whole[d], at::Scalar(static_cast<double>(size - 1))));
      term.inside = term.inside.defined() ? e.logical_and(term.inside, within) : within;
      const Value i = e.convert(clipped(whole[d], size), at::kInt);
      term.index = term.index.defined() ? e.add(e.multiply(term.index, size), i) : i;
    }
    return term;
  }

  std::vector<Term> nearest(const std::vector<Axis>& axes) const {
    std::vector<Value> whole;
    for (const Axis& a : axes) whole.push_back(e.unary("round_nearest_even", a.place));
    Term term = term_at(axes, whole);
    term.weight = like(axes[0].place, 1);
    return {term};
  }

  // Weights and their slopes of each tap of each dim; offsets count from floor(place).
  std::vector<Term> separable(const std::vector<Axis>& axes, int64_t taps, bool pads_each) const {
    const size_t rank = axes.size();
    std::vector<std::vector<Value>> whole(rank), weights(rank), slopes(rank);
    for (const auto d : c10::irange(rank)) {
      const Value base = e.unary("floor", axes[d].place);
      const Value t = e.subtract(axes[d].place, base);
      const auto first = static_cast<double>(taps == 2 ? 0 : -1);
      for (const auto i : c10::irange(taps)) {
        const Value at = e.add(base, first + static_cast<double>(i));
        whole[d].push_back(pads_each ? padded(at, axes[d].size) : at);
      }
      if (taps == 2) {
        weights[d] = {e.subtract(1, t), t};
        slopes[d] = {like(t, -1), like(t, 1)};
      } else {
        cubic(t, weights[d], slopes[d]);
      }
    }
    std::vector<Term> terms;
    const int64_t count = rank == 3 ? taps * taps * taps : taps * taps;
    for (const auto n : c10::irange(count)) {
      std::vector<size_t> tap(rank);
      for (auto [d, rest] = std::pair(rank, n); d-- > 0; rest /= taps) tap[d] = static_cast<size_t>(rest % taps);
      std::vector<Value> at;
      for (const auto d : c10::irange(rank)) at.push_back(whole[d][tap[d]]);
      Term term = term_at(axes, at);
      const auto product = [&](size_t differentiated) {
        Value p;
        for (const auto d : c10::irange(rank)) {
          const Value& factor = (d == differentiated ? slopes : weights)[d][tap[d]];
          p = p.defined() ? e.multiply(p, factor) : factor;
        }
        return p;
      };
      term.weight = product(rank);
      for (const auto d : c10::irange(rank)) term.slopes.push_back(product(d));
      terms.push_back(term);
    }
    return terms;
  }

  // The cubic convolution weights of the taps -1, 0, 1, 2 for a place `t` beyond tap 0.
  void cubic(const Value& t, std::vector<Value>& weights, std::vector<Value>& slopes) const {
    constexpr double a = -0.75;
    const auto polynomial = [&](const Value& x, double c3, double c2, double c1, double c0) {
      return e.add(e.multiply(e.add(e.multiply(e.add(e.multiply(x, c3), c2), x), c1), x), c0);
    };
    const auto slope = [&](const Value& x, double c3, double c2, double c1) {
      return e.add(e.multiply(e.add(e.multiply(x, 3 * c3), 2 * c2), x), c1);
    };
    const Value far_left = e.add(t, 1), near_right = e.subtract(1, t), far_right = e.subtract(2, t);
    weights = {polynomial(far_left, a, -5 * a, 8 * a, -4 * a), polynomial(t, a + 2, -(a + 3), 0, 1),
               polynomial(near_right, a + 2, -(a + 3), 0, 1), polynomial(far_right, a, -5 * a, 8 * a, -4 * a)};
    slopes = {slope(far_left, a, -5 * a, 8 * a), slope(t, a + 2, -(a + 3), 0),
              e.negate(slope(near_right, a + 2, -(a + 3), 0)), e.negate(slope(far_right, a, -5 * a, 8 * a))};
  }
};

struct Problem {
  Value image;  // (N, S, C)
  Dims spatial;
  Dims out;
  std::vector<Axis> axes;  // by spatial dim
  std::vector<Term> terms;
};

Value channels_last(Emitter& e, const Value& x) {
  Dims spatial(x.dims().begin() + 2, x.dims().end());
  const int64_t positions = x.type.with(spatial).numel();
  return e.transpose(e.reshape(x, {x.dim(0), x.dim(1), positions}), {0, 2, 1});
}

Value channels_first(Emitter& e, const Value& x, const Dims& spatial) {
  Dims dims = {x.dim(0), x.dim(2)};
  dims.append(spatial.begin(), spatial.end());
  return e.reshape(e.transpose(x, {0, 2, 1}), dims);
}

Problem problem_of(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const at::ScalarType dtype = opmath(input.dtype());
  const Value grid = e.convert(c.tensor("grid"), dtype);
  Problem p;
  p.image = channels_last(e, e.convert(input, dtype));
  p.spatial = Dims(input.dims().begin() + 2, input.dims().end());
  p.out = Dims(grid.dims().begin() + 1, grid.dims().end() - 1);
  const auto rank = static_cast<int64_t>(p.spatial.size());
  const int64_t n = grid.dim(0);
  const int64_t places = grid.type.with(p.out).numel();
  const Value flat = e.reshape(grid, {n, places, rank});

  const Sampler sampler{e, c.integer("padding_mode"), c.flag("align_corners")};
  const int64_t interpolation = c.integer("interpolation_mode");
  for (const auto d : c10::irange(rank)) {
    // The grid names the last spatial dim first.
    const Value g = e.reshape(slice_dim(e, flat, 2, rank - 1 - d, rank - d), {n, places});
    const int64_t size = p.spatial[d];
    const double slope = sampler.align_corners ? (size - 1) / 2.0 : size / 2.0;
    Axis axis{size, sampler.unnormalized(g, size), e.constant_like(slope, g)};
    p.axes.push_back(interpolation == kBicubic ? axis : sampler.moved(axis));
  }
  p.terms = interpolation == kNearest    ? sampler.nearest(p.axes)
            : interpolation == kBilinear ? sampler.separable(p.axes, 2, false)
                                         : sampler.separable(p.axes, 4, true);
  return p;
}

// (n, index) pairs: (N, P, 2).
Value pairs(Emitter& e, const Value& index) {
  const Value n = e.iota(index.type, 0);
  return e.concatenate({unsqueeze(e, n, 2), unsqueeze(e, index, 2)}, 2);
}

// The elements of a term: (N, P, C).
Value read(Emitter& e, const Value& image, const Value& index) {
  GatherDims dims;
  dims.offset_dims = {2};
  dims.collapsed_slice_dims = {0, 1};
  dims.start_index_map = {0, 1};
  dims.slice_sizes = {1, 1, image.dim(2)};
  dims.index_vector_dim = 2;
  return e.gather(image, pairs(e, index), dims);
}

Value over_channels(Emitter& e, const Value& x, const Value& like) {
  return e.broadcast_in_dim(x, like.dims(), {0, 1});
}

Value lower_grid_sampler(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Type type(input.dtype(), c.result(0).dims);
  if (type.numel() == 0) return e.constant(0, type);
  const Problem p = problem_of(e, c);
  Value sum;
  for (const Term& term : p.terms) {
    const Value value = read(e, p.image, term.index);
    const Value weighted = e.multiply(value, over_channels(e, term.weight, value));
    const Value part = e.select(over_channels(e, term.inside, value), weighted, e.constant_like(0, value));
    sum = sum.defined() ? e.add(sum, part) : part;
  }
  return e.convert(channels_first(e, sum, p.out), input.dtype());
}

Values lower_grid_sampler_backward(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Value grid = c.tensor("grid");
  const Value grad_output = c.tensor("grad_output");
  const bool wants_input = c.flags("output_mask")[0];
  Values results(2);
  if (grad_output.type.numel() == 0) {
    if (wants_input) results[0] = e.constant_like(0, input);
    results[1] = e.constant_like(0, grid);
    return results;
  }
  const Problem p = problem_of(e, c);
  const Value grad = channels_last(e, e.convert(grad_output, p.image.dtype()));
  if (wants_input) {
    Values indices, updates;
    for (const Term& term : p.terms) {
      const Value weight = e.select(term.inside, term.weight, e.constant_like(0, term.weight));
      indices.push_back(term.index);
      updates.push_back(e.multiply(grad, over_channels(e, weight, grad)));
    }
    ScatterDims dims;
    dims.update_window_dims = {2};
    dims.inserted_window_dims = {0, 1};
    dims.scatter_dims_to_operand_dims = {0, 1};
    dims.index_vector_dim = 2;
    const Value sum = e.scatter(e.constant_like(0, p.image), pairs(e, e.concatenate(indices, 1)),
                                e.concatenate(updates, 1), dims, "add");
    results[0] = e.convert(channels_first(e, sum, p.spatial), input.dtype());
  }
  std::vector<Value> by_dim(p.axes.size());
  for (const Term& term : p.terms) {
    if (term.slopes.empty()) continue;
    const Value along = sum(e, e.multiply(read(e, p.image, term.index), grad), {2});
    const Value counted = e.select(term.inside, along, e.constant_like(0, along));
    for (const auto d : c10::irange(p.axes.size())) {
      const Value part = e.multiply(counted, term.slopes[d]);
      by_dim[d] = by_dim[d].defined() ? e.add(by_dim[d], part) : part;
    }
  }
  if (!by_dim[0].defined()) {
    results[1] = e.constant_like(0, grid);
    return results;
  }
  Values columns;
  for (size_t d = p.axes.size(); d-- > 0;) {
    columns.push_back(unsqueeze(e, e.multiply(by_dim[d], p.axes[d].slope), 2));
  }
  results[1] = e.convert(e.reshape(e.concatenate(columns, 2), grid.dims()), grid.dtype());
  return results;
}

}  // namespace

void add_grid_sampler(Table& t) {
  t.add("aten::grid_sampler_2d", lower_grid_sampler);
  t.add("aten::grid_sampler_2d_backward", lower_grid_sampler_backward);
  t.add("aten::grid_sampler_3d", lower_grid_sampler);
  t.add("aten::grid_sampler_3d_backward", lower_grid_sampler_backward);
}

}  // namespace torch_tpu
