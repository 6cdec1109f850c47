#include "aten/meta.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "aten/factories.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

// Twins of tensors on another kind of device, made once a storage. CPU tensors are their own, unless `host_too`.
class Twins {
 public:
  explicit Twins(c10::DeviceType device, bool host_too = false) : device_(device), host_too_(host_too) {}
  c10::DeviceType device() const { return device_; }

  at::Tensor of(const at::Tensor& t) {
    if (!t.defined() || (!host_too_ && t.device().type() == c10::DeviceType::CPU)) return t;
    const auto* storage = t.storage().unsafeGetStorageImpl();
    auto it = storages_.find(storage);
    if (it == storages_.end()) {
      c10::Allocator* allocator = c10::GetAllocator(device_);
      it = storages_
               .emplace(storage, c10::Storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(), allocator, true))
               .first;
      if (device_ == c10::DeviceType::CPU) {
        // Zeros, but of what may not be: weights do not sum to 0, and a complex number is not real.
        const int byte = t.is_floating_point() || t.is_complex() ? 0x3f : 0;
        std::memset(it->second.mutable_data(), byte, t.storage().nbytes());
      }
    }
    at::Tensor twin = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(it->second),
        c10::DispatchKeySet(device_ == c10::DeviceType::CPU ? c10::DispatchKey::CPU : c10::DispatchKey::Meta),
        t.dtype());
    auto* impl = twin.unsafeGetTensorImpl();
    impl->set_storage_offset(t.storage_offset());
    impl->set_sizes_and_strides(t.sizes(), t.strides());
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    return twin;
  }

 private:
  c10::DeviceType device_;
  bool host_too_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;
};

c10::IValue twin_of(const c10::IValue& value, ArgumentKind kind, Twins& twins) {
  if (value.isNone()) return value;
  if (kind == ArgumentKind::kTensor) return twins.of(value.toTensor());
  if (kind == ArgumentKind::kGenerator) return c10::IValue();
  if (kind == ArgumentKind::kIgnored) return c10::Device(twins.device());
  if (kind != ArgumentKind::kTensorList) return value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(twins.of(element.toTensor()));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef()) {
    list.push_back(element.isNone() ? std::optional<at::Tensor>() : twins.of(element.toTensor()));
  }
  return list;
}

ResultSpec spec_of(const at::Tensor& t) {
  ResultSpec spec;
  spec.defined = t.defined();
  if (!spec.defined) return spec;
  spec.view.dtype = t.scalar_type();
  spec.view.sizes.assign(t.sizes().begin(), t.sizes().end());
  spec.view.strides.assign(t.strides().begin(), t.strides().end());
  return spec;
}

std::vector<ResultSpec> specs_of(const c10::IValue& value) {
  std::vector<ResultSpec> specs;
  if (value.isTensor()) {
    specs.push_back(spec_of(value.toTensor()));
  } else if (value.isNone()) {
    specs.push_back(spec_of(at::Tensor()));
  } else if (value.isTensorList()) {
    for (const c10::IValue& element : value.toListRef()) specs.push_back(spec_of(element.toTensor()));
  }
  return specs;
}

// A computed kernel would not do: where there is none, PyTorch puts one that throws.
bool answers_meta(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  for (const DispatchKey key :
       {DispatchKey::Meta, DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeExplicitAutogradNonFunctional,
        DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

void collect(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      tensors.push_back(element.isNone() ? at::Tensor() : element.toTensor());
    }
  } else {
    tensors.emplace_back();
  }
}

}  // namespace

// For the functional form of an out= variant, the out= tensors are left away. Calls nothing where that would take much
// memory, or the CPU has no kernel.
void raise_as_cpu(const c10::OperatorHandle& op, const Variant& variant, const Stack& stack) {
  constexpr size_t kMuch = size_t{1} << 26;
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  const size_t base = stack.size() - variant.kinds.size();
  Twins twins(c10::DeviceType::CPU);
  Stack arguments;
  for (const auto i : c10::irange(op.schema().arguments().size())) {
    const c10::IValue& value = stack[base + i];
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().storage().nbytes() > kMuch) return;
    arguments.push_back(twin_of(value, variant.kinds[i], twins));
  }
  const Asking asking;
  op.callBoxed(&arguments);
}

namespace {

bool is_reduced(at::ScalarType dtype) { return c10::isFloatingType(dtype) && c10::elementSize(dtype) < 4; }

class Silence final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

// Ones, in the dtype and as many dims as `t` has.
at::Tensor small_twin(const at::Tensor& t) {
  Dims sizes(t.sizes().begin(), t.sizes().end());
  for (int64_t& size : sizes) size = std::min<int64_t>(size, 2);
  at::Tensor twin = at::detail::empty_cpu(sizes, t.scalar_type());
  twin.fill_(1);
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) twin.unsafeGetTensorImpl()->set_wrapped_number(true);
  return twin;
}

}  // namespace

bool takes_any_sizes(const Row& row) {
  static const auto* families = new std::unordered_set<std::string>{
      "activation", "bessel", "binary", "bitwise", "extreme", "gamma",
      "polynomial", "power",  "reduce", "special", "ternary", "unary",
  };
  return families->count(row.family) != 0;
}

void refuse_dtypes(const c10::OperatorHandle& op, const Variant& variant, const Stack& stack) {
  const c10::OperatorHandle& asked = variant.is_out && variant.functional ? *variant.functional : op;
  if (!asked.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  const size_t base = stack.size() - variant.kinds.size();
  const Asking asking;
  Stack arguments;
  for (const auto i : c10::irange(asked.schema().arguments().size())) {
    const c10::IValue& value = stack[base + i];
    if (variant.kinds[i] == ArgumentKind::kTensorList) return;
    if (variant.kinds[i] == ArgumentKind::kGenerator) {
      arguments.emplace_back(at::detail::createCPUGenerator(0));  // the user's is not to draw
    } else if (value.isTensor() && value.toTensor().defined()) {
      if (is_reduced(value.toTensor().scalar_type())) return;
      arguments.emplace_back(small_twin(value.toTensor()));
    } else {
      arguments.push_back(variant.kinds[i] == ArgumentKind::kIgnored ? c10::IValue(c10::Device(at::kCPU)) : value);
    }
  }
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  asked.callBoxed(&arguments);
}

void refuse_out_dtypes(const c10::OperatorHandle& op, const Variant& variant, const Stack& stack) {
  if (!variant.is_out || !variant.functional) return;
  const c10::IValue& first = stack[stack.size() - variant.kinds.size()];
  if (!first.isTensor() || !first.toTensor().defined()) return;
  const std::vector<at::Tensor> written = written_tensors(variant, stack);
  const auto differs = [dtype = first.toTensor().scalar_type()](const at::Tensor& t) {
    return t.defined() && t.scalar_type() != dtype;
  };
  if (std::none_of(written.begin(), written.end(), differs)) return;
  try {
    raise_as_cpu(op, variant, stack);
  } catch (...) {
    try {
      raise_as_cpu(*variant.functional, variant, stack);
    } catch (...) {
      return;  // such operands are refused, whatever out= is
    }
    throw;
  }
}

std::vector<at::Tensor> written_tensors(const Variant& variant, const Stack& stack) {
  const size_t base = stack.size() - variant.kinds.size();
  std::vector<at::Tensor> tensors;
  for (const size_t i : variant.written) collect(stack[base + i], tensors);
  return tensors;
}

namespace {

// Rows whose out= may not share memory with an operand, not even all of it (PyTorch's at::assert_no_overlap), and whose
// Meta kernels do not see to it: they would read what they wrote, or be resized to what they read.
bool makes_elements_of_others(const std::string& name) {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::cat", "aten::gather", "aten::index_select", "aten::kthvalue", "aten::linalg_cross", "aten::take",
  };
  return names->count(name) != 0;
}

}  // namespace

void refuse_overlap(const Variant& variant, const Stack& stack) {
  if (variant.written.empty()) return;
  const size_t base = stack.size() - variant.kinds.size();
  std::vector<at::Tensor> operands;
  for (const auto i : c10::irange(variant.kinds.size())) {
    const bool tensors = variant.kinds[i] == ArgumentKind::kTensor || variant.kinds[i] == ArgumentKind::kTensorList;
    if (tensors && variant.read[i]) collect(stack[base + i], operands);
  }
  for (const at::Tensor& written : written_tensors(variant, stack)) {
    if (!written.defined()) continue;
    if (!variant.row->expanded) at::assert_no_internal_overlap(written);
    for (const at::Tensor& operand : operands) {
      if (!operand.defined() || !operand.storage().is_alias_of(written.storage())) continue;
      if (variant.is_out && makes_elements_of_others(variant.row->name)) {
        at::assert_no_overlap(written, operand);
      } else if (!operand.is_same(written)) {
        at::assert_no_partial_overlap(written, operand);
      }
    }
  }
}

bool has_meta(const c10::OperatorHandle& op, const Variant& variant) {
  return answers_meta(op) || (variant.functional && answers_meta(*variant.functional));
}

// Accelerators fill with a 0-d tensor of the host, which these Meta functions refuse.
bool fills_with_host_value(const Variant& variant) {
  return variant.row->name == "aten::masked_fill.Tensor" || variant.row->name == "aten::index_fill.int_Tensor";
}

MetaAnswer ask_meta(const c10::OperatorHandle& op, const Variant& variant, const Stack& stack) {
  const bool own = answers_meta(op);
  const c10::OperatorHandle& asked = own || !variant.functional ? op : *variant.functional;
  const size_t base = stack.size() - variant.kinds.size();
  Twins twins(c10::DeviceType::Meta, fills_with_host_value(variant));
  Stack arguments;
  std::vector<at::Tensor> written;  // twins of the written tensors
  for (const auto i : c10::irange(variant.kinds.size())) {
    if (!own && !variant.read[i]) continue;
    arguments.push_back(twin_of(stack[base + i], variant.kinds[i], twins));
  }
  if (own) {
    for (const size_t i : variant.written) collect(arguments[i], written);
  }
  try {
    const at::AutoDispatchBelowAutograd below;
    asked.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments);
  } catch (...) {
    raise_as_cpu(op, variant, stack);
    throw;
  }
  MetaAnswer answer;
  std::vector<ResultSpec> all;
  for (const c10::IValue& result : arguments) {
    const auto specs = specs_of(result);
    all.insert(all.end(), specs.begin(), specs.end());
  }
  const std::vector<at::Tensor> targets = written_tensors(variant, stack);
  if (own) {
    for (const auto r : c10::irange(variant.returns.size())) {
      const auto specs = specs_of(arguments[r]);
      if (variant.returns[r] < 0) answer.results.insert(answer.results.end(), specs.begin(), specs.end());
    }
    for (const auto i : c10::irange(written.size())) {
      if (!variant.is_out || !written[i].defined() || written[i].sizes() == targets[i].sizes()) continue;
      answer.resizes.push_back({i, Dims(written[i].sizes().begin(), written[i].sizes().end()),
                                Dims(written[i].strides().begin(), written[i].strides().end())});
    }
  } else if (variant.is_out) {
    for (const auto i : c10::irange(std::min(all.size(), targets.size()))) {
      TORCH_CHECK(c10::canCast(all[i].view.dtype, targets[i].scalar_type()), "result type ", all[i].view.dtype,
                  " can't be cast to the desired output type ", targets[i].scalar_type());
      if (targets[i].sizes() == c10::IntArrayRef(all[i].view.sizes)) continue;
      answer.resizes.push_back({i, all[i].view.sizes, all[i].view.strides});
    }
  }
  return answer;
}

bool answer_without_data(const c10::OperatorHandle& op, Stack& stack,
                         const std::function<DeviceValuePtr(const Type&, int device)>& make) {
  if (!answers_meta(op)) return false;
  const auto& schema = op.schema();
  const size_t base = stack.size() - schema.arguments().size();
  Twins twins(c10::DeviceType::Meta);
  Stack arguments;
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // twin, tensor
  int device = 0;
  for (const auto i : c10::irange(schema.arguments().size())) {
    const c10::IValue& value = stack[base + i];
    const bool is_list = value.isTensorList() ||
                         (value.isList() && schema.arguments()[i].type()->str().find("Tensor") != std::string::npos);
    const ArgumentKind kind = value.isTensor()      ? ArgumentKind::kTensor
                              : is_list             ? ArgumentKind::kTensorList
                              : value.isGenerator() ? ArgumentKind::kGenerator
                              : value.isDevice()    ? ArgumentKind::kIgnored
                                                    : ArgumentKind::kInteger;
    arguments.push_back(twin_of(value, kind, twins));
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& t = value.toTensor();
    if (t.device().type() == c10::DeviceType::PrivateUse1) device = t.device().index();
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.emplace_back(arguments.back().toTensor(), t);
  }
  {
    const at::AutoDispatchBelowAutograd below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &arguments);
  }
  const auto tensor_of = [&](const at::Tensor& twin) {
    if (!twin.defined()) return twin;
    for (const auto& [written_twin, t] : written) {
      if (written_twin.is_same(twin)) return t;
    }
    const View view = view_of(twin);
    const Type type = is_dense(view) ? natural_type(view) : Type(view.dtype, {view.extent()});
    return make_tensor(view, device, make(type, device));
  };
  for (const auto& [twin, t] : written) {
    if (twin.sizes() != t.sizes()) resize_to(t, twin.sizes(), twin.strides());
    Cell* cell = cell_of(t);
    const View view = view_of(t);
    const Type type = cell->get() || cell->has_natural() ? cell->type() : natural_type(view);
    cell->put(make(type, device));
  }
  stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  for (const c10::IValue& result : arguments) {
    if (result.isTensor()) {
      stack.emplace_back(tensor_of(result.toTensor()));
    } else if (result.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& element : result.toListRef()) list.push_back(tensor_of(element.toTensor()));
      stack.emplace_back(list);
    } else {
      stack.push_back(result);
    }
  }
  return true;
}

bool only_fills(const Variant& variant) {
  const auto tensors = std::count_if(variant.kinds.begin(), variant.kinds.end(), [](ArgumentKind kind) {
    return kind == ArgumentKind::kTensor || kind == ArgumentKind::kTensorList;
  });
  return variant.row->random && tensors == 1 && variant.written == std::vector<size_t>{0} && !variant.is_out;
}

void check_fill(const c10::OperatorHandle& op, const Variant& variant, const Stack& stack) {
  const size_t base = stack.size() - variant.kinds.size();
  Stack arguments(stack.begin() + static_cast<std::ptrdiff_t>(base), stack.end());
  arguments[0] = at::detail::empty_cpu({0}, stack[base].toTensor().scalar_type());
  for (const auto i : c10::irange(variant.kinds.size())) {
    if (variant.kinds[i] == ArgumentKind::kGenerator) arguments[i] = c10::IValue();
  }
  const Asking asking;
  op.callBoxed(&arguments);
}

}  // namespace torch_tpu
