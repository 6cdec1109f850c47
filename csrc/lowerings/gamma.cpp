// The gamma function's family: lgamma, digamma, polygamma, zeta and the
// incomplete gamma functions.
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Value lgamma(Emitter& e, const Value& x) { return e.unary("chlo.lgamma", x); }

Value digamma(Emitter& e, const Value& x) {
  // At zero the limit from the side that the sign of zero names.
  const Value pole = copy_sign(e, like(e, kInfinity, x), e.negate(x));
  return e.select(e.compare("EQ", x, 0), pole, e.unary("chlo.digamma", x));
}

// Hurwitz's zeta of a q above 0.
Value zeta_above_zero(Emitter& e, const Value& x, const Value& q) {
  const Value below_one = e.compare("LT", q, 1);
  const Value first = e.select(below_one, e.power(q, e.negate(x)), like(e, 0, q));
  const Value from = e.select(below_one, one_plus(e, q), q);
  const Value rest = e.binary("chlo.zeta", x, from);
  // Where its factors overflow, only the first term is left.
  const Value defined = e.logical_or(e.unary("is_finite", x), e.compare("LE", q, 1));
  const Value overflows = e.logical_and(is_nan(e, rest), e.logical_and(defined, e.unary("is_finite", q)));
  return e.add(first, e.select(overflows, e.power(from, e.negate(x)), rest));
}

// The sum of (q + k) ** -x over all k >= 0. Below 0 that is two sums, one up from the first number above 0, and one of
// finite length down from the first below, with the sign of (-1) ** x.
Value zeta(Emitter& e, const Value& x, const Value& q) {
  const Value positive = e.compare("GT", q, 0);
  const Value from_pole = e.subtract(q, e.unary("round_nearest_even", q));  // exact
  const Value left = e.compare("LT", from_pole, 0);
  const Value above = e.select(left, one_plus(e, from_pole), from_pole);
  const Value below = e.select(left, e.negate(from_pole), one_minus(e, from_pole));
  Value result = zeta_above_zero(e, x, e.select(positive, q, above));
  const Values down = e.if_else(
      any_of(e, e.logical_not(positive)),
      [&] {
        const Value one = like(e, 1, q);
        const Value sum = e.subtract(zeta_above_zero(e, x, e.select(positive, one, below)),
                                     zeta_above_zero(e, x, e.select(positive, one, one_minus(e, q))));
        const Value half = e.multiply(x, 0.5);
        const Value is_even = e.compare("EQ", half, e.unary("floor", half));
        return Values{e.select(is_even, sum, e.negate(sum))};
      },
      [&] { return Values{like(e, 0, q)}; });
  result = e.select(positive, result, e.add(result, down[0]));
  const Value is_whole = e.compare("EQ", x, e.unary("floor", x));
  result = e.select(e.logical_or(positive, is_whole), result, like(e, kNan, x));
  result = e.select(e.logical_or(is_nan(e, x), is_nan(e, q)), like(e, kNan, x), result);
  // An infinite power of a number between -1 and 1, one of which is among the terms.
  const Value whole = e.compare("EQ", q, e.unary("floor", q));
  const Value infinite = e.logical_or(whole, e.compare("EQ", x, kInfinity));
  result = e.select(e.logical_and(e.compare("LE", q, 0), infinite), like(e, kInfinity, x), result);
  result = e.select(e.compare("LT", x, 1), like(e, kNan, x), result);
  return e.select(e.compare("EQ", x, 1), like(e, kInfinity, x), result);
}

// The derivative of digamma: reflection below 1/2, six steps up, then the asymptotic series.
Value trigamma(Emitter& e, const Value& x) {
  const Value reflected = e.compare("LT", x, 0.5);
  const Value sine = e.unary("sine", e.multiply(x, M_PI));
  const Value mirror = e.negate(e.divide(like(e, M_PI * M_PI, x), square(e, sine)));
  Value sum = e.select(reflected, mirror, like(e, 0, x));
  Value y = e.select(reflected, one_minus(e, x), x);
  for (int i = 0; i < 6; ++i) {
    sum = e.add(sum, reciprocal(e, square(e, y)));
    y = one_plus(e, y);
  }
  const Value inverse = reciprocal(e, y);
  const Value z = square(e, inverse);
  Value series = e.subtract(1.0 / 30, e.multiply(z, 1.0 / 42));
  series = e.subtract(1.0 / 6, e.multiply(z, series));
  series = e.add(one_plus(e, e.multiply(inverse, 0.5)), e.multiply(z, series));
  sum = e.add(sum, e.multiply(series, inverse));
  return e.select(reflected, e.negate(sum), sum);
}

Value lower_polygamma(Emitter& e, const Call& c) {
  const int64_t n = c.integer("n");
  TORCH_CHECK(n >= 0, "polygamma(n, x) does not support negative n.");
  const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self"});
  const Value x = operand(e, c, "self", opmath(dtype));
  if (n == 0) return e.convert(digamma(e, x), dtype);
  if (n == 1) return e.convert(trigamma(e, x), dtype);
  const double order = static_cast<double>(n) + 1;
  const double factor = (n % 2 == 1 ? 1 : -1) * std::tgamma(order);
  return e.convert(e.multiply(zeta(e, like(e, order, x), x), factor), dtype);
}

// log of the multivariate gamma function of dimension p.
Value lower_mvlgamma(Emitter& e, const Call& c) {
  const int64_t p = c.integer("p");
  TORCH_CHECK(p >= 1, "p has to be greater than or equal to 1");
  const at::ScalarType dtype = c.common_dtype(Promote::kIntToFloat, {"self"});
  const Value x = operand(e, c, "self", opmath(dtype));
  const double dimension = static_cast<double>(p);
  Value sum = like(e, dimension * (dimension - 1) / 4 * std::log(M_PI), x);
  for (const auto i : c10::irange(p)) {
    sum = e.add(sum, lgamma(e, e.subtract(x, static_cast<double>(i) / 2)));
  }
  return e.convert(sum, dtype);
}

// x^a exp(-x) / gamma(a + 1). For larger a by Stirling's series around x = a, where the direct form
// would cancel.
Value gamma_density(Emitter& e, const Value& a, const Value& x) {
  const Value direct = e.subtract(e.subtract(e.multiply(a, e.unary("log", x)), x), lgamma(e, one_plus(e, a)));
  const Value deviation = e.divide(e.subtract(x, a), a);
  const Value exponent = e.multiply(a, e.subtract(e.unary("log_plus_one", deviation), deviation));
  const Value inverse = reciprocal(e, a);
  const Value z = square(e, inverse);
  const Value series =
      e.multiply(inverse, e.subtract(1.0 / 12, e.multiply(z, e.subtract(1.0 / 360, e.multiply(z, 1.0 / 1260)))));
  const Value scale = e.multiply(e.unary("log", e.multiply(a, 2 * M_PI)), 0.5);
  const Value stirling = e.subtract(e.subtract(exponent, series), scale);
  return e.unary("exponential", e.select(e.compare("GT", a, 10), stirling, direct));
}

constexpr int64_t kMostTerms = 2000;

double precision_of(const Value& x) {
  return x.dtype() == at::kDouble ? std::numeric_limits<double>::epsilon() / 2
                                  : std::numeric_limits<float>::epsilon() / 2;
}

// 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + ...
Value gamma_series(Emitter& e, const Value& a, const Value& x) {
  const Value one = like(e, 1, x);
  const double precision = precision_of(x);
  return e.while_loop(
      {scalar(e, 0, x.dtype()), one, one, a, x},
      [&](const Values& s) -> Values {
        const Value active = any_of(e, e.compare("GT", s[1], e.multiply(s[2], precision)));
        return {e.logical_and(active, e.compare("LT", s[0], kMostTerms))};
      },
      [&](const Values& s) -> Values {
        const Value k = one_plus(e, s[0]);
        const Value divisor = e.add(s[3], broadcast_to(e, k, s[3].dims()));
        const Value term = e.divide(e.multiply(s[1], s[4]), divisor);
        return {k, term, e.add(s[2], term), s[3], s[4]};
      })[2];
}

// The continued fraction of gamma(a, x) / (x^a exp(-x)), by the method of Lentz.
Value gamma_fraction(Emitter& e, const Value& a, const Value& x) {
  const double tiny = x.dtype() == at::kDouble ? 1e-300 : 1e-30;
  const double precision = precision_of(x) * 2;
  const auto away_from_zero = [&e, tiny](const Value& v) {
    return e.select(e.compare("LT", e.unary("abs", v), tiny), like(e, tiny, v), v);
  };
  const Value b = one_plus(e, e.subtract(x, a));
  const Value d = reciprocal(e, away_from_zero(b));
  // k, b, c, d, h, the last factor, a.
  return e.while_loop(
      {scalar(e, 0, x.dtype()), b, like(e, 1 / tiny, x), d, d, like(e, 0, x), a},
      [&](const Values& s) -> Values {
        const Value change = e.unary("abs", one_minus(e, s[5]));
        const Value active = any_of(e, e.compare("GT", change, precision));
        return {e.logical_and(active, e.compare("LT", s[0], kMostTerms))};
      },
      [&](const Values& s) -> Values {
        const Value k = one_plus(e, s[0]);
        const Value i = broadcast_to(e, k, s[1].dims());
        const Value numerator = e.multiply(i, e.subtract(s[6], i));
        const Value next_b = e.add(s[1], 2);
        const Value next_d = reciprocal(e, away_from_zero(e.add(e.multiply(numerator, s[3]), next_b)));
        const Value next_c = away_from_zero(e.add(next_b, e.divide(numerator, s[2])));
        const Value factor = e.multiply(next_c, next_d);
        // What has converged stays: further factors would only add rounding.
        const Value active = e.compare("GT", e.unary("abs", one_minus(e, s[5])), precision);
        return {k,
                next_b,
                next_c,
                next_d,
                e.select(active, e.multiply(s[4], factor), s[4]),
                e.select(active, factor, s[5]),
                s[6]};
      })[4];
}

constexpr double kManyTerms = 200;

// mu - log(1 + mu), which is half the square of what normal_form() takes the tail of.
Value log_deviation(Emitter& e, const Value& mu) {
  Value series = like(e, 1.0 / 10, mu);
  for (int n = 9; n >= 2; --n) series = e.subtract(1.0 / n, e.multiply(mu, series));
  const Value near = e.multiply(square(e, mu), series);
  const Value far = e.subtract(mu, e.unary("log_plus_one", mu));
  return e.select(e.compare("LT", e.unary("abs", mu), 0.03), near, far);
}

// The upper function for large a, by Temme's uniform expansion: a normal tail and a correction in 1 / a
// (DLMF 8.12.3 and 8.12.7).
Value normal_form(Emitter& e, const Value& a, const Value& x, bool upper) {
  const Value mu = e.divide(e.subtract(x, a), a);
  const Value half_square = log_deviation(e, mu);
  const Value root = e.unary("sqrt", e.multiply(half_square, 2));
  const Value eta = e.select(e.compare("LT", mu, 0), e.negate(root), root);
  // Beyond, the exponential below is 0.
  const Value held = e.clamp(scalar(e, -1, eta.dtype()), eta, scalar(e, 1, eta.dtype()));
  const auto polynomial = [&e, &held](std::initializer_list<double> from_highest) {
    Value sum = like(e, 0, held);
    for (const double c : from_highest) sum = e.add(e.multiply(sum, held), c);
    return sum;
  };
  const Value near = polynomial({1.0 / 864, -2.0 / 135, 1.0 / 12, -1.0 / 3});
  const Value far = e.subtract(reciprocal(e, mu), reciprocal(e, eta));
  const Value first = e.select(e.compare("LT", e.unary("abs", eta), 0.03), near, far);
  const Value second = polynomial({1.0 / 378, -1.0 / 288, -1.0 / 540});
  const Value exponent = e.multiply(a, half_square);
  const Value scale = e.divide(e.unary("exponential", e.negate(exponent)), e.unary("sqrt", e.multiply(a, 2 * M_PI)));
  const Value correction = e.multiply(scale, e.add(first, e.divide(second, a)));
  const Value signed_root = e.multiply(eta, e.unary("sqrt", e.multiply(a, 0.5)));
  const Value tail = e.multiply(e.unary("chlo.erfc", upper ? signed_root : e.negate(signed_root)), 0.5);
  return upper ? e.add(tail, correction) : e.subtract(tail, correction);
}

// The regularized incomplete gamma function, below x or (`upper`) above it.
Value incomplete_gamma(Emitter& e, const Value& a, const Value& x, bool upper) {
  const Value one = like(e, 1, x);
  const Value zero = like(e, 0, x);
  const Value regular = e.logical_and(e.logical_and(e.compare("GT", a, 0), e.unary("is_finite", a)),
                                      e.logical_and(e.compare("GT", x, 0), e.unary("is_finite", x)));
  const Value near = e.compare("LT", x, one_plus(e, a));
  const Value by_normal = e.logical_and(regular, e.compare("GT", a, kManyTerms));
  const Value by_terms = e.logical_and(regular, e.logical_not(by_normal));
  const Value by_series = e.logical_and(by_terms, near);
  const Value by_fraction = e.logical_and(by_terms, e.logical_not(near));
  const Value density = gamma_density(e, e.select(by_terms, a, one), e.select(by_terms, x, one));
  const Value series = e.multiply(density, gamma_series(e, e.select(by_series, a, one), e.select(by_series, x, zero)));
  const Value fraction = e.multiply(e.multiply(density, a), gamma_fraction(e, e.select(by_fraction, a, one),
                                                                           e.select(by_fraction, x, like(e, 2, x))));
  const Value of_terms =
      upper ? e.select(near, one_minus(e, series), fraction) : e.select(near, series, one_minus(e, fraction));
  const Value value = e.select(by_normal, normal_form(e, a, x, upper), of_terms);

  const Value none = upper ? one : zero;
  const Value all = upper ? zero : one;
  const Value nan = like(e, kNan, x);
  const Value no_order = e.compare("EQ", a, 0);
  const Value no_width = e.compare("EQ", x, 0);
  Value edge = e.select(no_width, none, nan);
  edge = e.select(no_order, e.select(e.compare("GT", x, 0), all, nan), edge);
  edge = e.select(e.logical_and(is_infinite(e, x), e.logical_not(no_order)), all, edge);
  edge = e.select(is_infinite(e, a), e.select(is_infinite(e, x), nan, none), edge);
  const Value outside = e.logical_not(e.logical_and(e.compare("GE", a, 0), e.compare("GE", x, 0)));
  return e.select(regular, value, e.select(outside, nan, edge));
}

Value lower_incomplete(Emitter& e, const Value& a, const Value& x) { return incomplete_gamma(e, a, x, false); }
Value upper_incomplete(Emitter& e, const Value& a, const Value& x) { return incomplete_gamma(e, a, x, true); }

}  // namespace

void add_gamma(Table& t) {
  add_math(t, "aten::lgamma", lgamma);
  add_math(t, "aten::digamma", digamma);
  t.add("aten::polygamma", lower_polygamma);
  t.add("aten::mvlgamma", lower_mvlgamma);
  add_math(t, "aten::special_zeta", zeta);
  add_math(t, "aten::special_zeta.self_scalar", zeta);
  add_math(t, "aten::special_zeta.other_scalar", zeta);
  add_math(t, "aten::igamma", lower_incomplete);
  add_math(t, "aten::igammac", upper_incomplete);
}

}  // namespace torch_tpu
