// The front of pow with a number, for a bool tensor to a bool power: PyTorch's CPU kernel gives bools and its Meta
// kernel int64, so that call does not reach the row.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <torch/library.h>

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

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"pow.Tensor_Scalar", "pow_.Scalar", "pow.Tensor_Scalar_out"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&pow_number>());
  }
}

}  // namespace torch_tpu
