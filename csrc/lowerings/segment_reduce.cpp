// Reductions of consecutive stretches of a tensor, given by their lengths or offsets.
// Data of [outer..., elements, inner...] is handled as [outer, elements, inner].
#include <limits>

#include "lowerings/families.h"
#include "lowerings/indexing.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

struct Segments {
  int64_t outer = 1, elements = 0, inner = 1, segments = 0;
  Value of_element;  // [outer, elements, inner]: where each element belongs; out of range if nowhere
  Value sizes;       // [outer, segments, inner]

  Dims element_dims() const { return {outer, elements, inner}; }
  Dims segment_dims() const { return {outer, segments, inner}; }
};

int64_t axis_of(const Call& c) { return Call::wrap(c.integer("axis"), c.tensor("data").rank()); }

int64_t count_segments(const Call& c) {
  return c.has("lengths") ? c.tensor("lengths").type.dims.back() : c.tensor("offsets").type.dims.back() - 1;
}

std::vector<Type> shape_of_segment_reduce(const Call& c) {
  TORCH_CHECK(c.has("lengths") || c.has("offsets"),
              "tpu: segment_reduce: got neither lengths nor offsets; expected one of them.\nPass lengths=...");
  TORCH_CHECK(!c.has("indices"), "tpu: segment_reduce: got indices, which PyTorch does not implement.\nPass lengths.");
  const int64_t axis = axis_of(c);
  const Type& where = c.tensor(c.has("lengths") ? "lengths" : "offsets").type;
  const Type& data = c.tensor("data").type;
  TORCH_CHECK(where.rank() == axis + 1, "tpu: segment_reduce along axis ", axis, ": got lengths or offsets of ",
              where.rank(), " dims; expected ", axis + 1, ".\nThey have the data's dims up to the axis.");
  Dims dims(data.dims);
  dims[axis] = count_segments(c);
  return {data.with(dims)};
}

std::vector<Type> shape_of_backward(const Call& c) { return {c.tensor("data").type}; }

// The boundaries are counted up along the elements: no table of elements by segments is made.
Segments segments_of(Emitter& e, const Call& c) {
  Segments s;
  const Value data = c.tensor("data");
  const int64_t axis = axis_of(c);
  for (int64_t i = 0; i < axis; ++i) s.outer *= data.dim(i);
  s.elements = data.dim(axis);
  for (int64_t i = axis + 1; i < data.rank(); ++i) s.inner *= data.dim(i);
  s.segments = count_segments(c);
  if (s.outer * s.elements * s.inner * s.segments == 0) return s;

  Value ends;  // [outer, segments + 1], from 0 on
  if (c.has("lengths")) {
    const Value lengths =
        e.reshape(normalized_index(e, c.tensor("lengths"), s.elements + 1, false), {s.outer, s.segments});
    ends = e.pad(running_sum(e, lengths), scalar(e, 0, lengths.dtype()), {0, 1}, {0, 0});
  } else {
    ends = e.reshape(normalized_index(e, c.tensor("offsets"), s.elements + 1, false), {s.outer, s.segments + 1});
  }
  const Value none = e.constant(0, ends.type.with({s.outer, s.elements}));
  const Value boundaries = scatter_along(e, none, 1, ends, e.constant(1, ends.type), "add");
  const Value numbers = e.subtract(running_sum(e, boundaries), 1);
  s.of_element = e.broadcast_in_dim(numbers, s.element_dims(), {0, 1});
  const Value sizes = e.subtract(slice_dim(e, ends, 1, 1, s.segments + 1), slice_dim(e, ends, 1, 0, s.segments));
  s.sizes = e.broadcast_in_dim(sizes, s.segment_dims(), {0, 1});
  return s;
}

// What the reduction of no elements gives, and the operation that adds one.
struct Reduction {
  std::string_view operation;
  Value identity;  // 0-d
};

Reduction reduction_named(Emitter& e, const std::string& name, at::ScalarType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (name == "max") return {"maximum", scalar(e, -kInfinity, dtype)};
  if (name == "min") return {"minimum", scalar(e, kInfinity, dtype)};
  if (name == "prod") return {"multiply", scalar(e, 1, dtype)};
  TORCH_CHECK(name == "sum" || name == "mean", "tpu: segment_reduce: got reduce='", name,
              "'; expected 'max', 'mean', 'min', 'sum' or 'prod'.");
  return {"add", scalar(e, 0, dtype)};
}

Value initial_of(Emitter& e, const Call& c, const Reduction& how) {
  return c.is_number("initial") ? c.number("initial", how.identity.dtype()) : how.identity;
}

Value lower_segment_reduce(Emitter& e, const Call& c) {
  const std::string name = c.text("reduce");
  const Value data = c.tensor("data");
  const at::ScalarType dtype = opmath(data.dtype());
  const Segments s = segments_of(e, c);
  const Reduction how = reduction_named(e, name, dtype);
  Value result = e.broadcast_in_dim(initial_of(e, c, how), s.segment_dims(), {});
  if (s.of_element.defined()) {
    const Value x = e.reshape(e.convert(data, dtype), s.element_dims());
    result = scatter_along(e, result, 1, s.of_element, x, how.operation);
    if (name == "mean") result = e.divide(result, e.maximum(e.convert(s.sizes, dtype), 1));
  }
  if (name == "mean" && !c.is_number("initial")) {
    const Value nothing =
        s.of_element.defined() ? e.compare("EQ", s.sizes, 0) : e.constant(true, result.type.with(at::kBool));
    result = e.select(nothing, like(e, std::numeric_limits<double>::quiet_NaN(), result), result);
  }
  return e.convert(e.reshape(result, c.result().dims), data.dtype());
}

// The product of the other elements of each element's segment: the whole product divided by the element, unless
// that is 0 or NaN; then from the product of those that are neither, and from how many there are of each.
Value product_of_others(Emitter& e, const Segments& s, const Value& x, const Value& product, const Value& initial) {
  const auto per_segment = [&](const Value& elements, const Value& start, std::string_view operation) {
    const Value from = e.broadcast_in_dim(start, s.segment_dims(), {});
    return gather_along(e, scatter_along(e, from, 1, s.of_element, elements, operation), 1, s.of_element);
  };
  const Value zero = scalar(e, 0, x.dtype());
  const Value is_zero = e.compare("EQ", x, 0);
  const Value nan = is_nan(e, x);
  const Value special = e.logical_or(is_zero, nan);
  const Value plain = per_segment(e.select(special, like(e, 1, x), x), initial, "multiply");
  const auto others = [&](const Value& kind) {
    const Value ones = e.convert(kind, x.dtype());
    return e.compare("GT", e.subtract(per_segment(ones, zero, "add"), ones), 0);
  };
  Value rest = e.select(others(is_zero), e.multiply(plain, 0), plain);
  rest = e.select(others(nan), like(e, std::numeric_limits<double>::quiet_NaN(), x), rest);
  return e.select(special, rest, e.divide(product, x));
}

Value lower_segment_reduce_backward(Emitter& e, const Call& c) {
  const std::string name = c.text("reduce");
  const Value data = c.tensor("data");
  const at::ScalarType dtype = opmath(data.dtype());
  const Segments s = segments_of(e, c);
  if (!s.of_element.defined()) return e.constant(0, data.type);
  const Value x = e.reshape(e.convert(data, dtype), s.element_dims());
  const auto spread = [&](const Value& of_segment) { return gather_along(e, of_segment, 1, s.of_element); };
  const auto of_segments = [&](std::string_view argument) {
    return e.reshape(e.convert(c.tensor(argument), dtype), s.segment_dims());
  };
  Value grad = spread(of_segments("grad"));
  if (name == "mean") {
    grad = e.divide(grad, spread(e.convert(s.sizes, dtype)));
  } else if (name == "prod") {
    const Value initial = initial_of(e, c, reduction_named(e, name, dtype));
    grad = e.multiply(grad, product_of_others(e, s, x, spread(of_segments("output")), initial));
  } else if (name != "sum") {
    // Shared among the elements that are the extreme.
    const Value chosen = e.logical_or(e.compare("EQ", x, spread(of_segments("output"))), is_nan(e, x));
    const Value ones = e.convert(chosen, dtype);
    const Value none = e.constant(0, Type(dtype, s.segment_dims()));
    const Value count = spread(scatter_along(e, none, 1, s.of_element, ones, "add"));
    grad = e.select(chosen, e.divide(grad, count), like(e, 0, grad));
  }
  const Value inside = e.logical_and(e.compare("GE", s.of_element, 0), e.compare("LT", s.of_element, s.segments));
  grad = e.select(inside, grad, like(e, 0, grad));
  return e.convert(e.reshape(grad, data.dims()), data.dtype());
}

}  // namespace

void add_segment_reduce(Table& t) {
  t.add("aten::segment_reduce", lower_segment_reduce).with_shape(shape_of_segment_reduce);
  t.add("aten::_segment_reduce_backward", lower_segment_reduce_backward).with_shape(shape_of_backward);
}

}  // namespace torch_tpu
