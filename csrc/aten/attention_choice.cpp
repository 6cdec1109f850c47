// What scaled_dot_product_attention and nn.TransformerEncoder ask a backend: which form of attention to
// use, and whether padding should become nested tensors (never: shapes are static here).
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

namespace torch_tpu {

namespace {

// PyTorch's sdp::SDPBackend, which no light header declares.
enum Choice : int64_t { kMath = 0, kFlash = 1 };

// True for what the row of the fused op and its Meta kernel cover: four dims, one batch, one head size, no
// dropout, no gradient of the mask.
bool fits_fused(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                const std::optional<at::Tensor>& mask, double dropout_p) {
  if (dropout_p != 0 || query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  if (!c10::isFloatingType(query.scalar_type()) || query.is_nested()) return false;
  if (key.sym_size(0) != query.sym_size(0) || value.sym_size(0) != query.sym_size(0)) return false;
  if (value.sym_size(3) != query.sym_size(3)) return false;
  const auto heads = key.sym_size(1);
  if (heads == 0 || value.sym_size(1) != heads || query.sym_size(1) % heads != 0) return false;
  return !(mask.has_value() && mask->defined() && mask->requires_grad() && at::GradMode::is_enabled());
}

int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout_p, bool /*is_causal*/,
                         std::optional<double> /*scale*/, bool enable_gqa) {
  const bool same_heads = query.dim() == 4 && key.dim() == 4 && query.sym_size(1) == key.sym_size(1);
  const bool allowed = at::globalContext().userEnabledFlashSDP() && (enable_gqa || same_heads);
  return allowed && fits_fused(query, key, value, mask, dropout_p) ? kFlash : kMath;
}

bool mask_is_left_aligned(const at::Tensor& /*t*/, const at::Tensor& /*mask*/) { return false; }

}  // namespace

using at::native::_fused_sdp_choice_stub;
using at::native::_fused_sdp_choice_stub_DECLARE_DISPATCH_type;
using at::native::RegisterPRIVATEUSE1Dispatch;
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose_attention)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(mask_is_left_aligned));
}

}  // namespace torch_tpu
