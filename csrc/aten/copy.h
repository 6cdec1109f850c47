// Reading tpu tensors on the host, and copying results into out= tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_tpu {

// A CPU tensor of the same values, dtype and (if dense) strides. Runs what is pending, and waits.
at::Tensor read_on_host(const at::Tensor& t);

// `out`, resized to and filled with `result`. Throws if their dtypes differ.
at::Tensor& write_out(at::Tensor& out, const at::Tensor& result);

}  // namespace torch_tpu
