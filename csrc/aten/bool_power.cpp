// The fronts of pow with a number, for a bool tensor to a bool power: PyTorch's CPU kernel gives bools and its Meta
// kernel int64, so that call does not reach the row.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "aten/boxed.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

// pow.Tensor_Scalar(Tensor self, Scalar exponent), pow_.Scalar, and pow.Tensor_Scalar_out with its `out`.
void pow_number(const c10::OperatorHandle& op, Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const size_t base = stack->size() - count;
  const at::Tensor self = (*stack)[base].toTensor();
  const at::Scalar exponent = (*stack)[base + 1].toScalar();
  if (self.scalar_type() != at::kBool || !exponent.isBoolean()) {
    call_row(op, stack);
    return;
  }
  at::Tensor result = exponent.toBool() ? self.clone() : at::ones_like(self);
  if (count == 3) {
    at::Tensor out = (*stack)[base + 2].toTensor();
    if (out.sizes() != result.sizes()) out.resize_(result.sizes());
    result = out.copy_(result);
  } else if (op.schema().is_mutable()) {
    result = self.copy_(result);
  }
  stack->resize(base);
  stack->emplace_back(std::move(result));
}

// _foreach_pow.Scalar and .ScalarList, and in place: one by one where there may be such a power.
void pow_numbers(const c10::OperatorHandle& op, Stack* stack) {
  const size_t base = stack->size() - 2;
  const auto tensors = (*stack)[base].toTensorVector();
  const c10::IValue& given = (*stack)[base + 1];
  std::vector<at::Scalar> exponents(tensors.size(), given.isList() ? at::Scalar() : given.toScalar());
  if (given.isList()) {
    const auto list = given.toListRef();
    TORCH_CHECK(list.size() == tensors.size(), "Tensor list must have same number of elements as scalar list.");
    for (size_t i = 0; i < list.size(); ++i) exponents[i] = list[i].toScalar();
  }
  if (std::none_of(exponents.begin(), exponents.end(), [](const at::Scalar& e) { return e.isBoolean(); })) {
    call_row(op, stack);
    return;
  }
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (op.schema().is_mutable()) {
      at::Tensor self = tensors[i];
      self.pow_(exponents[i]);
    } else {
      results.push_back(tensors[i].pow(exponents[i]));
    }
  }
  stack->resize(base);
  if (!op.schema().is_mutable()) stack->emplace_back(std::move(results));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"pow.Tensor_Scalar", "pow_.Scalar", "pow.Tensor_Scalar_out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&pow_number>());
  }
  for (const char* name :
       {"_foreach_pow.Scalar", "_foreach_pow_.Scalar", "_foreach_pow.ScalarList", "_foreach_pow_.ScalarList"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&pow_numbers>());
  }
}

}  // namespace torch_tpu
