// See indexing.h.
#include "lowerings/indexing.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <limits>
#include <string>

#include "lowerings/scan.h"

namespace torch_tpu {

namespace {

at::ScalarType position_dtype(int64_t size) {
  return size < std::numeric_limits<int32_t>::max() ? at::kInt : at::kLong;
}

// Addition and multiplication of bool are "or" and "and" in PyTorch.
std::string_view on_dtype(std::string_view name, at::ScalarType dtype) {
  if (dtype != at::kBool) return name;
  if (name == "add" || name == "maximum") return "or";
  if (name == "multiply" || name == "minimum") return "and";
  return name;
}

bool accumulates(std::string_view name) { return name == "add" || name == "multiply"; }

}  // namespace

Value normalized_index(Emitter& e, const Value& index, int64_t size, bool wrap) {
  const at::ScalarType wanted = position_dtype(size);
  Value x = index;
  if (x.dtype() != at::kLong) x = e.convert(x, wanted);
  if (wrap) x = e.select(e.compare("LT", x, at::Scalar(0)), e.add(x, at::Scalar(size)), x);
  if (x.dtype() == wanted) return x;
  return e.convert(e.clamp(scalar(e, -1, x.dtype()), x, scalar(e, size, x.dtype())), wanted);
}

Value scatter_rows(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                   std::string_view name) {
  if (updates.type.numel() == 0) return x;
  const at::ScalarType compute = accumulates(name) ? opmath(x.dtype()) : x.dtype();
  ScatterDims dims;
  for (const auto d : c10::irange(x.rank())) {
    if (d != dim) dims.update_window_dims.push_back(d);
  }
  dims.inserted_window_dims = {dim};
  dims.scatter_dims_to_operand_dims = {dim};
  dims.index_vector_dim = 1;
  const Value base = e.convert(x, compute);
  const Value rows = e.convert(updates, compute);
  const Value result =
      name.empty() ? e.scatter(base, index, rows, dims) : e.scatter(base, index, rows, dims, on_dtype(name, compute));
  return e.convert(result, x.dtype());
}

Value scatter_elements(Emitter& e, const Value& x, int64_t dim, const Value& index, const Value& updates,
                       std::string_view name) {
  if (index.type.numel() == 0) return x;
  if (x.rank() == 0) {
    return e.reshape(scatter_elements(e, at_least_1d(e, x), 0, at_least_1d(e, index), at_least_1d(e, updates), name),
                     {});
  }
  const Value where = at_least_1d(e, index);
  const Dims zeros(static_cast<size_t>(x.rank()), 0);
  const at::ScalarType compute = accumulates(name) ? opmath(x.dtype()) : x.dtype();
  const Value given = e.convert(e.slice(at_least_1d(e, updates), zeros, where.dims()), compute);
  // The index may be shorter than x along the other dims: only that corner is written.
  Dims corner = where.dims();
  corner[dim] = x.dim(dim);
  const Value base = e.convert(e.slice(x, zeros, corner), compute);
  Value written =
      scatter_along(e, base, dim, normalized_index(e, where, x.dim(dim), false), given, on_dtype(name, compute));
  written = e.convert(written, x.dtype());
  if (corner == x.dims()) return written;
  return e.dynamic_update_slice(x, written, Values(static_cast<size_t>(x.rank()), scalar(e, 0, at::kInt)));
}

Value running_sum(Emitter& e, const Value& x) { return scan(e, x, scalar(e, 0, x.dtype()), x.rank() - 1, "add"); }

Value running_count(Emitter& e, const Value& mask) {
  return running_sum(e, e.convert(mask, position_dtype(mask.dim(mask.rank() - 1))));
}

Value true_positions(Emitter& e, const Value& mask, int64_t size) {
  const int64_t total = mask.dim(0);
  const Type type(position_dtype(total), {size});
  const Value none = e.constant(-1, type);
  if (size == 0 || total == 0) return none;
  const Value count = running_count(e, mask);
  // The slot of each true element; the others go beyond the end, where writes are dropped.
  const Value slot =
      e.select(mask, e.subtract(count, at::Scalar(1)), e.constant(std::max<int64_t>(size, total), count.type));
  return scatter_rows(e, none, 0, slot, e.iota(count.type, 0), "");
}

}  // namespace torch_tpu
