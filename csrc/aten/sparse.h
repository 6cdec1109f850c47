// Sparse COO and CSR tensors as their parts: dense index tensors and values. What is computed with them is calls of
// dense ops, so the rows serve sparse tensors too.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_tpu {

// The stored elements of a sparse tensor of two sparse dims; a batch of CSR or CSC matrices as one matrix of
// batch * rows rows, whose columns are those of one.
struct Entries {
  at::Tensor rows, columns;  // [nnz]
  at::Tensor values;         // [nnz, dense dims...]
};

// REQUIRES: a COO, CSR or CSC tensor. Throws NotImplementedError for another layout or number of sparse dims.
Entries entries_of(const at::Tensor& sparse, const char* op);

// For each column of `indices` [dims, nnz], its row-major place in a tensor of `sizes`.
at::Tensor flat_places(const at::Tensor& indices, c10::IntArrayRef sizes);

// Registers the refusal of what PyTorch would else answer for CSR tensors by kernels that only know dense ones. Call
// once, after all other kernels are registered.
void refuse_the_rest_of_csr();

}  // namespace torch_tpu
