// Ops that order elements: sort, topk, kthvalue, median, mode.
// NaN is the largest, and sorting is always stable.
#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"
#include "lowerings/scan.h"

namespace torch_tpu {

namespace {

struct Sorted {
  Value values;
  Value indices;  // int64
};

Sorted sorted_along(Emitter& e, const Value& x, int64_t dim, bool descending) {
  if (x.dtype() == at::kBool) {
    const Sorted bytes = sorted_along(e, e.convert(x, at::kByte), dim, descending);
    return {e.convert(bytes.values, at::kBool), bytes.indices};
  }
  const auto [values, indices] = sort_with_indices(e, x, dim, descending);
  return {values, indices};
}

Values results(Emitter& e, const Call& c, const Sorted& found) {
  return {as_result(e, c, found.values, 0), as_result(e, c, found.indices, 1)};
}

Values lower_sort(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  return results(e, c, sorted_along(e, x, Call::wrap(c.integer("dim"), x.rank()), c.flag("descending")));
}

// The `k` largest of the last dimension, largest first, of a type chlo.top_k orders as PyTorch does.
Sorted top_of_last_dim(Emitter& e, const Value& x, int64_t k) {
  const bool floating = c10::isFloatingType(x.dtype());
  // Its order of floats is by bits, in which a negative NaN is the smallest.
  const Value nan = e.constant_like(std::numeric_limits<double>::quiet_NaN(), x);
  const Value keys = floating ? e.select(is_nan(e, x), nan, x) : x;
  Type type = x.type;
  type.dims.back() = k;
  const Values top = e.op("chlo.top_k", {keys}, "k = " + std::to_string(k) + " : i64", {type, type.with(at::kInt)});
  return {top[0], e.convert(top[1], at::kLong)};
}

Sorted top_along(Emitter& e, const Value& x, int64_t dim, int64_t k) {
  if (c10::isIntegralType(x.dtype(), /*includeBool=*/true) && c10::elementSize(x.dtype()) < 4) {
    const Sorted top = top_along(e, e.convert(x, at::kInt), dim, k);
    return {e.convert(top.values, x.dtype()), top.indices};
  }
  if (x.dtype() == at::kHalf) {
    const Sorted top = top_along(e, e.convert(x, at::kFloat), dim, k);
    return {e.convert(top.values, x.dtype()), top.indices};
  }
  Dims swap;
  for (int64_t d = 0; d < x.rank(); ++d) swap.push_back(d);
  std::swap(swap[dim], swap.back());
  const Sorted top = top_of_last_dim(e, e.transpose(x, swap), k);
  return {e.transpose(top.values, swap), e.transpose(top.indices, swap)};
}

Values lower_topk(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const int64_t k = c.integer("k");
  if (c.flag("largest") && k < x.dim(dim) && c.result().numel() != 0 &&
      x.dim(dim) <= std::numeric_limits<int32_t>::max()) {
    return results(e, c, top_along(e, x, dim, k));
  }
  const Sorted all = sorted_along(e, x, dim, c.flag("largest"));
  return results(e, c, {slice_dim(e, all.values, dim, 0, k), slice_dim(e, all.indices, dim, 0, k)});
}

Values lower_kthvalue(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const Sorted all = sorted_along(e, x, dim, /*descending=*/false);
  const int64_t at = c.integer("k") - 1;
  // An empty result leaves `k` unchecked.
  if (c.result().numel() == 0) return {e.constant(0, c.result(0)), e.constant(0, c.result(1))};
  return results(e, c, {slice_dim(e, all.values, dim, at, at + 1), slice_dim(e, all.indices, dim, at, at + 1)});
}

// The lower median along `dim`, which disappears. With a NaN: the first NaN, or (if NaNs are ignored) the
// median of the others.
Sorted median_along(Emitter& e, const Value& x, int64_t dim, bool ignore_nan) {
  const int64_t n = x.dim(dim);
  const Sorted all = sorted_along(e, x, dim, /*descending=*/false);
  if (!c10::isFloatingType(x.dtype())) {
    const int64_t at = (n - 1) / 2;
    return {squeeze(e, slice_dim(e, all.values, dim, at, at + 1), dim),
            squeeze(e, slice_dim(e, all.indices, dim, at, at + 1), dim)};
  }
  const Value numbers = e.reduce(e.convert(e.compare("EQ", x, x), at::kInt), 0, {dim}, "add");
  const Value zero = e.constant_like(0, numbers);
  const Value middle = ignore_nan
                           ? e.divide(e.maximum(e.subtract(numbers, 1), zero), 2)
                           : e.select(e.compare("LT", numbers, n), numbers, e.constant_like((n - 1) / 2, numbers));
  const Value at = unsqueeze(e, middle, dim);
  return {squeeze(e, gather_along(e, all.values, dim, at), dim),
          squeeze(e, gather_along(e, all.indices, dim, at), dim)};
}

template <bool kIgnoreNan>
Value lower_median(Emitter& e, const Call& c) {
  const Value x = flatten(e, c.tensor("self"));
  if (x.dim(0) == 0) {
    if (c10::isFloatingType(x.dtype())) {
      return e.constant(std::numeric_limits<double>::quiet_NaN(), c.result());
    }
    return e.constant(std::numeric_limits<int64_t>::min(), c.result());
  }
  return as_result(e, c, median_along(e, x, 0, kIgnoreNan).values);
}

template <bool kIgnoreNan>
Values lower_median_along(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  if (c.result().numel() == 0) return {e.constant(0, c.result(0)), e.constant(0, c.result(1))};
  return results(e, c, median_along(e, x, dim, kIgnoreNan));
}

// The most frequent value, the smallest of several, and where it last stands.
Values lower_mode(Emitter& e, const Call& c) {
  const Value x = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const int64_t n = x.dim(dim);
  if (c.result().numel() == 0) return {e.constant(0, c.result(0)), e.constant(0, c.result(1))};
  const Sorted all = sorted_along(e, x, dim, /*descending=*/false);
  const Value where = positions(e, x.dims(), dim);
  Value starts = e.constant_like(0, where);
  if (n > 1) {
    const Value begins = e.compare("NE", slice_dim(e, all.values, dim, 1, n), slice_dim(e, all.values, dim, 0, n - 1));
    const Value at = slice_dim(e, where, dim, 1, n);
    const Value first = slice_dim(e, starts, dim, 0, 1);
    starts = e.concatenate({first, e.select(begins, at, e.constant_like(0, at))}, dim);
    starts = scan(e, starts, scalar(e, 0, where.dtype()), dim, "maximum");
  }
  const Value at = unsqueeze(e, extreme_with_index(e, e.subtract(where, starts), {dim}, /*largest=*/true).second, dim);
  return results(e, c, {gather_along(e, all.values, dim, at), gather_along(e, all.indices, dim, at)});
}

}  // namespace

void add_sort(Table& t) {
  t.add("aten::sort.stable", lower_sort);
  t.add("aten::topk", lower_topk);
  t.add("aten::kthvalue", lower_kthvalue);
  t.add("aten::median", lower_median<false>);
  t.add("aten::nanmedian", lower_median<true>);
  t.add("aten::median.dim", lower_median_along<false>);
  t.add("aten::nanmedian.dim", lower_median_along<true>);
  t.add("aten::mode", lower_mode);
}

}  // namespace torch_tpu
