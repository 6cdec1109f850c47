// Orthogonal polynomials of an order that is data: a loop over the recurrence up to
// the largest order, in which each element stops at its own.
#include <cmath>
#include <limits>
#include <string>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

// P_{k+1}(x) of P_k and P_{k-1}; k is x's dtype and shape.
using Step = Value (*)(Emitter&, const Value& x, const Value& k, const Value& now, const Value& before);

// P_n(x), P_0 being 1; 0 for n < 0. `order` is whole and of x's type.
Value by_recurrence(Emitter& e, const Value& x, const Value& order, const Value& first, Step step) {
  const auto unfinished = [&e](const Values& s) {
    const Value k = broadcast_to(e, s[0], s[1].dims());
    return e.logical_and(e.compare("LT", k, s[2]), e.compare("EQ", s[3], s[3]));
  };
  const Value one = like(e, 1, x);
  // k, x, order, P_k, P_{k-1}.
  const Values end = e.while_loop(
      {scalar(e, 1, x.dtype()), x, order, first, one},
      [&](const Values& s) -> Values { return {any_of(e, unfinished(s))}; },
      [&](const Values& s) -> Values {
        const Value pending = unfinished(s);
        const Value next = step(e, s[1], broadcast_to(e, s[0], s[1].dims()), s[3], s[4]);
        return {one_plus(e, s[0]), s[1], s[2], e.select(pending, next, s[3]), e.select(pending, s[3], s[4])};
      });
  const Value high = e.select(e.compare("EQ", order, 0), one, end[3]);
  return e.select(e.compare("LT", order, 0), like(e, 0, x), high);
}

// `n` without its fraction. What no int64 holds, NaN too, is below zero, as where C++ converts it on x86.
Value whole_order(Emitter& e, const Value& n) {
  return e.select(e.compare("LT", e.unary("abs", n), 0x1p63), truncate(e, n), like(e, -1, n));
}

Value is_even(Emitter& e, const Value& order) { return e.compare("EQ", e.remainder(order, 2), 0); }

Value chebyshev_step(Emitter& e, const Value& x, const Value&, const Value& now, const Value& before) {
  return e.subtract(e.multiply(e.add(x, x), now), before);
}

Value hermite_h_step(Emitter& e, const Value& x, const Value& k, const Value& now, const Value& before) {
  return e.multiply(e.subtract(e.multiply(x, now), e.multiply(k, before)), 2);
}

Value hermite_he_step(Emitter& e, const Value& x, const Value& k, const Value& now, const Value& before) {
  return e.subtract(e.multiply(x, now), e.multiply(k, before));
}

Value laguerre_step(Emitter& e, const Value& x, const Value& k, const Value& now, const Value& before) {
  const Value factor = e.subtract(one_plus(e, e.add(k, k)), x);
  return e.divide(e.subtract(e.multiply(factor, now), e.multiply(k, before)), one_plus(e, k));
}

Value legendre_step(Emitter& e, const Value& x, const Value& k, const Value& now, const Value& before) {
  const Value factor = e.multiply(one_plus(e, e.add(k, k)), x);
  return e.divide(e.subtract(e.multiply(factor, now), e.multiply(k, before)), one_plus(e, k));
}

// --- Chebyshev: within (-1, 1) higher orders have a closed form, and at -1 and 1 a value by parity

struct Chebyshev {
  Value (*first)(Emitter&, const Value& x);
  Value (*closed)(Emitter&, const Value& angle, const Value& order);  // of acos(x)
  // P_n(1) and (-1)^n P_n(-1).
  Value (*at_one)(Emitter&, const Value& order);
  Value (*at_minus_one)(Emitter&, const Value& order);
};

Value chebyshev(Emitter& e, const Value& x, const Value& n, const Chebyshev& kind) {
  const Value order = whole_order(e, n);
  const Value at_end = e.compare("EQ", e.unary("abs", x), 1);
  const Value closed = e.logical_and(e.compare("GT", order, 6), between(e, x, -1, 1));
  const Value looped = e.select(e.logical_or(closed, at_end), like(e, 0, x), order);
  const Value by_loop = by_recurrence(e, x, looped, kind.first(e, x), chebyshev_step);
  const Value by_angle = kind.closed(e, e.unary("chlo.acos", e.select(closed, x, like(e, 0, x))), order);
  const Value below = kind.at_minus_one(e, order);
  const Value end =
      e.select(e.compare("GT", x, 0), kind.at_one(e, order), e.select(is_even(e, order), below, e.negate(below)));
  const Value value = e.select(at_end, end, e.select(closed, by_angle, by_loop));
  return e.select(e.compare("LT", order, 0), like(e, 0, x), value);
}

Value cosine(Emitter& e, const Value& x) { return e.unary("cosine", x); }
Value sine(Emitter& e, const Value& x) { return e.unary("sine", x); }
Value half(Emitter& e, const Value& x) { return e.multiply(x, 0.5); }
Value one_for(Emitter& e, const Value& order) { return like(e, 1, order); }
Value twice_plus_one(Emitter& e, const Value& order) { return one_plus(e, e.add(order, order)); }

Value chebyshev_t(Emitter& e, const Value& x, const Value& n) {
  return chebyshev(
      e, x, n,
      {[](Emitter&, const Value& v) { return v; },
       [](Emitter& f, const Value& angle, const Value& order) { return cosine(f, f.multiply(order, angle)); }, one_for,
       one_for});
}

Value chebyshev_u(Emitter& e, const Value& x, const Value& n) {
  return chebyshev(e, x, n,
                   {[](Emitter& f, const Value& v) { return f.add(v, v); },
                    [](Emitter& f, const Value& angle, const Value& order) {
                      return f.divide(sine(f, f.multiply(one_plus(f, order), angle)), sine(f, angle));
                    },
                    one_plus, one_plus});
}

Value chebyshev_v(Emitter& e, const Value& x, const Value& n) {
  return chebyshev(e, x, n,
                   {[](Emitter& f, const Value& v) { return f.subtract(f.add(v, v), 1); },
                    [](Emitter& f, const Value& angle, const Value& order) {
                      return f.divide(cosine(f, f.multiply(f.add(order, 0.5), angle)), cosine(f, half(f, angle)));
                    },
                    one_for, twice_plus_one});
}

Value chebyshev_w(Emitter& e, const Value& x, const Value& n) {
  return chebyshev(e, x, n,
                   {[](Emitter& f, const Value& v) { return one_plus(f, f.add(v, v)); },
                    [](Emitter& f, const Value& angle, const Value& order) {
                      return f.divide(sine(f, f.multiply(f.add(order, 0.5), angle)), sine(f, half(f, angle)));
                    },
                    twice_plus_one, one_for});
}

// On [0, 1] instead of [-1, 1].
template <BinaryMath Polynomial>
Value shifted(Emitter& e, const Value& x, const Value& n) {
  return Polynomial(e, e.subtract(e.add(x, x), 1), n);
}

// --- the others

// PyTorch gives NaN beyond the orders that its dtype can hold.
Value within_hermite_orders(Emitter& e, const Value& order, const Value& value) {
  const int64_t limit = order.dtype() == at::kDouble ? 512 : 128;
  return e.select(e.compare("GT", order, limit), like(e, std::numeric_limits<double>::quiet_NaN(), value), value);
}

Value hermite(Emitter& e, const Value& x, const Value& n, const Value& first, Step step) {
  const Value order = whole_order(e, n);
  const Value value = by_recurrence(e, x, e.minimum(order, 512), first, step);
  return within_hermite_orders(e, order, value);
}
Value hermite_h(Emitter& e, const Value& x, const Value& n) { return hermite(e, x, n, e.add(x, x), hermite_h_step); }
Value hermite_he(Emitter& e, const Value& x, const Value& n) { return hermite(e, x, n, x, hermite_he_step); }

Value laguerre_l(Emitter& e, const Value& x, const Value& n) {
  return by_recurrence(e, x, whole_order(e, n), one_minus(e, x), laguerre_step);
}

Value legendre_p(Emitter& e, const Value& x, const Value& n) {
  return by_recurrence(e, x, whole_order(e, n), x, legendre_step);
}

}  // namespace

void add_polynomial(Table& t) {
  const auto add = [&t](const std::string& name, BinaryMath math) {
    for (const std::string overload : {"", ".x_scalar", ".n_scalar"}) {
      add_math(t, "aten::special_" + name + overload, math, "x", "n");
    }
  };
  add("chebyshev_polynomial_t", chebyshev_t);
  add("chebyshev_polynomial_u", chebyshev_u);
  add("chebyshev_polynomial_v", chebyshev_v);
  add("chebyshev_polynomial_w", chebyshev_w);
  add("shifted_chebyshev_polynomial_t", shifted<chebyshev_t>);
  add("shifted_chebyshev_polynomial_u", shifted<chebyshev_u>);
  add("shifted_chebyshev_polynomial_v", shifted<chebyshev_v>);
  add("shifted_chebyshev_polynomial_w", shifted<chebyshev_w>);
  add("hermite_polynomial_h", hermite_h);
  add("hermite_polynomial_he", hermite_he);
  add("laguerre_polynomial_l", laguerre_l);
  add("legendre_polynomial_p", legendre_p);
}

}  // namespace torch_tpu
