// Makes and resizes tpu tensors. Allocates no device memory: a cell is empty until written.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensor/cell.h"
#include "tensor/view.h"

namespace torch_tpu {

// The cell behind a tpu tensor. REQUIRES: `t` is a strided tensor on a tpu device.
Cell* cell_of(const at::Tensor& t);

// A tensor of view's sizes, strides and dtype over a new cell that holds `value` (null: empty).
at::Tensor make_tensor(const View& view, int device, DeviceValuePtr value = {});

View view_of(const at::Tensor& t);

// Gives `t` other sizes and strides; its storage grows where it must.
void resize_to(const at::Tensor& t, c10::IntArrayRef sizes, c10::IntArrayRef strides);

// Registered as the device layer's storage resizer.
void resize_cell(const c10::Storage& storage, size_t nbytes);

}  // namespace torch_tpu
