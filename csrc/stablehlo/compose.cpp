#include "stablehlo/compose.h"

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <limits>

namespace torch_tpu {

namespace {

bool holds(c10::IntArrayRef dims, int64_t value) { return std::find(dims.begin(), dims.end(), value) != dims.end(); }

// 0 .. rank - 1 without `dims`.
Dims others(int64_t rank, c10::IntArrayRef dims) {
  Dims rest;
  for (const auto d : c10::irange(rank)) {
    if (!holds(dims, d)) rest.push_back(d);
  }
  return rest;
}

// Indices into `size` elements in the narrowest type that all compilers handle fast.
Value narrow_indices(Emitter& e, const Value& indices, int64_t size) {
  return size <= std::numeric_limits<int32_t>::max() ? e.convert(indices, at::kInt) : indices;
}

// `x` cut to the sizes of `dims`, but whole along `dim`.
Value cut_to(Emitter& e, const Value& x, c10::IntArrayRef dims, int64_t dim) {
  const Dims start(x.dims().size(), 0);
  Dims limit(dims.begin(), dims.end());
  limit[dim] = x.dim(dim);
  return e.slice(x, start, limit);
}

}  // namespace

// --- broadcasting

Dims broadcast_dims(c10::IntArrayRef a, c10::IntArrayRef b) {
  const size_t rank = std::max(a.size(), b.size());
  Dims dims(rank);
  for (const auto i : c10::irange(rank)) {
    // Counted from the last dimension.
    const int64_t from_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t from_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    TORCH_CHECK(from_a == from_b || from_a == 1 || from_b == 1, "tpu: sizes ", a, " and ", b,
                " do not broadcast: ", from_a, " and ", from_b,
                ".\nEvery dimension, counted from the last, must be equal or 1.");
    dims[rank - 1 - i] = from_a == 1 ? from_b : from_a;
  }
  return dims;
}

Value broadcast_to(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  const int64_t rank = static_cast<int64_t>(dims.size());
  TORCH_INTERNAL_ASSERT(x.rank() <= rank, "broadcast of ", x.type, " to ", dims);
  Dims where;
  for (const auto i : c10::irange(x.rank())) where.push_back(rank - x.rank() + i);
  return e.broadcast_in_dim(x, dims, where);
}

std::pair<Value, Value> broadcast(Emitter& e, const Value& a, const Value& b) {
  const Dims dims = broadcast_dims(a.dims(), b.dims());
  return {broadcast_to(e, a, dims), broadcast_to(e, b, dims)};
}

int64_t count_along(const Value& x, c10::IntArrayRef dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= x.dim(d);
  return count;
}

Value broadcast_along(Emitter& e, const Value& x, c10::IntArrayRef full, c10::IntArrayRef dims) {
  return e.broadcast_in_dim(x, full, others(static_cast<int64_t>(full.size()), dims));
}

Value keep_dims(Emitter& e, const Value& x, c10::IntArrayRef full, c10::IntArrayRef dims, bool keepdim) {
  if (!keepdim) return x;
  Dims kept(full.begin(), full.end());
  for (const int64_t d : dims) kept[d] = 1;
  return e.reshape(x, kept);
}

Value unsqueeze(Emitter& e, const Value& x, int64_t dim) {
  Dims dims = x.dims();
  dims.insert(dims.begin() + (dim < 0 ? dim + x.rank() + 1 : dim), 1);
  return e.reshape(x, dims);
}

Value squeeze(Emitter& e, const Value& x, int64_t dim) {
  Dims dims = x.dims();
  dims.erase(dims.begin() + (dim < 0 ? dim + x.rank() : dim));
  return e.reshape(x, dims);
}

Value flatten(Emitter& e, const Value& x) { return e.reshape(x, {x.type.numel()}); }

Value slice_dim(Emitter& e, const Value& x, int64_t dim, int64_t start, int64_t stop, int64_t step) {
  Dims starts(x.dims().size(), 0);
  Dims limits = x.dims();
  Dims steps(x.dims().size(), 1);
  starts[dim] = start;
  limits[dim] = stop;
  steps[dim] = step;
  return e.slice(x, starts, limits, steps);
}

// --- numbers

at::ScalarType opmath(at::ScalarType dtype) { return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype; }

Value is_nan(Emitter& e, const Value& x) { return e.compare("NE", x, x); }

Value scalar(Emitter& e, const at::Scalar& value, at::ScalarType dtype) { return e.constant(value, Type(dtype, {})); }

Value sum(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  if (dims.empty()) return x;
  const Value wide = e.convert(x, opmath(x.dtype()));
  return e.convert(e.reduce(wide, 0, dims, "add"), x.dtype());
}

Value max(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  return dims.empty() ? x : e.reduce(x, e.lowest(x.type), dims, "maximum");
}

Value matmul(Emitter& e, const Value& a, const Value& b, Precision precision) {
  const int64_t rank = a.rank();
  TORCH_INTERNAL_ASSERT(rank >= 2 && b.rank() == rank && a.dtype() == b.dtype() && a.dim(rank - 1) == b.dim(rank - 2),
                        "matmul of ", a.type, " and ", b.type);
  Dims dims = a.dims();
  dims[rank - 1] = b.dim(rank - 1);
  const Type result(a.dtype(), dims);
  if (result.numel() == 0 || a.dim(rank - 1) == 0) return e.constant(0, result);
  DotDims how;
  for (const auto d : c10::irange(rank - 2)) {
    how.lhs_batch.push_back(d);
    how.rhs_batch.push_back(d);
  }
  how.lhs_contract = {rank - 1};
  how.rhs_contract = {rank - 2};
  return e.convert(e.dot_general(a, b, how, opmath(a.dtype()), precision), a.dtype());
}

// --- indexing

Value take(Emitter& e, const Value& x, int64_t dim, const Value& indices) {
  TORCH_INTERNAL_ASSERT(indices.rank() == 1, "take at ", indices.type);
  Type result = x.type;
  result.dims[dim] = indices.dim(0);
  if (result.numel() == 0 || x.type.numel() == 0) return e.constant(0, result);
  GatherDims how;
  how.slice_sizes = x.dims();
  how.slice_sizes[dim] = 1;
  how.collapsed_slice_dims = {dim};
  how.start_index_map = {dim};
  how.offset_dims = others(x.rank(), {dim});
  how.index_vector_dim = 1;
  return e.gather(x, narrow_indices(e, indices, x.dim(dim)), how);
}

Value gather_along(Emitter& e, const Value& x, int64_t dim, const Value& index) {
  if (x.rank() == 0) return broadcast_to(e, x, index.dims());
  if (index.rank() == 0) return e.reshape(gather_along(e, x, dim, e.reshape(index, {1})), {});
  TORCH_INTERNAL_ASSERT(x.rank() == index.rank(), "gather from ", x.type, " at ", index.type);
  const Type result(x.dtype(), index.dims());
  if (result.numel() == 0 || x.type.numel() == 0) return e.constant(0, result);
  const Dims rest = others(x.rank(), {dim});
  GatherDims how;
  how.slice_sizes = Dims(x.dims().size(), 1);
  how.collapsed_slice_dims = {dim};
  how.start_index_map = {dim};
  how.operand_batching_dims = rest;
  how.start_indices_batching_dims = rest;
  how.index_vector_dim = x.rank();
  return e.gather(cut_to(e, x, index.dims(), dim), narrow_indices(e, index, x.dim(dim)), how);
}

Value scatter_along(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                    std::string_view name) {
  if (index.type.numel() == 0 || x.type.numel() == 0) return x;
  if (x.rank() == 0 || index.rank() == 0 || updates.rank() == 0) {
    const auto as_vector = [&](const Value& v) { return v.rank() == 0 ? e.reshape(v, {1}) : v; };
    return e.reshape(scatter_along(e, as_vector(x), dim, as_vector(index), as_vector(updates), name), x.dims());
  }
  TORCH_INTERNAL_ASSERT(x.rank() == index.rank() && updates.rank() == index.rank(), "scatter of ", updates.type,
                        " into ", x.type, " at ", index.type);
  const Dims rest = others(x.rank(), {dim});
  ScatterDims how;
  how.inserted_window_dims = {dim};
  how.scatter_dims_to_operand_dims = {dim};
  how.input_batching_dims = rest;
  how.scatter_indices_batching_dims = rest;
  how.index_vector_dim = x.rank();
  const Value part = cut_to(e, x, index.dims(), dim);
  const Value values = e.slice(updates, Dims(updates.dims().size(), 0), index.dims());
  const Value positions = narrow_indices(e, index, x.dim(dim));
  const Value written =
      name.empty() ? e.scatter(part, positions, values, how) : e.scatter(part, positions, values, how, name);
  if (written.type == x.type) return written;
  return e.dynamic_update_slice(x, written, Values(x.dims().size(), scalar(e, 0, at::kInt)));
}

std::pair<Value, Value> sort_with_indices(Emitter& e, const Value& x, int64_t dim, bool descending) {
  if (x.rank() == 0 || x.type.numel() == 0) return {x, e.constant(0, x.type.with(at::kLong))};
  const bool small = x.dim(dim) <= std::numeric_limits<int32_t>::max();
  const Value positions = e.iota(x.type.with(small ? at::kInt : at::kLong), dim);
  const Values sorted = e.sort({x, positions}, dim, /*stable=*/true, [&](const Values& in) {
    const Value& a = in[0];
    const Value& b = in[1];
    Value first = e.compare(descending ? "GT" : "LT", a, b);
    if (c10::isFloatingType(a.dtype())) {
      const Value nan_a = is_nan(e, a);
      const Value nan_b = is_nan(e, b);
      const Value by_nan =
          descending ? e.logical_and(nan_a, e.logical_not(nan_b)) : e.logical_and(nan_b, e.logical_not(nan_a));
      first = e.logical_or(first, by_nan);
    }
    return Values{first};
  });
  return {sorted[0], e.convert(sorted[1], at::kLong)};
}

}  // namespace torch_tpu
