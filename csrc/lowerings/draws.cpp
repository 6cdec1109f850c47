// See draws.h.
#include "lowerings/draws.h"

#include <c10/util/accumulate.h>

#include <cmath>

namespace torch_tpu {

namespace {

// A draw_until that has not ended by then has NaN parameters or a tail no one will see.
constexpr int64_t kMostRounds = 10000;

Value shifted_right(Emitter& e, const Value& x, int64_t by) {
  return e.binary("shift_right_logical", x, at::Scalar(by));
}

// The product's upper 64 bits; `factor` is a constant.
Value multiply_high(Emitter& e, const Value& x, uint64_t factor) {
  const auto constant = [&](uint64_t value) { return e.constant(static_cast<int64_t>(value), x.type); };
  const uint64_t low_half = 0xffffffffULL;
  const Value x_high = shifted_right(e, x, 32);
  const Value x_low = e.logical_and(x, constant(low_half));
  const Value f_high = constant(factor >> 32);
  const Value f_low = constant(factor & low_half);
  const Value cross = e.add(e.multiply(x_high, f_low), shifted_right(e, e.multiply(x_low, f_low), 32));
  const Value middle = e.add(e.multiply(x_low, f_high), e.logical_and(cross, constant(low_half)));
  return e.add(e.add(e.multiply(x_high, f_high), shifted_right(e, cross, 32)), shifted_right(e, middle, 32));
}

// Dims of half as many elements (or one more), and the dimension along which two of them make `dims` whole: the first
// that is even, else of the elements in a row.
std::pair<Dims, int64_t> halved(c10::IntArrayRef dims) {
  Dims half(dims.begin(), dims.end());
  for (size_t i = 0; i < half.size(); ++i) {
    // A TPU's last dimension had better stay whole.
    if (half[i] % 2 != 0 || (i + 1 == half.size() && i > 0)) continue;
    half[i] /= 2;
    return {half, static_cast<int64_t>(i)};
  }
  const int64_t n = c10::multiply_integers(dims);
  return {{(n + 1) / 2}, 0};
}

}  // namespace

Bits bits_of(const Call& c) {
  return [&c](at::ScalarType dtype, c10::IntArrayRef dims) { return c.random_bits(dtype, dims); };
}

at::ScalarType draw_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

Value draw_uniform(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims) {
  if (Type(dtype, dims).numel() == 0) return e.constant(0, Type(dtype, dims));
  if (dtype == at::kDouble) {
    const Value whole = shifted_right(e, bits(at::kUInt64, dims), 11);
    return e.multiply(e.convert(whole, dtype), at::Scalar(std::ldexp(1.0, -53)));
  }
  const Value whole = shifted_right(e, bits(at::kUInt32, dims), 8);
  return e.multiply(e.convert(whole, dtype), at::Scalar(std::ldexp(1.0, -24)));
}

Value draw_open_uniform(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims) {
  if (Type(dtype, dims).numel() == 0) return e.constant(0, Type(dtype, dims));
  const bool is_double = dtype == at::kDouble;
  const int64_t digits = is_double ? 52 : 23;
  const Value whole = shifted_right(e, bits(is_double ? at::kUInt64 : at::kUInt32, dims), is_double ? 12 : 9);
  return e.multiply(e.add(e.convert(whole, dtype), at::Scalar(0.5)),
                    at::Scalar(std::ldexp(1.0, -static_cast<int>(digits))));
}

// Box and Muller's pairs: radius from all bits of a word, for the tails; angle from another.
Value draw_normal(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims) {
  const Type result(dtype, dims);
  const int64_t size = result.numel();
  if (size == 0) return e.constant(0, result);
  const auto [half, dim] = halved(dims);
  const bool is_double = dtype == at::kDouble;
  const Value word = bits(is_double ? at::kUInt64 : at::kUInt32, half);
  const Value u =
      e.multiply(e.add(e.convert(word, dtype), at::Scalar(0.5)), at::Scalar(std::ldexp(1.0, is_double ? -64 : -32)));
  const Value radius = e.unary("sqrt", e.multiply(e.unary("log", u), at::Scalar(-2)));
  const Value angle = e.multiply(draw_uniform(e, bits, dtype, half), at::Scalar(2 * M_PI));
  const Value pairs =
      e.concatenate({e.multiply(radius, e.unary("cosine", angle)), e.multiply(radius, e.unary("sine", angle))}, dim);
  return pairs.type.numel() == size ? e.reshape(pairs, dims) : e.reshape(slice_dim(e, pairs, 0, 0, size), dims);
}

Value draw_exponential(Emitter& e, const Bits& bits, at::ScalarType dtype, c10::IntArrayRef dims) {
  return e.negate(e.unary("log", draw_open_uniform(e, bits, dtype, dims)));
}

Value draw_integers(Emitter& e, const Bits& bits, int64_t low, uint64_t range, c10::IntArrayRef dims) {
  const Type words(at::kUInt64, dims);
  if (words.numel() == 0) return e.constant(0, words.with(at::kLong));
  Value place;
  if (range == 0) {
    place = bits(at::kUInt64, dims);
  } else if (range <= (uint64_t{1} << 32)) {
    const Value word = e.convert(bits(at::kUInt32, dims), at::kUInt64);
    place = shifted_right(e, e.multiply(word, e.constant(static_cast<int64_t>(range), words)), 32);
  } else {
    place = multiply_high(e, bits(at::kUInt64, dims), range);
  }
  const Value number = e.bitcast(place, Type(at::kLong, dims));
  return low == 0 ? number : e.add(number, at::Scalar(low));
}

Values draw_until(Emitter& e, const Bits& bits, const Values& carried,
                  const std::function<Values(const Bits&, const Values&)>& body) {
  Values init = {bits(at::kUInt64, {2}), scalar(e, 0, at::kInt)};
  init.insert(init.end(), carried.begin(), carried.end());
  const auto condition = [&](const Values& in) {
    const Value pending = e.reduce(e.logical_not(flatten(e, in[2])), scalar(e, false, at::kBool), {0}, "or");
    return Values{e.logical_and(pending, e.compare("LT", in[1], at::Scalar(kMostRounds)))};
  };
  // Each draw of a round starts 2^32 counts after the one before, each round 2^40.
  const auto step = [&](const Values& in) {
    int64_t draws = 0;
    const Bits fresh = [&](at::ScalarType dtype, c10::IntArrayRef dims) {
      const Value state = e.add(in[0], e.list({int64_t{0}, draws++ << 32}, at::kUInt64));
      return e.random_bits(state, Type(dtype, dims));
    };
    Values next = body(fresh, Values(in.begin() + 2, in.end()));
    next.insert(next.begin(),
                {e.add(in[0], e.list({int64_t{0}, int64_t{1} << 40}, at::kUInt64)), e.add(in[1], at::Scalar(1))});
    return next;
  };
  const Values result = e.while_loop(init, condition, step);
  return Values(result.begin() + 2, result.end());
}

}  // namespace torch_tpu
