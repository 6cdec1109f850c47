// Bessel and Airy functions, by Chebyshev sums near zero and scaled sums far from it.
#include <cmath>
#include <limits>

#include "lowerings/chebyshev_tables.h"
#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

using Coefficients = c10::ArrayRef<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const double kTwoOverPi = 2 / M_PI;

Value exponential(Emitter& e, const Value& x) { return e.unary("exponential", x); }
Value log(Emitter& e, const Value& x) { return e.unary("log", x); }
Value root(Emitter& e, const Value& x) { return e.unary("sqrt", x); }

// --- modified, of the first kind

// exp(-a) I(a) for a >= 0, `small` being of exp(-a) I(a) up to 8 and `large` of sqrt(a) exp(-a) I(a).
Value scaled_i(Emitter& e, const Value& a, const Value& near, Coefficients large) {
  const Value far_from = e.maximum(a, 8);
  const Value far = e.divide(chebyshev_sum(e, e.subtract(e.divide(16, far_from), 1), large), root(e, far_from));
  return e.select(e.compare("LE", a, 8), near, far);
}

Value near_i(Emitter& e, const Value& a, Coefficients small) {
  return chebyshev_sum(e, e.subtract(e.multiply(e.minimum(a, 8), 0.25), 1), small);
}

Value i0e(Emitter& e, const Value& x) {
  const Value a = e.unary("abs", x);
  return scaled_i(e, a, near_i(e, a, chebyshev::kI0eSmall), chebyshev::kI0eLarge);
}

Value i1e(Emitter& e, const Value& x) {
  const Value a = e.unary("abs", x);
  const Value size = scaled_i(e, a, e.multiply(a, near_i(e, a, chebyshev::kI1eSmall)), chebyshev::kI1eLarge);
  return e.select(e.compare("LT", x, 0), e.negate(size), size);
}

// exp(|x|) y in two steps, so that only what overflows does.
Value grown(Emitter& e, const Value& x, const Value& y) {
  const Value half = exponential(e, e.multiply(e.unary("abs", x), 0.5));
  return e.multiply(e.multiply(half, y), half);
}
Value i0(Emitter& e, const Value& x) { return grown(e, x, i0e(e, x)); }
Value i1(Emitter& e, const Value& x) { return grown(e, x, i1e(e, x)); }

// --- modified, of the second kind

// exp(x) K(x) for x > 2.
Value far_k(Emitter& e, const Value& x, Coefficients large) {
  const Value held = e.maximum(x, 2);
  return e.divide(chebyshev_sum(e, e.subtract(e.divide(4, held), 1), large), root(e, held));
}

// The even sum of K on [0, 2].
Value near_k(Emitter& e, const Value& held, Coefficients small) {
  return chebyshev_sum(e, e.subtract(e.multiply(square(e, held), 0.5), 1), small);
}

Value near_k0(Emitter& e, const Value& x) {
  const Value held = e.minimum(x, 2);
  const Value growing = e.multiply(exponential(e, held), near_i(e, held, chebyshev::kI0eSmall));
  return e.subtract(near_k(e, held, chebyshev::kK0Small), e.multiply(log(e, e.multiply(held, 0.5)), growing));
}

Value near_k1(Emitter& e, const Value& x) {
  const Value held = e.minimum(x, 2);
  const Value growing = e.multiply(e.multiply(exponential(e, held), held), near_i(e, held, chebyshev::kI1eSmall));
  const Value sum =
      e.add(e.multiply(log(e, e.multiply(held, 0.5)), growing), e.divide(near_k(e, held, chebyshev::kK1Small), held));
  return e.select(e.compare("EQ", x, 0), like(e, kInfinity, x), sum);
}

Value k_of(Emitter& e, const Value& x, const Value& near, Coefficients large, bool scaled) {
  const Value far = far_k(e, x, large);
  const Value growth = exponential(e, e.minimum(x, 2));
  return e.select(e.compare("LE", x, 2), scaled ? e.multiply(near, growth) : near,
                  scaled ? far : e.multiply(far, exponential(e, e.negate(x))));
}

Value k0(Emitter& e, const Value& x) { return k_of(e, x, near_k0(e, x), chebyshev::kK0Large, false); }
Value k1(Emitter& e, const Value& x) { return k_of(e, x, near_k1(e, x), chebyshev::kK1Large, false); }
Value scaled_k0(Emitter& e, const Value& x) { return k_of(e, x, near_k0(e, x), chebyshev::kK0Large, true); }
Value scaled_k1(Emitter& e, const Value& x) { return k_of(e, x, near_k1(e, x), chebyshev::kK1Large, true); }

// --- ordinary

// An even sum on [0, 8].
Value near_zero(Emitter& e, const Value& a, Coefficients small) {
  return chebyshev_sum(e, e.subtract(e.multiply(square(e, e.minimum(a, 8)), 1.0 / 32), 1), small);
}

// sqrt(2 / (pi a)) (p wave(a - shift) + sign q other_wave(a - shift)) for a > 8.
struct Wave {
  Value p, q, sine, cosine, scale;  // sine and cosine of the shifted argument
};
Wave wave(Emitter& e, const Value& a, int order) {
  const Value held = e.maximum(a, 8);
  const Value inverse = e.divide(8, held);
  const Value t = e.subtract(e.multiply(square(e, inverse), 2), 1);
  const Value s = e.unary("sine", held);
  const Value c = e.unary("cosine", held);
  // Shifts by odd multiples of pi / 4 are exact this way.
  const Value sum = e.multiply(e.add(s, c), M_SQRT1_2);
  const Value difference = e.multiply(e.subtract(s, c), M_SQRT1_2);
  const Value scale = root(e, e.divide(kTwoOverPi, held));
  if (order == 0) {
    return {chebyshev_sum(e, t, chebyshev::kP0), e.multiply(inverse, chebyshev_sum(e, t, chebyshev::kQ0)), difference,
            sum, scale};
  }
  return {chebyshev_sum(e, t, chebyshev::kP1), e.multiply(inverse, chebyshev_sum(e, t, chebyshev::kQ1)), e.negate(sum),
          difference, scale};
}
Value far_j(Emitter& e, const Wave& w) {
  return e.multiply(w.scale, e.subtract(e.multiply(w.p, w.cosine), e.multiply(w.q, w.sine)));
}
Value far_y(Emitter& e, const Wave& w) {
  return e.multiply(w.scale, e.add(e.multiply(w.p, w.sine), e.multiply(w.q, w.cosine)));
}

Value j0(Emitter& e, const Value& x) {
  const Value a = e.unary("abs", x);
  return e.select(e.compare("LE", a, 8), near_zero(e, a, chebyshev::kJ0Small), far_j(e, wave(e, a, 0)));
}

Value j1(Emitter& e, const Value& x) {
  const Value a = e.unary("abs", x);
  const Value far = far_j(e, wave(e, a, 1));
  const Value far_odd = e.select(e.compare("LT", x, 0), e.negate(far), far);
  return e.select(e.compare("LE", a, 8), e.multiply(x, near_zero(e, a, chebyshev::kJ1Small)), far_odd);
}

Value y0(Emitter& e, const Value& x) {
  const Value logarithm = e.multiply(log(e, x), kTwoOverPi);
  const Value near =
      e.add(near_zero(e, x, chebyshev::kY0Small), e.multiply(logarithm, near_zero(e, x, chebyshev::kJ0Small)));
  return e.select(e.compare("LE", x, 8), near, far_y(e, wave(e, x, 0)));
}

Value y1(Emitter& e, const Value& x) {
  const Value regular = e.multiply(x, near_zero(e, x, chebyshev::kY1Small));
  const Value j = e.multiply(x, near_zero(e, x, chebyshev::kJ1Small));
  const Value singular = e.subtract(e.multiply(log(e, x), j), reciprocal(e, x));
  const Value near = e.add(regular, e.multiply(singular, kTwoOverPi));
  const Value result = e.select(e.compare("LE", x, 8), near, far_y(e, wave(e, x, 1)));
  return e.select(e.compare("EQ", x, 0), like(e, -kInfinity, x), result);
}

Value spherical_j0(Emitter& e, const Value& x) {
  const Value regular = e.divide(e.unary("sine", x), x);
  const Value limit = e.select(is_infinite(e, x), like(e, 0, x), regular);
  return e.select(e.compare("EQ", x, 0), like(e, 1, x), limit);
}

// --- Airy

double airy_argument(double x) { return 2.0 / 3.0 * x * std::sqrt(x); }

// 2 / 3 a^(3/2)
Value airy_argument(Emitter& e, const Value& a) { return e.multiply(e.multiply(a, root(e, a)), 2.0 / 3.0); }

Value airy_ai(Emitter& e, const Value& x) {
  const Value lower = scalar(e, -6, x.dtype());
  const Value upper = scalar(e, 2, x.dtype());
  const Value middle = chebyshev_sum(e, e.multiply(e.add(e.clamp(lower, x, upper), 2), 0.25), chebyshev::kAiryMiddle);

  const Value right = e.maximum(x, 2);
  const Value right_argument = airy_argument(e, right);
  const Value right_t = e.subtract(e.divide(2 * airy_argument(2), right_argument), 1);
  const Value decay =
      e.divide(e.multiply(exponential(e, e.negate(right_argument)), chebyshev_sum(e, right_t, chebyshev::kAiryDecay)),
               e.multiply(root(e, root(e, right)), 2 * std::sqrt(M_PI)));

  const Value left = e.maximum(e.negate(x), 6);
  const Value left_argument = airy_argument(e, left);
  const Value inverse = e.divide(airy_argument(6), left_argument);
  const Value left_t = e.subtract(e.multiply(square(e, inverse), 2), 1);
  const Value s = e.unary("sine", left_argument);
  const Value c = e.unary("cosine", left_argument);
  const Value p = chebyshev_sum(e, left_t, chebyshev::kAiryWaveP);
  const Value q = e.multiply(inverse, chebyshev_sum(e, left_t, chebyshev::kAiryWaveQ));
  const Value swing = e.subtract(e.multiply(p, e.add(s, c)), e.multiply(q, e.subtract(c, s)));
  const Value oscillation = e.divide(e.multiply(swing, M_SQRT1_2), e.multiply(root(e, root(e, left)), std::sqrt(M_PI)));

  const Value value = e.select(e.compare("GT", x, 2), decay, e.select(e.compare("LT", x, -6), oscillation, middle));
  return e.select(is_infinite(e, x), like(e, kNan, x), value);
}

}  // namespace

void add_bessel(Table& t) {
  add_math(t, "aten::i0", i0);
  add_math(t, "aten::special_i0e", i0e);
  add_math(t, "aten::special_i1", i1);
  add_math(t, "aten::special_i1e", i1e);
  add_math(t, "aten::special_modified_bessel_i0", i0);
  add_math(t, "aten::special_modified_bessel_i1", i1);
  add_math(t, "aten::special_modified_bessel_k0", k0);
  add_math(t, "aten::special_modified_bessel_k1", k1);
  add_math(t, "aten::special_scaled_modified_bessel_k0", scaled_k0, "x");
  add_math(t, "aten::special_scaled_modified_bessel_k1", scaled_k1, "x");
  add_math(t, "aten::special_bessel_j0", j0);
  add_math(t, "aten::special_bessel_j1", j1);
  add_math(t, "aten::special_bessel_y0", y0);
  add_math(t, "aten::special_bessel_y1", y1);
  add_math(t, "aten::special_spherical_bessel_j0", spherical_j0, "x");
  add_math(t, "aten::special_airy_ai", airy_ai, "x");
}

}  // namespace torch_tpu
