// The ops that speak of streams. A buffer lives until the device has run what uses it, so there
// is nothing to record.
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace torch_tpu {
namespace {

void record_stream(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  torch::jit::drop(*stack, op.schema().arguments().size());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("record_stream", torch::CppFunction::makeFromBoxedFunction<&record_stream>());
}

}  // namespace
}  // namespace torch_tpu
