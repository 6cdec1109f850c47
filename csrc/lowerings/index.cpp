// Reading and writing at tensors of positions: index, index_put, gather, take, put,
// masked_scatter and the static forms of nonzero and repeat_interleave.
// An index out of range is clamped when reading and dropped when writing.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/indexing.h"

namespace torch_tpu {

namespace {

// The rule of advanced indexing, worked out for one x and its index tensors.
struct Indexed {
  Dims dims;     // of x that have an index tensor
  Dims windows;  // dims of the result that show whole dims of x
  Dims result;
  Value starts;  // [broadcast dims of the index tensors..., dims.size()]
};

// The broadcast index dims stand where the first index tensor does if the index tensors are
// adjacent, else in front. REQUIRES: an index is defined.
Indexed find_indexed(Emitter& e, const Value& x, const Values& indices) {
  Indexed found;
  Dims shape;
  for (const auto d : c10::irange(indices.size())) {
    if (!indices[d].defined()) continue;
    TORCH_CHECK_INDEX(static_cast<int64_t>(d) < x.rank(), "tpu: too many indices for a tensor of ", x.rank(),
                      " dimensions.");
    shape = found.dims.empty() ? indices[d].dims() : broadcast_dims(shape, indices[d].dims());
    found.dims.push_back(static_cast<int64_t>(d));
  }
  Values columns;
  Dims column = shape;
  column.push_back(1);
  bool wide = false;
  for (const int64_t d : found.dims) {
    const Value where = broadcast_to(e, normalized_index(e, indices[d], x.dim(d), true), shape);
    wide = wide || where.dtype() == at::kLong;
    columns.push_back(e.reshape(where, column));
  }
  if (wide) {
    for (Value& value : columns) value = e.convert(value, at::kLong);
  }
  found.starts = e.concatenate(columns, static_cast<int64_t>(shape.size()));

  const bool adjacent = found.dims.back() - found.dims.front() + 1 == static_cast<int64_t>(found.dims.size());
  const int64_t at = adjacent ? found.dims.front() : 0;
  const auto insert_shape = [&] { found.result.insert(found.result.end(), shape.begin(), shape.end()); };
  if (at == 0) insert_shape();
  for (const auto d : c10::irange(x.rank())) {
    if (std::find(found.dims.begin(), found.dims.end(), d) == found.dims.end()) {
      found.windows.push_back(static_cast<int64_t>(found.result.size()));
      found.result.push_back(x.dim(d));
      if (at != 0 && d == at - 1) insert_shape();
    }
  }
  return found;
}

bool any_defined(const Values& values) {
  return std::any_of(values.begin(), values.end(), [](const Value& v) { return v.defined(); });
}

Value lower_index(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Values indices = c.tensors("indices");
  if (!any_defined(indices)) return self;
  const Indexed at = find_indexed(e, self, indices);
  const Type result = self.type.with(at.result);
  if (result.numel() == 0 || self.type.numel() == 0) return e.constant(0, result);
  GatherDims dims;
  dims.offset_dims = at.windows;
  dims.collapsed_slice_dims = at.dims;
  dims.start_index_map = at.dims;
  dims.slice_sizes = self.dims();
  for (const int64_t d : at.dims) dims.slice_sizes[d] = 1;
  dims.index_vector_dim = at.starts.rank() - 1;
  return e.gather(self, at.starts, dims);
}

// One bool mask over dims [first, first + mask.rank()): a select. The elements that are true take
// `values` in order (as many as there are rows of it), or all of them its only row.
Value put_by_mask(Emitter& e, const Value& self, const Value& mask, int64_t first, const Value& values,
                  bool accumulate) {
  const int64_t after = self.rank() - first - mask.rank();
  const int64_t counted = values.rank() - after - 1;  // the dim of `values` that counts the true elements
  Dims before(self.dims().begin(), self.dims().begin() + first);
  const Dims rest(self.dims().begin() + first + mask.rank(), self.dims().end());
  Value spread;
  if (counted < 0 || values.dim(counted) == 1) {
    Dims dims = values.dims();
    if (counted >= 0) {
      dims.erase(dims.begin() + counted);
      dims.insert(dims.begin() + counted, static_cast<size_t>(mask.rank()), 1);
    }
    spread = broadcast_to(e, e.reshape(values, dims), self.dims());
  } else {
    if (values.type.numel() == 0 || self.type.numel() == 0) return self;
    const Value flat = flatten(e, mask);
    const Value nth = e.subtract(running_count(e, flat), at::Scalar(1));
    Dims rows = before;
    rows.push_back(values.dim(counted));
    rows.insert(rows.end(), rest.begin(), rest.end());
    spread = e.reshape(take(e, broadcast_to(e, values, rows), first, nth), self.dims());
  }
  Dims where;
  for (const auto d : c10::irange(mask.rank())) where.push_back(first + d);
  if (accumulate) spread = e.binary(self.dtype() == at::kBool ? "or" : "add", self, spread);
  return e.select(e.broadcast_in_dim(mask, self.dims(), where), spread, self);
}

// Masks that are not alone become positions before the call gets here (aten/data_dependent.cpp).
Value lower_index_put(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Values indices = c.tensors("indices");
  const Value values = e.convert(c.tensor("values"), self.dtype());
  const bool accumulate = c.flag("accumulate");
  if (!any_defined(indices)) {
    const Value all = broadcast_to(e, values, self.dims());
    return accumulate ? e.add(self, all) : all;
  }
  const auto mask = std::find_if(indices.begin(), indices.end(), [](const Value& v) { return v.defined(); });
  if (mask->dtype() == at::kBool) {
    return put_by_mask(e, self, *mask, mask - indices.begin(), values, accumulate);
  }
  const Indexed at = find_indexed(e, self, indices);
  if (self.type.numel() == 0 || self.type.with(at.result).numel() == 0) return self;
  ScatterDims dims;
  dims.update_window_dims = at.windows;
  dims.inserted_window_dims = at.dims;
  dims.scatter_dims_to_operand_dims = at.dims;
  dims.index_vector_dim = at.starts.rank() - 1;
  const Value updates = broadcast_to(e, values, at.result);
  if (!accumulate) return e.scatter(self, at.starts, updates, dims);
  const at::ScalarType compute = opmath(self.dtype());
  const std::string_view name = compute == at::kBool ? "or" : "add";
  return e.convert(e.scatter(e.convert(self, compute), at.starts, e.convert(updates, compute), dims, name),
                   self.dtype());
}

Value lower_index_select(Emitter& e, const Call& c) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  const Value index = at_least_1d(e, c.tensor("index"));
  Type result = self.type;
  result.dims[dim] = index.dim(0);
  if (result.numel() == 0 || self.type.numel() == 0) {
    return e.reshape(e.constant(0, result), c.tensor("self").rank() == 0 ? Dims{} : result.dims);
  }
  const Value rows = take(e, self, dim, normalized_index(e, index, self.dim(dim), false));
  return c.tensor("self").rank() == 0 ? e.reshape(rows, {}) : rows;
}

Value lower_gather(Emitter& e, const Call& c) {
  const Value given = c.tensor("index");
  const Value self = at_least_1d(e, c.tensor("self"));
  const Value index = at_least_1d(e, given);
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  if (index.type.numel() == 0 || self.type.numel() == 0) return e.constant(0, self.type.with(given.dims()));
  // The index may be shorter than self along the other dims.
  Dims corner = index.dims();
  corner[dim] = self.dim(dim);
  const Value read = e.slice(self, Dims(corner.size(), 0), corner);
  return e.reshape(gather_along(e, read, dim, normalized_index(e, index, self.dim(dim), false)), given.dims());
}

Value lower_take(Emitter& e, const Call& c) {
  const Value self = flatten(e, c.tensor("self"));
  const Value index = c.tensor("index");
  if (index.type.numel() == 0 || self.dim(0) == 0) return e.constant(0, self.type.with(index.dims()));
  const Value where = normalized_index(e, flatten(e, index), self.dim(0), true);
  return e.reshape(take(e, self, 0, where), index.dims());
}

Value lower_put(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value flat = flatten(e, self);
  const Value where = normalized_index(e, flatten(e, c.tensor("index")), flat.dim(0), true);
  const Value source = e.convert(flatten(e, c.tensor("source")), self.dtype());
  return e.reshape(scatter_rows(e, flat, 0, where, source, c.flag("accumulate") ? "add" : ""), self.dims());
}

Value lower_masked_scatter(Emitter& e, const Call& c) {
  const at::ScalarType mask_dtype = c.tensor("mask").dtype();
  TORCH_CHECK(mask_dtype == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask_dtype);
  const Dims& dims = c.result().dims;
  const Value self = broadcast_to(e, c.tensor("self"), dims);
  const Value source = flatten(e, e.convert(c.tensor("source"), self.dtype()));
  if (self.type.numel() == 0 || source.dim(0) == 0) return self;
  const Value mask = flatten(e, broadcast_to(e, c.tensor("mask"), dims));
  const Value nth = e.subtract(running_count(e, mask), at::Scalar(1));
  return e.reshape(e.select(mask, take(e, source, 0, nth), flatten(e, self)), dims);
}

// The gradient elements at the true elements of the mask, in front; zeros after them.
Value lower_masked_scatter_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Type& result = c.result();
  const int64_t size = result.numel();
  if (size == 0 || grad.type.numel() == 0) return e.constant(0, grad.type.with(result.dims));
  const Value mask = flatten(e, broadcast_to(e, e.convert(c.tensor("mask"), at::kBool), grad.dims()));
  const Value where = true_positions(e, mask, size);
  const Value found = take(e, flatten(e, grad), 0, where);
  return e.reshape(e.select(e.compare("GE", where, at::Scalar(0)), found, e.constant_like(0, found)), result.dims);
}

Value lower_nonzero_static(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t size = c.integer("size");
  if (size == 0 || self.rank() == 0) return e.constant(0, Type(at::kLong, {size, self.rank()}));
  const Value flat = true_positions(e, e.convert(flatten(e, self), at::kBool), size);
  const Value missing = e.compare("LT", flat, at::Scalar(0));
  const Value fill = e.constant(c.integer("fill_value"), Type(at::kLong, {size}));
  const Dims strides = row_major_strides(self.dims());
  Values columns;
  for (const auto d : c10::irange(self.rank())) {
    Value at = flat;
    if (strides[d] > 1) at = e.divide(at, at::Scalar(strides[d]));
    if (d > 0 && self.dim(d) > 0) at = e.remainder(at, at::Scalar(self.dim(d)));
    columns.push_back(e.reshape(e.select(missing, fill, e.convert(at, at::kLong)), {size, 1}));
  }
  return e.concatenate(columns, 1);
}

// i repeated repeats[i] times. A place belongs to the number of rows that end at or before it.
Value lower_repeat_interleave(Emitter& e, const Call& c) {
  const Value repeats = c.tensor("repeats");
  const int64_t size = c.result().dims[0];
  const Type result(repeats.dtype(), {size});
  if (size == 0 || repeats.dim(0) == 0) return e.constant(0, result);
  const Value ends = running_sum(e, e.convert(repeats, at::kLong));
  const Value marks = scatter_rows(e, e.constant(0, Type(at::kInt, {size})), 0, normalized_index(e, ends, size, false),
                                   e.constant(1, Type(at::kInt, repeats.dims())), "add");
  return e.convert(running_sum(e, marks), repeats.dtype());
}

}  // namespace

void add_index(Table& t) {
  t.add("aten::index.Tensor", lower_index).takes_host_indices();
  t.add("aten::index_put", lower_index_put).writes_expanded().takes_host_indices();
  t.add("aten::_index_put_impl", lower_index_put).writes_expanded().takes_host_indices();
  t.add("aten::index_select", lower_index_select);
  t.add("aten::gather", lower_gather);
  t.add("aten::take", lower_take);
  t.add("aten::put", lower_put);
  t.add("aten::masked_scatter", lower_masked_scatter);
  t.add("aten::masked_scatter_backward", lower_masked_scatter_backward);
  t.add("aten::nonzero_static", lower_nonzero_static);
  t.add("aten::repeat_interleave.Tensor", lower_repeat_interleave);
}

}  // namespace torch_tpu
