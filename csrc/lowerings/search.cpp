// Places of values among others: searchsorted, bucketize, histc, isin, rows of sparse matrices.
#include <c10/util/irange.h>

#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

// Up to so many boundaries, comparing with each of them beats a gather a step.
constexpr int64_t kFewBoundaries = 64;
constexpr int64_t kFewBoundariesOnTpu = 2048;

// True where `boundary` stands left of the place of `value`. A NaN boundary does, and all do for a NaN.
Value stands_left(Emitter& e, const Value& boundary, const Value& value, bool right) {
  return e.logical_not(e.compare(right ? "GT" : "GE", boundary, value));
}

// int32 places of `values` in the sorted last dimension of `boundaries`, whose other dims are none or
// those of `values`.
Value places(Emitter& e, const Value& boundaries, const Value& values, bool right, int64_t few) {
  const int64_t n = boundaries.dims().back();
  const Type result = values.type.with(at::kInt);
  if (n == 0 || result.numel() == 0) return e.constant(0, result);
  const int64_t rank = values.rank();
  if (n <= few) {
    Dims all = values.dims();
    all.push_back(n);
    Dims where;
    for (const auto d : c10::irange(boundaries.rank() - 1)) where.push_back(d);
    where.push_back(rank);
    const Value left =
        stands_left(e, e.broadcast_in_dim(boundaries, all, where), broadcast_along(e, values, all, {rank}), right);
    return e.reduce(e.convert(left, at::kInt), 0, {rank}, "add");
  }
  Value low = e.constant(0, result);
  Value high = e.constant(n, result);
  for (int64_t width = n; width > 0; width /= 2) {
    const Value middle = e.add(low, e.divide(e.subtract(high, low), 2));
    const Value boundary = boundaries.rank() == 1 ? e.reshape(take(e, boundaries, 0, flatten(e, middle)), middle.dims())
                                                  : gather_along(e, boundaries, rank - 1, middle);
    const Value open = e.compare("LT", low, high);
    const Value left = stands_left(e, boundary, values, right);
    low = e.select(e.logical_and(open, left), e.add(middle, 1), low);
    high = e.select(e.logical_and(open, e.logical_not(left)), middle, high);
  }
  return low;
}

int64_t few_boundaries(const Call& c) { return c.context().tpu ? kFewBoundariesOnTpu : kFewBoundaries; }

// `self` (a tensor or a number) and the boundaries at their common dtype; a 0-d self as a vector.
Value lower_search(Emitter& e, const Call& c, std::string_view boundaries_name, bool right) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", boundaries_name});
  Value boundaries = c.tensor(boundaries_name);
  if (boundaries_name == "sorted_sequence" && c.has("sorter")) {
    boundaries = gather_along(e, boundaries, boundaries.rank() - 1, c.tensor("sorter"));
  }
  const Value self = c.is_number("self") ? c.number("self", dtype) : e.convert(c.tensor("self"), dtype);
  return as_result(e, c, places(e, e.convert(boundaries, dtype), at_least_1d(e, self), right, few_boundaries(c)));
}

Value lower_searchsorted(Emitter& e, const Call& c) {
  const bool right = c.flag("right") || (c.has("side") && c.text("side") == "right");
  return lower_search(e, c, "sorted_sequence", right);
}

Value lower_bucketize(Emitter& e, const Call& c) {
  const int64_t dims = c.tensor("boundaries").rank();
  TORCH_CHECK(dims == 1, "boundaries tensor must be 1 dimension, but got dim(", dims, ")");
  return lower_search(e, c, "boundaries", c.flag("right"));
}

// Of sorted row numbers: where each row starts, and where the last one ends.
Value lower_row_starts(Emitter& e, const Call& c) {
  const Value rows = e.convert(c.tensor("self"), at::kLong);
  const Value each = e.iota(Type(at::kLong, {c.integer("size") + 1}), 0);
  return as_result(e, c, places(e, rows, each, /*right=*/false, few_boundaries(c)));
}

// The inverse for a batch of matrices: a column [batch..., row, column] for each of their elements.
Value lower_row_numbers(Emitter& e, const Call& c) {
  const Value starts = c.tensor("crow_indices");
  const Value columns = c.tensor("col_indices");
  const at::ScalarType dtype = c.result().dtype;
  const int64_t batch_dims = starts.rank() - 1;
  const Value each = e.iota(columns.type.with(starts.dtype()), batch_dims);
  const Value ends = slice_dim(e, starts, batch_dims, 1, starts.dims().back());
  const Value rows = places(e, ends, each, /*right=*/true, few_boundaries(c));
  Values lines;
  for (const auto d : c10::irange(batch_dims)) lines.push_back(e.iota(columns.type.with(dtype), d));
  lines.push_back(c.flag("transpose") ? columns : rows);
  lines.push_back(c.flag("transpose") ? rows : columns);
  for (Value& line : lines) line = unsqueeze(e, flatten(e, e.convert(line, dtype)), 0);
  return e.concatenate(lines, 0);
}

// Where an element of `elements` equals one of the vector `tests`.
Value is_among(Emitter& e, const Value& elements, const Value& tests, int64_t few) {
  const int64_t n = tests.dim(0);
  if (n == 0) return e.constant(false, elements.type.with(at::kBool));
  if (n <= few) {
    Dims all = elements.dims();
    all.push_back(n);
    const Value equal = e.compare("EQ", broadcast_along(e, elements, all, {elements.rank()}),
                                  e.broadcast_in_dim(tests, all, {elements.rank()}));
    return e.reduce(equal, false, {elements.rank()}, "or");
  }
  const Value sorted = sort_with_indices(e, tests, 0, /*descending=*/false).first;
  const Value place = e.minimum(places(e, sorted, elements, /*right=*/false, few), n - 1);
  return e.compare("EQ", e.reshape(take(e, sorted, 0, flatten(e, place)), elements.dims()), elements);
}

Value lower_isin(Emitter& e, const Call& c, std::string_view element_name, std::string_view test_name) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {element_name, test_name});
  const auto operand = [&](std::string_view name) {
    return c.is_number(name) ? c.number(name, dtype) : e.convert(c.tensor(name), dtype);
  };
  const Value found = is_among(e, operand(element_name), flatten(e, operand(test_name)), few_boundaries(c));
  return c.flag("invert") ? e.logical_not(found) : found;
}

Value lower_isin_of_tensors(Emitter& e, const Call& c) { return lower_isin(e, c, "elements", "test_elements"); }
Value lower_isin_of_one_test(Emitter& e, const Call& c) { return lower_isin(e, c, "elements", "test_element"); }
Value lower_isin_of_one_element(Emitter& e, const Call& c) { return lower_isin(e, c, "element", "test_elements"); }

// Bins of `x` (not negative, below `bins`) where `valid`, counted in `dtype`.
Value count_bins(Emitter& e, const Call& c, const Value& bin, const Value& valid, int64_t bins, at::ScalarType dtype) {
  const Type counts(dtype, {bins});
  if (bin.type.numel() == 0) return e.constant(0, counts);
  const Value at = e.select(valid, bin, e.constant_like(bins, bin));
  if (c.context().tpu) {
    // A scatter with many collisions is serial there.
    const Dims all = {bin.dim(0), bins};
    const Value here = e.compare("EQ", broadcast_along(e, at, all, {1}), e.iota(Type(at.dtype(), all), 1));
    return e.convert(e.reduce(e.convert(here, at::kInt), 0, {0}, "add"), dtype);
  }
  ScatterDims how;
  how.inserted_window_dims = {0};
  how.scatter_dims_to_operand_dims = {0};
  how.index_vector_dim = 1;
  const Value ones = e.constant(1, bin.type.with(at::kInt));
  return e.convert(e.scatter(e.constant(0, counts.with(at::kInt)), at, ones, how, "add"), dtype);
}

// The dtype to find bins in: int32 where the numbers below fit, as 64-bit division is slow on a TPU.
at::ScalarType bin_dtype(const Call& c, at::ScalarType self, double width) {
  if (c10::isFloatingType(self)) return opmath(self);
  const bool fits = width * static_cast<double>(c.integer("bins")) < std::numeric_limits<int32_t>::max();
  return fits && width > 0 && c10::elementSize(self) <= 4 ? at::kInt : at::kLong;
}

// Counts of `self` in `bins` equal bins from `min` to `max`, or over its own range if these are equal.
Value lower_histc(Emitter& e, const Call& c) {
  const Value self = flatten(e, c.tensor("self"));
  const int64_t bins = c.integer("bins");
  const double width = c.scalar("max").toDouble() - c.scalar("min").toDouble();
  const at::ScalarType dtype = bin_dtype(c, self.dtype(), width);
  const Value x = e.convert(self, dtype);
  const bool own_range = width == 0 && self.dim(0) != 0;
  Value low = own_range ? extreme(e, x, {0}, /*largest=*/false) : c.number("min", dtype);
  Value high = own_range ? extreme(e, x, {0}, /*largest=*/true) : c.number("max", dtype);
  const Value no_range = e.compare("EQ", low, high);
  low = e.select(no_range, e.subtract(low, 1), low);
  high = e.select(no_range, e.add(high, 1), high);

  low = broadcast_to(e, low, x.dims());
  high = broadcast_to(e, high, x.dims());
  const Value valid = e.logical_and(e.compare("GE", x, low), e.compare("LE", x, high));
  const Value from_low = e.select(valid, e.subtract(x, low), e.constant_like(0, x));
  Value bin = e.divide(e.multiply(from_low, bins), e.subtract(high, low));
  bin = e.minimum(e.convert(bin, at::kInt), bins - 1);
  return count_bins(e, c, bin, valid, bins, c.result().dtype);
}

}  // namespace

void add_search(Table& t) {
  t.add("aten::searchsorted.Tensor", lower_searchsorted);
  t.add("aten::searchsorted.Scalar", lower_searchsorted);
  t.add("aten::bucketize.Tensor", lower_bucketize);
  t.add("aten::bucketize.Scalar", lower_bucketize);
  t.add("aten::_convert_indices_from_coo_to_csr", lower_row_starts);
  t.add("aten::_convert_indices_from_csr_to_coo", lower_row_numbers);
  t.add("aten::histc", lower_histc);
  t.add("aten::isin.Tensor_Tensor", lower_isin_of_tensors);
  t.add("aten::isin.Tensor_Scalar", lower_isin_of_one_test);
  t.add("aten::isin.Scalar_Tensor", lower_isin_of_one_element);
}

}  // namespace torch_tpu
