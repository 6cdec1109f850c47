#include "aten/debug_check.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_set>

#include "aten/copy.h"
#include "aten/meta.h"

namespace torch_tpu {

namespace {

// Families whose CPU kernels raise for some values of their operands.
bool depends_on_values(const std::string& name) {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::index",
      "aten::index_put",
      "aten::index_put_",
      "aten::_index_put_impl_",
      "aten::index_select",
      "aten::index_add",
      "aten::index_add_",
      "aten::index_copy",
      "aten::index_copy_",
      "aten::index_fill",
      "aten::index_fill_",
      "aten::index_reduce",
      "aten::gather",
      "aten::scatter",
      "aten::scatter_",
      "aten::scatter_add",
      "aten::scatter_add_",
      "aten::scatter_reduce",
      "aten::scatter_reduce_",
      "aten::take",
      "aten::put",
      "aten::put_",
      "aten::embedding",
      "aten::nll_loss_forward",
      "aten::nll_loss2d_forward",
      "aten::div",
      "aten::div_",
      "aten::floor_divide",
      "aten::floor_divide_",
      "aten::remainder",
      "aten::remainder_",
      "aten::fmod",
      "aten::fmod_",
      "aten::multinomial",
  };
  return names->count(name) != 0;
}

c10::IValue on_host(const c10::IValue& value) {
  const auto host = [](const at::Tensor& t) {
    return t.defined() && t.device().type() == c10::DeviceType::PrivateUse1 ? read_on_host(t) : t;
  };
  if (value.isTensor()) return host(value.toTensor());
  if (!value.isList()) return value;
  const auto list = value.toListRef();
  const bool tensors = value.isTensorList() || (!list.empty() && list[0].isTensor());
  if (!tensors) return value;
  c10::List<std::optional<at::Tensor>> optional;
  for (const c10::IValue& element : list) {
    optional.push_back(element.isNone() ? std::optional<at::Tensor>() : host(element.toTensor()));
  }
  return optional;
}

}  // namespace

void check_values(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (!depends_on_values(op.operator_name().name)) return;
  const size_t n = op.schema().arguments().size();
  torch::jit::Stack host;
  for (size_t i = 0; i < n; ++i) {
    const bool draws = op.schema().arguments()[i].name() == "generator";  // not from the user's
    host.push_back(draws ? c10::IValue(at::detail::createCPUGenerator(0)) : on_host(stack[stack.size() - n + i]));
  }
  const Asking asking;
  op.callBoxed(&host);
}

}  // namespace torch_tpu
