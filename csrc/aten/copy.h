// Reading tpu tensors on the host.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_tpu {

// A CPU tensor of the same values, dtype and (if dense) strides. Runs what is pending, and waits.
at::Tensor read_on_host(const at::Tensor& t);

}  // namespace torch_tpu
