// Selections, clamps and blends of three operands, fills and copies.
#include <string>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"

namespace torch_tpu {

namespace {

Value lower_where(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "other"});
  const Values xs = broadcast_all(
      e, {e.convert(c.tensor("condition"), at::kBool), operand(e, c, "self", dtype), operand(e, c, "other", dtype)});
  return e.select(xs[0], xs[1], xs[2]);
}

// Bounds are tensors or numbers, and each may be absent. Above `max` wins where they cross.
Value lower_clamp(Emitter& e, const Call& c) {
  Names names = {"self"};
  for (const std::string_view bound : {"min", "max"}) {
    if (c.has(bound)) names.push_back(bound);
  }
  const Values xs = operands(e, c, names, c.common_dtype(Promote::kDefault, names));
  Value x = xs[0];
  if (c.has("min")) x = e.maximum(x, xs[1]);
  if (c.has("max")) x = e.minimum(x, xs.back());
  return x;
}

Value above(Emitter& e, const Value& x, const Value& bound) { return e.maximum(x, bound); }
Value below(Emitter& e, const Value& x, const Value& bound) { return e.minimum(x, bound); }

// self + value * tensor1 (* or /) tensor2
template <Value (Emitter::*Operation)(const Value&, const Value&)>
Value lower_add_product(Emitter& e, const Call& c) {
  const Names names = {"self", "tensor1", "tensor2"};
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, names);
  const Values xs = operands(e, c, names, opmath(dtype));
  Value first = xs[1];
  if (!c.equals("value", 1)) first = e.multiply(c.number("value", first.type), first);
  return e.convert(e.add(xs[0], (e.*Operation)(first, xs[2])), dtype);
}

// From the nearer end, so that both ends are met exactly.
Value lower_lerp(Emitter& e, const Call& c) {
  Names names = {"self", "end"};
  if (!c.is_number("weight")) names.push_back("weight");
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, names);
  const Values xs = operands(e, c, {"self", "end", "weight"}, opmath(dtype));
  const Value& weight = xs[2];
  const Value difference = e.subtract(xs[1], xs[0]);
  const Value near = e.compare("LT", magnitude(e, weight), 0.5);
  const Value from_self = e.add(xs[0], e.multiply(weight, difference));
  const Value from_end = e.subtract(xs[1], e.multiply(difference, one_minus(e, weight)));
  return e.convert(e.select(near, from_self, from_end), dtype);
}

// --- fills

Value lower_masked_fill(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Values xs =
      broadcast_all(e, {self, e.convert(c.tensor("mask"), at::kBool), operand(e, c, "value", self.dtype())});
  return e.select(xs[1], xs[2], xs[0]);
}

Value lower_fill(Emitter& e, const Call& c) {
  const Type& type = c.result();
  return broadcast_to(e, operand(e, c, "value", type.dtype), type.dims);
}

Value lower_zero(Emitter& e, const Call& c) { return e.constant(0, c.result()); }

Value lower_copy(Emitter& e, const Call& c) {
  const Type& type = c.result();
  Value src = c.tensor("src");
  // Leading dimensions of one element may be more than self has.
  if (src.rank() > type.rank()) {
    src = e.reshape(src, c10::IntArrayRef(src.dims()).slice(src.rank() - type.rank()));
  }
  return broadcast_to(e, e.convert(src, type.dtype), type.dims);
}

}  // namespace

void add_ternary(Table& t) {
  t.add("aten::where.self", lower_where);
  t.add("aten::clamp", lower_clamp);
  t.add("aten::clamp.Tensor", lower_clamp);
  for (const std::string overload : {"", ".Tensor"}) {
    add_exact(t, "aten::clamp_min" + overload, above, "self", "min");
    add_exact(t, "aten::clamp_max" + overload, below, "self", "max");
  }
  t.add("aten::addcmul", lower_add_product<&Emitter::multiply>);
  t.add("aten::addcdiv", lower_add_product<&Emitter::divide>);
  t.add("aten::lerp.Scalar", lower_lerp);
  t.add("aten::lerp.Tensor", lower_lerp);
  t.add("aten::masked_fill.Scalar", lower_masked_fill).writes_expanded();
  t.add("aten::masked_fill.Tensor", lower_masked_fill).writes_expanded();
  t.add("aten::fill_.Scalar", lower_fill).writes_expanded();
  t.add("aten::fill_.Tensor", lower_fill).writes_expanded();
  t.add("aten::zero_", lower_zero).writes_expanded();
  t.add("aten::copy_", lower_copy);
}

}  // namespace torch_tpu
