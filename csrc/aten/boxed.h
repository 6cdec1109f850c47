// The one kernel behind every row of the lowering table. A call is: a key made of the
// operands' views and the structure of the other arguments; a signature found by it, or
// lowered once; a submission to the policy; results put into cells.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/variants.h"

namespace torch_tpu {

// The kernel of one overload, to be registered with the dispatcher.
c10::KernelFunction make_row_kernel(Variant variant);

// Runs `op` by its row, as the registered kernel does: for kernels that prepare the
// arguments first. REQUIRES: make_row_kernel() was called for the overload.
void call_row(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// True if the overload is served by a row.
bool has_row(const c10::OperatorName& name);

}  // namespace torch_tpu
