// What Debug mode checks before a call runs: indices out of range and integer division by
// zero, which StableHLO gives a value to instead of an error.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_tpu {

// Throws what CPU PyTorch throws for such a call. Reads the operands on the host.
void check_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace torch_tpu
