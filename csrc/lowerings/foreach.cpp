// Foreach rows: each is the row of its one-tensor op, applied to every element
// of the lists. Nothing is said here of what an op computes, but for the few
// that have no one-tensor row. REQUIRES: the other families' rows are in the table.
#include <c10/util/irange.h>

#include <limits>

#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

using Passed = Call::Passed;

Passed pass(std::string name, std::string from) { return {std::move(name), std::move(from), {}}; }
Passed pass_constant(std::string name, Argument constant) { return {std::move(name), {}, std::move(constant)}; }

// The row `name`: `row` on each element of the arguments passed.
void add_each(Table& t, const std::string& name, std::string_view row, std::vector<Passed> arguments) {
  const auto each = [lower = t.find(row).lower, arguments = std::move(arguments)](Emitter& e, const Call& c) {
    Values results;
    for (const auto i : c10::irange(c.num_results())) {
      results.push_back(lower(e, c.element(i, arguments, c.result(i)))[0]);
    }
    return results;
  };
  t.add(name, each).by_element();
}

// The row `_foreach_<op>` of `aten::<op>`.
void add_unary_each(Table& t, const std::string& op) {
  add_each(t, "aten::_foreach_" + op, "aten::" + op, {pass("self", "self")});
}

// The .List, .Scalar and .ScalarList rows `_foreach_<op>` of the binary row `row`.
// `scalars`: what the schema calls the list of numbers. `more`: arguments only `row` has.
void add_binary_each(Table& t, const std::string& op, std::string_view row, const std::vector<Passed>& more = {}) {
  const auto with = [&](const std::string& from) {
    std::vector<Passed> arguments = {pass("self", "self"), pass("other", from)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  add_each(t, "aten::_foreach_" + op + ".List", row, with("other"));
  add_each(t, "aten::_foreach_" + op + ".Scalar", row, with("scalar"));
  add_each(t, "aten::_foreach_" + op + ".ScalarList", row, with("scalars"));
}

// add and sub, whose lists come with an alpha and whose scalars do not.
void add_scaled_each(Table& t, const std::string& op) {
  const std::string row = "aten::" + op + ".Tensor";
  const Passed one = pass_constant("alpha", int64_t{1});
  const Passed alpha = pass("alpha", "alpha");
  const std::string name = "aten::_foreach_" + op;
  add_each(t, name + ".List", row, {pass("self", "self"), pass("other", "other"), alpha});
  add_each(t, name + ".Scalar", row, {pass("self", "self"), pass("other", "scalar"), one});
  add_each(t, name + ".ScalarList", row, {pass("self", "self"), pass("other", "scalars"), one});
}

// The i-th element of a vector as a number whose value nobody may observe.
Argument number_at(Emitter& e, const Value& vector, int64_t i) {
  const Value element = e.reshape(slice_dim(e, vector, 0, i, i + 1), {});
  if (c10::isIntegralType(element.dtype(), /*includeBool=*/true)) {
    return NumberArgument{std::numeric_limits<int64_t>::min(), e.convert(element, at::kLong)};
  }
  return NumberArgument{std::numeric_limits<double>::quiet_NaN(), e.convert(element, at::kDouble)};
}

// PyTorch's Meta kernel looks at the numbers themselves.
std::vector<Type> ternary_types(const Call& c, const std::vector<Passed>& tensors) {
  const Values self = c.tensors("self");
  const size_t others[] = {c.tensors("tensor1").size(), c.tensors("tensor2").size()};
  TORCH_CHECK(self.size() == others[0] && self.size() == others[1],
              "Tensor lists must have the same number of tensors, got ", self.size(), ", ", others[0], " and ",
              others[1]);
  std::vector<Type> types;
  for (const auto i : c10::irange(self.size())) {
    const Call one = c.element(i, tensors, self[i].type);
    Dims dims = self[i].dims();
    for (const char* name : {"tensor1", "tensor2"}) dims = broadcast_dims(dims, one.tensor(name).dims());
    types.emplace_back(one.common_dtype(Promote::kDefault, {"self", "tensor1", "tensor2"}), dims);
  }
  return types;
}

// addcmul and addcdiv.
void add_ternary_each(Table& t, const std::string& op) {
  const std::string row = "aten::" + op;
  const std::string name = "aten::_foreach_" + op;
  const std::vector<Passed> tensors = {pass("self", "self"), pass("tensor1", "tensor1"), pass("tensor2", "tensor2")};
  const auto with = [&](Passed value) {
    std::vector<Passed> arguments = tensors;
    arguments.push_back(std::move(value));
    return arguments;
  };
  add_each(t, name + ".Scalar", row, with(pass("value", "value")));
  add_each(t, name + ".ScalarList", row, with(pass("value", "scalars")));
  // One vector of numbers, which PyTorch asks to be on the CPU.
  const auto by_vector = [lower = t.find(row).lower, tensors, op](Emitter& e, const Call& c) {
    const Value scalars = c.tensor("scalars");
    TORCH_CHECK(scalars.rank() == 1 && scalars.dim(0) == static_cast<int64_t>(c.num_results()), "_foreach_", op,
                ": got ", scalars.type, " for scalars; expected a vector of ", c.num_results(),
                ", a number for each tensor.");
    Values results;
    for (const auto i : c10::irange(c.num_results())) {
      TORCH_CHECK(op != "addcdiv" || !c10::isIntegralType(c.result(i).dtype, /*includeBool=*/true),
                  "Integer division with addcdiv is not supported; got ", c.result(i), ".");
      std::vector<Passed> arguments = tensors;
      arguments.push_back(pass_constant("value", number_at(e, scalars, static_cast<int64_t>(i))));
      results.push_back(lower(e, c.element(i, arguments, c.result(i)))[0]);
    }
    return results;
  };
  t.add(name + ".Tensor", by_vector)
      .with_shape([tensors](const Call& c) { return ternary_types(c, tensors); })
      .takes_host_indices();
}

Values lower_foreach_clone(Emitter&, const Call& c) { return c.tensors("self"); }

// The sources in the destinations' types.
Values lower_foreach_copy(Emitter& e, const Call& c) {
  Values results = c.tensors("src");
  for (const auto i : c10::irange(results.size())) {
    const Type& type = c.result(i);
    results[i] = broadcast_to(e, e.convert(results[i], type.dtype), type.dims);
  }
  return results;
}

Values lower_foreach_zero(Emitter& e, const Call& c) {
  Values results;
  for (const auto i : c10::irange(c.num_results())) results.push_back(e.constant(0, c.result(i)));
  return results;
}

// The sum of |x| ^ ord.
Values lower_foreach_powsum(Emitter& e, const Call& c) {
  Values results;
  for (const Value& x : c.tensors("self")) {
    const at::ScalarType dtype = c.result(results.size()).dtype;
    const Value magnitude = e.convert(e.unary("abs", x), opmath(dtype));
    const Value powers = c.equals("ord", 2)   ? e.multiply(magnitude, magnitude)
                         : c.equals("ord", 1) ? magnitude
                                              : e.power(magnitude, c.number("ord", magnitude.type));
    results.push_back(e.convert(sum(e, powers, c.dims("dim", x.rank())), dtype));
  }
  return results;
}

}  // namespace

void add_foreach(Table& t) {
  for (const char* op :
       {"abs",   "acos",    "asin",   "atan", "ceil",  "cos",   "cosh", "erf",  "erfc", "exp",        "expm1",
        "floor", "frac",    "lgamma", "log",  "log10", "log1p", "log2", "max",  "neg",  "reciprocal", "round",
        "rsqrt", "sigmoid", "sign",   "sin",  "sinh",  "sqrt",  "tan",  "tanh", "trunc"}) {
    add_unary_each(t, op);
  }

  add_scaled_each(t, "add");
  add_scaled_each(t, "sub");
  add_each(t, "aten::_foreach_add.Tensor", "aten::add.Tensor",
           {pass("self", "self"), pass("other", "other"), pass("alpha", "alpha")});
  add_binary_each(t, "mul", "aten::mul.Tensor");
  add_binary_each(t, "div", "aten::div.Tensor");
  for (const std::string op : {"mul", "div"}) {
    add_each(t, "aten::_foreach_" + op + ".Tensor", "aten::" + op + ".Tensor",
             {pass("self", "self"), pass("other", "other")});
  }
  add_binary_each(t, "clamp_max", "aten::minimum");
  add_binary_each(t, "clamp_min", "aten::maximum");
  add_binary_each(t, "maximum", "aten::maximum");
  add_binary_each(t, "minimum", "aten::minimum");

  const Passed self = pass("self", "self");
  const Passed exponent = pass("exponent", "exponent");
  add_each(t, "aten::_foreach_pow.List", "aten::pow.Tensor_Tensor", {self, exponent});
  add_each(t, "aten::_foreach_pow.Scalar", "aten::pow.Tensor_Scalar", {self, exponent});
  add_each(t, "aten::_foreach_pow.ScalarList", "aten::pow.Tensor_Scalar", {self, exponent});
  add_each(t, "aten::_foreach_pow.ScalarAndTensor", "aten::pow.Scalar", {self, exponent});

  add_ternary_each(t, "addcdiv");
  add_ternary_each(t, "addcmul");

  const Passed end = pass("end", "tensors1");
  add_each(t, "aten::_foreach_lerp.List", "aten::lerp.Tensor", {self, end, pass("weight", "weights")});
  add_each(t, "aten::_foreach_lerp.Scalar", "aten::lerp.Scalar", {self, end, pass("weight", "weight")});
  add_each(t, "aten::_foreach_lerp.ScalarList", "aten::lerp.Scalar", {self, end, pass("weight", "weight")});

  add_each(t, "aten::_foreach_mm", "aten::mm", {self, pass("mat2", "mat2")});
  add_each(t, "aten::_foreach_norm.Scalar", "aten::linalg_vector_norm",
           {self, pass("ord", "ord"), pass_constant("dim", std::monostate{}), pass_constant("keepdim", false),
            pass("dtype", "dtype")});
  t.add("aten::_foreach_powsum.Scalar", lower_foreach_powsum).by_element();

  t.add("aten::_foreach_clone", lower_foreach_clone).by_element();
  t.add("aten::_foreach_copy", lower_foreach_copy).by_element();
  t.add("aten::_foreach_zero", lower_foreach_zero).by_element();
}

}  // namespace torch_tpu
