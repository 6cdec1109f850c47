// Distances between rows, cdist and pdist, with their gradients; and the cross product.
#include <c10/util/irange.h>

#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

// d(distance) / d(difference) times `grad`, where distance = |difference|_p over the last dimension.
// All three are of equal type. 0 where the rows are equal.
Value distance_gradient(Emitter& e, const Call& c, const Value& difference, const Value& grad, const Value& distance) {
  const Value zero = e.constant_like(0, difference);
  const Value sign = e.unary("sign", difference);
  if (c.equals("p", 0)) return zero;
  if (c.equals("p", 1)) return e.multiply(grad, sign);
  const Value equal = e.compare("EQ", distance, zero);
  if (c.equals("p", 2)) return e.select(equal, zero, e.divide(e.multiply(grad, difference), distance));
  const Value size = e.unary("abs", difference);
  if (c.equals("p", std::numeric_limits<double>::infinity())) {
    return e.select(e.compare("EQ", size, distance), e.multiply(grad, sign), zero);
  }
  const Value power = e.subtract(c.number("p", difference.type), 1);
  const Value slope = e.divide(e.multiply(e.multiply(sign, e.power(size, power)), grad), e.power(distance, power));
  return e.select(e.logical_or(equal, e.compare("EQ", difference, zero)), zero, slope);
}

struct Rows {
  Value first, second;  // [..., R1, R2, M], both
};

// The rows of x1 against those of x2.
Rows all_pairs(Emitter& e, const Value& x1, const Value& x2) {
  const auto [first, second] = broadcast(e, unsqueeze(e, x1, x1.rank() - 1), unsqueeze(e, x2, x2.rank() - 2));
  return {first, second};
}

Value lower_cdist_forward(Emitter& e, const Call& c) {
  if (c.result().numel() == 0) return e.constant(0, c.result());
  const at::ScalarType dtype = opmath(c.result().dtype);
  const Rows rows = all_pairs(e, e.convert(c.tensor("x1"), dtype), e.convert(c.tensor("x2"), dtype));
  const Value difference = e.subtract(rows.first, rows.second);
  return as_result(e, c, vector_norm(e, c, difference, "p", {difference.rank() - 1}));
}

Value lower_cdist_backward(Emitter& e, const Call& c) {
  const Value x1 = c.tensor("x1");
  const Value x2 = c.tensor("x2");
  if (c.result().numel() == 0 || x2.type.numel() == 0) return e.constant(0, c.result());
  const at::ScalarType dtype = opmath(c.result().dtype);
  const Rows rows = all_pairs(e, e.convert(x1, dtype), e.convert(x2, dtype));
  const Value difference = e.subtract(rows.first, rows.second);
  const Dims dims = difference.dims();
  const int64_t last = difference.rank() - 1;
  const auto along = [&](std::string_view name) {
    const Value of_pairs = broadcast_to(e, c.tensor(name), c10::IntArrayRef(dims).slice(0, last));
    return broadcast_along(e, e.convert(of_pairs, dtype), dims, {last});
  };
  const Value slope = distance_gradient(e, c, difference, along("grad"), along("cdist"));
  return as_result(e, c, accurate_sum(e, slope, {last - 1}));
}

struct PairIndices {
  Value first, second;  // [P] int64 or int32, first < second
};

// The pairs of `n` rows in pdist's order: (0, 1), (0, 2), ..., (1, 2), ...
PairIndices pair_indices(Emitter& e, int64_t n) {
  const int64_t pairs = n * (n - 1) / 2;
  const bool small = pairs < std::numeric_limits<int32_t>::max() / 4;
  const Type type(small ? at::kInt : at::kLong, {pairs});
  const Value k = e.iota(type, 0);
  const double middle = static_cast<double>(n) - 0.5;
  // Pair k has the first row floor(m - sqrt(m^2 - 2 k - 1)), m = n - 1/2.
  const Value exact = e.convert(k, at::kDouble);
  const Value root = e.unary("sqrt", e.subtract(middle * middle - 1, e.multiply(exact, 2)));
  Value first = e.convert(e.unary("floor", e.subtract(middle, root)), type.dtype);
  const auto start = [&](const Value& i) { return e.divide(e.multiply(i, e.subtract(2 * n - 1, i)), 2); };
  // Rounding may have missed by one.
  first = e.subtract(first, e.convert(e.compare("GT", start(first), k), type.dtype));
  const Value next = e.add(first, 1);
  first = e.select(e.compare("LE", start(next), k), next, first);
  return {first, e.add(e.add(e.subtract(k, start(first)), first), 1)};
}

Value lower_pdist_forward(Emitter& e, const Call& c) {
  if (c.result().numel() == 0) return e.constant(0, c.result());
  const Value x = e.convert(c.tensor("self"), opmath(c.result().dtype));
  const PairIndices at = pair_indices(e, x.dim(0));
  const Value difference = e.subtract(take(e, x, 0, at.first), take(e, x, 0, at.second));
  return as_result(e, c, vector_norm(e, c, difference, "p", {1}));
}

Value lower_pdist_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (c.result().numel() == 0 || self.dim(0) < 2) return e.constant(0, c.result());
  const at::ScalarType dtype = opmath(self.dtype());
  const Value x = e.convert(self, dtype);
  const PairIndices at = pair_indices(e, x.dim(0));
  const Value difference = e.subtract(take(e, x, 0, at.first), take(e, x, 0, at.second));
  const auto along = [&](std::string_view name) {
    return broadcast_along(e, e.convert(c.tensor(name), dtype), difference.dims(), {1});
  };
  const Value slope = distance_gradient(e, c, difference, along("grad"), along("pdist"));
  ScatterDims how;
  how.update_window_dims = {1};
  how.inserted_window_dims = {0};
  how.scatter_dims_to_operand_dims = {0};
  how.index_vector_dim = 1;
  Value gradient = e.scatter(e.constant_like(0, x), at.first, slope, how, "add");
  gradient = e.scatter(gradient, at.second, e.negate(slope), how, "add");
  return as_result(e, c, gradient);
}

Value lower_linalg_cross(Emitter& e, const Call& c) {
  const at::ScalarType dtype = opmath(c.result().dtype);
  const auto [x, y] = broadcast(e, e.convert(c.tensor("self"), dtype), e.convert(c.tensor("other"), dtype));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const auto rolled = [&](const Value& v, int64_t by) {
    return e.concatenate({slice_dim(e, v, dim, by, 3), slice_dim(e, v, dim, 0, by)}, dim);
  };
  return as_result(e, c, e.subtract(e.multiply(rolled(x, 1), rolled(y, 2)), e.multiply(rolled(x, 2), rolled(y, 1))));
}

}  // namespace

void add_distance(Table& t) {
  t.add("aten::_cdist_forward", lower_cdist_forward);
  t.add("aten::_cdist_backward", lower_cdist_backward);
  t.add("aten::_pdist_forward", lower_pdist_forward);
  t.add("aten::_pdist_backward", lower_pdist_backward);
  t.add("aten::linalg_cross", lower_linalg_cross);
}

}  // namespace torch_tpu
