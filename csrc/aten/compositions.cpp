// Overloads for which PyTorch has kernels of other backends only, though they are made of other ops: here as calls
// of those. The ops called are rows, so these run as any sequence of calls does.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/_adaptive_avg_pool3d.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward.h>
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/_embedding_bag_dense_backward.h>
#include <ATen/ops/_embedding_bag_sparse_backward.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "aten/copy.h"
#include "exec/abstract.h"
#include "exec/capture.h"

namespace torch_tpu {

namespace {

// --- factories

c10::TensorOptions options_of(std::optional<at::ScalarType> dtype, std::optional<at::Device> device) {
  return c10::TensorOptions().dtype(dtype).device(device.value_or(at::Device(c10::DeviceType::PrivateUse1)));
}

// Storage that was never written reads as zeros and has no value, so ordinary zeros are the efficient ones.
at::Tensor efficient_zeros(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                           std::optional<at::Device> device, std::optional<bool>) {
  return at::zeros(size, options_of(dtype, device));
}

at::Tensor make_dep_token(std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                          std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat>) {
  return at::empty({}, options_of(dtype, device));
}

// --- assertions: the value is read at once; a program that is only recorded makes no check

void assert_nonzero(const at::Tensor& self, std::string_view message) {
  TORCH_CHECK(self.numel() == 1, "tpu: _assert_async: got ", self.numel(),
              " elements; expected one.\nReduce it first.");
  if (Capture::active() != nullptr || AbstractSession::active() != nullptr) return;
  TORCH_CHECK(self.is_nonzero(), message);
}

void assert_async(const at::Tensor& self) {
  assert_nonzero(self, "Expected Tensor with single nonzero value, but got zero");
}

void assert_async_msg(const at::Tensor& self, std::string_view message) {
  assert_nonzero(self, message.empty() ? "Assertion is failed" : message);
}

at::Tensor functional_assert_async(const at::Tensor& self, std::string_view message, const at::Tensor& token) {
  assert_async_msg(self, message);
  return token.clone();
}

// --- matrix products, norms, pools

std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(const at::Tensor& self, const at::Tensor& grad_output,
                                                               const at::Tensor& weight, std::array<bool, 3> wanted) {
  const at::Tensor rows = grad_output.reshape({-1, weight.size(0)});
  at::Tensor grad_self, grad_weight, grad_bias;
  if (wanted[0]) grad_self = rows.mm(weight).reshape(self.sizes());
  if (wanted[1]) grad_weight = rows.t().mm(self.reshape({-1, weight.size(1)}));
  if (wanted[2]) grad_bias = rows.sum(0);
  return {grad_self, grad_weight, grad_bias};
}

at::Tensor native_norm(const at::Tensor& self, const at::Scalar& p) { return at::linalg_vector_norm(self, p); }

at::Tensor native_norm_dim(const at::Tensor& self, const std::optional<at::Scalar>& p, c10::IntArrayRef dim,
                           bool keepdim, std::optional<at::ScalarType> dtype) {
  return at::linalg_vector_norm(self, p.value_or(2), dim, keepdim, dtype);
}

at::Tensor& adaptive_avg_pool2d_out(const at::Tensor& self, c10::IntArrayRef size, at::Tensor& out) {
  return write_out(out, at::_adaptive_avg_pool2d(self, size));
}

at::Tensor& adaptive_avg_pool3d_out(const at::Tensor& self, c10::IntArrayRef size, at::Tensor& out) {
  return write_out(out, at::_adaptive_avg_pool3d(self, size));
}

at::Tensor& adaptive_avg_pool3d_backward_out(const at::Tensor& grad_output, const at::Tensor& self, at::Tensor& out) {
  return write_out(out, at::_adaptive_avg_pool3d_backward(grad_output, self));
}

at::Tensor max_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self, c10::IntArrayRef kernel,
                               c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
                               bool ceil_mode) {
  const auto [ignored, indices] = at::max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode);
  return at::max_pool2d_with_indices_backward(grad_output, self, kernel, stride, padding, dilation, ceil_mode, indices);
}

// --- the gradient of a table that bags were taken of

at::Tensor embedding_bag_backward(const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& offsets,
                                  const at::Tensor& offset2bag, const at::Tensor& bag_size,
                                  const at::Tensor& maximum_indices, int64_t num_weights, bool scale_grad_by_freq,
                                  int64_t mode, bool sparse, const std::optional<at::Tensor>& per_sample_weights,
                                  int64_t padding_idx) {
  if (sparse) {
    return at::_embedding_bag_sparse_backward(grad, indices, offsets, offset2bag, bag_size, num_weights,
                                              scale_grad_by_freq, mode, per_sample_weights, padding_idx);
  }
  return at::_embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
                                           scale_grad_by_freq, mode, per_sample_weights, padding_idx);
}

// --- ctc_loss with lengths in tensors, which choose the shape of the program: they are read on the host

std::vector<int64_t> read_lengths(const at::Tensor& lengths) {
  const at::Tensor host = lengths.to(at::Device(at::kCPU), at::kLong).contiguous();
  const auto* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

std::tuple<at::Tensor, at::Tensor> ctc_loss(const at::Tensor& log_probs, const at::Tensor& targets,
                                            const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                                            int64_t blank, bool zero_infinity) {
  return at::_ctc_loss(log_probs, targets, read_lengths(input_lengths), read_lengths(target_lengths), blank,
                       zero_infinity);
}

at::Tensor ctc_loss_backward(const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
                             const at::Tensor& input_lengths, const at::Tensor& target_lengths,
                             const at::Tensor& neg_log_likelihood, const at::Tensor& log_alpha, int64_t blank,
                             bool zero_infinity) {
  return at::_ctc_loss_backward(grad, log_probs, targets, read_lengths(input_lengths), read_lengths(target_lengths),
                                neg_log_likelihood, log_alpha, blank, zero_infinity);
}

// --- the operators << and >>, whose Meta kernels refuse the bools that the CPU takes

at::Tensor lshift(const at::Tensor& self, const at::Tensor& other) { return at::bitwise_left_shift(self, other); }
at::Tensor lshift_number(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_left_shift(self, other);
}
at::Tensor rshift(const at::Tensor& self, const at::Tensor& other) { return at::bitwise_right_shift(self, other); }
at::Tensor rshift_number(const at::Tensor& self, const at::Scalar& other) {
  return at::bitwise_right_shift(self, other);
}

// --- jagged tensors: rows of several lengths, one after the other, and where each begins

const at::Tensor& only_offsets(at::TensorList offsets) {
  TORCH_CHECK_NOT_IMPLEMENTED(offsets.size() == 1, "tpu: jagged tensors of ", offsets.size(),
                              " ragged dims; expected one, as on the CPU.\nPad the others first.");
  return offsets[0];
}

// `mask` with as many dims as `like`, for where().
at::Tensor spread(const at::Tensor& mask, const at::Tensor& like) {
  at::Tensor m = mask;
  while (m.dim() < like.dim()) m = m.unsqueeze(-1);
  return m;
}

at::Tensor jagged_to_padded(const at::Tensor& values, at::TensorList all_offsets, c10::IntArrayRef max_lengths,
                            double padding) {
  const at::Tensor& offsets = only_offsets(all_offsets);
  const int64_t batch = offsets.size(0) - 1, length = max_lengths[0];
  std::vector<int64_t> sizes = {batch, length};
  sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
  if (values.numel() == 0 || batch * length == 0) return at::full(sizes, padding, values.options());
  const at::Tensor starts = offsets.narrow(0, 0, batch).unsqueeze(1);
  const at::Tensor ends = offsets.narrow(0, 1, batch).unsqueeze(1);
  const at::Tensor position = starts.add(at::arange(length, offsets.options()));
  const at::Tensor rows = values.index_select(0, position.clamp_max(values.size(0) - 1).flatten()).reshape(sizes);
  return at::where(spread(position.lt(ends), rows), rows, at::full({}, padding, values.options()));
}

at::Tensor padded_to_jagged(const at::Tensor& dense, at::TensorList all_offsets, std::optional<int64_t> total) {
  const at::Tensor& offsets = only_offsets(all_offsets);
  const int64_t count = total ? *total : offsets.max().item<int64_t>();
  std::vector<int64_t> sizes = {count};
  sizes.insert(sizes.end(), dense.sizes().begin() + 2, dense.sizes().end());
  if (dense.numel() == 0 || count == 0) return at::zeros(sizes, dense.options());
  const int64_t batch = dense.size(0), length = dense.size(1);
  const at::Tensor position = at::arange(count, offsets.options());
  const at::Tensor row =
      at::searchsorted(offsets.narrow(0, 1, batch), position, /*out_int32=*/false, /*right=*/true).clamp_max(batch - 1);
  const at::Tensor column = position.sub(offsets.index_select(0, row));
  const at::Tensor picked = dense.flatten(0, 1).index_select(0, row.mul(length).add(column.clamp(0, length - 1)));
  return at::where(spread(column.lt(length), picked), picked, at::zeros({}, dense.options()));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_efficientzerotensor", efficient_zeros);
  m.impl("_make_dep_token", make_dep_token);
  m.impl("_assert_async", assert_async);
  m.impl("_assert_async.msg", assert_async_msg);
  m.impl("_functional_assert_async.msg", functional_assert_async);
  m.impl("__lshift__.Tensor", lshift);
  m.impl("__lshift__.Scalar", lshift_number);
  m.impl("__rshift__.Tensor", rshift);
  m.impl("__rshift__.Scalar", rshift_number);
  m.impl("linear_backward", linear_backward);
  m.impl("native_norm", native_norm);
  m.impl("native_norm.ScalarOpt_dim_dtype", native_norm_dim);
  m.impl("adaptive_avg_pool2d.out", adaptive_avg_pool2d_out);
  m.impl("adaptive_avg_pool3d.out", adaptive_avg_pool3d_out);
  m.impl("adaptive_avg_pool3d_backward.grad_input", adaptive_avg_pool3d_backward_out);
  m.impl("max_pool2d_backward", max_pool2d_backward);
  m.impl("_embedding_bag_backward", embedding_bag_backward);
  m.impl("_ctc_loss.Tensor", ctc_loss);
  m.impl("_ctc_loss_backward.Tensor", ctc_loss_backward);
  m.impl("_jagged_to_padded_dense_forward", jagged_to_padded);
  m.impl("_padded_dense_to_jagged_forward", padded_to_jagged);
}

}  // namespace torch_tpu
