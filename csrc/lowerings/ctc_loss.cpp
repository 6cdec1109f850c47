// Connectionist temporal classification: _ctc_loss and its gradient, for
// lengths known when the call is made. Notation of Graves et al. (2006): a label
// of S targets is written with blanks around them, L = 2 S + 1 symbols;
// alpha and beta are log probabilities of its prefixes and suffixes at each time.
#include <c10/util/irange.h>

#include <algorithm>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/reduction.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Ctc {
  int64_t times, batch, symbols;  // T, N, L of the longest label
  Value log_probs;                // [T, N, C]
  Value label;                    // [N, L] int32 with blanks; any value beyond a label's end
  Value of_label;                 // [T, N, L]: log_probs of the label's symbols
  Value input_lengths;            // [N] int32
  Value last_symbol;              // [N] int32: 2 S of each label
};

// [N, S] int32 for the longest S. Rows stand one after the other if `targets` is a vector.
Value padded_targets(Emitter& e, const Value& targets, c10::IntArrayRef lengths, int64_t longest) {
  const int64_t batch = static_cast<int64_t>(lengths.size());
  const Value narrow = e.convert(targets, at::kInt);
  if (targets.rank() == 2) return slice_dim(e, narrow, 1, 0, longest);
  std::vector<int64_t> starts;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    starts.push_back(start);
    start += length;
  }
  const Type type(at::kInt, {batch, longest});
  const Value at = e.add(broadcast_along(e, e.list(starts, at::kInt), type.dims, {1}), e.iota(type, 1));
  return e.reshape(take(e, narrow, 0, flatten(e, at)), type.dims);
}

Ctc ctc_operands(Emitter& e, const Call& c) {
  Ctc ctc;
  ctc.log_probs = c.tensor("log_probs");
  ctc.times = ctc.log_probs.dim(0);
  ctc.batch = ctc.log_probs.dim(1);
  const std::vector<int64_t> lengths = c.integers("target_lengths");
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  ctc.symbols = 2 * longest + 1;

  const Value blank = scalar(e, c.integer("blank"), at::kInt);
  const Type label(at::kInt, {ctc.batch, ctc.symbols});
  ctc.label = longest == 0
                  ? broadcast_to(e, blank, label.dims)
                  : e.pad(padded_targets(e, c.tensor("targets"), lengths, longest), blank, {0, 1}, {0, 1}, {0, 1});
  const Dims all = {ctc.times, ctc.batch, ctc.symbols};
  ctc.of_label = gather_along(e, ctc.log_probs, 2, broadcast_to(e, ctc.label, all));
  ctc.input_lengths = e.list(c.integers("input_lengths"), at::kInt);
  ctc.last_symbol = e.multiply(e.list(lengths, at::kInt), 2);
  return ctc;
}

// log(exp(a) + exp(b) + exp(c)), -inf of three -inf.
Value log_sum_exp(Emitter& e, const Value& a, const Value& b, const Value& c) {
  const Value largest = e.maximum(e.maximum(a, b), c);
  const Value shift = e.select(e.compare("EQ", largest, -kInfinity), e.constant_like(0, largest), largest);
  const auto power = [&](const Value& v) { return e.unary("exponential", e.subtract(v, shift)); };
  return e.add(e.unary("log", e.add(e.add(power(a), power(b)), power(c))), shift);
}

// `x` [N, L] moved `by` symbols to the right (to the left if negative), -inf coming in.
Value moved(Emitter& e, const Value& x, int64_t by) {
  if (std::abs(by) >= x.dim(1)) return e.constant_like(-kInfinity, x);
  return e.pad(x, scalar(e, -kInfinity, x.dtype()), {0, by}, {0, -by});
}

// [N, L]: may the symbol be reached from (or reach, if `by` is -2) that two before it?
Value skips(Emitter& e, const Ctc& ctc, int64_t by) {
  if (ctc.symbols <= 2) return e.constant(false, ctc.label.type.with(at::kBool));
  const Value other = e.pad(ctc.label, scalar(e, 0, at::kInt), {0, by}, {0, -by});
  const Value where = e.iota(ctc.label.type, 1);
  const Value inside = by > 0 ? e.compare("GE", where, by) : e.compare("LT", where, ctc.symbols + by);
  return e.logical_and(inside, e.compare("NE", ctc.label, other));
}

// The recursion over time: `step(t, previous, emitted)` gives row t of the result, [T, N, L], from the row
// before it (after it, if `backwards`; -inf at first) and that of of_label.
Value recur(Emitter& e, const Ctc& ctc, const Value& skip, const Values& constants, bool backwards,
            const std::function<Value(const Value& t, const Value& previous, const Value& emitted, const Value& skip,
                                      const Values& constants)>& step) {
  const Dims row = {ctc.batch, ctc.symbols};
  const Dims slab = {1, ctc.batch, ctc.symbols};
  const Value none = e.constant(-kInfinity, Type(ctc.of_label.dtype(), row));
  Values state = {scalar(e, 0, at::kInt), none, e.constant_like(-kInfinity, ctc.of_label), ctc.of_label, skip};
  state.insert(state.end(), constants.begin(), constants.end());
  const auto open = [&](const Values& in) { return Values{e.compare("LT", in[0], ctc.times)}; };
  const auto body = [&](const Values& in) {
    const Value zero = scalar(e, 0, at::kInt);
    const Value t = backwards ? e.subtract(ctc.times - 1, in[0]) : in[0];
    const Value emitted = e.reshape(e.dynamic_slice(in[3], {t, zero, zero}, slab), row);
    const Value next = step(t, in[1], emitted, in[4], Values(in.begin() + 5, in.end()));
    Values out = in;
    out[0] = e.add(in[0], 1);
    out[1] = next;
    out[2] = e.dynamic_update_slice(in[2], e.reshape(next, slab), {t, zero, zero});
    return out;
  };
  return e.while_loop(state, open, body)[2];
}

Value alphas(Emitter& e, const Ctc& ctc) {
  const Value where = e.iota(ctc.label.type, 1);
  // The first row starts with the blank before the label, or with its first symbol.
  const Value starts = e.compare("LE", where, 1);
  return recur(
      e, ctc, skips(e, ctc, 2), {starts}, /*backwards=*/false,
      [&](const Value& t, const Value& previous, const Value& emitted, const Value& skip, const Values& constants) {
        const Value none = e.constant_like(-kInfinity, previous);
        const Value two = e.select(skip, moved(e, previous, 2), none);
        const Value later = e.add(log_sum_exp(e, previous, moved(e, previous, 1), two), emitted);
        const Value first = e.select(constants[0], emitted, none);
        return e.select(e.compare("EQ", t, 0), first, later);
      });
}

Value betas(Emitter& e, const Ctc& ctc) {
  const Dims row = {ctc.batch, ctc.symbols};
  const Value last = broadcast_along(e, ctc.last_symbol, row, {1});
  const Value where = e.iota(ctc.label.type, 1);
  const Value ends = e.logical_or(e.compare("EQ", where, last), e.compare("EQ", where, e.subtract(last, 1)));
  const Value last_time = broadcast_along(e, e.subtract(ctc.input_lengths, 1), row, {1});
  return recur(
      e, ctc, skips(e, ctc, -2), {ends, last_time}, /*backwards=*/true,
      [&](const Value& t, const Value& previous, const Value& emitted, const Value& skip, const Values& constants) {
        const Value none = e.constant_like(-kInfinity, previous);
        const Value time = broadcast_to(e, t, row);
        const Value two = e.select(skip, moved(e, previous, -2), none);
        const Value earlier = e.add(log_sum_exp(e, previous, moved(e, previous, -1), two), emitted);
        const Value first = e.select(constants[0], emitted, none);
        return e.select(e.compare("EQ", time, constants[1]), first,
                        e.select(e.compare("LT", time, constants[1]), earlier, none));
      });
}

// The negative log likelihood, [N], and alpha, [N, T, L].
Values lower_ctc_loss(Emitter& e, const Call& c) {
  if (c.result(1).numel() == 0) return {e.constant(0, c.result(0)), e.constant(0, c.result(1))};
  const Ctc ctc = ctc_operands(e, c);
  const Value alpha = alphas(e, ctc);
  const Type index(at::kInt, alpha.dims());
  const auto along = [&](const Value& of_batch) { return broadcast_along(e, of_batch, index.dims, {0, 2}); };
  const Value last = along(ctc.last_symbol);
  const Value where = e.iota(index, 2);
  const Value at_end = e.compare("EQ", e.iota(index, 0), along(e.subtract(ctc.input_lengths, 1)));
  const auto final_alpha = [&](const Value& symbol) {
    const Value here = e.logical_and(at_end, e.compare("EQ", where, symbol));
    return extreme(e, e.select(here, alpha, e.constant_like(-kInfinity, alpha)), {0, 2}, /*largest=*/true);
  };
  const Value with_blank = final_alpha(last);
  const Value without = final_alpha(e.subtract(last, 1));
  const Value none = e.constant_like(-kInfinity, without);
  Value loss = e.negate(log_sum_exp(e, with_blank, without, none));
  // No input at all gives just the empty label.
  const Value certain = e.logical_and(e.compare("EQ", ctc.input_lengths, 0), e.compare("EQ", ctc.last_symbol, 0));
  loss = e.select(certain, e.constant_like(0, loss), loss);
  return {as_result(e, c, loss, 0), as_result(e, c, e.transpose(alpha, {1, 0, 2}), 1)};
}

// (exp(log_probs) - the probability that the label's path passes there) * grad, for times within the input.
Value lower_ctc_loss_backward(Emitter& e, const Call& c) {
  if (c.result().numel() == 0) return e.constant(0, c.result());
  const Ctc ctc = ctc_operands(e, c);
  const at::ScalarType dtype = ctc.log_probs.dtype();
  const Value alpha = e.transpose(c.tensor("log_alpha"), {1, 0, 2});
  const Value beta = betas(e, ctc);
  const Value loss = c.tensor("neg_log_likelihood");
  const Dims all = alpha.dims();
  const auto along = [&](const Value& of_batch) { return broadcast_along(e, of_batch, all, {0, 2}); };
  const Type index(at::kInt, all);
  const Value inside = e.logical_and(e.compare("LT", e.iota(index, 0), along(ctc.input_lengths)),
                                     e.compare("LE", e.iota(index, 2), along(ctc.last_symbol)));
  // Both alpha and beta count the symbol emitted at t.
  const Value log_passes = e.add(e.subtract(e.add(alpha, beta), ctc.of_label), along(loss));
  const Value passes = e.select(inside, e.unary("exponential", log_passes), e.constant_like(0, alpha));

  const int64_t classes = ctc.log_probs.dim(2);
  const Dims one_hot = {ctc.batch, ctc.symbols, classes};
  const Value is_class =
      e.compare("EQ", broadcast_along(e, ctc.label, one_hot, {2}), e.iota(Type(at::kInt, one_hot), 2));
  DotDims how;
  how.lhs_batch = {1};
  how.rhs_batch = {0};
  how.lhs_contract = {2};
  how.rhs_contract = {1};
  const Value of_class = e.transpose(e.dot_general(passes, e.convert(is_class, dtype), how, dtype), {1, 0, 2});

  const Dims full = ctc.log_probs.dims();
  const auto along_full = [&](const Value& of_batch) { return broadcast_along(e, of_batch, full, {0, 2}); };
  const Value grad = along_full(e.convert(c.tensor("grad"), dtype));
  Value gradient = e.multiply(e.subtract(e.unary("exponential", ctc.log_probs), of_class), grad);
  const Value impossible = along_full(e.compare("EQ", loss, kInfinity));
  const double without_path = c.flag("zero_infinity") ? 0 : std::numeric_limits<double>::quiet_NaN();
  gradient = e.select(impossible, e.constant_like(without_path, gradient), gradient);
  const Value in_time = e.compare("LT", e.iota(Type(at::kInt, full), 0), along_full(ctc.input_lengths));
  return as_result(e, c, e.select(in_time, gradient, e.constant_like(0, gradient)));
}

}  // namespace

void add_ctc_loss(Table& t) {
  t.add("aten::_ctc_loss", lower_ctc_loss);
  t.add("aten::_ctc_loss_backward", lower_ctc_loss_backward).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("log_probs").type};
  });
}

}  // namespace torch_tpu
