#include "aten/compiled_graph.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <unordered_map>

#include "aten/factories.h"
#include "device/generator.h"
#include "exec/policy.h"

namespace torch_tpu {

namespace {

// An argument's part of a layout.
struct Place {
  int first = -1;  // the first argument that shows the same cell; -1: not a tensor, but `plain`
  GraphPlain plain;
  Type base;  // of the cell's value
  View view;
};

// Which argument a cell came with first: a hash table of pointers, kept between calls for its memory.
class FirstSeen {
 public:
  explicit FirstSeen(size_t count) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.assign(size, {nullptr, 0});
  }
  int find_or_add(const Cell* cell, int argument) {
    for (size_t i = reinterpret_cast<uintptr_t>(cell) >> 4;; ++i) {
      auto& [known, first] = slots_[i & (slots_.size() - 1)];
      if (known == cell) return first;
      if (known != nullptr) continue;
      known = cell;
      return first = argument;
    }
  }

 private:
  c10::SmallVector<std::pair<const Cell*, int>, 512> slots_;
};

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

// A call's arguments, walked over once.
struct Gathered {
  c10::SmallVector<Cell*, 64> cells;  // null where there is no tensor
  c10::SmallVector<int, 64> first;    // as Place::first
  int device = 0;
};

Gathered gather(const std::vector<GraphArgument>& arguments) {
  Gathered g;
  g.cells.reserve(arguments.size());
  g.first.reserve(arguments.size());
  FirstSeen seen(arguments.size());
  for (const auto i : c10::irange(arguments.size())) {
    const at::Tensor* tensor = arguments[i].tensor;
    if (tensor == nullptr) {
      g.cells.push_back(nullptr);
      g.first.push_back(-1);
      continue;
    }
    TORCH_CHECK(tensor->device().type() == c10::DeviceType::PrivateUse1,
                "tpu: a compiled graph takes tpu tensors: got one on ", tensor->device());
    Cell* cell = cell_of(*tensor);
    fill_if_empty(cell, *tensor);
    g.device = cell->device();
    g.cells.push_back(cell);
    g.first.push_back(seen.find_or_add(cell, static_cast<int>(i)));
  }
  return g;
}

bool shows(const at::Tensor& t, const View& view) {
  const c10::TensorImpl& impl = *t.unsafeGetTensorImpl();
  return c10::typeMetaToScalarType(impl.dtype()) == view.dtype && impl.sizes() == c10::IntArrayRef(view.sizes) &&
         impl.strides() == c10::IntArrayRef(view.strides) && impl.storage_offset() == view.offset;
}

bool matches(const std::vector<Place>& layout, const std::vector<GraphArgument>& arguments, const Gathered& g) {
  if (layout.size() != arguments.size()) return false;
  for (const auto i : c10::irange(layout.size())) {
    const Place& place = layout[i];
    if (place.first != g.first[i]) return false;
    if (place.first < 0) {
      if (place.plain != arguments[i].plain) return false;
    } else if (g.cells[i]->get()->type != place.base || !shows(*arguments[i].tensor, place.view)) {
      return false;
    }
  }
  return true;
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

struct CompiledGraph::Program {
  // What the graph returns: a tensor, if it has an argument or a value; else `plain`.
  struct Result {
    GraphPlain plain;
    int argument = -1;  // the argument whose storage it shows
    int value = -1;     // the output of the replay that its new storage gets
    int shares = -1;    // an earlier result that has the same new storage
    View view;
    size_t nbytes = 0;  // of the new storage
  };
  std::vector<Place> layout;
  at::ScalarType default_dtype = at::kFloat;
  std::shared_ptr<Replay> replay;
  std::vector<int> inputs;                   // by input of the replay: the argument whose cell it is
  std::vector<std::pair<int, int>> written;  // argument, output: cells that the graph wrote
  std::vector<int> kept;                     // arguments that are needed after the run
  std::vector<Result> results;
};

struct CompiledGraph::Session {
  Session(int device, bool rolls) : capture(device, rolls) {}
  Capture capture;
  std::shared_ptr<Program> program = std::make_shared<Program>();
  std::vector<at::Tensor> stand_ins;   // by argument; undefined for others
  std::vector<DeviceValuePtr> values;  // by input of the replay
};

std::vector<GraphResult> CompiledGraph::begin_capture(const std::vector<GraphArgument>& arguments) {
  const Gathered g = gather(arguments);
  session_ = std::make_shared<Session>(g.device, rolls_);
  Program& program = *session_->program;
  program.default_dtype = c10::get_default_dtype_as_scalartype();
  std::vector<GraphResult> stand_ins;
  for (const auto i : c10::irange(arguments.size())) {
    const at::Tensor* tensor = arguments[i].tensor;
    at::Tensor& stand_in = session_->stand_ins.emplace_back();
    if (tensor == nullptr) {
      program.layout.push_back({-1, arguments[i].plain, {}, {}});
      stand_ins.push_back({{}, arguments[i].plain});
      continue;
    }
    const View view = view_of(*tensor);
    program.layout.push_back({g.first[i], {}, g.cells[i]->type(), view});
    if (g.first[i] != static_cast<int>(i)) {
      stand_in = show(session_->stand_ins[g.first[i]], view);
    } else {
      DeviceValuePtr value = session_->capture.input(g.cells[i]->type());
      session_->values.push_back(value);
      program.inputs.push_back(static_cast<int>(i));
      stand_in = make_tensor(view, g.device);
      stand_in.storage().unsafeGetStorageImpl()->set_nbytes(tensor->storage().nbytes());
      cell_of(stand_in)->set_nbytes(tensor->storage().nbytes());
      cell_of(stand_in)->put(std::move(value));
      stand_in.unsafeGetTensorImpl()->set_storage_offset(tensor->storage_offset());
    }
    stand_ins.push_back({stand_in, {}});
  }
  return stand_ins;
}

void CompiledGraph::cancel_capture() { session_.reset(); }

void CompiledGraph::finish_capture(const std::vector<GraphArgument>& results) {
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
    program.kept.push_back(argument);
    outputs.push_back(now);
  }
  std::unordered_map<Cell*, std::pair<int, int>> made;  // new storages, which results may share: first result, output
  for (const GraphArgument& result : results) {
    Program::Result r;
    if (result.tensor == nullptr || !result.tensor->defined()) {
      r.plain = result.plain;
    } else {
      const at::Tensor& tensor = *result.tensor;
      TORCH_CHECK(tensor.device().type() == c10::DeviceType::PrivateUse1,
                  "tpu: a compiled graph returns tpu tensors: got one on ", tensor.device());
      r.view = view_of(tensor);
      Cell* cell = cell_of(tensor);
      const int argument = first_with(argument_cells, cell);
      if (argument < static_cast<int>(argument_cells.size())) {
        r.argument = argument;
        program.kept.push_back(argument);
      } else {
        const int position = static_cast<int>(program.results.size());
        const auto [it, inserted] = made.emplace(cell, std::pair(position, static_cast<int>(outputs.size())));
        if (inserted) {
          r.nbytes = tensor.storage().nbytes();
          fill_if_empty(cell, tensor);
          outputs.push_back(cell->get());
        } else {
          r.shares = it->second.first;
        }
        r.value = it->second.second;
      }
    }
    program.results.push_back(std::move(r));
  }
  std::sort(program.kept.begin(), program.kept.end());
  program.kept.erase(std::unique(program.kept.begin(), program.kept.end()), program.kept.end());
  std::vector<int> replaced(outputs.size(), -1);
  for (const auto& [argument, output] : program.written) {
    const auto input = std::find(program.inputs.begin(), program.inputs.end(), argument);
    replaced[output] = static_cast<int>(input - program.inputs.begin());
  }
  std::vector<char> dies;
  for (const int argument : program.inputs) {
    dies.push_back(std::find(dying_.begin(), dying_.end(), argument) != dying_.end());
  }
  program.replay = session->capture.finish(outputs, replaced, dies);
  programs_.push_back(session->program);
}

bool CompiledGraph::run(const std::vector<GraphArgument>& arguments, const std::function<void()>& release,
                        std::vector<GraphResult>& results) {
  const Gathered g = gather(arguments);
  const at::ScalarType default_dtype = c10::get_default_dtype_as_scalartype();
  const auto fits = [&](size_t i) {
    return programs_[i]->default_dtype == default_dtype && matches(programs_[i]->layout, arguments, g);
  };
  size_t found = last_;
  if (found >= programs_.size() || !fits(found)) {
    for (found = 0; found < programs_.size() && !fits(found); ++found) {
    }
    if (found == programs_.size()) return false;
    last_ = found;
  }
  const Program& program = *programs_[found];

  Replay& replay = *program.replay;
  std::vector<DeviceValuePtr> inputs;
  inputs.reserve(program.inputs.size());
  for (const int argument : program.inputs) inputs.push_back(g.cells[argument]->get());
  // Cells that the graph overwrites give their values up; so do tensors that only the caller's list held.
  c10::SmallVector<at::Tensor, 64> kept(arguments.size());
  for (const int argument : program.kept) kept[argument] = *arguments[argument].tensor;
  for (const auto& [argument, output] : program.written) g.cells[argument]->take();
  release();
  uint64_t seed = 0, offset = 0;
  std::vector<DeviceValuePtr> values;
  try {
    if (replay.draws() > 0) {
      std::tie(seed, offset) =
          generator_or_default(std::nullopt, g.device).reserve(static_cast<uint64_t>(replay.draws()));
    }
    values = replay.run(inputs, seed, offset);
  } catch (...) {
    // What was not donated is still there.
    for (const auto k : c10::irange(program.inputs.size())) {
      const int argument = program.inputs[k];
      if (kept[argument].defined() && !g.cells[argument]->get()) g.cells[argument]->put(inputs[k]);
    }
    throw;
  }
  for (const auto& [argument, output] : program.written) g.cells[argument]->put(values[output]);

  results.reserve(program.results.size());
  for (const auto& result : program.results) {
    GraphResult& r = results.emplace_back();
    if (result.argument >= 0) {
      r.tensor = show(kept[result.argument], result.view);
    } else if (result.shares >= 0) {
      r.tensor = show(results[result.shares].tensor, result.view);
    } else if (result.value >= 0) {
      r.tensor = make_tensor(result.view, g.device, values[result.value]);
      // It may show a part of its storage, as the other results that share it do.
      r.tensor.unsafeGetTensorImpl()->set_storage_offset(result.view.offset);
      r.tensor.storage().unsafeGetStorageImpl()->set_nbytes(result.nbytes);
      cell_of(r.tensor)->set_nbytes(result.nbytes);
    } else {
      r.plain = result.plain;
    }
  }
  return true;
}

CompiledGraph::Signature CompiledGraph::signature() const {
  TORCH_CHECK(!programs_.empty(), "tpu: no program was captured");
  const Program& program = *programs_.back();
  const Replay& replay = *program.replay;
  Signature s{replay.module(), replay.arguments(), replay.doubles(), replay.integers(), {}, replay.draws()};
  for (int& argument : s.arguments) argument = argument < 0 ? argument : program.inputs[argument];
  for (const Program::Result& result : program.results) {
    TORCH_CHECK(result.argument >= 0 || result.value >= 0, "tpu: an exported program returns tensors only");
    const int output = result.value < 0 ? 0 : replay.outputs()[result.value];
    s.results.push_back(result.argument >= 0 ? ~result.argument : output >= 0 ? output : ~program.inputs[~output]);
  }
  return s;
}

std::vector<std::string> CompiledGraph::modules() const {
  std::vector<std::string> modules;
  for (const auto& program : programs_) modules.push_back(program->replay->module());
  return modules;
}

}  // namespace torch_tpu
