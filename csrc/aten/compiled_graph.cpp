#include "aten/compiled_graph.h"

#include <c10/util/irange.h>

#include <algorithm>

#include "aten/factories.h"
#include "cache/programs.h"
#include "device/generator.h"
#include "exec/policy.h"

namespace torch_tpu {

struct CompiledGraph::Program {
  // A tensor that the graph returns.
  struct Result {
    GraphValue plain;  // not a tensor
    bool tensor = false;
    int argument = -1;  // the argument whose storage it shows; or
    int value = -1;     // the output of the replay that its new storage gets
    View view;
  };
  std::vector<int64_t> key;
  std::shared_ptr<Replay> replay;
  std::vector<int> inputs;                   // by input of the replay: the argument whose cell it is
  std::vector<std::pair<int, int>> written;  // argument, output: cells that the graph wrote
  std::vector<Result> results;
};

struct CompiledGraph::Session {
  explicit Session(int device) : capture(device) {}
  Capture capture;
  std::shared_ptr<Program> program = std::make_shared<Program>();
  std::vector<at::Tensor> stand_ins;   // by argument; undefined for others
  std::vector<DeviceValuePtr> values;  // by input of the replay
};

namespace {

void push_dims(std::vector<int64_t>& key, c10::IntArrayRef dims) { key.insert(key.end(), dims.begin(), dims.end()); }

// Every cell of a graph's arguments has a value: an empty one reads as zeros.
void fill_if_empty(Cell* cell, const at::Tensor& t) {
  if (cell->get()) return;
  if (!cell->has_natural())
    cell->set_natural(Type(t.scalar_type(), {static_cast<int64_t>(cell->nbytes() / t.dtype().itemsize())}));
  const std::vector<char> zeros(static_cast<size_t>(cell->natural().nbytes()));
  auto value = c10::make_intrusive<DeviceValue>(cell->natural(), cell->device());
  value->fulfil(pjrt::Client::get().from_host(zeros.data(), cell->natural(), cell->device()));
  cell->put(std::move(value));
}

int first_with(const std::vector<Cell*>& cells, const Cell* cell) {
  return static_cast<int>(std::find(cells.begin(), cells.end(), cell) - cells.begin());
}

// The layout of the arguments, and the cell of each tensor.
std::vector<int64_t> layout_of(const std::vector<GraphValue>& arguments, std::vector<Cell*>& cells, int& device) {
  std::vector<int64_t> key;
  std::unordered_map<Cell*, size_t> seen;
  for (const auto i : c10::irange(arguments.size())) {
    const GraphValue& argument = arguments[i];
    cells.push_back(nullptr);
    key.push_back(static_cast<int64_t>(argument.index()));
    if (const auto* number = std::get_if<int64_t>(&argument)) {
      key.push_back(*number);
    } else if (const auto* real = std::get_if<double>(&argument)) {
      int64_t bits = 0;
      std::memcpy(&bits, real, sizeof(bits));
      key.push_back(bits);
    } else if (const auto* flag = std::get_if<bool>(&argument)) {
      key.push_back(*flag);
    }
    const auto* tensor = std::get_if<at::Tensor>(&argument);
    if (tensor == nullptr) continue;
    TORCH_CHECK(tensor->device().type() == c10::DeviceType::PrivateUse1,
                "tpu: a compiled graph takes tpu tensors: got one on ", tensor->device());
    Cell* cell = cell_of(*tensor);
    fill_if_empty(cell, *tensor);
    cells.back() = cell;
    device = cell->device();
    const Type& base = cell->type();
    key.push_back(static_cast<int64_t>(seen.emplace(cell, i).first->second));
    key.push_back(static_cast<int64_t>(base.dtype) | static_cast<int64_t>(tensor->scalar_type()) << 8 |
                  base.rank() << 16 | tensor->dim() << 32);
    push_dims(key, base.dims);
    push_dims(key, tensor->sizes());
    push_dims(key, tensor->strides());
    key.push_back(tensor->storage_offset());
  }
  key.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
  return key;
}

// Another tensor over t's storage.
at::Tensor show(const at::Tensor& t, const View& view) {
  at::Tensor shown = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(t.storage()),
                                                              c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                              c10::scalarTypeToTypeMeta(view.dtype));
  shown.unsafeGetTensorImpl()->set_storage_offset(view.offset);
  shown.unsafeGetTensorImpl()->set_sizes_and_strides(view.sizes, view.strides);
  return shown;
}

}  // namespace

std::vector<GraphValue> CompiledGraph::begin_capture(const std::vector<GraphValue>& arguments) {
  std::vector<Cell*> cells;
  int device = 0;
  std::vector<int64_t> key = layout_of(arguments, cells, device);
  session_ = std::make_shared<Session>(device);
  session_->program->key = std::move(key);
  std::vector<GraphValue> stand_ins;
  for (const auto i : c10::irange(arguments.size())) {
    const auto* tensor = std::get_if<at::Tensor>(&arguments[i]);
    session_->stand_ins.emplace_back();
    if (tensor == nullptr) {
      stand_ins.push_back(arguments[i]);
      continue;
    }
    const int first = first_with(cells, cells[i]);
    at::Tensor& stand_in = session_->stand_ins.back();
    if (first != static_cast<int>(i)) {
      stand_in = show(session_->stand_ins[first], view_of(*tensor));
    } else {
      DeviceValuePtr value = session_->capture.input(cells[i]->type());
      session_->values.push_back(value);
      session_->program->inputs.push_back(static_cast<int>(i));
      stand_in = make_tensor(view_of(*tensor), device);
      stand_in.storage().unsafeGetStorageImpl()->set_nbytes(tensor->storage().nbytes());
      cell_of(stand_in)->set_nbytes(tensor->storage().nbytes());
      cell_of(stand_in)->put(std::move(value));
      stand_in.unsafeGetTensorImpl()->set_storage_offset(tensor->storage_offset());
    }
    stand_ins.emplace_back(stand_in);
  }
  return stand_ins;
}

void CompiledGraph::cancel_capture() { session_.reset(); }

void CompiledGraph::finish_capture(const std::vector<GraphValue>& results) {
  const std::shared_ptr<Session> session = std::move(session_);
  Program& program = *session->program;
  std::vector<DeviceValuePtr> outputs;
  std::vector<Cell*> argument_cells;
  for (const at::Tensor& t : session->stand_ins) argument_cells.push_back(t.defined() ? cell_of(t) : nullptr);
  for (const auto k : c10::irange(program.inputs.size())) {
    const int argument = program.inputs[k];
    const DeviceValuePtr& now = argument_cells[argument]->get();
    if (now == session->values[k]) continue;
    program.written.emplace_back(argument, static_cast<int>(outputs.size()));
    outputs.push_back(now);
  }
  std::unordered_map<Cell*, int> made;  // new storages may be shared by several results
  for (const GraphValue& result : results) {
    Program::Result r;
    const auto* tensor = std::get_if<at::Tensor>(&result);
    if (tensor == nullptr || !tensor->defined()) {
      r.plain = tensor == nullptr ? result : GraphValue();
    } else {
      TORCH_CHECK(tensor->device().type() == c10::DeviceType::PrivateUse1,
                  "tpu: a compiled graph returns tpu tensors: got one on ", tensor->device());
      r.tensor = true;
      r.view = view_of(*tensor);
      Cell* cell = cell_of(*tensor);
      const int argument = first_with(argument_cells, cell);
      if (argument < static_cast<int>(argument_cells.size())) {
        r.argument = argument;
      } else {
        const auto [it, inserted] = made.emplace(cell, static_cast<int>(outputs.size()));
        if (inserted) {
          fill_if_empty(cell, *tensor);
          outputs.push_back(cell->get());
        }
        r.value = it->second;
      }
    }
    program.results.push_back(std::move(r));
  }
  program.replay = session->capture.finish(outputs);
  programs_.emplace(hash_of(program.key), session->program);
  in_order_.push_back(session->program);
}

std::optional<std::vector<GraphValue>> CompiledGraph::run(std::vector<GraphValue>& arguments,
                                                          const std::function<void()>& release) {
  std::vector<Cell*> cells;
  int device = 0;
  const std::vector<int64_t> key = layout_of(arguments, cells, device);
  const Program* program = nullptr;
  const auto [first, last] = programs_.equal_range(hash_of(key));
  for (auto it = first; it != last && program == nullptr; ++it) {
    if (it->second->key == key) program = it->second.get();
  }
  if (program == nullptr) return std::nullopt;

  Replay& replay = *program->replay;
  std::vector<DeviceValuePtr> inputs;
  for (const int argument : program->inputs) inputs.push_back(cells[argument]->get());
  // Cells that the graph overwrites give their values up; so do tensors that only the caller's list held.
  std::vector<at::Tensor> kept(arguments.size());
  for (const auto& [argument, output] : program->written) {
    kept[argument] = std::get<at::Tensor>(arguments[argument]);
    cells[argument]->take();
  }
  for (const auto& result : program->results) {
    if (result.argument >= 0) kept[result.argument] = std::get<at::Tensor>(arguments[result.argument]);
  }
  arguments.clear();
  release();
  uint64_t seed = 0, offset = 0;
  if (replay.draws() > 0) {
    std::tie(seed, offset) = generator_or_default(std::nullopt, device).reserve(static_cast<uint64_t>(replay.draws()));
  }
  const std::vector<DeviceValuePtr> values = replay.run(std::move(inputs), seed, offset);
  for (const auto& [argument, output] : program->written) cell_of(kept[argument])->put(values[output]);

  std::vector<GraphValue> results;
  std::unordered_map<int, at::Tensor> made;
  for (const auto& result : program->results) {
    if (!result.tensor) {
      results.push_back(result.plain);
    } else if (result.argument >= 0) {
      results.emplace_back(show(kept[result.argument], result.view));
    } else if (const auto it = made.find(result.value); it != made.end()) {
      results.emplace_back(show(it->second, result.view));
    } else {
      results.emplace_back(make_tensor(result.view, device, values[result.value]));
      made.emplace(result.value, std::get<at::Tensor>(results.back()));
    }
  }
  return results;
}

std::vector<std::string> CompiledGraph::modules() const {
  std::vector<std::string> modules;
  for (const auto& program : in_order_) modules.push_back(program->replay->module());
  return modules;
}

}  // namespace torch_tpu
