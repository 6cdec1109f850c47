// The ops that nn.MultiheadAttention and nn.TransformerEncoderLayer call in evaluation: a whole attention
// block and a whole encoder layer. Values are rounded to the input's dtype between the stages.
#include <cmath>
#include <limits>

#include "lowerings/contract.h"
#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// x (.., in) times weight (out, in), plus bias.
Value linear(Emitter& e, const Call& c, const Value& x, const Value& weight, const Value& bias) {
  const Value product = contract(e, x, weight, {{}, {}, {x.rank() - 1}, {1}}, c.precision());
  return e.convert(e.add(product, broadcast_to(e, e.convert(bias, product.dtype()), product.dims())), x.dtype());
}

struct Attended {
  Value out;      // (B, T, D)
  Value weights;  // (B, heads, T, S)
};

// PyTorch's mask types: 0 (T, S), 1 (B, S), 2 (B, heads, T, S). True, or any number but 0, hides.
Value masked(Emitter& e, const Call& c, const Value& scores) {
  if (!c.has("mask")) return scores;
  Value mask = e.convert(c.tensor("mask"), at::kBool);
  if (mask.rank() == 2) {
    const bool by_key = c.integer_or("mask_type", 0) == 1;
    mask = e.broadcast_in_dim(mask, scores.dims(), by_key ? Dims{0, 3} : Dims{2, 3});
  } else {
    mask = broadcast_to(e, mask, scores.dims());
  }
  return e.select(mask, e.constant_like(-std::numeric_limits<double>::infinity(), scores), scores);
}

Attended attend(Emitter& e, const Call& c, const Values& inputs, int64_t dim, int64_t heads) {
  const Value weight = c.tensor("qkv_weight");
  const Value bias = c.tensor("qkv_bias");
  Values parts;
  for (int64_t i = 0; i < 3; ++i) {
    const Value x = linear(e, c, inputs[i], slice_dim(e, weight, 0, i * dim, (i + 1) * dim),
                           slice_dim(e, bias, 0, i * dim, (i + 1) * dim));
    parts.push_back(e.reshape(x, {x.dim(0), x.dim(1), heads, dim / heads}));
  }
  const double scale = 1 / std::sqrt(static_cast<double>(dim / heads));
  Value scores = contract(e, parts[0], parts[1], {{0, 2}, {0, 2}, {3}, {3}}, c.precision());
  scores = masked(e, c, e.multiply(scores, scale));
  const Value highest = max(e, scores, {3});
  const Value raised = e.unary("exponential", e.subtract(scores, broadcast_along(e, highest, scores.dims(), {3})));
  const Value weights = e.divide(raised, broadcast_along(e, sum(e, raised, {3}), scores.dims(), {3}));

  const Value narrow = e.convert(weights, inputs[0].dtype());
  const Value mixed = contract(e, narrow, parts[2], {{0, 1}, {0, 2}, {3}, {1}}, c.precision());
  const Value by_token = e.reshape(e.transpose(mixed, {0, 2, 1, 3}), inputs[0].dims());
  const Value out =
      linear(e, c, e.convert(by_token, inputs[0].dtype()), c.tensor("proj_weight"), c.tensor("proj_bias"));
  return {out, narrow};
}

std::vector<Type> multi_head_types(const Call& c) {
  const Value query = c.tensor("query");
  Type weights(query.dtype(), {query.dim(0)});
  if (!c.flag("average_attn_weights")) weights.dims.push_back(c.integer("num_head"));
  weights.dims.append({query.dim(1), c.tensor("key").dim(1)});
  if (!c.flag("need_weights")) weights.dtype = at::ScalarType::Undefined;
  return {query.type, weights};
}

Values lower_native_multi_head_attention(Emitter& e, const Call& c) {
  const int64_t heads = c.integer("num_head");
  const Value query = c.tensor("query");
  Values results(2);
  if (query.type.numel() == 0) {
    results[0] = e.constant_like(0, query);
    if (c.flag("need_weights")) results[1] = e.constant(0, multi_head_types(c)[1]);
    return results;
  }
  const Attended attended = attend(e, c, {query, c.tensor("key"), c.tensor("value")}, c.integer("embed_dim"), heads);
  results[0] = attended.out;
  if (c.flag("need_weights")) {
    const bool average = c.flag("average_attn_weights");
    results[1] = average ? e.divide(sum(e, attended.weights, {1}), static_cast<double>(heads)) : attended.weights;
  }
  return results;
}

Value layer_norm(Emitter& e, const Call& c, const Value& input, const char* weight, const char* bias) {
  const Value x = e.convert(input, opmath(input.dtype()));
  const Dims last = {x.rank() - 1};
  const auto count = static_cast<double>(x.dims().back());
  const Value centered = e.subtract(x, broadcast_along(e, e.divide(sum(e, x, last), count), x.dims(), last));
  const Value variance = e.divide(sum(e, e.multiply(centered, centered), last), count);
  const Value rstd = e.unary("rsqrt", e.add(variance, c.number("eps", variance.type)));
  const auto over = [&](const char* name) { return broadcast_to(e, e.convert(c.tensor(name), x.dtype()), x.dims()); };
  const Value normalized = e.multiply(centered, broadcast_along(e, rstd, x.dims(), last));
  return e.convert(e.add(e.multiply(normalized, over(weight)), over(bias)), input.dtype());
}

Value lower_transformer_encoder_layer_fwd(Emitter& e, const Call& c) {
  const Value src = c.tensor("src");
  if (src.type.numel() == 0) return src;
  const bool norm_first = c.flag("norm_first");
  const auto first_norm = [&](const Value& x) { return layer_norm(e, c, x, "norm_weight_1", "norm_bias_1"); };
  const auto second_norm = [&](const Value& x) { return layer_norm(e, c, x, "norm_weight_2", "norm_bias_2"); };

  Value x = norm_first ? first_norm(src) : src;
  x = e.add(attend(e, c, {x, x, x}, c.integer("embed_dim"), c.integer("num_heads")).out, src);
  if (!norm_first) x = first_norm(x);

  const Value skipped = x;
  if (norm_first) x = second_norm(x);
  x = linear(e, c, x, c.tensor("ffn_weight_1"), c.tensor("ffn_bias_1"));
  if (c.flag("use_gelu")) {
    const Value wide = e.convert(x, opmath(x.dtype()));
    const Value erf = e.unary("chlo.erf", e.multiply(wide, 0.7071067811865476));
    x = e.convert(e.multiply(e.multiply(wide, 0.5), e.add(erf, 1)), x.dtype());
  } else {
    x = e.maximum(x, 0);
  }
  x = e.add(linear(e, c, x, c.tensor("ffn_weight_2"), c.tensor("ffn_bias_2")), skipped);
  return norm_first ? x : second_norm(x);
}

}  // namespace

void add_multi_head_attention(Table& t) {
  t.add("aten::_native_multi_head_attention", lower_native_multi_head_attention).with_shape(multi_head_types);
  t.add("aten::_transformer_encoder_layer_fwd", lower_transformer_encoder_layer_fwd);
}

}  // namespace torch_tpu
