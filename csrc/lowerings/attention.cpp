// Scaled dot product attention as one op, with the gradient that recomputes the probabilities from the saved
// log-sum-exp, so that no (L, S) matrix lives between forward and backward (attention_tiles.h: nor within them).
// The ops for the CPU are what scaled_dot_product_attention calls where the backend chooses flash attention; the
// project's own serve its overrideable form, which also has dropout and a gradient of the mask.
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

#include "lowerings/attention_tiles.h"
#include "lowerings/families.h"
#include "lowerings/partition.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Value grouped(Emitter& e, const Value& x, int64_t key_heads) {
  return e.reshape(x, {x.dim(0), key_heads, key_heads == 0 ? 0 : x.dim(1) / key_heads, x.dim(2), x.dim(3)});
}

// A mask that broadcasts to (B, H, L, S), with its heads in groups.
Value grouped_mask(Emitter& e, const Value& mask, int64_t key_heads) {
  Dims dims(4 - mask.rank(), 1);
  dims.append(mask.dims().begin(), mask.dims().end());
  const bool by_head = dims[1] != 1;
  return e.reshape(mask, {dims[0], by_head ? key_heads : 1, by_head ? dims[1] / key_heads : 1, dims[2], dims[3]});
}

Attention attention_of(Emitter& e, const Call& c) {
  Attention a;
  const Value query = c.tensor("query");
  a.key = c.tensor("key");
  a.value = c.tensor("value");
  a.query = grouped(e, query, a.key.dim(1));
  const at::ScalarType wide = opmath(query.dtype());
  a.scale = c.is_number("scale") ? c.number("scale", wide)
                                 : scalar(e, 1 / std::sqrt(static_cast<double>(query.dim(3))), wide);
  if (c.has("attn_mask")) a.mask = grouped_mask(e, c.tensor("attn_mask"), a.key.dim(1));
  a.causal = c.flag("is_causal");
  a.precision = c.precision();
  return a;
}

// Results of the same op for nothing to attend to.
bool is_empty(const Call& c) { return c.tensor("query").type.numel() == 0 || c.tensor("key").type.numel() == 0; }

std::vector<Type> attention_types(const Call& c) {
  const Value query = c.tensor("query");
  Dims out = query.dims();
  out[3] = c.tensor("value").dim(3);
  return {query.type.with(out), Type(opmath(query.dtype()), {query.dim(0), query.dim(1), query.dim(2)})};
}

Values forward(Emitter& e, const Call& c, const Attention& a) {
  const std::vector<Type> types = attention_types(c);
  const AttentionResult r = attend(e, a, tile_size(a, parts()));
  return {e.reshape(r.out, types[0].dims), e.reshape(r.log_sum, types[1].dims)};
}

Values nothing_attended(Emitter& e, const Call& c) {
  const std::vector<Type> types = attention_types(c);
  return {e.constant(0, types[0]), e.constant(-std::numeric_limits<double>::infinity(), types[1])};
}

AttentionGradients backward(Emitter& e, const Call& c, const Attention& a, bool with_mask) {
  const int64_t key_heads = a.key.dim(1);
  const Dims rows(a.query.dims().begin(), a.query.dims().begin() + 4);
  const AttentionResult result{grouped(e, c.tensor("out"), key_heads),
                               e.reshape(e.convert(c.tensor("logsumexp"), a.wide()), rows)};
  const Value grad = grouped(e, e.convert(c.tensor("grad_out"), a.query.dtype()), key_heads);
  AttentionGradients g = attend_backward(e, a, result, grad, with_mask, tile_size(a, parts()));
  g.query = e.reshape(g.query, c.tensor("query").dims());
  return g;
}

// --- PyTorch's ops for the CPU

Values lower_flash_attention(Emitter& e, const Call& c) {
  TORCH_CHECK_NOT_IMPLEMENTED(c.equals("dropout_p", 0),
                              "tpu: this op has no dropout.\nUse scaled_dot_product_attention, which has.");
  return is_empty(c) ? nothing_attended(e, c) : forward(e, c, attention_of(e, c));
}

Values lower_flash_attention_backward(Emitter& e, const Call& c) {
  if (is_empty(c) || c.tensor("grad_out").type.numel() == 0) {
    return {e.constant(0, c.tensor("query").type), e.constant(0, c.tensor("key").type),
            e.constant(0, c.tensor("value").type)};
  }
  const AttentionGradients g = backward(e, c, attention_of(e, c), false);
  return {g.query, g.key, g.value};
}

// --- the project's own, which the overrideable form calls

Value seed_word(Emitter& e, const Value& bits, int64_t i) {
  return e.bitcast(e.reshape(e.slice(bits, {i}, {i + 1}), {}), Type(at::kLong, {}));
}

Value seed_of(Emitter& e, const Value& key, const Value& counter) {
  const auto word = [&](const Value& x) { return e.reshape(e.bitcast(x, Type(at::kUInt64, {})), {1}); };
  return e.concatenate({word(key), word(counter)}, 0);
}

Values lower_attention(Emitter& e, const Call& c) {
  const bool drops = !c.equals("dropout_p", 0);
  const Value seed = drops ? c.random_bits(at::kUInt64, {2}) : e.list({0, 0}, at::kUInt64);
  Values results;
  if (is_empty(c)) {
    results = nothing_attended(e, c);
  } else {
    Attention a = attention_of(e, c);
    if (drops) a.seed = seed, a.dropout = c.number("dropout_p", at::kFloat);
    results = forward(e, c, a);
  }
  results.insert(results.end(), {seed_word(e, seed, 0), seed_word(e, seed, 1)});
  return results;
}

std::vector<Type> own_attention_types(const Call& c) {
  std::vector<Type> types = attention_types(c);
  types.insert(types.end(), 2, Type(at::kLong, {}));
  return types;
}

std::vector<Type> own_attention_gradient_types(const Call& c) {
  const Type mask = c.flag("mask_gradient") ? c.tensor("attn_mask").type : Type(at::ScalarType::Undefined, {});
  return {c.tensor("query").type, c.tensor("key").type, c.tensor("value").type, mask};
}

Values lower_attention_backward(Emitter& e, const Call& c) {
  const std::vector<Type> types = own_attention_gradient_types(c);
  const bool with_mask = c.flag("mask_gradient");
  if (is_empty(c) || c.tensor("grad_out").type.numel() == 0) {
    Values zeros;
    for (size_t i = 0; i < (with_mask ? 4 : 3); ++i) zeros.push_back(e.constant(0, types[i]));
    zeros.resize(4);
    return zeros;
  }
  Attention a = attention_of(e, c);
  if (!c.equals("dropout_p", 0)) {
    a.seed = seed_of(e, c.tensor("philox_seed"), c.tensor("philox_offset"));
    a.dropout = c.number("dropout_p", at::kFloat);
  }
  const AttentionGradients g = backward(e, c, a, with_mask);
  Value mask;
  if (with_mask) mask = e.convert(e.reshape(g.mask, types[3].dims), types[3].dtype);
  return {g.query, g.key, g.value, mask};
}

}  // namespace

void add_attention(Table& t) {
  t.add("aten::_scaled_dot_product_flash_attention_for_cpu", lower_flash_attention);
  t.add("aten::_scaled_dot_product_flash_attention_for_cpu_backward", lower_flash_attention_backward);
  t.add("torch_tpu::attention", lower_attention).with_shape(own_attention_types).draws_random();
  t.add("torch_tpu::attention_backward", lower_attention_backward).with_shape(own_attention_gradient_types);
}

}  // namespace torch_tpu
