#include "lowerings/reduction.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <limits>

namespace torch_tpu {

namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kManyRows = 4096;

// A divisor of `n` near kBlock, or kBlock itself, to which the rows are then padded.
int64_t block_size(int64_t n) {
  for (int64_t block = 2 * kBlock; block >= kBlock / 4; --block) {
    if (n % block == 0) return block;
  }
  return kBlock;
}

bool holds(c10::IntArrayRef dims, int64_t d) { return std::find(dims.begin(), dims.end(), d) != dims.end(); }

}  // namespace

Value at_least_1d(Emitter& e, const Value& x) { return x.rank() == 0 ? e.reshape(x, {1}) : x; }

Dims reduced_dims(const Call& c, const Value& x) { return c.dims("dim", x.rank()); }

Dims all_dims(const Value& x) {
  Dims dims;
  for (const auto d : c10::irange(x.rank())) dims.push_back(d);
  return dims;
}

Value as_result(Emitter& e, const Call& c, const Value& v, size_t i) {
  return e.convert(e.reshape(v, c.result(i).dims), c.result(i).dtype);
}

Value accurate_sum(Emitter& e, const Value& x, c10::IntArrayRef dims) {
  // Compilers add a row in vectors, but rows one after the other.
  const auto plain = [&] { return sum(e, x, dims); };
  if (dims.empty() || !c10::isFloatingType(x.dtype()) || holds(dims, x.rank() - 1)) return plain();
  const int64_t split =
      *std::max_element(dims.begin(), dims.end(), [&](int64_t a, int64_t b) { return x.dim(a) < x.dim(b); });
  const int64_t rows = x.dim(split);
  if (rows < kManyRows || x.type.numel() == 0) return plain();

  const int64_t block = block_size(rows);
  const int64_t blocks = (rows + block - 1) / block;
  Dims high(x.dims().size(), 0);
  high[split] = blocks * block - rows;
  const Value padded = e.pad(x, scalar(e, 0, x.dtype()), Dims(x.dims().size(), 0), high);
  Dims in_blocks = x.dims();
  in_blocks[split] = blocks;
  in_blocks.insert(in_blocks.begin() + split + 1, block);
  const Value partial = e.reduce(e.reshape(padded, in_blocks), 0, {split + 1}, "add");
  // Without the barrier XLA merges the two sums into one.
  return e.reduce(e.optimization_barrier(partial), 0, dims, "add");
}

Value positions(Emitter& e, c10::IntArrayRef dims, int64_t dim) {
  const bool small = dims[dim] <= std::numeric_limits<int32_t>::max();
  return e.iota(Type(small ? at::kInt : at::kLong, dims), dim);
}

Value extreme(Emitter& e, const Value& x, c10::IntArrayRef dims, bool largest) {
  const Value init = largest ? e.lowest(x.type) : e.highest(x.type);
  if (x.dtype() == at::kBool) return e.reduce(x, init, dims, largest ? "or" : "and");
  return e.reduce(x, init, dims, largest ? "maximum" : "minimum");
}

std::pair<Value, Value> extreme_with_index(Emitter& e, const Value& x, c10::IntArrayRef dims, bool largest) {
  if (x.dtype() == at::kBool) {
    const auto [value, index] = extreme_with_index(e, e.convert(x, at::kByte), dims, largest);
    return {e.convert(value, at::kBool), index};
  }
  const int64_t count = count_along(x, dims);
  const at::ScalarType index_dtype = count <= std::numeric_limits<int32_t>::max() ? at::kInt : at::kLong;
  Value where = e.constant(0, x.type.with(index_dtype));
  int64_t stride = count;
  for (const int64_t d : dims) {
    stride /= std::max<int64_t>(x.dim(d), 1);
    const Value along = e.iota(where.type, d);
    where = dims.size() == 1 ? along : e.add(where, e.multiply(along, stride));
  }
  const Values inits = {largest ? e.lowest(x.type) : e.highest(x.type), e.highest(where.type)};
  const Values found = e.reduce({x, where}, inits, dims, [&](const Values& in) {
    const Value &a = in[0], &a_at = in[1], &b = in[2], &b_at = in[3];
    Value better = e.compare(largest ? "GT" : "LT", b, a);
    Value equal = e.compare("EQ", b, a);
    if (c10::isFloatingType(x.dtype())) {
      const Value nan_a = is_nan(e, a);
      const Value nan_b = is_nan(e, b);
      better = e.logical_or(better, e.logical_and(nan_b, e.logical_not(nan_a)));
      equal = e.logical_or(equal, e.logical_and(nan_a, nan_b));
    }
    const Value take_b = e.logical_or(better, e.logical_and(equal, e.compare("LT", b_at, a_at)));
    return Values{e.select(take_b, b, a), e.select(take_b, b_at, a_at)};
  });
  return {found[0], e.convert(found[1], at::kLong)};
}

Value vector_norm(Emitter& e, const Call& c, const Value& x, std::string_view ord, c10::IntArrayRef dims) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const bool is_complex = c10::isComplexType(x.dtype());
  if (!c.has(ord) || c.equals(ord, 2)) {
    const Value re = e.real(x);
    Value squares = e.multiply(re, re);
    if (is_complex) squares = e.add(squares, e.multiply(e.imag(x), e.imag(x)));
    return e.unary("sqrt", accurate_sum(e, squares, dims));
  }
  const Value size = e.unary("abs", x);
  if (c.equals(ord, 0)) {
    return accurate_sum(e, e.convert(e.convert(size, at::kBool), size.dtype()), dims);
  }
  if (c.equals(ord, 1)) return accurate_sum(e, size, dims);
  if (c.equals(ord, kInfinity)) return e.reduce(size, 0, dims, "maximum");
  if (c.equals(ord, -kInfinity)) return extreme(e, size, dims, /*largest=*/false);
  const Value p = c.number(ord, size.dtype());
  const Value total = accurate_sum(e, e.power(size, broadcast_to(e, p, size.dims())), dims);
  return e.power(total, broadcast_to(e, e.divide(1, p), total.dims()));
}

Reduction reduction_of(const Call& c) { return static_cast<Reduction>(c.integer("reduction")); }

Value reduce_loss(Emitter& e, const Value& loss, Reduction how) {
  if (how == Reduction::kNone) return loss;
  const Value total = accurate_sum(e, loss, all_dims(loss));
  return how == Reduction::kSum ? total : e.divide(total, static_cast<double>(loss.type.numel()));
}

}  // namespace torch_tpu
