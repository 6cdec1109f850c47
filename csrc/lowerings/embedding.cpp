// Embedding tables: lookup, bags of lookups, renormalization, and their gradients.
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/indexing.h"

namespace torch_tpu {

namespace {

constexpr int64_t kSum = 0, kMean = 1, kMax = 2;  // embedding_bag's modes

// `x` of [n] as [n, columns].
Value as_rows(Emitter& e, const Value& x, int64_t columns) { return e.broadcast_in_dim(x, {x.dim(0), columns}, {0}); }

// How often each of `size` rows is named by `index`, read back at `index`: at least 1.
Value frequency(Emitter& e, const Value& index, int64_t size, at::ScalarType dtype) {
  const Value counts = scatter_rows(e, e.constant(0, Type(at::kInt, {size})), 0, index,
                                    e.constant(1, Type(at::kInt, index.dims())), "add");
  return e.convert(e.maximum(take(e, counts, 0, index), at::Scalar(1)), dtype);
}

// `rows` of [n, d], in opmath, added up at `where` into zeros of `result`, whose dtype is narrower. An accumulator of
// the table's size in opmath would be twice the result, and XLA holds two of them: rows that go to one place are added
// up in [n, d] at the first of them instead, and written once they are rounded.
Value table_of_sums(Emitter& e, const Type& result, const Value& where, const Value& rows) {
  const int64_t count = where.dim(0);
  const int64_t size = result.dims[0];
  const Value order = e.iota(Type(at::kInt, {count}), 0);
  // One row more than the table, for what is out of range: it stays so.
  const Value firsts = scatter_rows(e, e.constant(count, Type(at::kInt, {size + 1})), 0, where, order, "minimum");
  const Value first = take(e, firsts, 0, where);
  const Value sums = scatter_rows(e, e.constant(0, rows.type), 0, first, rows, "add");
  const Value once = e.select(e.compare("EQ", first, order), where, e.constant(size, where.type));
  return scatter_rows(e, e.constant(0, result), 0, once, e.convert(sums, result.dtype), "");
}

// The gradient of a table of `num_weights` rows: `grads` [n, d], in opmath, added up at `index` [n].
// Rows at `padding_idx` count for nothing.
Value table_gradient(Emitter& e, const Call& c, const Value& grads, const Value& index, at::ScalarType dtype) {
  const int64_t size = c.integer("num_weights");
  const int64_t padding = c.integer("padding_idx");
  const Type result(grads.dtype(), {size, grads.dim(1)});
  if (size == 0 || grads.type.numel() == 0) return e.constant(0, result.with(dtype));
  Value where = normalized_index(e, index, size, false);
  Value rows = grads;
  if (c.flag("scale_grad_by_freq")) {
    rows = e.divide(rows, as_rows(e, frequency(e, where, size, rows.dtype()), rows.dim(1)));
  }
  if (padding >= 0) {
    where = e.select(e.compare("EQ", where, at::Scalar(padding)), e.constant(size, where.type), where);
  }
  if (rows.dtype() != dtype && index.dim(0) < size) return table_of_sums(e, result.with(dtype), where, rows);
  return e.convert(scatter_rows(e, e.constant(0, result), 0, where, rows, "add"), dtype);
}

Value lower_embedding(Emitter& e, const Call& c) {
  const Value weight = c.tensor("weight");
  TORCH_CHECK(weight.rank() == 2, "tpu: embedding: 'weight' must be 2-D: got ", weight.rank(), " dimensions.");
  const Value indices = c.tensor("indices");
  Dims dims = indices.dims();
  dims.push_back(weight.dim(1));
  if (weight.type.numel() == 0 || indices.type.numel() == 0) return e.constant(0, weight.type.with(dims));
  return e.reshape(take(e, weight, 0, normalized_index(e, flatten(e, indices), weight.dim(0), false)), dims);
}

Value lower_embedding_dense_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Value index = flatten(e, c.tensor("indices"));
  const int64_t columns = grad.dim(grad.rank() - 1);
  const Value rows = e.convert(e.reshape(grad, {index.dim(0), columns}), opmath(grad.dtype()));
  return table_gradient(e, c, rows, index, grad.dtype());
}

Value row_norms(Emitter& e, const Value& x, double p) {
  const Value size = e.unary("abs", x);
  if (std::isinf(p)) {
    return p > 0 ? max(e, size, {1}) : e.reduce(size, e.highest(Type(x.dtype(), {})), {1}, "minimum");
  }
  if (p == 0) return sum(e, e.convert(e.compare("NE", x, at::Scalar(0)), x.dtype()), {1});
  if (p == 1) return sum(e, size, {1});
  if (p == 2) return e.unary("sqrt", sum(e, e.multiply(x, x), {1}));
  const Value total = sum(e, e.power(size, at::Scalar(p)), {1});
  return e.power(total, at::Scalar(1 / p));
}

// Rows that are named twice are written twice with the same numbers.
Value lower_embedding_renorm(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value index = flatten(e, c.tensor("indices"));
  if (self.type.numel() == 0 || index.dim(0) == 0) return self;
  const Value where = normalized_index(e, index, self.dim(0), false);
  const at::ScalarType compute = opmath(self.dtype());
  const Value rows = e.convert(take(e, self, 0, where), compute);
  const Value norms = row_norms(e, rows, c.real("norm_type"));
  const Value limit = c.number("max_norm", norms.type);
  const Value scale = e.select(e.compare("GT", norms, limit), e.divide(limit, e.add(norms, at::Scalar(1e-7))),
                               e.constant_like(1, norms));
  const Value scaled = e.convert(e.multiply(rows, as_rows(e, scale, self.dim(1))), self.dtype());
  return scatter_rows(e, self, 0, where, scaled, "");
}

// --- bags

// Results: the bags, the bag of each index, the number of indices of each bag that are not padding,
// and (mode max) the table row each element came from, -1 in an empty bag.
Values lower_embedding_bag(Emitter& e, const Call& c) {
  const Value weight = c.tensor("weight");
  const Value indices = c.tensor("indices");
  const Value offsets = c.tensor("offsets");
  const int64_t mode = c.integer("mode");
  const int64_t padding = c.integer_or("padding_idx", -1);
  const int64_t count = indices.dim(0);
  const int64_t bags = offsets.dim(0) - (c.flag("include_last_offset") ? 1 : 0);
  const int64_t columns = weight.dim(1);
  const Type result(weight.dtype(), {bags, columns});
  if (count == 0 || result.numel() == 0 || weight.dim(0) == 0) {
    return {e.constant(0, result), e.constant(0, indices.type), e.constant(0, indices.type.with(offsets.dims())),
            e.constant(-1, indices.type.with(mode == kMax ? result.dims : Dims{0}))};
  }
  const at::ScalarType compute = opmath(weight.dtype());

  const Value starts = normalized_index(e, slice_dim(e, offsets, 0, 0, bags), count, false);
  const Value marks =
      scatter_rows(e, e.constant(0, Type(at::kInt, {count})), 0, starts, e.constant(1, Type(at::kInt, {bags})), "add");
  const Value bag = e.subtract(running_sum(e, marks), at::Scalar(1));

  Value where = normalized_index(e, indices, weight.dim(0), false);
  const Value keeps = e.compare("NE", where, at::Scalar(padding));
  const Value target = e.select(keeps, bag, e.constant(bags, bag.type));
  const Value sizes =
      scatter_rows(e, e.constant(0, Type(at::kInt, {bags})), 0, target, e.constant(1, Type(at::kInt, {count})), "add");
  Value rows = e.convert(take(e, weight, 0, where), compute);
  if (c.has("per_sample_weights")) {
    rows = e.multiply(rows, as_rows(e, e.convert(c.tensor("per_sample_weights"), compute), columns));
  }

  Value output;
  Value origin = e.constant(0, indices.type.with({0}));
  const Type accumulator(compute, result.dims);
  if (mode == kMax) {
    const Value empty = as_rows(e, e.compare("EQ", sizes, at::Scalar(0)), columns);
    const Value least = e.broadcast_in_dim(e.lowest(accumulator), accumulator.dims, {});
    const Value largest = scatter_rows(e, least, 0, target, rows, "maximum");
    output = e.select(empty, e.constant(0, accumulator), largest);
    // The first index of the bag that holds the maximum.
    const Value holds = e.compare("EQ", rows, take(e, largest, 0, bag));
    const Type place(at::kInt, rows.dims());
    const Value first = scatter_rows(e, e.constant(count, Type(at::kInt, result.dims)), 0, target,
                                     e.select(holds, e.iota(place, 0), e.constant(count, place)), "minimum");
    const Value row = e.reshape(take(e, indices, 0, flatten(e, first)), result.dims);
    origin = e.select(e.compare("LT", first, at::Scalar(count)), row, e.constant(-1, row.type));
  } else {
    output = scatter_rows(e, e.constant(0, accumulator), 0, target, rows, "add");
    if (mode == kMean) {
      const Value divisor = e.convert(e.maximum(sizes, at::Scalar(1)), compute);
      output = e.divide(output, as_rows(e, divisor, columns));
    }
  }
  Value bag_size = e.convert(sizes, indices.dtype());
  if (bags != offsets.dim(0)) {
    bag_size = e.pad(bag_size, scalar(e, 0, indices.dtype()), {0}, {offsets.dim(0) - bags});
  }
  return {e.convert(output, weight.dtype()), e.convert(bag, indices.dtype()), bag_size, origin};
}

Value lower_embedding_bag_dense_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad");
  const int64_t mode = c.integer("mode");
  const at::ScalarType compute = opmath(grad.dtype());
  const Value grads = e.convert(grad, compute);
  const Type table(compute, {c.integer("num_weights"), grad.dim(1)});
  const Value indices = c.tensor("indices");
  if (table.numel() == 0 || grad.type.numel() == 0 || indices.dim(0) == 0) {
    return e.constant(0, table.with(grad.dtype()));
  }
  if (mode == kMax) {
    const Value sums = scatter_elements(e, e.constant(0, table), 0, c.tensor("maximum_indices"), grads, "add");
    return e.convert(sums, grad.dtype());
  }
  const Value bag = normalized_index(e, c.tensor("offset2bag"), grad.dim(0), false);
  Value rows = take(e, grads, 0, bag);
  if (mode == kMean) {
    const Value sizes = e.maximum(take(e, c.tensor("bag_size"), 0, bag), at::Scalar(1));
    rows = e.divide(rows, as_rows(e, e.convert(sizes, compute), grad.dim(1)));
  }
  if (c.has("per_sample_weights")) {
    rows = e.multiply(rows, as_rows(e, e.convert(c.tensor("per_sample_weights"), compute), grad.dim(1)));
  }
  return table_gradient(e, c, rows, indices, grad.dtype());
}

Value lower_embedding_bag_per_sample_weights_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad");
  const Value weight = c.tensor("weight");
  const Value indices = c.tensor("indices");
  const Type result(grad.dtype(), indices.dims());
  if (indices.dim(0) == 0 || grad.type.numel() == 0 || weight.type.numel() == 0) return e.constant(0, result);
  const at::ScalarType compute = opmath(grad.dtype());
  const Value bag = normalized_index(e, c.tensor("offset2bag"), grad.dim(0), false);
  const Value where = normalized_index(e, indices, weight.dim(0), false);
  const Value products =
      e.multiply(e.convert(take(e, grad, 0, bag), compute), e.convert(take(e, weight, 0, where), compute));
  const Value sums = sum(e, products, {1});
  const Value padded = e.compare("EQ", where, at::Scalar(c.integer_or("padding_idx", -1)));
  return e.convert(e.select(padded, e.constant_like(0, sums), sums), grad.dtype());
}

}  // namespace

void add_embedding(Table& t) {
  t.add("aten::embedding", lower_embedding);
  t.add("aten::embedding_dense_backward", lower_embedding_dense_backward);
  t.add("aten::embedding_renorm", lower_embedding_renorm);
  t.add("aten::_embedding_bag", lower_embedding_bag);
  t.add("aten::_embedding_bag_forward_only", lower_embedding_bag);
  t.add("aten::_embedding_bag_dense_backward", lower_embedding_bag_dense_backward);
  t.add("aten::_embedding_bag_per_sample_weights_backward", lower_embedding_bag_per_sample_weights_backward);
}

}  // namespace torch_tpu
