// What scaled_dot_product_attention and nn.TransformerEncoder ask a backend: which form of attention to
// use, and whether padding should become nested tensors (never: shapes are static here). The overrideable
// form, which PyTorch leaves to backends, calls the project's own ops (lowerings/attention.cpp).
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <array>
#include <tuple>

namespace torch_tpu {

namespace {

// PyTorch's sdp::SDPBackend, which no light header declares.
enum Choice : int64_t { kMath = 0, kFlash = 1, kOverrideable = 4 };

// True for what the rows cover: four dims, one batch, and whole groups of query heads.
bool fits_fused(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  if (!c10::isFloatingType(query.scalar_type()) || query.is_nested()) return false;
  if (key.sym_size(0) != query.sym_size(0) || value.sym_size(0) != query.sym_size(0)) return false;
  const auto heads = key.sym_size(1);
  return !(heads == 0 || value.sym_size(1) != heads || query.sym_size(1) % heads != 0);
}

// The ops for the CPU have no dropout, no gradient of the mask, and one head size (so says their Meta kernel).
bool fits_flash(const at::Tensor& query, const at::Tensor& value, const std::optional<at::Tensor>& mask,
                double dropout_p) {
  const bool mask_gradient = mask.has_value() && mask->defined() && mask->requires_grad() && at::GradMode::is_enabled();
  return dropout_p == 0 && !mask_gradient && value.sym_size(3) == query.sym_size(3);
}

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool /*is_causal*/,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  const bool same_heads = query.dim() == 4 && key.dim() == 4 && query.sym_size(1) == key.sym_size(1);
  const auto& context = at::globalContext();
  if (!(enable_gqa || same_heads) || !fits_fused(query, key, value)) return kMath;
  if (context.userEnabledFlashSDP() && fits_flash(query, value, mask, dropout_p)) return kFlash;
  // The Meta kernel of the overrideable form states a float log-sum-exp.
  return context.userEnabledOverrideableSDP() && query.scalar_type() != at::kDouble ? kOverrideable : kMath;
}

bool mask_is_left_aligned(const at::Tensor& /*t*/, const at::Tensor& /*mask*/) { return false; }

template <typename Signature>
auto own_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

using Forward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                                           const at::Tensor&,
                                                                           const std::optional<at::Tensor>&, double,
                                                                           bool, std::optional<double>);
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                                            const at::Tensor&, const at::Tensor&,
                                                                            const std::optional<at::Tensor>&,
                                                                            const at::Tensor&, const at::Tensor&,
                                                                            const at::Tensor&, const at::Tensor&, bool,
                                                                            double, bool, std::optional<double>);

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt, at::Tensor, at::Tensor, at::Tensor>
attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
          const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal, bool /*return_debug_mask*/,
          std::optional<double> scale) {
  static const auto op = own_op<Forward>("torch_tpu::attention");
  auto [out, log_sum, seed, offset] = op.call(query, key, value, mask, dropout_p, is_causal, scale);
  return {out, log_sum, at::Tensor(), at::Tensor(), query.sym_size(2), key.sym_size(2), seed, offset, at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& grad_out, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& mask, std::array<bool, 4> wanted, const at::Tensor& out, const at::Tensor& log_sum,
    const at::Tensor& /*cum_seq_q*/, const at::Tensor& /*cum_seq_k*/, c10::SymInt /*max_q*/, c10::SymInt /*max_k*/,
    double dropout_p, bool is_causal, const at::Tensor& seed, const at::Tensor& offset, std::optional<double> scale) {
  static const auto op = own_op<Backward>("torch_tpu::attention_backward");
  const auto given = mask.defined() ? std::optional<at::Tensor>(mask) : std::nullopt;
  return op.call(grad_out, query, key, value, given, out, log_sum, seed, offset, wanted[3] && mask.defined(), dropout_p,
                 is_causal, scale);
}

}  // namespace

using at::native::_fused_sdp_choice_stub;
using at::native::_fused_sdp_choice_stub_DECLARE_DISPATCH_type;
using at::native::RegisterPRIVATEUSE1Dispatch;
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose_attention)

TORCH_LIBRARY_FRAGMENT(torch_tpu, m) {
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool is_causal, "
      "float? scale) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor out, "
      "Tensor logsumexp, Tensor philox_seed, Tensor philox_offset, bool mask_gradient, float dropout_p, "
      "bool is_causal, float? scale) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(mask_is_left_aligned));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(attention));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(attention_backward));
}

}  // namespace torch_tpu
