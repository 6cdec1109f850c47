// Elementwise random fills, permutations and dropout. Numbers narrower than float are drawn in float and
// rounded once; every value comes from the generator's counter, so a seed gives the same numbers under every policy.
#include <c10/util/irange.h>

#include <cmath>
#include <limits>

#include "lowerings/draws.h"
#include "lowerings/families.h"

namespace torch_tpu {

namespace {

using Draw = std::function<Value(at::ScalarType dtype)>;

// What `draw` gives in the dtype the result is computed in, or two of it for a complex result.
Value drawn(Emitter& e, at::ScalarType dtype, const Draw& draw) {
  if (!c10::isComplexType(dtype)) return e.convert(draw(draw_dtype(dtype)), dtype);
  const at::ScalarType part = draw_dtype(c10::toRealValueType(dtype));
  const Value real = draw(part);
  return e.convert(e.complex(real, draw(part)), dtype);
}

// Bits of precision of a floating dtype.
int precision_digits(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return 53;
    case at::kFloat:
      return 24;
    case at::kHalf:
      return 11;
    case at::kBFloat16:
      return 8;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "tpu: no random numbers of dtype ", dtype, ".");
  }
}

// --- continuous distributions

Value lower_uniform(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const auto draw = [&](at::ScalarType dtype) {
    const Type type(dtype, result.dims);
    Value unit;
    const at::ScalarType part = c10::isComplexType(result.dtype) ? dtype : result.dtype;
    if (part == dtype) {
      unit = draw_uniform(e, bits_of(c), dtype, result.dims);
    } else {
      // As many digits as the result has, so rounding never reaches 1.
      const int digits = precision_digits(part);
      const Value word =
          e.binary("shift_right_logical", c.random_bits(at::kUInt32, result.dims), at::Scalar(int64_t{32 - digits}));
      unit = e.multiply(e.convert(word, dtype), at::Scalar(std::ldexp(1.0, -digits)));
    }
    if (c.equals("from", 0) && c.equals("to", 1)) return unit;
    const Value from = c.number("from", type);
    const Value to = c.number("to", type);
    const Value value = e.add(e.multiply(unit, e.subtract(to, from)), from);
    // Rounding may reach the excluded end.
    return e.select(e.compare("LT", value, to), value, from);
  };
  return drawn(e, result.dtype, draw);
}

// A complex normal has its variance split between the two parts.
Value standard_normal(Emitter& e, const Call& c, at::ScalarType dtype) {
  const Value x = draw_normal(e, bits_of(c), dtype, c.result().dims);
  return c10::isComplexType(c.result().dtype) ? e.multiply(x, at::Scalar(M_SQRT1_2)) : x;
}

Value lower_normal(Emitter& e, const Call& c) {
  const Type& result = c.result();
  return drawn(e, result.dtype, [&](at::ScalarType dtype) {
    Value x = standard_normal(e, c, dtype);
    if (!c.equals("std", 1)) x = e.multiply(x, c.number("std", x.type));
    if (!c.equals("mean", 0)) x = e.add(x, c.number("mean", x.type));
    return x;
  });
}

// normal(mean, std) where at least one is a tensor.
Value lower_normal_tensors(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const at::ScalarType dtype = draw_dtype(c10::toRealValueType(result.dtype));
  const at::ScalarType compute = c10::isComplexType(result.dtype) ? result.dtype : dtype;
  const Type type(compute, result.dims);
  const auto parameter = [&](std::string_view name) {
    if (c.is_number(name)) return c.number(name, type);
    return broadcast_to(e, e.convert(c.tensor(name), compute), type.dims);
  };
  const Value x = drawn(e, compute, [&](at::ScalarType part) { return standard_normal(e, c, part); });
  return e.convert(e.add(e.multiply(x, parameter("std")), parameter("mean")), result.dtype);
}

Value lower_log_normal(Emitter& e, const Call& c) {
  return e.convert(e.unary("exponential",
                           [&] {
                             const at::ScalarType dtype = draw_dtype(c.result().dtype);
                             const Value x = standard_normal(e, c, dtype);
                             return e.add(e.multiply(x, c.number("std", x.type)), c.number("mean", x.type));
                           }()),
                   c.result().dtype);
}

Value lower_exponential(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const Value x = draw_exponential(e, bits_of(c), draw_dtype(result.dtype), result.dims);
  return e.convert(c.equals("lambd", 1) ? x : e.divide(x, c.number("lambd", x.type)), result.dtype);
}

Value lower_cauchy(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const Value u = draw_open_uniform(e, bits_of(c), draw_dtype(result.dtype), result.dims);
  const Value angle = e.multiply(e.subtract(u, at::Scalar(0.5)), at::Scalar(M_PI));
  const Value x = e.unary("tan", angle);
  return e.convert(e.add(e.multiply(x, c.number("sigma", x.type)), c.number("median", x.type)), result.dtype);
}

// --- discrete distributions

Value lower_geometric(Emitter& e, const Call& c) {
  const Type& result = c.result();
  const Value u = draw_open_uniform(e, bits_of(c), draw_dtype(result.dtype), result.dims);
  const Value failure = e.unary("log_plus_one", e.negate(c.number("p", u.type)));
  return e.convert(e.unary("ceil", e.divide(e.unary("log", u), failure)), result.dtype);
}

// 1 with probability `p`, which has the result's dims, else 0.
Value bernoulli(Emitter& e, const Call& c, const Value& p) {
  return e.convert(e.compare("LT", draw_uniform(e, bits_of(c), p.dtype(), p.dims()), p), c.result().dtype);
}

Value bernoulli_of_tensor(Emitter& e, const Call& c, const Value& p) {
  return bernoulli(e, c, broadcast_to(e, e.convert(p, draw_dtype(p.dtype())), c.result().dims));
}

Value lower_bernoulli(Emitter& e, const Call& c) { return bernoulli_of_tensor(e, c, c.tensor("self")); }

Value lower_bernoulli_number(Emitter& e, const Call& c) {
  return bernoulli(e, c, c.number("p", Type(at::kFloat, c.result().dims)));
}

Value lower_bernoulli_tensor(Emitter& e, const Call& c) { return bernoulli_of_tensor(e, c, c.tensor("p")); }

// The largest number that random_ draws for a dtype.
int64_t largest_random(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBool:
      return 1;
    case at::kByte:
      return std::numeric_limits<uint8_t>::max();
    case at::kChar:
      return std::numeric_limits<int8_t>::max();
    case at::kShort:
      return std::numeric_limits<int16_t>::max();
    case at::kUInt16:
      return std::numeric_limits<uint16_t>::max();
    case at::kInt:
      return std::numeric_limits<int32_t>::max();
    case at::kUInt32:
      return std::numeric_limits<uint32_t>::max();
    case at::kLong:
    case at::kUInt64:
      return std::numeric_limits<int64_t>::max();
    default:
      return int64_t{1} << precision_digits(dtype);
  }
}

// In [low, high].
Value random_between(Emitter& e, const Call& c, int64_t low, int64_t high) {
  TORCH_CHECK(low <= high, "random_ expects 'from' to be less than 'to', but got from=", low, " >= to=", high + 1);
  const Type& result = c.result();
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  return e.convert(draw_integers(e, bits_of(c), low, range, result.dims), result.dtype);
}

Value lower_random(Emitter& e, const Call& c) { return random_between(e, c, 0, largest_random(c.result().dtype)); }

Value lower_random_from(Emitter& e, const Call& c) {
  const int64_t high = c.has("to") ? c.integer("to") - 1 : largest_random(c.result().dtype);
  return random_between(e, c, c.integer("from"), high);
}

Value lower_random_to(Emitter& e, const Call& c) { return random_between(e, c, 0, c.integer("to") - 1); }

// The order of random keys. 64 bits, so that equal keys, which would keep their order, do not happen.
Value lower_randperm(Emitter& e, const Call& c) {
  const Type& result = c.result();
  if (result.numel() == 0) return e.constant(0, result);
  const Value keys = c.random_bits(at::kUInt64, result.dims);
  const Value order = e.iota(result.with(at::kInt), 0);
  const Values sorted =
      e.sort({keys, order}, 0, true, [&](const Values& in) { return Values{e.compare("LT", in[0], in[1])}; });
  return e.convert(sorted[1], result.dtype);
}

// --- dropout

Value scaled_by_mask(Emitter& e, const Value& x, const Value& mask, const Value& scale) {
  const at::ScalarType compute = opmath(x.dtype());
  const Value kept = e.multiply(e.convert(x, compute), e.convert(mask, compute));
  return e.convert(e.multiply(kept, broadcast_to(e, e.convert(scale, compute), x.dims())), x.dtype());
}

Values lower_native_dropout(Emitter& e, const Call& c) {
  const Value input = c.tensor("input");
  const Type mask_type = input.type.with(at::kBool);
  if (c.has("train") && !c.flag("train")) return {input, e.constant(true, mask_type)};
  const Value keep = e.subtract(at::Scalar(1), c.number("p", at::kFloat));
  const Value u = draw_uniform(e, bits_of(c), at::kFloat, input.dims());
  const Value mask = e.compare("LT", u, broadcast_to(e, keep, u.dims()));
  // Nothing is kept where p is 1: no infinite scale.
  const Value scale = e.select(e.compare("EQ", keep, at::Scalar(0)), keep, e.divide(at::Scalar(1), keep));
  return {scaled_by_mask(e, input, mask, scale), mask};
}

Value lower_native_dropout_backward(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.result().dtype;
  const Value grad = e.convert(c.tensor("grad_output"), opmath(dtype));
  const Value kept = e.multiply(grad, e.convert(c.tensor("mask"), grad.dtype()));
  return e.convert(e.multiply(kept, c.number("scale", kept.type)), dtype);
}

Value lower_masked_scale(Emitter& e, const Call& c) {
  return scaled_by_mask(e, c.tensor("self"), c.tensor("mask"), c.number("scale", at::kFloat));
}

// `p` is the probability to keep.
Values lower_fused_dropout(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value keep = c.number("p", at::kFloat);
  const Value u = draw_uniform(e, bits_of(c), at::kFloat, self.dims());
  const Value mask = e.compare("LT", u, broadcast_to(e, keep, u.dims()));
  return {scaled_by_mask(e, self, mask, e.divide(at::Scalar(1), keep)), e.convert(mask, at::kByte)};
}

}  // namespace

void add_random(Table& t) {
  t.add("aten::uniform", lower_uniform).draws_random();
  t.add("aten::normal_", lower_normal).draws_random();
  t.add("aten::normal_functional", lower_normal).draws_random();
  // PyTorch's Meta kernel takes this overload for one that is told its size.
  t.add("aten::normal.out", lower_normal).draws_random().with_shape([](const Call& c) {
    return std::vector<Type>{c.tensor("self").type};
  });
  for (const char* form : {"Tensor_float", "float_Tensor", "Tensor_Tensor"}) {
    t.add(std::string("aten::normal.") + form, lower_normal_tensors).draws_random();
  }
  t.add("aten::log_normal", lower_log_normal).draws_random();
  t.add("aten::exponential", lower_exponential).draws_random();
  t.add("aten::cauchy", lower_cauchy).draws_random();
  t.add("aten::geometric", lower_geometric).draws_random();
  t.add("aten::bernoulli", lower_bernoulli).draws_random();
  t.add("aten::bernoulli.Tensor", lower_bernoulli_tensor).draws_random();
  t.add("aten::bernoulli.p", lower_bernoulli_number).draws_random();
  t.add("aten::random", lower_random).draws_random();
  t.add("aten::random.from", lower_random_from).draws_random();
  t.add("aten::random.to", lower_random_to).draws_random();
  t.add("aten::randperm.generator_out", lower_randperm).draws_random();
  t.add("aten::native_dropout", lower_native_dropout).draws_random();
  t.add("aten::native_dropout_backward", lower_native_dropout_backward);
  t.add("aten::_fused_dropout", lower_fused_dropout).draws_random();
  t.add("aten::_masked_scale", lower_masked_scale);
}

}  // namespace torch_tpu
