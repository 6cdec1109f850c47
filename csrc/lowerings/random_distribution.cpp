// Samples of distributions with parameters of their own for each element: multinomial, Poisson, binomial,
// gamma and Dirichlet. Those by rejection repeat until every element is accepted.
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "lowerings/draws.h"
#include "lowerings/families.h"
#include "lowerings/scan.h"

namespace torch_tpu {

namespace {

// --- multinomial

// The position of the largest element along the last dim, which becomes of size 1.
Value largest_at(Emitter& e, const Value& x) {
  const int64_t last = x.rank() - 1;
  const Values best = e.reduce({x, e.iota(x.type.with(at::kInt), last)},
                               {e.lowest(Type(x.dtype(), {})), scalar(e, 0, at::kInt)}, {last}, [&](const Values& in) {
                                 const Value later =
                                     e.logical_and(e.compare("EQ", in[2], in[0]), e.compare("GE", in[3], in[1]));
                                 const Value keeps = e.logical_or(e.compare("GT", in[0], in[2]), later);
                                 return Values{e.select(keeps, in[0], in[2]), e.select(keeps, in[1], in[3])};
                               });
  return unsqueeze(e, best[1], last);
}

// Where u * total falls among the running sums of the weights `p`, by bisection.
Value sample_with_replacement(Emitter& e, const Call& c, const Value& p, int64_t samples) {
  const int64_t last = p.rank() - 1;
  const int64_t categories = p.dim(last);
  const Value ends = scan(e, p, scalar(e, 0, p.dtype()), last, "add");
  Dims dims = p.dims();
  dims[last] = samples;
  const Value total =
      e.broadcast_in_dim(slice_dim(e, ends, last, categories - 1, categories), dims, last == 0 ? Dims{0} : Dims{0, 1});
  // Below the total even after rounding, so that the last category with any weight is the last answer.
  const double below_one = 1 - std::ldexp(1.0, p.dtype() == at::kDouble ? -52 : -23);
  const Value u = draw_uniform(e, bits_of(c), p.dtype(), dims);
  const Value wanted = e.multiply(e.minimum(u, at::Scalar(below_one)), total);
  Value found = e.constant(0, wanted.type.with(at::kInt));  // running sums known not to exceed `wanted`
  int64_t step = 1;
  while (step * 2 <= categories) step *= 2;
  for (; step > 0; step /= 2) {
    const Value next = e.add(found, at::Scalar(step));
    const Value end = gather_along(e, ends, last, e.subtract(next, at::Scalar(1)));
    const Value goes = e.logical_and(e.compare("LE", next, at::Scalar(categories)), e.compare("LE", end, wanted));
    found = e.select(goes, next, found);
  }
  return e.minimum(found, at::Scalar(categories - 1));
}

// Without replacement, and for a single sample: an exponential race, which the largest weight / time wins.
Value lower_multinomial(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const Value self = c.tensor("self");
  TORCH_CHECK(c10::isFloatingType(self.dtype()),
              "multinomial only supports floating-point dtypes for input, got: ", self.dtype());
  TORCH_CHECK(result.dtype == at::kLong, "multinomial expects Long tensor out, got: ", result.dtype);
  const int64_t samples = c.integer("num_samples");
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(self.rank() == 0 || self.dim(self.rank() - 1) <= int64_t{1} << 24,
              "number of categories cannot exceed 2^24");
  if (result.numel() == 0 || self.type.numel() == 0) return e.constant(0, result);
  const Value p = e.convert(self, draw_dtype(self.dtype()));
  TORCH_CHECK(c.flag("replacement") || samples <= self.dim(self.rank() - 1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  if (c.flag("replacement") && samples > 1) {
    return e.convert(sample_with_replacement(e, c, p, samples), result.dtype);
  }
  const Value race = e.divide(p, draw_exponential(e, bits_of(c), p.dtype(), p.dims()));
  if (samples == 1) return e.convert(largest_at(e, race), result.dtype);
  const Dims first = result.dims;
  const Values top = e.op("chlo.top_k", {race}, "k = " + std::to_string(samples) + " : i64",
                          {Type(race.dtype(), first), Type(at::kInt, first)});
  return e.convert(top[1], result.dtype);
}

// --- by rejection, in double precision: the acceptance tests cancel large terms

Value log_factorial(Emitter& e, const Value& k) { return e.unary("chlo.lgamma", e.add(k, at::Scalar(1))); }

// Hörmann's transformed rejection (1993) proposes floor((2a / us + b) u + c).
struct Proposal {
  Value us, v, k, squeeze;  // squeeze: accepted without further test
};

Proposal propose(Emitter& e, const Bits& bits, const Value& a, const Value& b, const Value& center, const Value& vr) {
  Proposal p;
  const Value u = e.subtract(draw_open_uniform(e, bits, at::kDouble, a.dims()), at::Scalar(0.5));
  p.v = draw_open_uniform(e, bits, at::kDouble, a.dims());
  p.us = e.subtract(at::Scalar(0.5), e.unary("abs", u));
  p.k = e.unary("floor", e.add(e.multiply(e.add(e.divide(e.multiply(a, at::Scalar(2)), p.us), b), u), center));
  p.squeeze = e.logical_and(e.compare("GE", p.us, at::Scalar(0.07)), e.compare("LE", p.v, vr));
  return p;
}

// log(v * scale / (a / us^2 + b)), what is compared with the log of the density ratio.
Value log_height(Emitter& e, const Proposal& p, const Value& a, const Value& b, const Value& scale) {
  const Value hat = e.add(e.divide(a, e.multiply(p.us, p.us)), b);
  return e.unary("log", e.divide(e.multiply(p.v, scale), hat));
}

// Rates below 10 count exponential waiting times until their sum exceeds the rate.
Value poisson(Emitter& e, const Call& c, const Value& given) {
  const Value zero = e.constant_like(0, given);
  const Value valid = e.compare("GT", given, zero);
  const Value start = e.select(is_nan(e, given), given, zero);
  const Values end =
      draw_until(e, bits_of(c), {e.logical_not(valid), start, zero, given}, [&](const Bits& bits, const Values& in) {
        const Value& done = in[0];
        const Value& count = in[1];
        const Value& rate = in[3];
        const Value waited = e.add(in[2], draw_exponential(e, bits, at::kDouble, rate.dims()));
        const Value small = e.compare("LT", rate, at::Scalar(10));
        const Value over = e.compare("GT", waited, rate);

        const Value b = e.add(e.multiply(e.unary("sqrt", rate), at::Scalar(2.53)), at::Scalar(0.931));
        const Value a = e.add(e.multiply(b, at::Scalar(0.02483)), at::Scalar(-0.059));
        const Value scale = e.add(e.divide(at::Scalar(1.1328), e.subtract(b, at::Scalar(3.4))), at::Scalar(1.1239));
        const Value vr = e.subtract(at::Scalar(0.9277), e.divide(at::Scalar(3.6224), e.subtract(b, at::Scalar(2))));
        const Proposal p = propose(e, bits, a, b, e.add(rate, at::Scalar(0.43)), vr);
        const Value density =
            e.subtract(e.subtract(e.multiply(p.k, e.unary("log", rate)), rate), log_factorial(e, p.k));
        const Value fits =
            e.logical_and(e.compare("GE", p.k, at::Scalar(0)), e.compare("LE", log_height(e, p, a, b, scale), density));
        const Value accepted = e.logical_or(p.squeeze, fits);

        const Value counted = e.select(over, count, e.add(count, at::Scalar(1)));
        const Value large_result = e.select(accepted, p.k, count);
        const Value next = e.select(done, count, e.select(small, counted, large_result));
        return Values{e.logical_or(done, e.select(small, over, accepted)), next, waited, rate};
      });
  return end[1];
}

Value lower_poisson(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  return e.convert(poisson(e, c, e.convert(self, at::kDouble)), c.result().dtype);
}

std::vector<Type> binomial_type(const Call& c) {
  const Value count = c.tensor("count");
  return {count.type.with(broadcast_dims(count.dims(), c.tensor("prob").dims()))};
}

// Probabilities above one half count failures. Where n p is below 10: geometric gaps until they exceed n.
Value lower_binomial(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const Value n = broadcast_to(e, e.convert(c.tensor("count"), at::kDouble), result.dims);
  const Value given = broadcast_to(e, e.convert(c.tensor("prob"), at::kDouble), result.dims);
  const Value zero = e.constant_like(0, n);
  const Value flips = e.compare("GT", given, at::Scalar(0.5));
  const Value p = e.select(flips, e.subtract(at::Scalar(1), given), given);
  const Value valid = e.logical_and(e.compare("GT", n, zero), e.compare("GT", p, zero));
  const Value start = e.select(is_nan(e, given), given, zero);
  const Values end =
      draw_until(e, bits_of(c), {e.logical_not(valid), start, zero, n, p}, [&](const Bits& bits, const Values& in) {
        const Value& done = in[0];
        const Value& count = in[1];
        const Value& n = in[3];
        const Value& p = in[4];
        const Value q = e.subtract(at::Scalar(1), p);
        const Value np = e.multiply(n, p);
        const Value small = e.compare("LT", np, at::Scalar(10));
        const Value u = draw_open_uniform(e, bits, at::kDouble, n.dims());
        const Value gap = e.unary("ceil", e.divide(e.unary("log", u), e.unary("log_plus_one", e.negate(p))));
        const Value reached = e.add(in[2], gap);
        const Value over = e.compare("GT", reached, n);

        const Value deviation = e.unary("sqrt", e.multiply(np, q));
        const Value b = e.add(e.multiply(deviation, at::Scalar(2.53)), at::Scalar(1.15));
        const Value a =
            e.add(e.add(e.multiply(b, at::Scalar(0.0248)), e.multiply(p, at::Scalar(0.01))), at::Scalar(-0.0873));
        const Value vr = e.subtract(at::Scalar(0.92), e.divide(at::Scalar(4.2), b));
        const Value scale = e.multiply(e.add(e.divide(at::Scalar(5.1), b), at::Scalar(2.83)), deviation);
        const Proposal proposal = propose(e, bits, a, b, e.add(np, at::Scalar(0.5)), vr);
        const Value& k = proposal.k;
        const Value mode = e.unary("floor", e.multiply(e.add(n, at::Scalar(1)), p));
        const auto ways = [&](const Value& i) {
          return e.add(log_factorial(e, i), log_factorial(e, e.subtract(n, i)));
        };
        const Value ratio =
            e.add(e.subtract(ways(mode), ways(k)), e.multiply(e.subtract(k, mode), e.unary("log", e.divide(p, q))));
        const Value inside = e.logical_and(e.compare("GE", k, at::Scalar(0)), e.compare("LE", k, n));
        const Value fits = e.logical_and(inside, e.compare("LE", log_height(e, proposal, a, b, scale), ratio));
        const Value accepted = e.logical_or(proposal.squeeze, fits);

        const Value counted = e.select(over, count, e.add(count, at::Scalar(1)));
        const Value next = e.select(done, count, e.select(small, counted, e.select(accepted, k, count)));
        return Values{e.logical_or(done, e.select(small, over, accepted)), next, reached, n, p};
      });
  // Where p is 0 or, flipped, 1, no draw was needed.
  return e.convert(e.select(flips, e.subtract(n, end[1]), end[1]), result.dtype);
}

// Marsaglia and Tsang (2000); a shape below 1 is drawn one higher and scaled by u^(1 / shape).
Value gamma(Emitter& e, const Call& c, const Value& shape) {
  const at::ScalarType dtype = shape.dtype();
  const Value below_one = e.compare("LT", shape, at::Scalar(1));
  const Value raised = e.select(below_one, e.add(shape, at::Scalar(1)), shape);
  const Value d = e.subtract(raised, at::Scalar(1.0 / 3));
  const Value valid = e.compare("GT", shape, at::Scalar(0));
  const Value nan = e.constant_like(std::numeric_limits<double>::quiet_NaN(), shape);
  const Value start =
      e.select(valid, e.constant_like(0, shape), e.select(is_nan(e, shape), nan, e.constant_like(0, shape)));
  const Values end =
      draw_until(e, bits_of(c), {e.logical_not(valid), start, d}, [&](const Bits& bits, const Values& in) {
        const Value& d = in[2];
        const Value x = draw_normal(e, bits, dtype, d.dims());
        const Value scale = e.unary("rsqrt", e.multiply(d, at::Scalar(9)));
        const Value root = e.add(e.multiply(scale, x), at::Scalar(1));
        const Value v = e.multiply(root, e.multiply(root, root));
        const Value u = draw_open_uniform(e, bits, dtype, d.dims());
        const Value one_more = e.add(e.subtract(e.unary("log", e.maximum(v, at::Scalar(1e-30))), v), at::Scalar(1));
        const Value bound = e.add(e.multiply(e.multiply(x, x), at::Scalar(0.5)), e.multiply(d, one_more));
        const Value accepted =
            e.logical_and(e.compare("GT", v, at::Scalar(0)), e.compare("LT", e.unary("log", u), bound));
        const Value next = e.select(e.logical_and(accepted, e.logical_not(in[0])), e.multiply(d, v), in[1]);
        return Values{e.logical_or(in[0], accepted), next, d};
      });
  const Value u = draw_open_uniform(e, bits_of(c), dtype, shape.dims());
  const Value boost = e.unary("exponential", e.divide(e.unary("log", u), shape));
  const Value sample = e.select(below_one, e.multiply(end[1], boost), end[1]);
  const double least = dtype == at::kDouble ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  return e.maximum(sample, at::Scalar(least));
}

Value lower_standard_gamma(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  return e.convert(gamma(e, c, e.convert(self, draw_dtype(self.dtype()))), self.dtype());
}

// Gamma samples over their sum. In double: with small concentrations nearly all of them are tiny.
Value lower_sample_dirichlet(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  if (self.type.numel() == 0) return self;
  const int64_t last = self.rank() - 1;
  const Value samples = gamma(e, c, e.convert(self, at::kDouble));
  const Value total = broadcast_along(e, e.reduce(samples, 0, {last}, "add"), samples.dims(), {last});
  const double least =
      self.dtype() == at::kDouble ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
  return e.convert(e.maximum(e.divide(samples, total), at::Scalar(least)), self.dtype());
}

std::vector<Type> type_of_self(const Call& c) { return {c.tensor("self").type}; }

}  // namespace

void add_random_distribution(Table& t) {
  t.add("aten::multinomial", lower_multinomial).draws_random();
  t.add("aten::poisson", lower_poisson).draws_random();
  t.add("aten::binomial", lower_binomial).draws_random().with_shape(binomial_type);
  t.add("aten::_standard_gamma", lower_standard_gamma).draws_random();
  t.add("aten::_sample_dirichlet", lower_sample_dirichlet).draws_random().with_shape(type_of_self);
}

}  // namespace torch_tpu
