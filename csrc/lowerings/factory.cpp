// Tensors from numbers alone: arange, range, linspace, logspace, eye, triangle indices.
// Sizes are known from the written tensor; the numbers are operands.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/indexing.h"

namespace torch_tpu {

namespace {

// start + step * i, computed in int64 where the result or the numbers are integers, else in float64:
// one rounding, to the result's dtype.
Value lower_arange(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const bool integral =
      c10::isIntegralType(result.dtype, true) || (c.is_integral_number("start") && c.is_integral_number("step"));
  const Type type(integral ? at::kLong : at::kDouble, result.dims);
  if (result.numel() == 0) return e.constant(0, result);
  Value x = e.iota(type, 0);
  if (!c.equals("step", 1)) x = e.multiply(x, c.number("step", type));
  if (!c.equals("start", 0)) x = e.add(x, c.number("start", type));
  return e.convert(x, result.dtype);
}

// An end of linspace: a number, or a 0-d tensor.
Value endpoint(Emitter& e, const Call& c, std::string_view name, const Type& type) {
  if (c.is_number(name)) return c.number(name, type);
  return broadcast_to(e, e.convert(c.tensor(name), type.dtype), type.dims);
}

// Counted from both ends, so both are exact and the middle is symmetric. Between integers, where those are asked for.
Value evenly_spaced(Emitter& e, const Call& c, const Type& type) {
  const int64_t steps = type.dims[0];
  if (steps == 1) return endpoint(e, c, "start", type);
  const at::ScalarType dtype = c.result().dtype;
  const auto bound = [&](std::string_view name) {
    const Value x = endpoint(e, c, name, type);
    return c10::isIntegralType(dtype, true) ? e.convert(e.convert(x, dtype), type.dtype) : x;
  };
  const Value start = bound("start");
  const Value end = bound("end");
  const Value step = e.divide(e.subtract(end, start), at::Scalar(steps - 1));
  const Type places(at::kInt, type.dims);
  const Value place = e.iota(places, 0);
  const Value rest = e.subtract(at::Scalar(steps - 1), place);
  return e.select(e.compare("LT", place, at::Scalar(steps / 2)),
                  e.add(start, e.multiply(step, e.convert(place, type.dtype))),
                  e.subtract(end, e.multiply(step, e.convert(rest, type.dtype))));
}

Type spacing_type(const Type& result) {
  return result.with(c10::isIntegralType(result.dtype, true) ? at::kDouble : opmath(result.dtype));
}

Value lower_linspace(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  return e.convert(evenly_spaced(e, c, spacing_type(result)), result.dtype);
}

Value lower_logspace(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const Type type = spacing_type(result);
  Value x = e.power(c.number("base", type), evenly_spaced(e, c, type));
  if (c10::isIntegralType(result.dtype, true)) {
    // A power that is an integer but for rounding must not be cut to the one below.
    const Value whole = e.unary("round_nearest_even", x);
    const Value off = e.unary("abs", e.subtract(x, whole));
    x = e.select(e.compare("LT", off, e.multiply(e.unary("abs", whole), at::Scalar(1e-10))), whole, x);
  }
  return e.convert(x, result.dtype);
}

Value lower_eye(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const Type places = result.with(at::kInt);
  return e.convert(e.compare("EQ", e.iota(places, 0), e.iota(places, 1)), result.dtype);
}

// --- triangles

int64_t lower_triangle_size(int64_t rows, int64_t columns, int64_t offset) {
  int64_t size = 0;
  for (const auto row : c10::irange(rows)) size += std::clamp<int64_t>(row + offset + 1, 0, columns);
  return size;
}

void check_triangle(const Call& c) {
  for (const char* name : {"row", "col"}) {
    TORCH_CHECK(c.integer(name) >= 0, name, " must be non-negative, got ", c.integer(name));
  }
}

std::vector<Type> tril_indices_type(const Call& c) {
  check_triangle(c);
  const int64_t size = lower_triangle_size(c.integer("row"), c.integer("col"), c.integer("offset"));
  return {Type(c.dtype("dtype").value_or(at::kLong), {2, size})};
}

std::vector<Type> triu_indices_type(const Call& c) {
  check_triangle(c);
  const int64_t rows = c.integer("row");
  const int64_t columns = c.integer("col");
  const int64_t size = rows * columns - lower_triangle_size(rows, columns, c.integer("offset") - 1);
  return {Type(c.dtype("dtype").value_or(at::kLong), {2, size})};
}

// The coordinates of the elements for which (column - row) `direction` offset, in row-major order.
Value triangle_indices(Emitter& e, const Call& c, std::string_view direction) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const int64_t rows = c.integer("row");
  const int64_t columns = c.integer("col");
  const int64_t offset = std::clamp(c.integer("offset"), -rows - 1, columns + 1);
  const Type places(at::kInt, {rows, columns});
  const Value inside = e.compare(direction, e.iota(places, 1), e.add(e.iota(places, 0), at::Scalar(offset)));
  const Value flat = true_positions(e, flatten(e, inside), result.dims[1]);
  const Dims row = {1, result.dims[1]};
  return e.convert(e.concatenate({e.reshape(e.divide(flat, at::Scalar(columns)), row),
                                  e.reshape(e.remainder(flat, at::Scalar(columns)), row)},
                                 0),
                   result.dtype);
}

Value lower_tril_indices(Emitter& e, const Call& c) { return triangle_indices(e, c, "LE"); }
Value lower_triu_indices(Emitter& e, const Call& c) { return triangle_indices(e, c, "GE"); }

}  // namespace

void add_factory(Table& t) {
  t.add("aten::arange.start_out", lower_arange).sized_by_range();
  t.add("aten::range.out", lower_arange).sized_by_range();
  for (const char* form : {"out", "Tensor_Tensor_out", "Tensor_Scalar_out", "Scalar_Tensor_out"}) {
    t.add(std::string("aten::linspace.") + form, lower_linspace);
    t.add(std::string("aten::logspace.") + form, lower_logspace);
  }
  t.add("aten::eye.out", lower_eye);
  t.add("aten::eye.m_out", lower_eye);
  t.add("aten::tril_indices", lower_tril_indices).with_shape(tril_indices_type);
  t.add("aten::triu_indices", lower_triu_indices).with_shape(triu_indices_type);
}

}  // namespace torch_tpu
