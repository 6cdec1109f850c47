#include "lowerings/contract.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>

#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

bool holds(const Dims& dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

Dims free_dims(const Value& x, const Dims& batch, const Dims& contract) {
  Dims dims;
  for (const auto d : c10::irange(x.rank())) {
    if (!holds(batch, d) && !holds(contract, d)) dims.push_back(d);
  }
  return dims;
}

// x with its dims in the order batch, free, contract.
Value ordered(Emitter& e, const Value& x, const Dims& batch, const Dims& free, const Dims& contract) {
  Dims order = batch;
  order.append(free.begin(), free.end());
  order.append(contract.begin(), contract.end());
  return e.transpose(x, order);
}

// TPUs have no 64-bit integer dot; the compiler fuses this form.
Value multiply_and_reduce(Emitter& e, const Value& a, const Value& b, const DotDims& dims) {
  const Dims a_free = free_dims(a, dims.lhs_batch, dims.lhs_contract);
  const Dims b_free = free_dims(b, dims.rhs_batch, dims.rhs_contract);
  const Value left = ordered(e, a, dims.lhs_batch, a_free, dims.lhs_contract);
  const Value right = ordered(e, b, dims.rhs_batch, b_free, dims.rhs_contract);

  const auto batch = static_cast<int64_t>(dims.lhs_batch.size());
  const auto m = static_cast<int64_t>(a_free.size());
  const auto n = static_cast<int64_t>(b_free.size());
  const auto k = static_cast<int64_t>(dims.lhs_contract.size());
  Dims full(left.dims().begin(), left.dims().begin() + batch + m);
  full.append(right.dims().begin() + batch, right.dims().end());
  Dims left_at, right_at, reduced;
  for (const auto i : c10::irange(batch)) {
    left_at.push_back(i);
    right_at.push_back(i);
  }
  for (const auto i : c10::irange(m)) left_at.push_back(batch + i);
  for (const auto i : c10::irange(n)) right_at.push_back(batch + m + i);
  for (const auto i : c10::irange(k)) {
    left_at.push_back(batch + m + n + i);
    right_at.push_back(batch + m + n + i);
    reduced.push_back(batch + m + n + i);
  }
  const Value product = e.multiply(e.broadcast_in_dim(left, full, left_at), e.broadcast_in_dim(right, full, right_at));
  return e.reduce(product, at::Scalar(0), reduced, "add");
}

// x without the dims `units`.
Value without(Emitter& e, const Value& x, const Dims& units) {
  Dims dims;
  for (const auto d : c10::irange(x.rank())) {
    if (!holds(units, d)) dims.push_back(x.dim(d));
  }
  return e.reshape(x, dims);
}

// Where the dims `from` are then, those among `units` left out.
Dims renumbered(const Dims& from, const Dims& units) {
  Dims to;
  for (const int64_t d : from) {
    if (holds(units, d)) continue;
    to.push_back(d - std::count_if(units.begin(), units.end(), [d](int64_t u) { return u < d; }));
  }
  return to;
}

// XLA's CPU compiler wants the contracted dimension last on the left and first on the right, and transposes what is
// not so at each execution: of x @ weight.T the whole weight. With the weight on the left only x and the result are
// transposed. dot_general(a, b) in this form, if that is less; else an undefined value.
Value larger_on_the_left(Emitter& e, const Value& a, const Value& b, const DotDims& dims, at::ScalarType accumulated,
                         Precision precision) {
  Value weight = b;
  Dims batch = dims.rhs_batch, contracted = dims.rhs_contract;
  if (const auto* transposed = e.transposed(b)) {
    weight = transposed->first;
    for (Dims* where : {&batch, &contracted}) {
      for (int64_t& d : *where) d = transposed->second[d];
    }
  }
  const auto leading = static_cast<int64_t>(batch.size());
  if (weight.rank() != leading + 2 || contracted.size() != 1 || contracted[0] != leading + 1) return {};
  for (const auto i : c10::irange(leading)) {
    if (batch[i] != i) return {};
  }
  const Dims a_free = free_dims(a, dims.lhs_batch, dims.lhs_contract);
  const int64_t terms = weight.dim(leading + 1), rows = weight.dim(leading);
  int64_t columns = 1;
  for (const int64_t d : a_free) columns *= a.dim(d);
  if (rows * terms <= columns * terms + 2 * rows * columns) return {};

  const Value product =
      e.dot_general(weight, a, {batch, dims.lhs_batch, contracted, dims.lhs_contract}, accumulated, precision);
  // What is before the rows in the result is after them in the product.
  Dims order, result;
  for (const auto i : c10::irange(leading)) order.push_back(i);
  for (const auto i : c10::irange(a_free.size())) order.push_back(leading + 1 + static_cast<int64_t>(i));
  order.push_back(leading);
  for (const int64_t d : order) result.push_back(product.dim(d));
  if (columns == 1) return e.reshape(product, result);
  // Without the barrier XLA sees a transposed product, and exchanges its operands.
  return e.transpose(e.optimization_barrier(product), order);
}

}  // namespace

Value contract(Emitter& e, const Value& a, const Value& b, const DotDims& dims, Precision precision) {
  TORCH_INTERNAL_ASSERT(a.dtype() == b.dtype(), "contraction of ", a.type, " and ", b.type);
  const at::ScalarType dtype = a.dtype();
  const bool floating = c10::isFloatingType(dtype);
  const at::ScalarType accumulated = floating && dtype != at::kDouble ? at::kFloat : dtype;

  // XLA's CPU compiler brings a dot with further dims into its own form, with transposes, also where their size is 1;
  // and drops unit batch dims too late to choose a dot that it has for bfloat16.
  Dims a_units, b_units;
  const auto drop_units = [](const Value& x, const Dims& dims, Dims& units) {
    for (const int64_t d : dims) {
      if (x.dim(d) == 1) units.push_back(d);
    }
  };
  const Dims a_free = free_dims(a, dims.lhs_batch, dims.lhs_contract);
  const Dims b_free = free_dims(b, dims.rhs_batch, dims.rhs_contract);
  drop_units(a, dims.lhs_batch, a_units);
  drop_units(b, dims.rhs_batch, b_units);
  if (dims.lhs_contract.size() > 1) {
    drop_units(a, dims.lhs_contract, a_units);
    drop_units(b, dims.rhs_contract, b_units);
  }
  if (a_free.size() > 1) drop_units(a, a_free, a_units);
  if (b_free.size() > 1) drop_units(b, b_free, b_units);
  if (!a_units.empty() || !b_units.empty()) {
    Dims full;
    for (const int64_t d : dims.lhs_batch) full.push_back(a.dim(d));
    for (const int64_t d : a_free) full.push_back(a.dim(d));
    for (const int64_t d : b_free) full.push_back(b.dim(d));
    const DotDims rest{renumbered(dims.lhs_batch, a_units), renumbered(dims.rhs_batch, b_units),
                       renumbered(dims.lhs_contract, a_units), renumbered(dims.rhs_contract, b_units)};
    return e.reshape(contract(e, without(e, a, a_units), without(e, b, b_units), rest, precision), full);
  }

  int64_t terms = 1;
  for (const int64_t d : dims.lhs_contract) terms *= a.dim(d);
  if (terms == 0 || a.type.numel() == 0 || b.type.numel() == 0) {
    Type type(accumulated, {});
    for (const int64_t d : dims.lhs_batch) type.dims.push_back(a.dim(d));
    for (const int64_t d : free_dims(a, dims.lhs_batch, dims.lhs_contract)) type.dims.push_back(a.dim(d));
    for (const int64_t d : free_dims(b, dims.rhs_batch, dims.rhs_contract)) type.dims.push_back(b.dim(d));
    return e.constant(0, type);
  }

  if (c10::isIntegralType(dtype, /*includeBool=*/true)) {
    if (c10::elementSize(dtype) == 8) return multiply_and_reduce(e, a, b, dims);
    if (dtype == at::kInt) return e.dot_general(a, b, dims, at::kInt);
    return e.convert(e.dot_general(e.convert(a, at::kInt), e.convert(b, at::kInt), dims, at::kInt), dtype);
  }
  if (floating && c10::elementSize(dtype) == 1) {
    return e.dot_general(e.convert(a, at::kBFloat16), e.convert(b, at::kBFloat16), dims, at::kFloat,
                         Precision::kDefault);
  }
  if (accumulated != dtype) precision = Precision::kDefault;
  if (e.on_host() && floating) {
    const Value product = larger_on_the_left(e, a, b, dims, accumulated, precision);
    if (product.defined()) return product;
  }
  return e.dot_general(a, b, dims, accumulated, precision);
}

Value matrix_product(Emitter& e, const Value& a, const Value& b, Precision precision) {
  if (a.rank() == 2) return contract(e, a, b, {{}, {}, {1}, {0}}, precision);
  TORCH_INTERNAL_ASSERT(a.rank() == 3 && b.rank() == 3, "matrix product of ", a.type, " and ", b.type);
  return contract(e, a, b, {{0}, {0}, {2}, {1}}, precision);
}

}  // namespace torch_tpu
