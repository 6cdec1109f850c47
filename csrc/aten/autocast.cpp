// torch.autocast("tpu"): which ops run in the lower precision, which in float32, which in the
// widest type of their inputs. The same lists as PyTorch's for CUDA; an op in none of them runs
// as it is. One boxed kernel a rule; it casts the tensors on the stack and calls the op again
// below autocast.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

// From ATen/autocast_mode.h, which includes all of ATen.
namespace at::autocast {
TORCH_API at::ScalarType get_autocast_dtype(at::DeviceType device_type);
TORCH_API Tensor cached_cast(at::ScalarType to_type, const Tensor& arg, DeviceType device_type);
}  // namespace at::autocast

namespace torch_tpu {
namespace {

using torch::jit::Stack;

constexpr auto kTpu = at::DeviceType::PrivateUse1;

// The call below autocast.
class BelowAutocast {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::DispatchKey::AutocastPrivateUse1};
};

bool castable(const at::Tensor& t) {
  return t.defined() && t.device().type() == kTpu && at::isFloatingType(t.scalar_type());
}

// Calls f(tensor&) on each tensor of `value`, in lists too, and puts back what it changes.
template <typename F>
void for_each_tensor(c10::IValue& value, const F& f) {
  if (value.isTensor()) {
    at::Tensor t = value.toTensor();
    f(t);
    value = std::move(t);
  } else if (value.isTensorList()) {
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (auto& t : tensors) {
      f(t);
    }
    value = std::move(tensors);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const auto& element : value.toOptionalTensorVector()) {
      std::optional<at::Tensor> t = element;
      if (t) {
        f(*t);
      }
      out.push_back(std::move(t));
    }
    value = std::move(out);
  }
}

template <typename F>
void for_each_argument(const c10::OperatorHandle& op, Stack& stack, const F& f) {
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    f(stack[i]);
  }
}

void cast_all(const c10::OperatorHandle& op, Stack& stack, at::ScalarType to) {
  for_each_argument(op, stack, [to](c10::IValue& value) {
    for_each_tensor(value, [to](at::Tensor& t) {
      if (castable(t)) {
        t = at::autocast::cached_cast(to, t, kTpu);
      }
    });
  });
}

bool first_is_castable(const c10::OperatorHandle& op, const Stack& stack) {
  const c10::IValue& first = stack[stack.size() - op.schema().arguments().size()];
  return first.isTensor() && castable(first.toTensor());
}

void lower_precision(const c10::OperatorHandle& op, Stack* stack) {
  const BelowAutocast below;
  cast_all(op, *stack, at::autocast::get_autocast_dtype(kTpu));
  op.callBoxed(stack);
}

void float32(const c10::OperatorHandle& op, Stack* stack) {
  const BelowAutocast below;
  cast_all(op, *stack, at::kFloat);
  op.callBoxed(stack);
}

// Ops with a dtype argument: it says float32 unless the caller said something.
void float32_result(const c10::OperatorHandle& op, Stack* stack) {
  const BelowAutocast below;
  if (first_is_castable(op, *stack)) {
    const auto at = op.schema().argumentIndexWithName("dtype");
    TORCH_INTERNAL_ASSERT(at.has_value(), op.schema());
    c10::IValue& dtype = (*stack)[stack->size() - op.schema().arguments().size() + static_cast<size_t>(*at)];
    if (dtype.isNone()) {
      dtype = at::kFloat;
    }
  }
  op.callBoxed(stack);
}

// norm has no dtype argument: its overload with one takes the call.
template <const char* const& overload>
void norm_in_float32(const c10::OperatorHandle& op, Stack* stack) {
  const BelowAutocast below;
  static const auto with_dtype = c10::Dispatcher::singleton().findSchemaOrThrow("aten::norm", overload);
  const at::Tensor& self = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
  const bool low = castable(self) && (self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16);
  stack->emplace_back(low ? at::kFloat : self.scalar_type());
  with_dtype.callBoxed(stack);
}
constexpr const char* kScalarDtype = "ScalarOpt_dtype";
constexpr const char* kDimDtype = "ScalarOpt_dim_dtype";

// The widest of the lower precision and the castable inputs.
void widest(const c10::OperatorHandle& op, Stack* stack) {
  const BelowAutocast below;
  at::ScalarType to = at::autocast::get_autocast_dtype(kTpu);
  for_each_argument(op, *stack, [&](c10::IValue& value) {
    for_each_tensor(value, [&](at::Tensor& t) {
      if (castable(t)) {
        to = t.scalar_type() == at::kDouble || to == at::kDouble ? at::kDouble
             : t.scalar_type() == at::kFloat                     ? at::kFloat
                                                                 : to;
      }
    });
  });
  cast_all(op, *stack, to);
  op.callBoxed(stack);
}

void banned(const c10::OperatorHandle&, Stack*) {
  TORCH_CHECK(false,
              "tpu: binary_cross_entropy is unsafe under autocast: its float16 gradient overflows.\n"
              "Use binary_cross_entropy_with_logits (BCEWithLogitsLoss) without the sigmoid, or leave autocast "
              "for it: with torch.autocast(\"tpu\", enabled=False).");
}

constexpr const char* kLowerPrecision[] = {"_convolution.deprecated",
                                           "_convolution",
                                           "conv1d",
                                           "conv2d",
                                           "conv3d",
                                           "conv_tbc",
                                           "conv_transpose1d",
                                           "conv_transpose2d.input",
                                           "conv_transpose3d.input",
                                           "convolution",
                                           "prelu",
                                           "addmm",
                                           "addmv",
                                           "addr",
                                           "matmul",
                                           "einsum",
                                           "mm",
                                           "mv",
                                           "linalg_vecdot",
                                           "linear",
                                           "addbmm",
                                           "baddbmm",
                                           "bmm",
                                           "chain_matmul",
                                           "linalg_multi_dot",
                                           "_thnn_fused_lstm_cell",
                                           "_thnn_fused_gru_cell",
                                           "lstm_cell",
                                           "gru_cell",
                                           "rnn_tanh_cell",
                                           "rnn_relu_cell",
                                           "_scaled_dot_product_flash_attention",
                                           "scaled_dot_product_attention"};

constexpr const char* kFloat32[] = {"acos",
                                    "asin",
                                    "cosh",
                                    "erfinv",
                                    "exp",
                                    "expm1",
                                    "log",
                                    "log10",
                                    "log2",
                                    "log1p",
                                    "reciprocal",
                                    "rsqrt",
                                    "sinh",
                                    "tan",
                                    "pow.Tensor_Scalar",
                                    "pow.Tensor_Tensor",
                                    "pow.Scalar",
                                    "softplus",
                                    "layer_norm",
                                    "native_layer_norm",
                                    "rms_norm",
                                    "group_norm",
                                    "frobenius_norm.dim",
                                    "nuclear_norm",
                                    "nuclear_norm.dim",
                                    "cosine_similarity",
                                    "poisson_nll_loss",
                                    "cosine_embedding_loss",
                                    "nll_loss",
                                    "nll_loss2d",
                                    "hinge_embedding_loss",
                                    "kl_div",
                                    "l1_loss",
                                    "smooth_l1_loss",
                                    "huber_loss",
                                    "mse_loss",
                                    "margin_ranking_loss",
                                    "multilabel_margin_loss",
                                    "soft_margin_loss",
                                    "triplet_margin_loss",
                                    "multi_margin_loss",
                                    "binary_cross_entropy_with_logits",
                                    "dist",
                                    "pdist",
                                    "cdist",
                                    "renorm",
                                    "logsumexp",
                                    "upsample_nearest1d",
                                    "_upsample_nearest_exact1d",
                                    "upsample_nearest2d",
                                    "_upsample_nearest_exact2d",
                                    "upsample_nearest3d",
                                    "_upsample_nearest_exact3d",
                                    "upsample_linear1d",
                                    "upsample_bilinear2d",
                                    "_upsample_bilinear2d_aa",
                                    "upsample_trilinear3d",
                                    "upsample_bicubic2d",
                                    "_upsample_bicubic2d_aa"};

constexpr const char* kFloat32Result[] = {"prod",
                                          "prod.dim_int",
                                          "softmax.int",
                                          "log_softmax.int",
                                          "cumprod",
                                          "cumsum",
                                          "linalg_vector_norm",
                                          "linalg_matrix_norm",
                                          "linalg_matrix_norm.str_ord",
                                          "sum",
                                          "sum.dim_IntList"};

constexpr const char* kWidest[] = {"addcdiv", "addcmul",      "atan2",     "bilinear",  "cross",      "dot",
                                   "vdot",    "grid_sampler", "index_put", "tensordot", "scatter_add"};

template <c10::BoxedKernel::BoxedKernelFunction* kernel, size_t n>
void add_rule(torch::Library& m, const char* const (&names)[n]) {
  for (const char* name : names) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<kernel>());
  }
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  add_rule<&lower_precision>(m, kLowerPrecision);
  add_rule<&float32>(m, kFloat32);
  add_rule<&float32_result>(m, kFloat32Result);
  add_rule<&widest>(m, kWidest);
  m.impl("norm.Scalar", torch::CppFunction::makeFromBoxedFunction<&norm_in_float32<kScalarDtype>>());
  m.impl("norm.ScalarOpt_dim", torch::CppFunction::makeFromBoxedFunction<&norm_in_float32<kDimDtype>>());
  m.impl("binary_cross_entropy", torch::CppFunction::makeFromBoxedFunction<&banned>());
}

}  // namespace
}  // namespace torch_tpu
