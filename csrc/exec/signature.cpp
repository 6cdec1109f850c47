#include "exec/signature.h"

#include <c10/core/MemoryFormat.h>
#include <c10/util/Exception.h>

#include <atomic>

#include "exec/abstract.h"
#include "exec/dump.h"
#include "lowerings/foreign.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// The values that the arguments of a call are made of, in one function under construction.
struct Inputs {
  Values cells;    // by cell
  Values numbers;  // by number: 0-d f64, i64 or complex<f64>
  Value random_state;
};

Value zero(Emitter& e, const Type& type) {
  return e.constant(at::isComplexType(type.dtype) ? at::Scalar(0.0) : at::Scalar(0), type);
}

// What a lazily conjugated or negated view shows, of the elements under it; and the reverse.
Value through(Emitter& e, const OperandSpec& operand, Value x) {
  if (operand.conjugate) x = e.complex(e.real(x), e.negate(e.imag(x)));
  return operand.negative ? e.negate(x) : x;
}

bool is_row_major(const View& v) {
  int64_t expected = 1;
  for (size_t i = v.sizes.size(); i-- > 0;) {
    if (v.sizes[i] == 0) return true;
    if (v.sizes[i] != 1 && v.strides[i] != expected) return false;
    expected *= v.sizes[i];
  }
  return true;
}

TensorArgument read_operand(Emitter& e, const OperandSpec& operand, const Inputs& inputs) {
  TensorArgument argument;
  argument.wrapped_number = operand.wrapped_number;
  if (operand.number >= 0) {
    argument.value = e.convert(inputs.numbers[operand.number], operand.view.dtype);
  } else if (operand.cell >= 0 && operand.read) {
    argument.value = through(e, operand, read(e, inputs.cells[operand.cell], operand.view));
    argument.contiguous = is_row_major(operand.view);
  }
  return argument;
}

std::vector<Argument> read_arguments(Emitter& e, const CallSpec& spec, const Inputs& inputs) {
  std::vector<Argument> arguments;
  for (const ArgumentSpec& given : spec.arguments) {
    arguments.push_back(std::visit(
        [&](const auto& a) -> Argument {
          using T = std::decay_t<decltype(a)>;
          if constexpr (std::is_same_v<T, OperandSpec>) {
            if (!a.defined() || !a.read) return std::monostate{};
            return read_operand(e, a, inputs);
          } else if constexpr (std::is_same_v<T, std::vector<OperandSpec>>) {
            std::vector<TensorArgument> list;
            for (const OperandSpec& o : a) list.push_back(read_operand(e, o, inputs));
            return list;
          } else if constexpr (std::is_same_v<T, NumberSpec>) {
            return NumberArgument{a.value, inputs.numbers[a.number]};
          } else if constexpr (std::is_same_v<T, std::vector<NumberSpec>>) {
            std::vector<NumberArgument> list;
            for (const NumberSpec& n : a) list.push_back({n.value, inputs.numbers[n.number]});
            return list;
          } else {
            return a;
          }
        },
        given));
  }
  return arguments;
}

// Declares the function's arguments, and gives the empty cells zeros.
Inputs declare_inputs(Emitter& e, const CallSpec& spec, Signature& signature) {
  Inputs inputs;
  const auto declare = [&](const Type& type) {
    signature.input_types.push_back(type);
    return e.input(type);
  };
  inputs.cells.resize(spec.cells.size());
  for (size_t i = 0; i < spec.cells.size(); ++i) {
    if (spec.cell_empty[i]) continue;
    inputs.cells[i] = declare(spec.cells[i]);
    signature.input_cells.push_back(static_cast<int>(i));
  }
  for (const NumberKind kind : spec.numbers) {
    if (kind == NumberKind::kInteger) {
      inputs.numbers.push_back(declare(Type(at::kLong, {})));
    } else if (kind == NumberKind::kDouble) {
      inputs.numbers.push_back(declare(Type(at::kDouble, {})));
    } else {
      const Value real = declare(Type(at::kDouble, {}));
      inputs.numbers.push_back(e.complex(real, declare(Type(at::kDouble, {}))));
    }
  }
  if (spec.row->random) {
    inputs.random_state = e.bitcast(declare(Type(at::kLong, {2})), Type(at::kUInt64, {2}));
  }
  for (size_t i = 0; i < spec.cells.size(); ++i) {
    if (spec.cell_empty[i]) inputs.cells[i] = zero(e, spec.cells[i]);
  }
  return inputs;
}

const OperandSpec& written_operand(const CallSpec& spec, const WrittenSpec& w) {
  const ArgumentSpec& argument = spec.arguments[w.argument];
  return w.element < 0 ? std::get<OperandSpec>(argument) : std::get<std::vector<OperandSpec>>(argument)[w.element];
}

std::vector<Type> result_types(const CallSpec& spec) {
  std::vector<Type> types;
  for (const ResultSpec& r : spec.results) types.emplace_back(r.view.dtype, r.view.sizes);
  for (const WrittenSpec& w : spec.written) {
    const OperandSpec& operand = written_operand(spec, w);
    types.emplace_back(operand.view.dtype, operand.view.sizes);
  }
  return types;
}

// `aten::add.Tensor` -> `add_Tensor`.
std::string function_name(const std::string& row) {
  std::string name = row.substr(row.find("::") + 2);
  for (char& c : name) {
    if (c == '.') c = '_';
  }
  return name;
}

size_t count(const Observations& o) {
  size_t n = o.precision;
  for (const auto& a : o.arguments) n += a.value + a.constants.size();
  return n;
}

bool is_channels_last(const View& v) {
  return v.sizes.size() == 4 ? c10::is_channels_last_strides_2d(v.sizes, v.strides)
                             : v.sizes.size() == 5 && c10::is_channels_last_strides_3d(v.sizes, v.strides);
}

// Gives the fresh results the memory format that the row asks for.
void choose_format(CallSpec& spec) {
  if (spec.row->format_of.empty()) return;
  size_t rank = 0;
  bool channels_last = false;
  for (const std::string& name : spec.row->format_of) {
    const auto at = std::find(spec.names.begin(), spec.names.end(), name) - spec.names.begin();
    const auto* operand = std::get_if<OperandSpec>(&spec.arguments[at]);
    if (operand == nullptr || !operand->defined()) continue;
    rank = operand->view.sizes.size();
    channels_last |= is_channels_last(operand->view);
  }
  for (ResultSpec& result : spec.results) {
    const Dims& sizes = result.view.sizes;
    if (!result.defined || sizes.size() != rank) continue;
    if (!channels_last) {
      result.view.strides = row_major_strides(sizes);
    } else {
      const auto strides =
          rank == 4 ? c10::get_channels_last_strides_2d(sizes) : c10::get_channels_last_strides_3d(sizes);
      result.view.strides.assign(strides.begin(), strides.end());
    }
  }
}

Call make_call(Emitter& e, const CallSpec& spec, const Inputs& inputs, std::vector<Type> results) {
  return Call(e, spec.names, read_arguments(e, spec, inputs), std::move(results), spec.context, spec.row->observed,
              inputs.random_state);
}

}  // namespace

std::mutex& lowering_lock() {
  static auto* lock = new std::mutex();
  return *lock;
}

void infer_results(CallSpec& spec) {
  Emitter scratch;
  Signature ignored;
  const Inputs inputs = declare_inputs(scratch, spec, ignored);
  const Call call = make_call(scratch, spec, inputs, {});
  spec.results.clear();
  for (const Type& type : spec.row->shape(call)) {
    spec.results.push_back(
        {type.dtype != at::ScalarType::Undefined, View{type.dtype, type.dims, row_major_strides(type.dims), 0}});
  }
}

namespace {

std::unique_ptr<Signature> write_function(const CallSpec& given, bool& observed_more) {
  CallSpec spec = given;
  choose_format(spec);
  static std::atomic<uint64_t> next_id{0};
  auto signature = std::make_unique<Signature>();
  signature->id = next_id++;
  signature->row = spec.row;
  signature->function = function_name(spec.row->name);
  signature->numbers = spec.numbers;
  signature->random = spec.row->random;
  signature->results = spec.results;
  if (spec.row->each) signature->spec = std::make_shared<const CallSpec>(spec);

  Emitter e;
  e.set_on_host(AbstractSession::active() == nullptr && pjrt::Client::get().kind() == pjrt::PluginKind::kCpu);
  const Inputs inputs = declare_inputs(e, spec, *signature);
  const Call call = make_call(e, spec, inputs, result_types(spec));
  const size_t before = count(spec.row->observed);
  const Values values = spec.row->lower(e, call);
  observed_more = count(spec.row->observed) != before;
  signature->draws = call.draws();

  const size_t fresh = spec.results.size();
  TORCH_INTERNAL_ASSERT(values.size() == fresh + spec.written.size(), "the lowering of ", spec.row->name, " returned ",
                        values.size(), " values, expected ", fresh, " results and ", spec.written.size(), " writes");
  Values outputs;
  for (size_t i = 0; i < fresh; ++i) {
    const ResultSpec& result = spec.results[i];
    if (!result.defined) continue;
    const Type expected(result.view.dtype, result.view.sizes);
    TORCH_INTERNAL_ASSERT(values[i].defined() && values[i].type == expected, "the lowering of ", spec.row->name,
                          " returned ", values[i].defined() ? to_string(values[i].type) : "nothing", " as result ", i,
                          ", PyTorch's Meta kernel says ", expected);
    const Type natural =
        is_dense(result.view) ? natural_type(result.view) : Type(result.view.dtype, {result.view.extent()});
    outputs.push_back(write(e, zero(e, natural), result.view, values[i]));
  }
  // Several written arguments may be views of one cell: each write starts from the one before.
  Values cells = inputs.cells;
  for (size_t i = 0; i < spec.written.size(); ++i) {
    const OperandSpec& operand = written_operand(spec, spec.written[i]);
    const Value& x = values[fresh + i];
    TORCH_INTERNAL_ASSERT(x.defined() && x.dims() == operand.view.sizes, "the lowering of ", spec.row->name,
                          " returned ", x.defined() ? to_string(x.type) : "nothing", " for a written argument of ",
                          Type(operand.view.dtype, operand.view.sizes));
    TORCH_CHECK(!at::isComplexType(x.dtype()) || at::isComplexType(operand.view.dtype), "result type ", x.dtype(),
                " can't be cast to the desired output type ", operand.view.dtype);
    cells[operand.cell] =
        write(e, cells[operand.cell], operand.view, through(e, operand, e.convert(x, operand.view.dtype)));
    // Batch norm in evaluation writes what it read.
    if (cells[operand.cell].id == inputs.cells[operand.cell].id) continue;
    auto& written = signature->written_cells;
    if (std::find(written.begin(), written.end(), operand.cell) == written.end()) written.push_back(operand.cell);
  }
  for (const int cell : signature->written_cells) outputs.push_back(cells[cell]);
  for (const Value& output : outputs) signature->output_types.push_back(output.type);
  const std::string text = e.finish(signature->function, outputs);
  signature->text = text.substr(text.find('(')) + take_foreign_functions();
  return signature;
}

}  // namespace

std::unique_ptr<Signature> lower(const CallSpec& spec, bool& observed_more) {
  auto signature = write_function(spec, observed_more);
  if (dumps_calls()) {
    CallSpec on_tpu = spec;
    on_tpu.context.tpu = true;
    bool more = false;
    dump_call(spec.row->name, write_function(on_tpu, more)->text);
    observed_more |= more;
  }
  return signature;
}

}  // namespace torch_tpu
