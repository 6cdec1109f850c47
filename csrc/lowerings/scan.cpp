// cumsum, cumprod, cummax, cummin, logcumsumexp, and the scans behind them.
#include "lowerings/scan.h"

#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

constexpr int64_t kBlock = 32;

// `x` moved by `distance` along `dim`: `fill` (0-d) comes in, the last elements go.
Value shifted(Emitter& e, const Value& x, const Value& fill, int64_t dim, int64_t distance) {
  Dims low(x.dims().size(), 0);
  Dims high(x.dims().size(), 0);
  low[dim] = distance;
  high[dim] = -distance;
  return e.pad(x, fill, low, high);
}

Values shifted(Emitter& e, const Values& xs, const Values& fills, int64_t dim, int64_t distance) {
  Values moved;
  for (const auto i : c10::irange(xs.size())) moved.push_back(shifted(e, xs[i], fills[i], dim, distance));
  return moved;
}

// Every element combined with those 1, 2, 4, ... before it.
Values doubling_scan(Emitter& e, Values xs, const Values& identities, int64_t dim, const ScanStep& step) {
  for (int64_t distance = 1; distance < xs[0].dim(dim); distance *= 2) {
    xs = step(shifted(e, xs, identities, dim, distance), xs);
  }
  return xs;
}

}  // namespace

Value scan(Emitter& e, const Value& x, const Value& identity, int64_t dim, std::string_view name) {
  if (x.type.numel() == 0) return x;
  // Compilers turn a window as long as the dimension into blocks.
  Window window;
  window.sizes = Dims(x.dims().size(), 1);
  window.low = Dims(x.dims().size(), 0);
  window.sizes[dim] = x.dim(dim);
  window.low[dim] = x.dim(dim) - 1;
  return e.reduce_window(x, identity, window, name);
}

Values scan(Emitter& e, const Values& xs, const Values& identities, int64_t dim, const ScanStep& step) {
  const Type& type = xs[0].type;
  const int64_t n = type.dims[dim];
  if (type.numel() == 0) return xs;
  if (n <= 2 * kBlock) return doubling_scan(e, xs, identities, dim, step);

  // Scan within blocks, then the blocks' totals, and add the total before each block.
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  Dims zero(type.dims.size(), 0);
  Dims high = zero;
  high[dim] = blocks * kBlock - n;
  Dims in_blocks = type.dims;
  in_blocks[dim] = blocks;
  in_blocks.insert(in_blocks.begin() + dim + 1, kBlock);
  Values inner;
  for (const auto i : c10::irange(xs.size())) {
    inner.push_back(e.reshape(e.pad(xs[i], identities[i], zero, high), in_blocks));
  }
  inner = doubling_scan(e, inner, identities, dim + 1, step);

  Values totals;
  for (const Value& x : inner) totals.push_back(squeeze(e, slice_dim(e, x, dim + 1, kBlock - 1, kBlock), dim + 1));
  totals = shifted(e, scan(e, totals, identities, dim, step), identities, dim, 1);
  Values before;
  for (const Value& total : totals) before.push_back(broadcast_along(e, total, in_blocks, {dim + 1}));
  Values whole = step(before, inner);

  Dims flat = type.dims;
  flat[dim] = blocks * kBlock;
  for (Value& x : whole) x = slice_dim(e, e.reshape(x, flat), dim, 0, n);
  return whole;
}

namespace {

Value cumulative(Emitter& e, const Call& c, int64_t identity, std::string_view name) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const Value x = e.convert(self, opmath(c.result().dtype));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  return as_result(e, c, scan(e, x, scalar(e, identity, x.dtype()), dim, name));
}

Value lower_cumsum(Emitter& e, const Call& c) { return cumulative(e, c, 0, "add"); }
Value lower_cumprod(Emitter& e, const Call& c) { return cumulative(e, c, 1, "multiply"); }

// Values and positions; of equal elements and of NaNs the last.
template <bool kLargest>
Values lower_cumulative_extreme(Emitter& e, const Call& c) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const Value x = self.dtype() == at::kBool ? e.convert(self, at::kByte) : self;
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const Value where = positions(e, x.dims(), dim);
  const Values identities = {kLargest ? e.lowest(x.type) : e.highest(x.type), scalar(e, 0, where.dtype())};
  const Values found = scan(e, {x, where}, identities, dim, [&](const Values& left, const Values& right) {
    Value take_right = e.compare(kLargest ? "GE" : "LE", right[0], left[0]);
    if (c10::isFloatingType(x.dtype())) take_right = e.logical_or(take_right, is_nan(e, right[0]));
    return Values{e.select(take_right, right[0], left[0]), e.select(take_right, right[1], left[1])};
  });
  return {as_result(e, c, found[0], 0), as_result(e, c, found[1], 1)};
}

// log(exp(a) + exp(b)).
Value log_add_exp(Emitter& e, const Value& a, const Value& b) {
  if (c10::isComplexType(a.dtype())) {
    const Value real_max = e.maximum(e.real(a), e.real(b));
    const Value m =
        e.convert(e.select(e.unary("is_finite", real_max), real_max, e.constant_like(0, real_max)), a.dtype());
    const Value total = e.add(e.unary("exponential", e.subtract(a, m)), e.unary("exponential", e.subtract(b, m)));
    return e.add(e.unary("log", total), m);
  }
  const Value high = e.maximum(a, b);
  const Value low = e.minimum(a, b);
  const Value sum = e.add(high, e.unary("log_plus_one", e.unary("exponential", e.subtract(low, high))));
  // Equal infinities have no difference.
  const Value same_infinity = e.logical_and(e.compare("EQ", a, b), e.logical_not(e.unary("is_finite", a)));
  return e.select(same_infinity, a, sum);
}

// Running log_add_exp's of complex numbers, whose imaginary parts are known up to whole turns, with the turns that
// CPU PyTorch's have: it adds one number after the other, and stays within a quarter turn of the larger of the two.
Value with_turns(Emitter& e, const Value& x, const Value& sums, const Value& identity, int64_t dim) {
  const double turn = 2 * std::acos(-1.0);
  const Value before = shifted(e, sums, identity, dim, 1);
  const Value anew = e.compare("GE", e.real(x), e.real(before));
  const Value high = e.select(anew, x, before);
  const Value ratio = e.unary("exponential", e.subtract(e.select(anew, before, x), high));
  const Value angle = e.binary("atan2", e.imag(ratio), e.add(e.real(ratio), 1));
  const Value excess = e.subtract(e.add(e.imag(high), angle), e.imag(sums));
  const Value turns = e.unary("round_nearest_even", e.divide(excess, turn));
  const Value counted = e.select(e.unary("is_finite", turns), turns, e.constant_like(0, turns));
  const Value total = scan(e, Values{counted, anew}, {scalar(e, 0, turns.dtype()), scalar(e, 0, at::kBool)}, dim,
                           [&](const Values& left, const Values& right) {
                             const Value sum = e.select(right[1], right[0], e.add(left[0], right[0]));
                             return Values{sum, e.logical_or(left[1], right[1])};
                           })[0];
  return e.complex(e.real(sums), e.add(e.imag(sums), e.multiply(total, turn)));
}

Value lower_logcumsumexp(Emitter& e, const Call& c) {
  const Value self = at_least_1d(e, c.tensor("self"));
  const Value x = e.convert(self, opmath(self.dtype()));
  const int64_t dim = Call::wrap(c.integer("dim"), x.rank());
  const Value identity = scalar(e, -std::numeric_limits<double>::infinity(), x.dtype());
  const Value sums = scan(e, Values{x}, {identity}, dim, [&](const Values& left, const Values& right) {
    return Values{log_add_exp(e, left[0], right[0])};
  })[0];
  const bool turns = c10::isComplexType(x.dtype()) && x.type.numel() != 0;
  return as_result(e, c, turns ? with_turns(e, x, sums, identity, dim) : sums);
}

}  // namespace

void add_scan(Table& t) {
  t.add("aten::cumsum", lower_cumsum);
  t.add("aten::cumprod", lower_cumprod);
  t.add("aten::_cummax_helper", lower_cumulative_extreme<true>);
  t.add("aten::_cummin_helper", lower_cumulative_extreme<false>);
  t.add("aten::_logcumsumexp", lower_logcumsumexp).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
}

}  // namespace torch_tpu
