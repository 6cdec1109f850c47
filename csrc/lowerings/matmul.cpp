// Matrix products. bfloat16 and half accumulate in float32 and are rounded once, after the sum with
// `self`; beta and alpha are operands, except where 0 or 1 has a cheaper meaning.
#include "lowerings/contract.h"
#include "lowerings/families.h"
#include "lowerings/pointwise.h"
#include "lowerings/reduction.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// beta * self + alpha * product in product's dtype. beta 0 ignores self, NaN and all.
Value blend(Emitter& e, const Call& c, const Value& product) {
  Value out = product;
  if (!c.equals("alpha", 1)) out = e.multiply(out, c.number("alpha", out.type));
  if (c.equals("beta", 0)) return out;
  Value self = broadcast_to(e, e.convert(c.tensor("self"), out.dtype()), out.dims());
  if (!c.equals("beta", 1)) self = e.multiply(self, c.number("beta", out.type));
  return e.add(self, out);
}

Value lower_mm(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  return e.convert(matrix_product(e, self, c.tensor("mat2"), c.precision()), self.dtype());
}

Value lower_mm_dtype(Emitter& e, const Call& c) {
  return e.convert(matrix_product(e, c.tensor("self"), c.tensor("mat2"), c.precision()), *c.dtype("out_dtype"));
}

Value addmm(Emitter& e, const Call& c) {
  return blend(e, c, matrix_product(e, c.tensor("mat1"), c.tensor("mat2"), c.precision()));
}

Value lower_addmm(Emitter& e, const Call& c) { return e.convert(addmm(e, c), c.tensor("mat1").dtype()); }

Value lower_addmm_dtype(Emitter& e, const Call& c) { return e.convert(addmm(e, c), *c.dtype("out_dtype")); }

Value lower_addmm_activation(Emitter& e, const Call& c) {
  Value x = addmm(e, c);
  if (c.flag("use_gelu")) {
    const Value erf = e.unary("chlo.erf", e.multiply(x, 0.7071067811865476));
    x = e.multiply(e.multiply(x, 0.5), e.add(erf, 1));
  } else {
    x = e.maximum(x, 0);
  }
  return e.convert(x, c.tensor("mat1").dtype());
}

Value baddbmm(Emitter& e, const Call& c) {
  return blend(e, c, matrix_product(e, c.tensor("batch1"), c.tensor("batch2"), c.precision()));
}

Value lower_baddbmm(Emitter& e, const Call& c) { return e.convert(baddbmm(e, c), c.tensor("batch1").dtype()); }

Value lower_baddbmm_dtype(Emitter& e, const Call& c) { return e.convert(baddbmm(e, c), *c.dtype("out_dtype")); }

// PyTorch's Meta kernel does not know this overload's arguments.
std::vector<Type> baddbmm_dtype_type(const Call& c) {
  const Value a = c.tensor("batch1");
  const Value b = c.tensor("batch2");
  TORCH_CHECK(a.rank() == 3 && b.rank() == 3 && a.dim(0) == b.dim(0) && a.dim(2) == b.dim(1), "tpu: baddbmm: got ",
              a.type, " and ", b.type, "; expected batches of matrices whose inner sizes agree.");
  return {Type(*c.dtype("out_dtype"), {a.dim(0), a.dim(1), b.dim(2)})};
}

Value lower_addbmm(Emitter& e, const Call& c) {
  const Value batch1 = c.tensor("batch1");
  const Value sum = contract(e, batch1, c.tensor("batch2"), {{}, {}, {0, 2}, {0, 1}}, c.precision());
  return e.convert(blend(e, c, sum), batch1.dtype());
}

Value lower_mv(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  return e.convert(contract(e, self, c.tensor("vec"), {{}, {}, {1}, {0}}, c.precision()), self.dtype());
}

Value lower_addmv(Emitter& e, const Call& c) {
  const Value mat = c.tensor("mat");
  const Value product = contract(e, mat, c.tensor("vec"), {{}, {}, {1}, {0}}, c.precision());
  return e.convert(blend(e, c, product), mat.dtype());
}

// Of vectors. XLA's CPU compiler adds a dot product's terms one after the other, so that long ones lose digits.
Value inner_product(Emitter& e, const Call& c, const Value& a, const Value& b) {
  const at::ScalarType dtype = a.dtype();
  if (!c10::isFloatingType(dtype)) return e.convert(contract(e, a, b, {{}, {}, {0}, {0}}, c.precision()), dtype);
  const at::ScalarType wide = opmath(dtype);
  const Value terms = e.multiply(e.convert(a, wide), e.convert(b, wide));
  return e.convert(e.reshape(accurate_sum(e, e.reshape(terms, {terms.dim(0), 1}), {0}), {}), dtype);
}

Value lower_dot(Emitter& e, const Call& c) { return inner_product(e, c, c.tensor("self"), c.tensor("tensor")); }

// Complex: the conjugate of self times other.
Value lower_vdot(Emitter& e, const Call& c) {
  Value self = c.tensor("self");
  if (c10::isComplexType(self.dtype())) self = e.complex(e.real(self), e.negate(e.imag(self)));
  return inner_product(e, c, self, c.tensor("other"));
}

Value lower_addr(Emitter& e, const Call& c) {
  const at::ScalarType dtype = c.common_dtype(Promote::kDefault, {"self", "vec1", "vec2"});
  const at::ScalarType computed = opmath(dtype);
  const Value vec1 = e.convert(c.tensor("vec1"), computed);
  const Value vec2 = e.convert(c.tensor("vec2"), computed);
  const Dims dims = {vec1.dim(0), vec2.dim(0)};
  const Value outer = e.multiply(e.broadcast_in_dim(vec1, dims, {0}), e.broadcast_in_dim(vec2, dims, {1}));
  return e.convert(blend(e, c, outer), dtype);
}

Value lower_int_mm(Emitter& e, const Call& c) {
  const Value self = e.convert(c.tensor("self"), at::kInt);
  return matrix_product(e, self, e.convert(c.tensor("mat2"), at::kInt), c.precision());
}

// self (M, K) times int8 mat2 (N, K), each of whose rows has a scale.
Value lower_weight_int8pack_mm(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value mat2 = e.convert(c.tensor("mat2"), self.dtype());
  const Value product = contract(e, self, mat2, {{}, {}, {1}, {1}}, c.precision());
  const Value scales = e.convert(c.tensor("scales"), product.dtype());
  return e.convert(e.multiply(product, e.broadcast_in_dim(scales, product.dims(), {1})), self.dtype());
}

// x times a number, a number a row or a number a column of it.
Value scale_by(Emitter& e, const Value& x, const Value& given) {
  Value scale = e.convert(given, at::kFloat);
  if (scale.type.numel() == 1) scale = e.reshape(scale, {});
  return e.multiply(x, broadcast_to(e, scale, x.dims()));
}

// Scales are one number each, or one a row of self and one a column of mat2.
Value scaled_product(Emitter& e, const Call& c, const Value& scale_a, const Value& scale_b) {
  Value out = matrix_product(e, e.convert(c.tensor("self"), at::kBFloat16), e.convert(c.tensor("mat2"), at::kBFloat16),
                             c.precision());
  out = scale_by(e, scale_by(e, out, scale_a), scale_b);
  if (c.has("bias")) out = e.add(out, broadcast_to(e, e.convert(c.tensor("bias"), at::kFloat), out.dims()));
  return out;
}

Value lower_scaled_mm(Emitter& e, const Call& c) {
  Value out = scaled_product(e, c, c.tensor("scale_a"), c.tensor("scale_b"));
  if (c.has("scale_result")) out = scale_by(e, out, c.tensor("scale_result"));
  return e.convert(out, c.dtype("out_dtype").value_or(c.tensor("self").dtype()));
}

// torch.nn.functional.ScalingType: a number a tensor (0) or a row (1); the others are one a block.
Value scale_of(Emitter& e, const Call& c, std::string_view scales, std::string_view recipes, bool by_row) {
  const std::vector<int64_t> recipe = c.integers(recipes);
  TORCH_CHECK_NOT_IMPLEMENTED(c.tensors(scales).size() == 1 && recipe.size() == 1 && recipe[0] <= 1,
                              "tpu: _scaled_mm_v2: ", recipes, "=", c10::IntArrayRef(recipe),
                              " is not supported; TensorWise and RowWise are.\nScale blocks before the product.");
  const Value scale = c.tensors(scales)[0];
  if (scale.type.numel() == 1) return scale;
  return e.reshape(scale, by_row ? Dims{scale.type.numel(), 1} : Dims{1, scale.type.numel()});
}

Value lower_scaled_mm_v2(Emitter& e, const Call& c) {
  const Value out = scaled_product(e, c, scale_of(e, c, "scale_a", "recipe_a", /*by_row=*/true),
                                   scale_of(e, c, "scale_b", "recipe_b", /*by_row=*/false));
  return e.convert(out, c.dtype("out_dtype").value_or(c.tensor("self").dtype()));
}

std::vector<Type> scaled_mm_v2_types(const Call& c) {
  const Value a = c.tensor("self");
  const Value b = c.tensor("mat2");
  TORCH_CHECK(a.rank() == 2 && b.rank() == 2 && a.dim(1) == b.dim(0), "tpu: _scaled_mm_v2: got ", a.type, " and ",
              b.type, "; expected matrices whose inner sizes agree.");
  return {Type(c.dtype("out_dtype").value_or(a.dtype()), {a.dim(0), b.dim(1)})};
}

}  // namespace

void add_matmul(Table& t) {
  t.add("aten::mm", lower_mm);
  t.add("aten::bmm", lower_mm);
  t.add("aten::mm.dtype", lower_mm_dtype);
  t.add("aten::bmm.dtype", lower_mm_dtype);
  t.add("aten::addmm", lower_addmm);
  t.add("aten::addmm.dtype", lower_addmm_dtype);
  t.add("aten::_addmm_activation", lower_addmm_activation);
  t.add("aten::baddbmm", lower_baddbmm);
  t.add("aten::baddbmm.dtype", lower_baddbmm_dtype).with_shape(baddbmm_dtype_type);
  t.add("aten::addbmm", lower_addbmm);
  t.add("aten::mv", lower_mv);
  t.add("aten::addmv", lower_addmv);
  t.add("aten::dot", lower_dot);
  t.add("aten::vdot", lower_vdot);
  t.add("aten::addr", lower_addr);
  t.add("aten::_int_mm", lower_int_mm);
  t.add("aten::_weight_int8pack_mm", lower_weight_int8pack_mm);
  t.add("aten::_scaled_mm", lower_scaled_mm);
  t.add("aten::_scaled_mm_v2", lower_scaled_mm_v2).with_shape(scaled_mm_v2_types);
}

}  // namespace torch_tpu
