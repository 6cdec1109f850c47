#include "aten/boxed.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_to_copy.h>
#include <c10/util/irange.h>

#include <limits>
#include <mutex>
#include <unordered_map>

#include "aten/debug_check.h"
#include "aten/factories.h"
#include "aten/meta.h"
#include "cache/programs.h"
#include "device/generator.h"
#include "exec/abstract.h"
#include "exec/capture.h"
#include "exec/counters.h"
#include "exec/policy.h"
#include "lowerings/partition.h"

namespace torch_tpu {

namespace {

using c10::IValue;
using torch::jit::Stack;

// Tells a tensor's parts apart in a key.
enum Tag : int64_t { kUndefined, kWhole, kView, kHost, kNumberTag, kListTag, kTextTag };
// An argument that is not there: no number that an int, a bool or a dtype is, for 0 is one of each.
constexpr int64_t kNone = std::numeric_limits<int64_t>::min() + 1;

struct Memo {
  std::vector<int64_t> key;
  std::unique_ptr<Signature> signature;
};

// What walking over the arguments of one call gathers.
struct Gathered {
  c10::SmallVector<int64_t, 96> key;
  c10::SmallVector<Cell*, 8> cells;      // distinct, in order of appearance
  std::unordered_map<Cell*, int> index;  // of cells, once there are many
  c10::SmallVector<NumberKind, 8> numbers;
  c10::SmallVector<double, 8> doubles;
  c10::SmallVector<int64_t, 8> integers;
  int device = -1;
};

Precision matmul_precision() {
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST:
      return Precision::kHighest;
    case at::Float32MatmulPrecision::HIGH:
      return Precision::kHigh;
    default:
      return Precision::kDefault;
  }
}

int cell_index(Gathered& g, Cell* cell) {
  constexpr size_t kMany = 16;
  if (g.cells.size() < kMany) {
    for (const auto i : c10::irange(g.cells.size())) {
      if (g.cells[i] == cell) return static_cast<int>(i);
    }
    g.cells.push_back(cell);
    return -1;
  }
  if (g.index.empty()) {
    for (const auto i : c10::irange(g.cells.size())) g.index.emplace(g.cells[i], static_cast<int>(i));
  }
  const auto [it, inserted] = g.index.emplace(cell, static_cast<int>(g.cells.size()));
  if (!inserted) return it->second;
  g.cells.push_back(cell);
  return -1;
}

void push_number(Gathered& g, const at::Scalar& value) {
  if (value.isFloatingPoint()) {
    g.numbers.push_back(NumberKind::kDouble);
    g.doubles.push_back(value.toDouble());
  } else if (value.isComplex()) {
    g.numbers.push_back(NumberKind::kComplex);
    const auto z = value.toComplexDouble();
    g.doubles.push_back(z.real());
    g.doubles.push_back(z.imag());
  } else {
    g.numbers.push_back(NumberKind::kInteger);
    g.integers.push_back(value.isBoolean() ? static_cast<int64_t>(value.toBool()) : value.toLong());
  }
}

// The value of a 0-d CPU tensor.
at::Scalar host_value(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kDouble:
      return *static_cast<const double*>(t.const_data_ptr());
    case at::kLong:
      return *static_cast<const int64_t*>(t.const_data_ptr());
    case at::kBool:
      return *static_cast<const bool*>(t.const_data_ptr());
    default:
      return t.item();
  }
}

void push_dims(Gathered& g, c10::IntArrayRef dims) { g.key.append(dims.begin(), dims.end()); }

class RowKernel final : public c10::OperatorKernel {
 public:
  explicit RowKernel(Variant variant) : variant_(std::move(variant)), fills_(only_fills(variant_)) {
    // Observations are by argument name, which the row's overloads share, and so by position.
    auto& observed = variant_.row->observed.arguments;
    if (observed.size() < variant_.kinds.size()) observed.resize(variant_.kinds.size());
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { run(op, stack); }

  void run(const c10::OperatorHandle& op, Stack* stack);

 private:
  void gather(Gathered& g, const Stack& stack) const;
  void push_tensor(Gathered& g, const at::Tensor& t) const;
  void push_number_argument(Gathered& g, size_t argument, const IValue& value) const;
  void push_range_length(Gathered& g, const Stack& stack, size_t base) const;
  const Signature* find(const Gathered& g, uint64_t hash) const;
  const Signature* make(const c10::OperatorHandle& op, const Stack& stack, const Gathered& g, bool& again);
  CallSpec spec_of(const Stack& stack) const;
  void move_host_tensors(Stack& stack, int device) const;
  void finish(const Signature& signature, Gathered& g, Stack* stack) const;

  Variant variant_;
  const bool fills_;
  std::unordered_multimap<uint64_t, Memo> memos_;
};

[[noreturn]] void refuse_mixed_devices(const std::string& op, const c10::Device& a, const c10::Device& b) {
  TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
              "! (when checking the arguments of ", op, ")");
}

void RowKernel::push_tensor(Gathered& g, const at::Tensor& t) const {
  if (!t.defined()) {
    g.key.push_back(kUndefined);
    return;
  }
  const c10::TensorImpl* impl = t.unsafeGetTensorImpl();
  const auto dtype = static_cast<int64_t>(c10::typeMetaToScalarType(impl->dtype()));
  const int64_t wrapped = impl->is_wrapped_number();
  const c10::Device device = impl->device();
  if (device.type() != c10::DeviceType::PrivateUse1) {
    if (device.type() == c10::DeviceType::CPU && impl->dim() == 0 && impl->layout() == c10::kStrided) {
      const at::Scalar value = host_value(t);
      g.key.push_back(kHost | dtype << 8 | wrapped << 16);
      push_number(g, value);
      return;
    }
    refuse_mixed_devices(
        variant_.name, c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(std::max(g.device, 0))),
        device);
  }
  if (g.device < 0) {
    g.device = device.index();
  } else if (g.device != device.index()) {
    refuse_mixed_devices(variant_.name,
                         c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(g.device)), device);
  }
  Cell* cell = cell_of(t);
  const c10::IntArrayRef sizes = impl->sizes();
  if (!cell->get() && !cell->has_natural()) {
    const auto itemsize = static_cast<int64_t>(impl->dtype().itemsize());
    cell->set_natural(Type(static_cast<at::ScalarType>(dtype), {static_cast<int64_t>(cell->nbytes()) / itemsize}));
  }
  const Type& base = cell->type();
  const int seen = cell_index(g, cell);
  const bool empty = !cell->get();
  const int64_t head = dtype << 8 | wrapped << 16 | static_cast<int64_t>(empty) << 17 |
                       static_cast<int64_t>(t.is_conj()) << 18 | static_cast<int64_t>(t.is_neg()) << 19 |
                       static_cast<int64_t>(seen + 1) << 24 | static_cast<int64_t>(sizes.size()) << 40;
  if (static_cast<int64_t>(base.dtype) == dtype && sizes == c10::IntArrayRef(base.dims) &&
      impl->storage_offset() == 0 && impl->is_contiguous()) {
    g.key.push_back(kWhole | head);
    push_dims(g, sizes);
    // Contiguous tensors may still have any stride where a size is 1; results follow strides.
    return;
  }
  g.key.push_back(kView | head);
  g.key.push_back(static_cast<int64_t>(base.dtype) | base.rank() << 8);
  push_dims(g, base.dims);
  push_dims(g, sizes);
  push_dims(g, impl->strides());
  g.key.push_back(impl->storage_offset());
}

void RowKernel::push_number_argument(Gathered& g, size_t argument, const IValue& value) const {
  const at::Scalar number = value.toScalar();
  const auto& observed = variant_.row->observed.arguments[argument];
  int64_t head = kNumberTag | static_cast<int64_t>(number.type()) << 8;
  if (!observed.constants.empty() && !number.isComplex()) {
    int64_t bit = 1 << 16;
    for (const double constant : observed.constants) {
      if (number.toDouble() == constant) head |= bit;
      bit <<= 1;
    }
  }
  push_number(g, number);
  g.key.push_back(head);
  if (observed.value || number.isBoolean()) {
    const double parts[2] = {number.isComplex()        ? number.toComplexDouble().real()
                             : number.isIntegral(true) ? 0.0
                                                       : number.toDouble(),
                             number.isComplex() ? number.toComplexDouble().imag() : 0.0};
    int64_t bits[2];
    std::memcpy(bits, parts, sizeof(bits));
    g.key.push_back(number.isIntegral(true) ? number.toLong() : bits[0]);
    if (number.isComplex()) g.key.push_back(bits[1]);
  }
}

// What decides the length of a range, whichever dtype PyTorch counts it in: the number of steps between
// its ends, rounded down and up, by floating and by integer arithmetic.
void RowKernel::push_range_length(Gathered& g, const Stack& stack, size_t base) const {
  at::Scalar numbers[3];
  for (const auto i : c10::irange(3)) numbers[i] = stack[base + i].toScalar();
  const auto& [start, end, step] = numbers;
  const double steps = (end.toDouble() - start.toDouble()) / step.toDouble();
  for (const double rounded : {std::floor(steps), std::ceil(steps)}) {
    int64_t bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    g.key.push_back(bits);
  }
  for (const auto& number : numbers) {
    if (!(std::abs(number.toDouble()) < 0x1p62)) return;  // no int64, or not finite
  }
  const auto stride = static_cast<int64_t>(step.toDouble());
  if (stride == 0) return;
  const auto span = static_cast<int64_t>(end.toDouble()) - static_cast<int64_t>(start.toDouble());
  g.key.push_back(span / stride);
  g.key.push_back(span % stride != 0);
}

void RowKernel::gather(Gathered& g, const Stack& stack) const {
  const size_t base = stack.size() - variant_.kinds.size();
  if (variant_.row->range) push_range_length(g, stack, base);
  const Parts shared = AbstractSession::active() != nullptr ? parts() : Parts{0, 0};
  g.key.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()) | shared.batch << 8 |
                  shared.heads << 32);
  if (variant_.row->observed.precision) g.key.push_back(static_cast<int64_t>(matmul_precision()));
  for (const auto i : c10::irange(variant_.kinds.size())) {
    const IValue& value = stack[base + i];
    if (value.isNone()) {
      g.key.push_back(kNone);
      continue;
    }
    switch (variant_.kinds[i]) {
      case ArgumentKind::kTensor:
        push_tensor(g, value.toTensor());
        break;
      case ArgumentKind::kTensorList: {
        const auto list = value.toListRef();
        g.key.push_back(kListTag | static_cast<int64_t>(list.size()) << 8);
        for (const IValue& element : list) {
          if (element.isNone()) {
            g.key.push_back(kNone);
          } else {
            push_tensor(g, element.toTensor());
          }
        }
        break;
      }
      case ArgumentKind::kNumber:
        push_number_argument(g, i, value);
        break;
      case ArgumentKind::kNumberList:
        if (value.isDoubleList()) {
          const auto list = value.toDoubleVector();
          g.key.push_back(kListTag | static_cast<int64_t>(list.size()) << 8);
          for (const double x : list) push_number_argument(g, i, x);
        } else {
          const auto list = value.toListRef();
          g.key.push_back(kListTag | static_cast<int64_t>(list.size()) << 8);
          for (const IValue& element : list) push_number_argument(g, i, element);
        }
        break;
      case ArgumentKind::kInteger:
        g.key.push_back(value.toInt());
        break;
      case ArgumentKind::kBool:
        g.key.push_back(value.toBool());
        break;
      case ArgumentKind::kIntegerList: {
        if (value.isInt()) {
          g.key.push_back(kListTag | int64_t{1} << 8);
          g.key.push_back(value.toInt());
          break;
        }
        const auto list = value.toIntVector();
        g.key.push_back(kListTag | static_cast<int64_t>(list.size()) << 8);
        g.key.append(list.begin(), list.end());
        break;
      }
      case ArgumentKind::kBoolList: {
        const auto list = value.toBoolList();
        g.key.push_back(kListTag | static_cast<int64_t>(list.size()) << 8);
        for (const bool b : list) g.key.push_back(b);
        break;
      }
      case ArgumentKind::kText: {
        const auto text = value.toStringView();
        g.key.push_back(kTextTag | static_cast<int64_t>(text.size()) << 8);
        for (const char c : text) g.key.push_back(c);
        break;
      }
      case ArgumentKind::kGenerator:
      case ArgumentKind::kIgnored:
        break;
    }
  }
}

const Signature* RowKernel::find(const Gathered& g, uint64_t hash) const {
  const auto [first, last] = memos_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (c10::ArrayRef<int64_t>(it->second.key) == c10::ArrayRef<int64_t>(g.key.data(), g.key.size()))
      return it->second.signature.get();
  }
  return nullptr;
}

// Walks over the arguments as gather() does, and describes them for the lowering.
CallSpec RowKernel::spec_of(const Stack& stack) const {
  CallSpec spec;
  spec.row = variant_.row;
  spec.names = variant_.argument_names;
  spec.context.default_dtype = c10::get_default_dtype_as_scalartype();
  spec.context.matmul_precision = matmul_precision();
  spec.context.tpu = AbstractSession::active() != nullptr || pjrt::Client::get().kind() == pjrt::PluginKind::kTpu;
  Gathered g;
  const auto operand = [&](const at::Tensor& t, bool read) {
    OperandSpec o;
    if (!t.defined()) return o;
    o.read = read;
    o.wrapped_number = t.unsafeGetTensorImpl()->is_wrapped_number();
    o.conjugate = t.is_conj();
    o.negative = t.is_neg();
    o.view.dtype = t.scalar_type();
    if (t.device().type() == c10::DeviceType::CPU) {
      o.number = static_cast<int>(spec.numbers.size());
      push_number(g, host_value(t));
      spec.numbers.push_back(g.numbers.back());
      return o;
    }
    o.view = view_of(t);
    Cell* cell = cell_of(t);
    o.cell = cell_index(g, cell);
    if (o.cell < 0) {
      o.cell = static_cast<int>(spec.cells.size());
      spec.cells.push_back(cell->type());
      spec.cell_empty.push_back(!cell->get());
    }
    return o;
  };
  const auto number = [&](const IValue& value) {
    NumberSpec n{static_cast<int>(spec.numbers.size()), value.toScalar()};
    push_number(g, n.value);
    spec.numbers.push_back(g.numbers.back());
    return n;
  };
  const auto argument = [&](size_t i, const IValue& value) -> ArgumentSpec {
    if (value.isNone()) return std::monostate{};
    switch (variant_.kinds[i]) {
      case ArgumentKind::kTensor:
        return operand(value.toTensor(), variant_.read[i]);
      case ArgumentKind::kTensorList: {
        std::vector<OperandSpec> list;
        for (const IValue& element : value.toListRef()) {
          list.push_back(element.isNone() ? OperandSpec{} : operand(element.toTensor(), variant_.read[i]));
        }
        return list;
      }
      case ArgumentKind::kNumber:
        return number(value);
      case ArgumentKind::kNumberList: {
        std::vector<NumberSpec> list;
        if (value.isDoubleList()) {
          for (const double x : value.toDoubleVector()) list.push_back(number(x));
        } else {
          for (const IValue& element : value.toListRef()) list.push_back(number(element));
        }
        return list;
      }
      case ArgumentKind::kInteger:
        return value.toInt();
      case ArgumentKind::kBool:
        return value.toBool();
      case ArgumentKind::kIntegerList:
        return value.isInt() ? std::vector<int64_t>{value.toInt()} : value.toIntVector();
      case ArgumentKind::kBoolList: {
        const auto list = value.toBoolList();
        return std::vector<bool>(list.begin(), list.end());
      }
      case ArgumentKind::kText:
        return std::string(value.toStringView());
      default:
        return std::monostate{};
    }
  };
  const size_t base = stack.size() - variant_.kinds.size();
  for (const auto i : c10::irange(variant_.kinds.size())) spec.arguments.push_back(argument(i, stack[base + i]));
  for (const size_t i : variant_.written) {
    if (const auto* list = std::get_if<std::vector<OperandSpec>>(&spec.arguments[i])) {
      for (const auto k : c10::irange(list->size())) spec.written.push_back({i, static_cast<int>(k)});
    } else if (const auto* one = std::get_if<OperandSpec>(&spec.arguments[i]); one != nullptr && one->cell >= 0) {
      spec.written.push_back({i, -1});
    }
  }
  return spec;
}

// Lowers the call. `again`: an out= tensor was resized, or the lowering observed more numbers
// than the key holds, so the call starts again.
const Signature* RowKernel::make(const c10::OperatorHandle& op, const Stack& stack, const Gathered& g, bool& again) {
  again = false;
  refuse_overlap(variant_, stack);
  MetaAnswer answer;
  CallSpec spec = spec_of(stack);
  const Row& row = *variant_.row;
  if (row.shape) {
    infer_results(spec);
    if (variant_.is_out) {
      const auto targets = written_tensors(variant_, stack);
      for (const auto i : c10::irange(std::min(targets.size(), spec.results.size()))) {
        const View& view = spec.results[i].view;
        if (targets[i].defined() && targets[i].sizes() != c10::IntArrayRef(view.sizes)) {
          answer.resizes.push_back({i, view.sizes, view.strides});
        }
      }
    }
    if (variant_.returns.empty() || variant_.returns[0] >= 0) spec.results.clear();
  } else if (!fills_ && has_meta(op, variant_)) {
    answer = ask_meta(op, variant_, stack);
    spec.results = std::move(answer.results);
  } else {
    TORCH_INTERNAL_ASSERT(variant_.returns.empty() || variant_.returns[0] >= 0, variant_.name,
                          " has neither a Meta kernel nor a shape function");
  }
  if (!answer.resizes.empty()) {
    const auto targets = written_tensors(variant_, stack);
    for (const auto& r : answer.resizes) resize_to(targets[r.written], r.sizes, r.strides);
    again = true;
    return nullptr;
  }
  refuse_out_dtypes(op, variant_, stack);
  if (fills_ || takes_any_sizes(row)) refuse_dtypes(op, variant_, stack);
  const std::lock_guard guard(lowering_lock());
  std::unique_ptr<Signature> signature;
  try {
    signature = lower(spec, again);
  } catch (...) {
    raise_as_cpu(op, variant_, stack);
    throw;
  }
  Counters::add(Counter::kSignatures);
  if (again) return nullptr;
  const auto it = memos_.emplace(hash_of({g.key.data(), g.key.size()}),
                                 Memo{std::vector<int64_t>(g.key.begin(), g.key.end()), std::move(signature)});
  return it->second.signature.get();
}

void RowKernel::move_host_tensors(Stack& stack, int device) const {
  const size_t base = stack.size() - variant_.kinds.size();
  const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  const auto moved = [&](const at::Tensor& t) {
    const bool host = t.defined() && t.device().type() == c10::DeviceType::CPU && t.dim() > 0;
    return host ? t.to(where) : t;
  };
  for (const auto i : c10::irange(variant_.kinds.size())) {
    IValue& value = stack[base + i];
    if (variant_.kinds[i] == ArgumentKind::kTensor && value.isTensor() && i > 0) {
      value = moved(value.toTensor());
    } else if (variant_.kinds[i] == ArgumentKind::kTensorList && value.isList() && !value.isTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const IValue& element : value.toListRef()) {
        list.push_back(element.isNone() ? std::optional<at::Tensor>() : moved(element.toTensor()));
      }
      value = list;
    }
  }
}

// The device of the first tpu operand; -1 if there is none.
int device_of(const Stack& stack, size_t base) {
  const auto on_tpu = [](const IValue& v) {
    return v.isTensor() && v.toTensor().defined() && v.toTensor().device().type() == c10::DeviceType::PrivateUse1;
  };
  for (size_t i = base; i < stack.size(); ++i) {
    if (on_tpu(stack[i])) return stack[i].toTensor().device().index();
    if (!stack[i].isList()) continue;
    for (const IValue& element : stack[i].toListRef()) {
      if (on_tpu(element)) return element.toTensor().device().index();
    }
  }
  return -1;
}

// Whether calls are recorded on values that have no data.
bool without_data() { return Capture::active() != nullptr || AbstractSession::active() != nullptr; }

void RowKernel::run(const c10::OperatorHandle& op, Stack* stack) {
  if (variant_.row->host_indices) {
    move_host_tensors(*stack, std::max(device_of(*stack, stack->size() - variant_.kinds.size()), 0));
  }
  if (mode() == Mode::kDebug && !without_data()) check_values(op, *stack);
  // At every call, since numbers are not in the key.
  if (fills_) check_fill(op, variant_, *stack);
  for (;;) {
    Gathered g;
    const Signature* signature = nullptr;
    {
      const std::lock_guard guard(lowering_lock());
      gather(g, *stack);
      signature = find(g, hash_of({g.key.data(), g.key.size()}));
    }
    if (signature == nullptr) {
      bool again = false;
      signature = make(op, *stack, g, again);
      if (again) continue;
    }
    finish(*signature, g, stack);
    return;
  }
}

void RowKernel::finish(const Signature& signature, Gathered& g, Stack* stack) const {
  const int device = std::max(g.device, 0);
  Submission submission;
  submission.signature = &signature;
  for (const int cell : signature.input_cells) submission.inputs.push_back(g.cells[cell]->get());
  submission.doubles = std::move(g.doubles);
  submission.integers = std::move(g.integers);
  const size_t base = stack->size() - variant_.kinds.size();
  if (signature.random) {
    std::optional<at::Generator> generator;
    for (const auto i : c10::irange(variant_.kinds.size())) {
      if (variant_.kinds[i] == ArgumentKind::kGenerator) generator = (*stack)[base + i].toOptional<at::Generator>();
    }
    // A captured program draws when it is replayed.
    const auto [seed, offset] =
        without_data() ? std::pair<uint64_t, uint64_t>(0, 0)
                       : generator_or_default(generator, device).reserve(static_cast<uint64_t>(signature.draws));
    submission.integers.push_back(static_cast<int64_t>(seed));
    submission.integers.push_back(static_cast<int64_t>(offset));
  }
  // A cell that is overwritten gives its value up, so that its buffer can be donated.
  for (const int cell : signature.written_cells) g.cells[cell]->take();
  DeviceValues outputs;
  const size_t fresh = signature.output_types.size() - signature.written_cells.size();
  const auto put_written = [&] {
    for (const auto i : c10::irange(signature.written_cells.size())) {
      g.cells[signature.written_cells[i]]->put(std::move(outputs[fresh + i]));
    }
  };
  try {
    submit(submission, device, outputs);
  } catch (...) {
    for (const auto i : c10::irange(signature.input_cells.size())) {
      Cell* cell = g.cells[signature.input_cells[i]];
      if (!cell->get() && i < submission.inputs.size()) cell->put(submission.inputs[i]);
    }
    if (outputs.size() == signature.output_types.size()) {
      for (const auto i : c10::irange(signature.written_cells.size())) {
        Cell* cell = g.cells[signature.written_cells[i]];
        if (!cell->get()) cell->put(std::move(outputs[fresh + i]));
      }
    }
    throw;
  }
  put_written();

  std::vector<at::Tensor> results;
  size_t next = 0;
  for (const ResultSpec& spec : signature.results) {
    results.push_back(spec.defined ? make_tensor(spec.view, device, std::move(outputs[next++])) : at::Tensor());
  }
  c10::SmallVector<IValue, 4> returned;
  next = 0;
  for (const auto i : c10::irange(variant_.returns.size())) {
    if (variant_.returns[i] >= 0) {
      returned.push_back((*stack)[base + variant_.returns[i]]);
    } else if (variant_.returns.size() == 1 && variant_.returns_list) {
      c10::List<at::Tensor> list;
      for (at::Tensor& t : results) list.push_back(std::move(t));
      returned.emplace_back(std::move(list));
    } else {
      returned.emplace_back(std::move(results[next++]));
    }
  }
  stack->erase(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  for (IValue& value : returned) stack->push_back(std::move(value));
}

std::unordered_map<c10::OperatorName, RowKernel*>& kernels() {
  static auto* map = new std::unordered_map<c10::OperatorName, RowKernel*>();
  return *map;
}

}  // namespace

c10::KernelFunction make_row_kernel(Variant variant) {
  const size_t dot = variant.name.find('.');
  const c10::OperatorName name(variant.name.substr(0, dot),
                               dot == std::string::npos ? "" : variant.name.substr(dot + 1));
  auto kernel = std::make_unique<RowKernel>(std::move(variant));
  kernels()[name] = kernel.get();
  return c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel));
}

void call_row(const c10::OperatorHandle& op, Stack* stack) {
  const auto it = kernels().find(op.operator_name());
  TORCH_INTERNAL_ASSERT(it != kernels().end(), "no row for ", op.operator_name());
  it->second->run(op, stack);
}

bool has_row(const c10::OperatorName& name) { return kernels().count(name) != 0; }

}  // namespace torch_tpu
