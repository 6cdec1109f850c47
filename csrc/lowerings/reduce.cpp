// Reductions that add, multiply or count: sum, mean, prod, all, any, trace,
// logsumexp. Those that choose an element are in extreme.cpp.
#include <algorithm>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

// True of `x` (bool) counted along `dims`, as int64.
Value count_true(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  const bool small = count_along(x, dims) <= std::numeric_limits<int32_t>::max();
  return e.convert(e.reduce(e.convert(x, small ? at::kInt : at::kLong), 0, dims, "add"), at::kLong);
}

// The sum of `x` converted to `dtype`, in opmath(dtype).
Value sum_as(Emitter& e, const Value& x, c10::IntArrayRef dims, at::ScalarType dtype) {
  if (x.dtype() == at::kBool && dtype == at::kLong) return count_true(e, x, dims);
  return accurate_sum(e, e.convert(x, opmath(dtype)), dims);
}

Value lower_sum(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  return as_result(e, c, sum_as(e, x, reduced_dims(c, x), c.result().dtype));
}

Value lower_mean(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const Dims dims = reduced_dims(c, x);
  const Value total = sum_as(e, x, dims, c.result().dtype);
  return as_result(e, c, e.divide(total, static_cast<double>(count_along(x, dims))));
}

Value lower_nansum(Emitter& e, const Call& c) {
  Value x = at_least_1d(e, c.tensor("self"));
  const Dims dims = reduced_dims(c, x);
  if (c10::isFloatingType(x.dtype())) x = e.select(is_nan(e, x), e.constant_like(0, x), x);
  return as_result(e, c, sum_as(e, x, dims, c.result().dtype));
}

// Stated here because Meta takes an empty list of dims for none, the kernels for all.
std::vector<Type> nansum_type(const Call& c) {
  const Type type = c.tensor("self").type;
  Dims dims = c.dims("dim", type.rank());
  Type result(c10::isIntegralType(type.dtype, /*includeBool=*/true) ? at::kLong : type.dtype, {});
  result.dtype = c.dtype("dtype").value_or(result.dtype);
  for (int64_t d = 0; d < type.rank(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced)
      result.dims.push_back(type.dims[d]);
    else if (c.flag("keepdim"))
      result.dims.push_back(1);
  }
  return {result};
}

Value lower_prod(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const Value factors = e.convert(x, opmath(c.result().dtype));
  return as_result(e, c, e.reduce(factors, 1, reduced_dims(c, x), "multiply"));
}

Value lower_all(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  // Unlike elsewhere, an empty list of dims reduces none.
  const Dims dims = c.dims("dim", x.rank(), /*empty_means_all=*/false);
  return as_result(e, c, extreme(e, e.convert(x, at::kBool), dims, /*largest=*/false));
}

Value lower_any(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  // Unlike elsewhere, an empty list of dims reduces none.
  const Dims dims = c.dims("dim", x.rank(), /*empty_means_all=*/false);
  return as_result(e, c, extreme(e, e.convert(x, at::kBool), dims, /*largest=*/true));
}

Value lower_count_nonzero(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  return as_result(e, c, count_true(e, e.convert(x, at::kBool), reduced_dims(c, x)));
}

Value lower_trace(Emitter& e, const Call& c) {
  const Value x = c.tensor("self");
  const Value on_diagonal = e.compare("EQ", positions(e, x.dims(), 0), positions(e, x.dims(), 1));
  const Value diagonal = e.select(on_diagonal, x, e.constant_like(0, x));
  return as_result(e, c, sum_as(e, diagonal, {0, 1}, c.result().dtype));
}

// log(sum(exp(x - m))) + m, with m the maximum where it is finite and 0 elsewhere.
Value lower_logsumexp(Emitter& e, const Call& c) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const Value x = e.convert(self, opmath(c.result().dtype));
  const Dims dims = reduced_dims(c, x);
  Value largest = extreme(e, e.real(x), dims, /*largest=*/true);
  largest = e.select(e.unary("is_finite", largest), largest,
                     e.select(is_nan(e, largest), largest, e.constant_like(0, largest)));
  largest = e.convert(largest, x.dtype());
  const Value shifted = e.subtract(x, broadcast_along(e, largest, x.dims(), dims));
  const Value total = accurate_sum(e, e.unary("exponential", shifted), dims);
  return as_result(e, c, e.add(e.unary("log", total), largest));
}

// The elements' bits (as float64 or int64) combined by exclusive or.
Value lower_hash_tensor(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const bool floating = c10::isFloatingType(x.dtype());
  const Value wide = e.convert(x, floating ? at::kDouble : at::kLong);
  const Value bits = floating ? e.bitcast(wide, wide.type.with(at::kLong)) : wide;
  return as_result(e, c, e.reduce(bits, 0, reduced_dims(c, x), "xor"));
}

}  // namespace

void add_reduce(Table& t) {
  t.add("aten::sum", lower_sum);
  t.add("aten::sum.dim_IntList", lower_sum);
  t.add("aten::nansum", lower_nansum).with_shape(nansum_type);
  t.add("aten::mean", lower_mean);
  t.add("aten::mean.dim", lower_mean);
  t.add("aten::prod", lower_prod);
  t.add("aten::prod.dim_int", lower_prod);
  t.add("aten::all", lower_all);
  t.add("aten::all.dim", lower_all);
  t.add("aten::all.dims", lower_all);
  t.add("aten::any", lower_any);
  t.add("aten::any.dim", lower_any);
  t.add("aten::any.dims", lower_any);
  t.add("aten::count_nonzero.dim_IntList", lower_count_nonzero);
  t.add("aten::trace", lower_trace);
  t.add("aten::logsumexp", lower_logsumexp);
  t.add("aten::hash_tensor", lower_hash_tensor);
}

}  // namespace torch_tpu
