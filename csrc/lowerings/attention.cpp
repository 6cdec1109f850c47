// Scaled dot product attention as one op, with the gradient that recomputes the probabilities from the
// saved log-sum-exp, so that no (L, S) matrix lives between forward and backward. These are PyTorch's
// ops for the CPU, which scaled_dot_product_attention calls where the backend chooses flash attention.
// Fewer key heads than query heads serve groups of query heads. Scores are float32 or wider.
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>

#include "lowerings/contract.h"
#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// query (B, Hk, G, L, E), key and value (B, Hk, S, E): query head h uses key head h / G.
struct Problem {
  Value query, key, value;
  Value scores;  // (B, Hk, G, L, S), scaled and masked
  Value scale;   // of scores' type
  Dims heads() const { return {query.dim(0), query.dim(1) * query.dim(2)}; }
};

const DotDims kScores{{0, 1}, {0, 1}, {4}, {3}};        // (.., L, E) x (.., S, E)
const DotDims kMixed{{0, 1}, {0, 1}, {4}, {2}};         // (.., L, S) x (.., S, E)
const DotDims kToKeys{{0, 1}, {0, 1}, {2, 3}, {2, 3}};  // over the group and L: (.., G, L, S) x (.., G, L, E)

Value grouped(Emitter& e, const Value& x, int64_t key_heads) {
  return e.reshape(x, {x.dim(0), key_heads, key_heads == 0 ? 0 : x.dim(1) / key_heads, x.dim(2), x.dim(3)});
}

Problem problem_of(Emitter& e, const Call& c) {
  Problem p;
  p.key = c.tensor("key");
  p.value = c.tensor("value");
  const Value query = c.tensor("query");
  p.query = grouped(e, query, p.key.dim(1));
  Value scores = contract(e, p.query, p.key, kScores, c.precision());
  const Type type = scores.type;
  p.scale = c.is_number("scale") ? c.number("scale", type)
                                 : e.constant(1 / std::sqrt(static_cast<double>(query.dim(3))), type);
  scores = e.multiply(scores, p.scale);

  const Value never = e.constant(-std::numeric_limits<double>::infinity(), type);
  if (c.has("attn_mask")) {
    const Value mask = c.tensor("attn_mask");
    const Dims full = {query.dim(0), query.dim(1), type.dims[3], type.dims[4]};
    const Value over_heads = e.reshape(broadcast_to(e, mask, full), type.dims);
    scores = mask.dtype() == at::kBool ? e.select(over_heads, scores, never)
                                       : e.add(scores, e.convert(over_heads, type.dtype));
  }
  if (c.flag("is_causal")) {
    const Type index = type.with(at::kInt);
    scores = e.select(e.compare("GE", e.iota(index, 3), e.iota(index, 4)), scores, never);
  }
  p.scores = scores;
  return p;
}

// exp(scores - by_row): a row that is wholly masked gives zeros.
Value exponentials(Emitter& e, const Value& scores, const Value& by_row) {
  const Value masked = e.compare("EQ", by_row, e.constant_like(-std::numeric_limits<double>::infinity(), by_row));
  const Value shift = e.select(masked, e.constant_like(0, by_row), by_row);
  return e.unary("exponential", e.subtract(scores, broadcast_along(e, shift, scores.dims(), {4})));
}

std::vector<Type> attention_types(const Call& c) {
  const Value query = c.tensor("query");
  Dims out = query.dims();
  out[3] = c.tensor("value").dim(3);
  return {query.type.with(out), Type(opmath(query.dtype()), {query.dim(0), query.dim(1), query.dim(2)})};
}

Values lower_flash_attention(Emitter& e, const Call& c) {
  TORCH_CHECK_NOT_IMPLEMENTED(c.equals("dropout_p", 0),
                              "tpu: fused attention has no dropout.\nUse scaled_dot_product_attention, which has.");
  const std::vector<Type> types = attention_types(c);
  if (types[0].numel() == 0 || c.tensor("key").type.numel() == 0) {
    return {e.constant(0, types[0]), e.constant(-std::numeric_limits<double>::infinity(), types[1])};
  }
  const Problem p = problem_of(e, c);
  const Value highest = max(e, p.scores, {4});
  const Value weights = exponentials(e, p.scores, highest);
  const Value total = sum(e, weights, {4});
  const Value none = e.compare("EQ", total, at::Scalar(0));
  const Value mixed = contract(e, e.convert(weights, p.value.dtype()), p.value, kMixed, c.precision());
  const Value divisor = e.select(none, e.constant_like(1, total), total);
  const Value out = e.divide(mixed, broadcast_along(e, divisor, mixed.dims(), {4}));
  const Value log_sum = e.add(highest, e.unary("log", divisor));
  return {e.convert(e.reshape(out, types[0].dims), types[0].dtype), e.reshape(log_sum, types[1].dims)};
}

std::vector<Type> attention_gradient_types(const Call& c) {
  return {c.tensor("query").type, c.tensor("key").type, c.tensor("value").type};
}

Values lower_flash_attention_backward(Emitter& e, const Call& c) {
  const std::vector<Type> types = attention_gradient_types(c);
  const Value grad_out = c.tensor("grad_out");
  if (grad_out.type.numel() == 0 || types[1].numel() == 0) {
    return {e.constant(0, types[0]), e.constant(0, types[1]), e.constant(0, types[2])};
  }
  const Problem p = problem_of(e, c);
  const at::ScalarType narrow = p.query.dtype();
  const at::ScalarType wide = p.scores.dtype();
  const Value grad = grouped(e, e.convert(grad_out, narrow), p.key.dim(1));
  const Value out = grouped(e, c.tensor("out"), p.key.dim(1));
  const Dims rows(p.scores.dims().begin(), p.scores.dims().begin() + 4);
  const Value weights = exponentials(e, p.scores, e.reshape(e.convert(c.tensor("logsumexp"), wide), rows));

  const Value along = sum(e, e.multiply(e.convert(grad, wide), e.convert(out, wide)), {4});
  const Value grad_weights = contract(e, grad, p.value, kScores, c.precision());
  Value grad_scores = e.subtract(grad_weights, broadcast_along(e, along, grad_weights.dims(), {4}));
  grad_scores = e.convert(e.multiply(e.multiply(weights, grad_scores), p.scale), narrow);

  const Value grad_query = contract(e, grad_scores, p.key, kMixed, c.precision());
  const Value grad_key = contract(e, grad_scores, p.query, kToKeys, c.precision());
  const Value grad_value = contract(e, e.convert(weights, narrow), grad, kToKeys, c.precision());
  return {e.convert(e.reshape(grad_query, types[0].dims), types[0].dtype), e.convert(grad_key, types[1].dtype),
          e.convert(grad_value, types[2].dtype)};
}

}  // namespace

void add_attention(Table& t) {
  t.add("aten::_scaled_dot_product_flash_attention_for_cpu", lower_flash_attention);
  t.add("aten::_scaled_dot_product_flash_attention_for_cpu_backward", lower_flash_attention_backward);
}

}  // namespace torch_tpu
