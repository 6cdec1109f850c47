// How samples of the gamma and Dirichlet distributions move with their parameters: implicit
// reparameterization, -(dF/da)(x) / f(x), with F by its power series and dF/da by the series'
// derivative term by term. In double precision, as the two parts nearly cancel in the tail.
#include <c10/util/irange.h>

#include <functional>
#include <limits>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMostTerms = 20000;

// What the ratio of term n + 1 to term n is, and what d(log term)/da grows by.
using Step = std::function<std::pair<Value, Value>(const Value& n, const Values& parameters)>;

// Sums of t_n and of dt_n/da, where t_0 = 1 does not depend on a.
std::pair<Value, Value> sum_series(Emitter& e, const Values& parameters, const Step& step) {
  const Type& type = parameters[0].type;
  const Value one = e.constant(1, type);
  const Value zero = e.constant(0, type);
  Values init = {scalar(e, 0, at::kInt), one, zero, one, zero};  // n, term, d(log term), both sums
  init.insert(init.end(), parameters.begin(), parameters.end());
  const auto condition = [&](const Values& in) {
    const Value slope = e.unary("abs", e.multiply(in[1], in[2]));
    const Value size = e.add(e.unary("abs", in[1]), slope);
    const Value whole = e.add(e.unary("abs", in[3]), e.unary("abs", in[4]));
    const Value counts = e.compare("GT", size, e.multiply(whole, at::Scalar(1e-17)));
    const Value pending = e.reduce(flatten(e, counts), scalar(e, false, at::kBool), {0}, "or");
    const Value start = e.compare("LT", in[0], at::Scalar(2));
    return Values{e.logical_and(e.logical_or(pending, start), e.compare("LT", in[0], at::Scalar(kMostTerms)))};
  };
  const auto body = [&](const Values& in) {
    const Value n = broadcast_to(e, e.convert(in[0], type.dtype), type.dims);
    const auto [ratio, growth] = step(n, Values(in.begin() + 5, in.end()));
    const Value term = e.multiply(in[1], ratio);
    const Value slope = e.add(in[2], growth);
    Values next = {e.add(in[0], at::Scalar(1)), term, slope, e.add(in[3], term), e.add(in[4], e.multiply(term, slope))};
    next.insert(next.end(), in.begin() + 5, in.end());
    return next;
  };
  const Values end = e.while_loop(init, condition, body);
  return {end[3], end[4]};
}

// Of a sample, which may have been rounded to 0: finite there, where what it is multiplied by is 0.
Value log(Emitter& e, const Value& x) {
  return e.unary("log", e.maximum(x, at::Scalar(std::numeric_limits<double>::min())));
}
Value digamma(Emitter& e, const Value& x) { return e.unary("chlo.digamma", x); }
Value plus(Emitter& e, const Value& x, double number) { return e.add(x, at::Scalar(number)); }
Value inverse(Emitter& e, const Value& x) { return e.divide(at::Scalar(1), x); }

// P(a, x) = x^a e^-x / Gamma(a + 1) * sum of x^n / ((a + 1) ... (a + n)).
Value lower_standard_gamma_grad(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  const Value a = e.convert(self, at::kDouble);
  const Value x = e.convert(c.tensor("output"), at::kDouble);
  const auto [total, slope] = sum_series(e, {a, x}, [&](const Value& n, const Values& in) {
    const Value inverted = inverse(e, plus(e, e.add(in[0], n), 1));
    return std::pair(e.multiply(in[1], inverted), e.negate(inverted));
  });
  const Value outer = e.subtract(log(e, x), digamma(e, plus(e, a, 1)));
  const Value change = e.add(e.multiply(total, outer), slope);
  return e.convert(e.negate(e.multiply(e.divide(x, a), change)), self.dtype());
}

// For x of Beta(a, b) with b = total - a: -(dF/da) / f(x) / (1 - x). The series of I_x(a, b) where x is below
// the mean, else that of I_{1-x}(b, a) = 1 - I_x(a, b).
Value lower_dirichlet_grad(Emitter& e, const Call& c) {
  const Value given = c.tensor("x");
  if (given.type.numel() == 0) return given;
  const Value x = e.convert(given, at::kDouble);
  const Value a = e.convert(c.tensor("alpha"), at::kDouble);
  const Value both = e.convert(c.tensor("total"), at::kDouble);
  const Value b = e.subtract(both, a);
  const Value near = e.compare("LE", e.multiply(x, both), a);
  const Value left = e.convert(near, at::kDouble);
  // Terms: prod of (a + b + i) / (p + 1 + i) * y, with p = a, y = x on the left and p = b, y = 1 - x on the right.
  const Value p = e.select(near, a, b);
  const Value y = e.select(near, x, e.subtract(at::Scalar(1), x));
  const auto [total, slope] = sum_series(e, {both, p, y, left}, [&](const Value& n, const Values& in) {
    const Value upper = e.add(in[0], n);
    const Value lower = plus(e, e.add(in[1], n), 1);
    const Value growth = e.subtract(inverse(e, upper), e.multiply(in[3], inverse(e, lower)));
    return std::pair(e.multiply(e.divide(upper, lower), in[2]), growth);
  });
  const Value common = e.add(e.subtract(log(e, x), digamma(e, a)), digamma(e, both));
  const Value outer = e.subtract(common, e.multiply(left, inverse(e, a)));
  const Value change = e.add(e.multiply(total, outer), slope);
  const Value scaled = e.multiply(e.divide(x, p), change);
  return e.convert(e.select(near, e.negate(scaled), scaled), given.dtype());
}

}  // namespace

void add_random_gradient(Table& t) {
  t.add("aten::_standard_gamma_grad", lower_standard_gamma_grad).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
  t.add("aten::_dirichlet_grad", lower_dirichlet_grad).with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("x").type};
  });
}

}  // namespace torch_tpu
