// What PyTorch's Meta kernels say of a call: sizes, strides and dtypes of its results, and
// its errors and warnings. The very overload that was called runs on meta twins of the
// operands.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>

#include <functional>
#include <vector>

#include "aten/variants.h"
#include "exec/signature.h"
#include "tensor/cell.h"

namespace torch_tpu {

// While it lives, CPU kernels are asked about a user's call: neither autograd nor a profiler sees them.
struct Asking {
  at::AutoDispatchBelowAutograd below;
  at::DisableRecordFunctionGuard unprofiled;
};

struct MetaAnswer {
  std::vector<ResultSpec> results;  // fresh ones
  // Sizes and strides that an out= tensor must be resized to: by position among the written
  // tensors, and only where they differ from what it has.
  struct Resize {
    size_t written;
    Dims sizes, strides;
  };
  std::vector<Resize> resizes;
};

// True if some Meta kernel can answer for the variant.
bool has_meta(const c10::OperatorHandle& op, const Variant& variant);
// `stack` holds the call's arguments, and is left as it is. Throws what PyTorch throws.
MetaAnswer ask_meta(const c10::OperatorHandle& op, const Variant& variant, const torch::jit::Stack& stack);

// Throws what the CPU kernel throws for operands like these, whose elements it takes for 0 (integers) or a positive
// number; returns if it throws nothing. For errors that people know: many Meta kernels are Python decompositions with
// other words, and lowerings assert what Meta kernels should have refused.
void raise_as_cpu(const c10::OperatorHandle& op, const Variant& variant, const torch::jit::Stack& stack);

// Throws what the CPU kernel throws for operands of these dtypes, asked of two elements a dimension. Not of reduced
// floating dtypes, which a TPU is made for and CPU kernels lack here and there.
// REQUIRES: takes_any_sizes(*variant.row), or only_fills(variant).
void refuse_dtypes(const c10::OperatorHandle& op, const Variant& variant, const torch::jit::Stack& stack);
// True for the families whose ops do not care how long a dimension is: elementwise ones and reductions.
bool takes_any_sizes(const Row& row);

// Throws what the CPU kernel throws for the dtypes of out= tensors that differ from the first operand's. Most Meta
// kernels take whatever the result can be cast to; many CPU kernels take their own dtype only.
void refuse_out_dtypes(const c10::OperatorHandle& op, const Variant& variant, const torch::jit::Stack& stack);

// For an op that only fills its one tensor: throws what the CPU kernel throws for such numbers, asked of a tensor of
// nothing. Spares the Meta kernels of random ops, whose first use imports a second's worth of Python.
bool only_fills(const Variant& variant);
void check_fill(const c10::OperatorHandle& op, const Variant& variant, const torch::jit::Stack& stack);

// Refuses written tensors that overlap themselves or, in part, other operands: as PyTorch's CPU
// kernels do, and its Meta kernels do not.
void refuse_overlap(const Variant& variant, const torch::jit::Stack& stack);

// Answers a call of an op that has no row, without data: its Meta kernel says what comes back, and `make` gives the
// values, also of what it writes. Replaces the arguments on the stack by the results. False: it has no Meta kernel.
bool answer_without_data(const c10::OperatorHandle& op, torch::jit::Stack& stack,
                         const std::function<DeviceValuePtr(const Type&, int device)>& make);

// The tensors that a variant writes, lists flattened, in schema order.
std::vector<at::Tensor> written_tensors(const Variant& variant, const torch::jit::Stack& stack);

}  // namespace torch_tpu
