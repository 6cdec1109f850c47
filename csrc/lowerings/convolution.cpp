// Convolutions of any rank and their gradients. Three forms make all of them, because the gradient of
// a convolution for its input is a transposed convolution and the reverse, and both share the one for
// the kernel. Layouts in: input (N, C, spatial), kernel (O, C / groups, spatial).
//
// A TPU compiler picks its layouts itself. XLA's CPU compiler is fast for channels-last convolutions,
// slow for depthwise ones and for the gradients of grouped ones: those are written as sums over the taps
// of the kernel.
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include "lowerings/contract.h"
#include "lowerings/families.h"
#include "lowerings/taps.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMaxTaps = 128;

struct Geometry {
  Dims stride, padding, dilation;
  int64_t groups = 1;
  bool tpu = false;
  Precision precision = Precision::kHighest;
};

Dims spatial_of(const Value& x) { return Dims(x.dims().begin() + 2, x.dims().end()); }

Dims with_spatial(int64_t first, int64_t second, c10::IntArrayRef spatial) {
  Dims dims = {first, second};
  dims.append(spatial.begin(), spatial.end());
  return dims;
}

int64_t product(c10::IntArrayRef dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  return count;
}

// Exchanges dims 0 and 1.
Value swap_leading(Emitter& e, const Value& x) {
  Dims order = {1, 0};
  for (int64_t d = 2; d < x.rank(); ++d) order.push_back(d);
  return e.transpose(x, order);
}

// x (N, C, ..) and kernel (O, I, ..) -> `dims` (N, O, ..).
Value convolve(Emitter& e, const Value& x, const Value& kernel, Convolution how, const Dims& dims, const Geometry& g) {
  const Precision precision = opmath(x.dtype()) == x.dtype() ? g.precision : Precision::kDefault;
  const at::ScalarType dtype = opmath(x.dtype());
  if (g.tpu) return e.convolution(x, kernel, how, Type(dtype, dims), precision);

  const int64_t rank = x.rank();
  Dims channels_last = {0}, hwio, back = {0, rank - 1}, last_dims = {dims[0]};
  std::string numbers;
  for (int64_t d = 2; d < rank; ++d) {
    channels_last.push_back(d);
    hwio.push_back(d);
    back.push_back(d - 1);
    last_dims.push_back(dims[d]);
    numbers += std::to_string(d - 2) + ", ";
  }
  channels_last.push_back(1);
  hwio.push_back(1);
  hwio.push_back(0);
  last_dims.push_back(dims[1]);
  how.dims = "[b, " + numbers + "f]x[" + numbers + "i, o]->[b, " + numbers + "f]";
  const Value out =
      e.convolution(e.transpose(x, channels_last), e.transpose(kernel, hwio), how, Type(dtype, last_dims), precision);
  return e.transpose(out, back);
}

bool is_depthwise(const Value& kernel, const Geometry& g) {
  return !g.tpu && g.groups > 1 && kernel.dim(0) == g.groups && kernel.dim(1) == 1 &&
         product(spatial_of(kernel)) <= kMaxTaps;
}

// Element `tap` of every channel of a depthwise kernel, along dim 1 of `dims`.
Value weight_of_tap(Emitter& e, const Value& kernel, const Dims& tap, const Dims& dims) {
  Dims start = {0, 0}, limit = {kernel.dim(0), 1};
  for (const int64_t t : tap) {
    start.push_back(t);
    limit.push_back(t + 1);
  }
  const Value weights = e.reshape(e.slice(kernel, start, limit), {kernel.dim(0)});
  return e.broadcast_in_dim(weights, dims, {1});
}

// x (N, C, S) -> (N, O, out).
Value correlate(Emitter& e, const Value& x, const Value& kernel, const Geometry& g, const Dims& out) {
  const Dims k = spatial_of(kernel);
  if (is_depthwise(kernel, g)) {
    const Value wide = e.convert(x, opmath(x.dtype()));
    const Value weights = e.convert(kernel, wide.dtype());
    const Taps taps(e, wide, scalar(e, 0, wide.dtype()), {k, out, g.stride, g.padding, g.dilation});
    Value sum;
    for (const Dims& tap : taps.all()) {
      const Value part = taps.at(e, tap);
      const Value term = e.multiply(part, weight_of_tap(e, weights, tap, part.dims()));
      sum = sum.defined() ? e.add(sum, term) : term;
    }
    return sum;
  }
  Convolution how;
  how.strides = g.stride;
  how.rhs_dilation = g.dilation;
  how.feature_groups = g.groups;
  for (const auto i : c10::irange(k.size())) {
    how.low.push_back(g.padding[i]);
    how.high.push_back((out[i] - 1) * g.stride[i] + (k[i] - 1) * g.dilation[i] + 1 - x.dim(i + 2) - g.padding[i]);
  }
  return convolve(e, x, kernel, how, with_spatial(x.dim(0), kernel.dim(0), out), g);
}

// The gradient of correlate() for its input: y (N, O, S) -> (N, C, out).
Value correlate_transposed(Emitter& e, const Value& y, const Value& kernel, const Geometry& g, const Dims& out) {
  const Dims k = spatial_of(kernel);
  Dims low, high, interior = {0, 0};
  for (const auto i : c10::irange(k.size())) {
    const int64_t reach = (k[i] - 1) * g.dilation[i];
    low.push_back(reach - g.padding[i]);
    high.push_back(out[i] + reach - ((y.dim(i + 2) - 1) * g.stride[i] + 1) - low.back());
    interior.push_back(g.stride[i] - 1);
  }
  if (is_depthwise(kernel, g)) {
    const Value wide = e.convert(y, opmath(y.dtype()));
    const Value weights = e.convert(kernel, wide.dtype());
    const Value spread =
        e.pad(wide, scalar(e, 0, wide.dtype()), with_spatial(0, 0, low), with_spatial(0, 0, high), interior);
    const Dims ones(k.size(), 1), zeros(k.size(), 0);
    const Taps taps(e, spread, scalar(e, 0, wide.dtype()), {k, out, ones, zeros, g.dilation});
    Value sum;
    for (const Dims& tap : taps.all()) {
      Dims mirrored;
      for (const auto i : c10::irange(k.size())) mirrored.push_back(k[i] - 1 - tap[i]);
      const Value part = taps.at(e, tap);
      const Value term = e.multiply(part, weight_of_tap(e, weights, mirrored, part.dims()));
      sum = sum.defined() ? e.add(sum, term) : term;
    }
    return sum;
  }
  // (O, C / groups, k) -> (C, O / groups, mirrored k).
  const int64_t o = kernel.dim(0) / g.groups;
  const int64_t i = kernel.dim(1);
  Dims grouped = {g.groups, o, i}, order = {0, 2, 1}, mirrored;
  grouped.append(k.begin(), k.end());
  for (const auto d : c10::irange(static_cast<int64_t>(k.size()))) {
    order.push_back(d + 3);
    mirrored.push_back(d + 2);
  }
  Value swapped = e.transpose(e.reshape(kernel, grouped), order);
  swapped = e.reverse(e.reshape(swapped, with_spatial(g.groups * i, o, k)), mirrored);
  Convolution how;
  how.lhs_dilation = g.stride;
  how.rhs_dilation = g.dilation;
  how.low = low;
  how.high = high;
  how.feature_groups = g.groups;
  return convolve(e, y, swapped, how, with_spatial(y.dim(0), g.groups * i, out), g);
}

// The gradient of correlate() for its kernel: x (N, C, S) and y (N, O, ..) -> (O, C / groups, k).
Value correlate_kernel(Emitter& e, const Value& x, const Value& y, const Geometry& g, const Dims& k) {
  const int64_t n = x.dim(0);
  const int64_t i = x.dim(1) / g.groups;
  const int64_t o = y.dim(1) / g.groups;
  const Dims out = spatial_of(y);
  const int64_t positions = product(out);
  const int64_t count = product(k);
  const Dims dims = with_spatial(g.groups * o, i, k);

  if (!g.tpu && g.groups > 1 && count <= kMaxTaps) {
    const at::ScalarType wide = opmath(x.dtype());
    const bool depthwise = i == 1 && o == 1;
    const Value operand = depthwise ? e.convert(x, wide) : x;
    const Value grad = depthwise ? e.convert(y, wide) : y;
    const Taps taps(e, operand, scalar(e, 0, operand.dtype()), {k, out, g.stride, g.padding, g.dilation});
    Values parts;
    Dims all_but_channels = {0};
    for (int64_t d = 2; d < x.rank(); ++d) all_but_channels.push_back(d);
    for (const Dims& tap : taps.all()) {
      const Value part = taps.at(e, tap);
      if (depthwise) {
        parts.push_back(unsqueeze(e, sum(e, e.multiply(part, grad), all_but_channels), 1));
      } else {
        parts.push_back(e.reshape(part, {1, n, g.groups, i, positions}));
      }
    }
    if (depthwise) return e.reshape(e.concatenate(parts, 1), dims);
    const Value patches = e.concatenate(parts, 0);  // taps, n, groups, i, positions
    const Value grads = e.reshape(y, {n, g.groups, o, positions});
    // groups, o, taps, i
    const Value sums = contract(e, grads, patches, {{1}, {2}, {0, 3}, {1, 4}}, g.precision);
    return e.reshape(e.transpose(sums, {0, 1, 3, 2}), dims);
  }
  const bool pointwise = count == 1 && g.groups == 1 && product(g.stride) == 1 && out == spatial_of(x);
  if (!g.tpu && pointwise) {
    const Value sums = contract(e, e.reshape(y, {n, o, positions}), e.reshape(x, {n, i, positions}),
                                {{}, {}, {0, 2}, {0, 2}}, g.precision);
    return e.reshape(sums, dims);
  }
  Convolution how;
  how.strides = g.dilation;
  how.rhs_dilation = g.stride;
  how.batch_groups = g.groups;
  for (const auto d : c10::irange(k.size())) {
    how.low.push_back(g.padding[d]);
    how.high.push_back((k[d] - 1) * g.dilation[d] + (out[d] - 1) * g.stride[d] + 1 - x.dim(d + 2) - g.padding[d]);
  }
  const Value sums = convolve(e, swap_leading(e, x), swap_leading(e, y), how, with_spatial(i, g.groups * o, k), g);
  return swap_leading(e, sums);
}

Geometry geometry_of(const Call& c) {
  const auto dims = [&](std::string_view name) {
    const auto values = c.integers(name);
    return Dims(values.begin(), values.end());
  };
  return {dims("stride"), dims("padding"), dims("dilation"), c.integer("groups"), c.context().tpu, c.precision()};
}

// Integers are convolved in float64: exact up to 2^53, and a TPU has no integer convolution of 64 bits.
Value computed(Emitter& e, const Value& x) {
  return c10::isIntegralType(x.dtype(), /*includeBool=*/true) ? e.convert(x, at::kDouble) : x;
}

Type output_type(const Call& c) {
  const Value x = c.tensor("input");
  const Value w = c.tensor("weight");
  const Geometry g = geometry_of(c);
  const auto extra = c.integers("output_padding");
  const bool transposed = c.flag("transposed");
  Dims dims = {x.dim(0), transposed ? w.dim(1) * g.groups : w.dim(0)};
  for (const auto i : c10::irange(g.stride.size())) {
    const int64_t reach = g.dilation[i] * (w.dim(i + 2) - 1);
    const int64_t size = x.dim(i + 2);
    dims.push_back(transposed ? (size - 1) * g.stride[i] - 2 * g.padding[i] + reach + extra[i] + 1
                              : (size + 2 * g.padding[i] - reach - 1) / g.stride[i] + 1);
  }
  return Type(x.dtype(), dims);
}

Value lower_convolution_overrideable(Emitter& e, const Call& c) {
  const Type type = output_type(c);
  const Value x = computed(e, c.tensor("input"));
  const Value w = computed(e, c.tensor("weight"));
  const Geometry g = geometry_of(c);
  const Dims out(type.dims.begin() + 2, type.dims.end());
  Value y;
  if (type.numel() == 0 || x.type.numel() == 0 || w.type.numel() == 0) {
    y = e.constant(0, type.with(opmath(type.dtype)));
  } else if (c.flag("transposed")) {
    y = correlate_transposed(e, x, w, g, out);
  } else {
    y = correlate(e, x, w, g, out);
  }
  if (c.has("bias")) {
    y = e.add(y, e.broadcast_in_dim(e.convert(c.tensor("bias"), y.dtype()), y.dims(), {1}));
  }
  return e.convert(y, type.dtype);
}

std::vector<Type> gradient_types(const Call& c) {
  const Value grad = c.tensor("grad_output");
  std::vector<Type> types = {c.tensor("input").type, c.tensor("weight").type, Type(grad.dtype(), {grad.dim(1)})};
  const std::vector<bool> wanted = c.flags("output_mask");
  for (const auto i : c10::irange(types.size())) {
    if (!wanted[i]) types[i].dtype = at::ScalarType::Undefined;
  }
  return types;
}

Values lower_convolution_backward_overrideable(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Value x = c.tensor("input");
  const Value w = c.tensor("weight");
  const std::vector<bool> wanted = c.flags("output_mask");
  const Geometry g = geometry_of(c);
  const bool transposed = c.flag("transposed");
  const bool empty = grad.type.numel() == 0 || x.type.numel() == 0 || w.type.numel() == 0;
  const Value y = computed(e, grad);
  Values results(3);
  if (wanted[0]) {
    const Value kernel = computed(e, w);
    const Value dx = empty        ? e.constant_like(0, x)
                     : transposed ? correlate(e, y, kernel, g, spatial_of(x))
                                  : correlate_transposed(e, y, kernel, g, spatial_of(x));
    results[0] = e.convert(dx, x.dtype());
  }
  if (wanted[1]) {
    const Value input = computed(e, x);
    const Value dw = empty        ? e.constant_like(0, w)
                     : transposed ? correlate_kernel(e, y, input, g, spatial_of(w))
                                  : correlate_kernel(e, input, y, g, spatial_of(w));
    results[1] = e.convert(dw, w.dtype());
  }
  if (wanted[2]) {
    Dims all_but_channels = {0};
    for (int64_t d = 2; d < grad.rank(); ++d) all_but_channels.push_back(d);
    results[2] = e.convert(sum(e, grad, all_but_channels), grad.dtype());
  }
  return results;
}

}  // namespace

void add_convolution(Table& t) {
  t.add("aten::convolution_overrideable", lower_convolution_overrideable)
      .with_shape([](const Call& c) { return std::vector<Type>{output_type(c)}; })
      .in_format_of({"input", "weight"});
  t.add("aten::convolution_backward_overrideable", lower_convolution_backward_overrideable)
      .with_shape(gradient_types)
      .in_format_of({"input", "weight"});
}

}  // namespace torch_tpu
