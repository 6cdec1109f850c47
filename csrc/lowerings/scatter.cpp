// scatter, scatter_add, scatter_reduce, and their row-wise kin: index_add, index_copy,
// index_fill, index_reduce. Positions out of range are dropped.
#include <c10/util/irange.h>

#include <functional>

#include "lowerings/families.h"
#include "lowerings/indexing.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

// Writes updates at the call's positions of `base`, by an operation or (empty name) in place of the old.
using Write = std::function<Value(const Value& base, const Value& updates, std::string_view name)>;

// Rounds towards minus infinity. REQUIRES: b > 0.
Value floor_divide(Emitter& e, const Value& a, const Value& b) {
  const Value quotient = e.divide(a, b);
  const Value below = e.compare("LT", e.remainder(a, b), at::Scalar(0));
  return e.select(below, e.subtract(quotient, at::Scalar(1)), quotient);
}

// The reductions of scatter_reduce and index_reduce.
Value reduce_at(Emitter& e, const Value& self, const Value& updates, const std::string& reduce, bool include_self,
                const Write& write) {
  const bool mean = reduce == "mean";
  const bool sums = mean || reduce == "sum";
  std::string_view name;
  Value identity;
  const at::ScalarType compute = sums || reduce == "prod" ? opmath(self.dtype()) : self.dtype();
  const Type scalar_type(compute, {});
  if (sums) {
    name = "add";
    identity = e.constant(0, scalar_type);
  } else if (reduce == "prod") {
    name = "multiply";
    identity = e.constant(1, scalar_type);
  } else if (reduce == "amax" || reduce == "maximum") {
    name = "maximum";
    identity = e.lowest(scalar_type);
  } else {
    TORCH_CHECK(reduce == "amin" || reduce == "minimum", "tpu: reduce must be sum, prod, mean, amax or amin: got ",
                reduce, ".");
    name = "minimum";
    identity = e.highest(scalar_type);
  }
  const Value x = e.convert(self, compute);
  const Value source = e.convert(updates, compute);
  Value base = x;
  if (!include_self) base = write(x, broadcast_to(e, identity, source.dims()), "");
  Value result = write(base, source, name);
  if (mean) {
    const Value ones = e.constant(1, source.type.with(at::kInt));
    Value count = write(e.constant(include_self ? 1 : 0, x.type.with(at::kInt)), ones, "add");
    count = e.convert(e.maximum(count, at::Scalar(1)), compute);
    result = c10::isIntegralType(compute, true) ? floor_divide(e, result, count) : e.divide(result, count);
  }
  return e.convert(result, self.dtype());
}

int64_t dim_of(const Call& c) { return Call::wrap(c.integer("dim"), c.tensor("self").rank()); }

// --- scatter

Value scatter_call(Emitter& e, const Call& c, const Value& updates, std::string_view name) {
  return scatter_elements(e, c.tensor("self"), dim_of(c), c.tensor("index"), updates, name);
}

std::string_view operation(const std::string& reduce) {
  TORCH_CHECK(reduce == "add" || reduce == "multiply", "tpu: reduce argument must be either add or multiply: got ",
              reduce, ".");
  return reduce == "add" ? "add" : "multiply";
}

Value filled_updates(const Call& c) { return c.number("value", c.tensor("self").type.with(c.tensor("index").dims())); }

Value lower_scatter_src(Emitter& e, const Call& c) { return scatter_call(e, c, c.tensor("src"), ""); }

Value lower_scatter_value(Emitter& e, const Call& c) { return scatter_call(e, c, filled_updates(c), ""); }

Value lower_scatter_src_reduce(Emitter& e, const Call& c) {
  return scatter_call(e, c, c.tensor("src"), operation(c.text("reduce")));
}

Value lower_scatter_value_reduce(Emitter& e, const Call& c) {
  return scatter_call(e, c, filled_updates(c), operation(c.text("reduce")));
}

Value lower_scatter_add(Emitter& e, const Call& c) { return scatter_call(e, c, c.tensor("src"), "add"); }

Value lower_scatter_reduce(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value index = c.tensor("index");
  if (index.type.numel() == 0) return self;
  const int64_t dim = dim_of(c);
  return reduce_at(e, self, c.tensor("src"), c.text("reduce"), c.flag("include_self"),
                   [&](const Value& base, const Value& updates, std::string_view name) {
                     return scatter_elements(e, base, dim, index, updates, name);
                   });
}

// --- rows

// self and source at least 1-d, the index 1-d: what the row-wise ops work on.
struct Rows {
  Value self, index, source;
  int64_t dim = 0;
};

Rows rows_of(Emitter& e, const Call& c, bool with_source) {
  Rows rows;
  rows.self = at_least_1d(e, c.tensor("self"));
  rows.dim = Call::wrap(c.integer("dim"), rows.self.rank());
  rows.index = normalized_index(e, at_least_1d(e, c.tensor("index")), rows.self.dim(rows.dim), !with_source);
  if (with_source) {
    Dims dims = rows.self.dims();
    dims[rows.dim] = rows.index.dim(0);
    rows.source = e.reshape(c.tensor("source"), dims);
  }
  return rows;
}

Value lower_index_add(Emitter& e, const Call& c) {
  const Rows rows = rows_of(e, c, true);
  Value source = rows.source;
  if (!c.equals("alpha", 1)) {
    const at::ScalarType compute = opmath(source.dtype());
    source = compute == at::kBool
                 ? e.logical_and(source, c.number("alpha", source.type))
                 : e.multiply(e.convert(source, compute), c.number("alpha", source.type.with(compute)));
  }
  const Value self = e.convert(rows.self, source.dtype());
  const Value sums = scatter_rows(e, self, rows.dim, rows.index, source, "add");
  return e.reshape(e.convert(sums, rows.self.dtype()), c.tensor("self").dims());
}

Value lower_index_copy(Emitter& e, const Call& c) {
  const Rows rows = rows_of(e, c, true);
  return e.reshape(scatter_rows(e, rows.self, rows.dim, rows.index, rows.source, ""), c.tensor("self").dims());
}

// Which rows are meant is found first, so the fill itself is a select.
Value index_fill(Emitter& e, const Call& c, const Value& value) {
  const Rows rows = rows_of(e, c, false);
  const int64_t size = rows.self.dim(rows.dim);
  const Value hit = scatter_rows(e, e.constant(false, Type(at::kBool, {size})), 0, rows.index,
                                 e.constant(true, Type(at::kBool, rows.index.dims())), "");
  const Value mask = e.broadcast_in_dim(hit, rows.self.dims(), {rows.dim});
  return e.reshape(e.select(mask, broadcast_to(e, value, rows.self.dims()), rows.self), c.tensor("self").dims());
}

Value lower_index_fill_scalar(Emitter& e, const Call& c) {
  return index_fill(e, c, c.number("value", c.tensor("self").dtype()));
}

Value lower_index_fill_tensor(Emitter& e, const Call& c) {
  return index_fill(e, c, operand(e, c, "value", c.tensor("self").dtype()));
}

Value lower_index_reduce(Emitter& e, const Call& c) {
  const Rows rows = rows_of(e, c, true);
  if (rows.source.type.numel() == 0) return c.tensor("self");
  const Value result = reduce_at(e, rows.self, rows.source, c.text("reduce"), c.flag("include_self"),
                                 [&](const Value& base, const Value& updates, std::string_view name) {
                                   return scatter_rows(e, base, rows.dim, rows.index, updates, name);
                                 });
  return e.reshape(result, c.tensor("self").dims());
}

}  // namespace

void add_scatter(Table& t) {
  t.add("aten::scatter.src", lower_scatter_src);
  t.add("aten::scatter.value", lower_scatter_value);
  t.add("aten::scatter.reduce", lower_scatter_src_reduce);
  t.add("aten::scatter.value_reduce", lower_scatter_value_reduce);
  t.add("aten::scatter_add", lower_scatter_add);
  t.add("aten::scatter_reduce.two", lower_scatter_reduce);
  t.add("aten::index_add", lower_index_add);
  t.add("aten::index_copy", lower_index_copy);
  t.add("aten::index_fill.int_Scalar", lower_index_fill_scalar).writes_expanded();
  t.add("aten::index_fill.int_Tensor", lower_index_fill_tensor).writes_expanded();
  t.add("aten::index_reduce", lower_index_reduce);
}

}  // namespace torch_tpu
