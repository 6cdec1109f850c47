// Ops that move elements without computing with them: joining, padding, rolling,
// repeating, triangles and diagonals.
#include "lowerings/shape.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <limits>

#include "lowerings/families.h"

namespace torch_tpu {

Value embed_diagonal(Emitter& e, const Value& x, int64_t rows, int64_t columns, int64_t offset, int64_t dim1,
                     int64_t dim2) {
  const int64_t last = x.rank() - 1;
  const int64_t length = x.dim(last);
  const int64_t first = std::max<int64_t>(0, -offset);
  Dims matrix(x.dims().begin(), x.dims().end() - 1);
  matrix.push_back(rows);
  matrix.push_back(columns);
  if (x.type.numel() == 0) {
    Dims empty = matrix;
    Dims where;
    for (const auto d : c10::irange(last)) where.push_back(d);
    where.insert(where.begin() + std::min(dim1, dim2), std::min(dim1, dim2) == dim1 ? last : last + 1);
    where.insert(where.begin() + std::max(dim1, dim2), std::max(dim1, dim2) == dim1 ? last : last + 1);
    Dims dims;
    for (const int64_t d : where) dims.push_back(empty[d]);
    return e.constant(0, x.type.with(dims));
  }
  Dims low(static_cast<size_t>(x.rank()), 0);
  Dims high = low;
  low[last] = first;
  high[last] = rows - first - length;
  const Value by_row = e.pad(x, scalar(e, 0, x.dtype()), low, high);
  const Type places(at::kInt, {rows, columns});
  const Value on_diagonal = e.compare("EQ", e.iota(places, 1), e.add(e.iota(places, 0), at::Scalar(offset)));
  Dims where;
  for (const auto d : c10::irange(x.rank())) where.push_back(d);
  const Value spread = e.broadcast_in_dim(by_row, matrix, where);
  const Value mask = e.broadcast_in_dim(on_diagonal, matrix, {last, last + 1});
  const Value filled = e.select(mask, spread, e.constant_like(0, spread));
  Dims permutation;
  for (const auto d : c10::irange(last)) permutation.push_back(d);
  const int64_t near = std::min(dim1, dim2);
  const int64_t far = std::max(dim1, dim2);
  permutation.insert(permutation.begin() + near, near == dim1 ? last : last + 1);
  permutation.insert(permutation.begin() + far, far == dim1 ? last : last + 1);
  return e.transpose(filled, permutation);
}

std::pair<int64_t, int64_t> slice_bounds(int64_t start, int64_t end, int64_t size) {
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  return {start, std::clamp<int64_t>(end, start, size)};
}

namespace {

// An empty tensor of shape [0] joins with anything.
Value lower_cat(Emitter& e, const Call& c) {
  const Type& result = c.result();
  Values parts;
  for (const Value& x : c.tensors("tensors")) {
    if (x.rank() == 1 && x.dim(0) == 0 && result.rank() != 1) continue;
    parts.push_back(e.convert(x, result.dtype));
  }
  if (parts.empty() || result.numel() == 0) return e.constant(0, result);
  return e.concatenate(parts, Call::wrap(c.integer("dim"), result.rank()));
}

Value lower_stack(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const int64_t dim = Call::wrap(c.integer("dim"), result.rank());
  Values parts;
  for (const Value& x : c.tensors("tensors")) parts.push_back(unsqueeze(e, e.convert(x, result.dtype), dim));
  return e.concatenate(parts, dim);
}

Value lower_constant_pad_nd(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const std::vector<int64_t> pad = c.integers("pad");
  Dims low(static_cast<size_t>(self.rank()), 0);
  Dims high = low;
  for (const auto i : c10::irange(pad.size() / 2)) {
    const size_t d = low.size() - 1 - i;
    low[d] = pad[2 * i];
    high[d] = pad[2 * i + 1];
  }
  return e.pad(self, c.number("value", self.dtype()), low, high);
}

Value rolled(Emitter& e, const Value& x, int64_t dim, int64_t shift) {
  const int64_t size = x.dim(dim);
  if (size == 0) return x;
  const int64_t by = ((shift % size) + size) % size;
  if (by == 0) return x;
  return e.concatenate({slice_dim(e, x, dim, size - by, size), slice_dim(e, x, dim, 0, size - by)}, dim);
}

Value lower_roll(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const std::vector<int64_t> shifts = c.integers("shifts");
  const std::vector<int64_t> dims = c.integers("dims");
  if (dims.empty()) return e.reshape(rolled(e, flatten(e, self), 0, shifts[0]), self.dims());
  if (self.rank() == 0) return self;
  Value x = self;
  for (const auto i : c10::irange(dims.size())) x = rolled(e, x, Call::wrap(dims[i], x.rank()), shifts[i]);
  return x;
}

Value lower_flip(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  return self.rank() == 0 ? self : e.reverse(self, c.dims("dims", self.rank(), false));
}

Value lower_repeat(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const std::vector<int64_t> repeats = c.integers("repeats");
  const size_t leading = repeats.size() - static_cast<size_t>(self.rank());
  Dims spread;
  Dims where;
  Dims result;
  for (const auto i : c10::irange(repeats.size())) {
    spread.push_back(repeats[i]);
    result.push_back(repeats[i]);
    if (i < leading) continue;
    where.push_back(static_cast<int64_t>(spread.size()));
    spread.push_back(self.dims()[i - leading]);
    result.back() *= spread.back();
  }
  return e.reshape(e.broadcast_in_dim(self, spread, where), result);
}

// Keeps the elements for which (column - row) `direction` diagonal.
Value triangle(Emitter& e, const Call& c, std::string_view direction) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  const int64_t rows = self.dim(self.rank() - 2);
  const int64_t columns = self.dim(self.rank() - 1);
  const int64_t diagonal = std::clamp(c.integer("diagonal"), -rows - 1, columns + 1);
  const Type places(at::kInt, {rows, columns});
  const Value limit = e.add(e.iota(places, 0), at::Scalar(diagonal));
  const Value keeps = broadcast_to(e, e.compare(direction, e.iota(places, 1), limit), self.dims());
  return e.select(keeps, self, e.constant_like(0, self));
}

Value lower_tril(Emitter& e, const Call& c) { return triangle(e, c, "LE"); }
Value lower_triu(Emitter& e, const Call& c) { return triangle(e, c, "GE"); }

Value lower_diag_embed(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t offset = c.integer("offset");
  const int64_t size = self.dim(self.rank() - 1) + std::abs(offset);
  return embed_diagonal(e, self, size, size, offset, Call::wrap(c.integer("dim1"), self.rank() + 1),
                        Call::wrap(c.integer("dim2"), self.rank() + 1));
}

Value lower_block_diag(Emitter& e, const Call& c) {
  const Type& result = c.result();
  Values bands;
  int64_t before = 0;
  for (const Value& tensor : c.tensors("tensors")) {
    Value x = e.convert(tensor, result.dtype);
    if (x.rank() < 2) x = e.reshape(x, {1, x.type.numel()});
    bands.push_back(e.pad(x, scalar(e, 0, x.dtype()), {0, before}, {0, result.dims[1] - before - x.dim(1)}));
    before += x.dim(1);
  }
  return bands.empty() ? e.constant(0, result) : e.concatenate(bands, 0);
}

Value lower_narrow_copy(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  int64_t start = c.integer("start");
  if (start < 0) start += self.dim(dim);
  return slice_dim(e, self, dim, start, start + c.integer("length"));
}

Value lower_slice_scatter(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  const int64_t size = self.dim(dim);
  const auto [start, end] =
      slice_bounds(c.integer_or("start", 0), c.integer_or("end", std::numeric_limits<int64_t>::max()), size);
  const int64_t step = c.integer("step");
  Dims dims = self.dims();
  dims[dim] = (end - start + step - 1) / step;
  const Value src = broadcast_to(e, e.convert(c.tensor("src"), self.dtype()), dims);
  if (src.type.numel() == 0) return self;
  if (step == 1) {
    Values starts(static_cast<size_t>(self.rank()), scalar(e, 0, at::kLong));
    starts[dim] = scalar(e, start, at::kLong);
    return e.dynamic_update_slice(self, src, starts);
  }
  const auto spread = [&](const Value& x) {
    Dims low(static_cast<size_t>(self.rank()), 0);
    Dims high = low;
    Dims interior = low;
    low[dim] = start;
    interior[dim] = step - 1;
    high[dim] = size - start - (dims[dim] - 1) * step - 1;
    return e.pad(x, scalar(e, 0, x.dtype()), low, high, interior);
  };
  return e.select(spread(e.constant(true, src.type.with(at::kBool))), spread(src), self);
}

Value lower_select_scatter(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const int64_t dim = Call::wrap(c.integer("dim"), self.rank());
  int64_t index = c.integer("index");
  if (index < 0) index += self.dim(dim);
  const Value src = unsqueeze(e, e.convert(c.tensor("src"), self.dtype()), dim);
  Values starts(static_cast<size_t>(self.rank()), scalar(e, 0, at::kLong));
  starts[dim] = scalar(e, index, at::kLong);
  return src.type.numel() == 0 ? self : e.dynamic_update_slice(self, src, starts);
}

// What is computed from the result is not taken for the same as what was computed from self.
Value lower_barrier(Emitter& e, const Call& c) { return e.optimization_barrier(c.tensor("self")); }

}  // namespace

void add_shape(Table& t) {
  t.add("torch_tpu::barrier", lower_barrier).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
  t.add("aten::cat", lower_cat);
  t.add("aten::stack", lower_stack);
  t.add("aten::_stack", lower_stack);
  t.add("aten::constant_pad_nd", lower_constant_pad_nd);
  t.add("aten::roll", lower_roll);
  t.add("aten::flip", lower_flip);
  t.add("aten::repeat", lower_repeat);
  t.add("aten::tril", lower_tril);
  t.add("aten::triu", lower_triu);
  t.add("aten::diag_embed", lower_diag_embed);
  t.add("aten::block_diag", lower_block_diag);
  t.add("aten::narrow_copy", lower_narrow_copy);
  t.add("aten::slice_scatter", lower_slice_scatter);
  t.add("aten::select_scatter", lower_select_scatter);
}

}  // namespace torch_tpu
