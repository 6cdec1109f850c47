// The error function's family, entropies and products with logarithms.
#include <cmath>
#include <limits>

#include "lowerings/chebyshev_tables.h"
#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Value erf(Emitter& e, const Value& x) { return e.unary("chlo.erf", x); }
Value erfc(Emitter& e, const Value& x) { return e.unary("chlo.erfc", x); }

// StableHLO's approximation and a step of Newton, on erfc where erf is too near to 1 to tell.
Value erfinv(Emitter& e, const Value& x) {
  const Value target = e.unary("abs", x);
  const Value y = e.unary("chlo.erf_inv", target);
  const Value excess = e.select(e.compare("GT", target, 0.5), e.subtract(one_minus(e, target), erfc(e, y)),
                                e.subtract(erf(e, y), target));
  const Value slope = e.multiply(e.unary("exponential", e.negate(square(e, y))), M_2_SQRTPI);
  const Value better = e.subtract(y, e.divide(excess, slope));
  return copy_sign(e, e.select(e.compare("LT", target, 1), better, y), x);
}

// exp(x^2) erfc(x)
Value erfcx(Emitter& e, const Value& x) {
  const Value size = e.unary("abs", x);
  const Value t = e.subtract(1, e.divide(7.5, e.add(size, 3.75)));
  const Value right = e.divide(chebyshev_sum(e, t, chebyshev::kErfcx), one_plus(e, e.add(size, size)));
  const Value left = e.subtract(e.multiply(e.unary("exponential", square(e, x)), 2), right);
  return e.select(e.compare("LT", x, 0), left, right);
}

// -x log(x)
Value entr(Emitter& e, const Value& x) {
  const Value positive = e.negate(e.multiply(x, e.unary("log", x)));
  const Value at_zero = e.select(e.compare("EQ", x, 0), like(e, 0, x), like(e, -kInfinity, x));
  const Value known = e.select(e.compare("GT", x, 0), positive, at_zero);
  return e.select(is_nan(e, x), x, known);
}

Value log_ndtr(Emitter& e, const Value& x) {
  const Value scaled = e.multiply(x, M_SQRT1_2);
  const Value tail = e.subtract(e.unary("log", e.multiply(erfcx(e, e.negate(scaled)), 0.5)), square(e, scaled));
  const Value rest = e.unary("log_plus_one", e.multiply(erfc(e, scaled), -0.5));
  return e.select(e.compare("LT", x, -1), tail, rest);
}

// The quantile of the normal distribution. In the tails, y = min(p, 1 - p), with w = sqrt(-2 log y) it is
// w - (log(w) + g(w)) / w, g being smooth.
Value ndtri(Emitter& e, const Value& p) {
  const Value upper = e.compare("GT", p, 0.5);
  const Value y = e.select(upper, one_minus(e, p), p);
  const Value w = e.unary("sqrt", e.multiply(e.unary("log", y), -2));
  const Value near = chebyshev_sum(e, e.divide(e.subtract(e.minimum(w, 8), 5), 3), chebyshev::kNormalTail);
  const Value far = chebyshev_sum(e, e.divide(e.subtract(e.maximum(w, 8), 24), 16), chebyshev::kNormalFarTail);
  const Value g = e.select(e.compare("LT", w, 8), near, far);
  const Value size = e.subtract(w, e.divide(e.add(e.unary("log", w), g), w));
  const Value tail = e.select(upper, size, e.negate(size));
  const Value centre = e.multiply(erfinv(e, e.subtract(e.multiply(p, 2), 1)), M_SQRT2);
  Value result = e.select(e.compare("GT", y, std::exp(-2.0)), centre, tail);
  result = e.select(e.compare("EQ", p, 0), like(e, -kInfinity, p), result);
  result = e.select(e.compare("EQ", p, 1), like(e, kInfinity, p), result);
  return e.select(within(e, p, 0, 1), result, like(e, kNan, p));
}

// x f(y), which is 0 where x is 0 unless y is NaN.
Value product_with(Emitter& e, const Value& x, const Value& y, const Value& f) {
  const Value product = e.select(e.compare("EQ", x, 0), like(e, 0, x), e.multiply(x, f));
  return e.select(is_nan(e, y), y, product);
}
Value xlogy(Emitter& e, const Value& x, const Value& y) { return product_with(e, x, y, e.unary("log", y)); }
Value xlog1py(Emitter& e, const Value& x, const Value& y) { return product_with(e, x, y, e.unary("log_plus_one", y)); }

}  // namespace

void add_special(Table& t) {
  add_math(t, "aten::erf", erf);
  add_math(t, "aten::erfc", erfc);
  add_math(t, "aten::erfinv", erfinv);
  add_math(t, "aten::special_erfcx", erfcx);
  add_math(t, "aten::special_entr", entr);
  add_math(t, "aten::special_log_ndtr", log_ndtr);
  add_math(t, "aten::special_ndtri", ndtri);
  add_math(t, "aten::xlogy.Tensor", xlogy);
  add_math(t, "aten::xlogy.Scalar_Self", xlogy);
  add_math(t, "aten::xlogy.Scalar_Other", xlogy);
  add_math(t, "aten::special_xlog1py", xlog1py);
  add_math(t, "aten::special_xlog1py.self_scalar", xlog1py);
  add_math(t, "aten::special_xlog1py.other_scalar", xlog1py);
}

}  // namespace torch_tpu
