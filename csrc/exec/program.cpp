#include "exec/program.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <sstream>
#include <unordered_map>

#include "exec/counters.h"
#include "exec/executables.h"
#include "exec/module_text.h"
#include "exec/novelty.h"
#include "exec/room.h"
#include "stablehlo/compose.h"
#include "tensor/memory.h"

namespace torch_tpu {

namespace {

constexpr size_t kCachedPrograms = 2048;

Novelty& novelty() {
  static auto* programs = new Novelty();
  return *programs;
}

// One pack in one device array; transferred only if the numbers changed: their bits, since 0 equals -0.
template <typename T>
PJRT_Buffer* upload(Pack<T>& pack, const std::vector<T>& numbers, at::ScalarType dtype, int device) {
  const bool same = pack.host.size() == numbers.size() &&
                    std::memcmp(pack.host.data(), numbers.data(), numbers.size() * sizeof(T)) == 0;
  if (!pack.buffer || pack.device != device || !same) {
    pack.host = numbers;
    pack.device = device;
    pack.buffer =
        pjrt::Client::get().from_host(numbers.data(), Type(dtype, {static_cast<int64_t>(numbers.size())}), device);
    Counters::add(Counter::kTransfers);
  }
  return pack.buffer.get();
}

}  // namespace

ProgramCache& program_cache() {
  static auto* programs = new ProgramCache(kCachedPrograms);  // outlives the client's users at exit
  return *programs;
}

void upload_numbers(LoadedProgram& program, const std::vector<double>& doubles, const std::vector<int64_t>& integers,
                    int device, c10::SmallVectorImpl<PJRT_Buffer*>& arguments) {
  if (!doubles.empty()) arguments.push_back(upload(program.doubles, doubles, at::kDouble, device));
  if (!integers.empty()) arguments.push_back(upload(program.integers, integers, at::kLong, device));
}

void Submission::clear() {
  signature = nullptr;
  inputs.clear();
  doubles.clear();
  integers.clear();
}

void Program::begin() {
  static std::atomic<uint64_t> next_epoch{1};
  epoch_ = next_epoch++;
  calls_.clear();
  operands_.clear();
  key_.clear();
  leaves_.clear();
  results_.clear();
  doubles_.clear();
  integers_.clear();
  started_ = false;
}

void Program::add(Submission& submission, DeviceValues& outputs) {
  for (const Type& type : submission.signature->output_types)
    outputs.push_back(c10::make_intrusive<DeviceValue>(type, device_));
  record(submission, outputs);
}

void Program::record(Submission& submission, DeviceValues outputs) {
  const Signature& signature = *submission.signature;
  calls_.push_back({&signature, operands_.size(), results_.size()});
  key_.push_back(static_cast<int64_t>(signature.id));
  for (DeviceValuePtr& input : submission.inputs) {
    if (input->epoch != epoch_) {
      input->epoch = epoch_;
      input->slot = ~static_cast<int64_t>(leaves_.size());
      operands_.push_back(input->slot);
      leaves_.push_back(std::move(input));
    } else {
      operands_.push_back(input->slot);
    }
    key_.push_back(operands_.back());
  }
  doubles_.insert(doubles_.end(), submission.doubles.begin(), submission.doubles.end());
  integers_.insert(integers_.end(), submission.integers.begin(), submission.integers.end());
  for (DeviceValuePtr& value : outputs) {
    value->epoch = epoch_;
    value->slot = static_cast<int64_t>(results_.size());
    results_.push_back(std::move(value));
  }
}

void Program::run(bool last) {
  if (calls_.empty()) return;
  const size_t recorded = key_.size();
  try {
    execute();
  } catch (const std::exception& error) {
    if (!last && !started_ && dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
      key_.resize(recorded);
      throw;
    }
    for (const DeviceValuePtr& value : results_) {
      if (value && !value->buffer()) value->error = error.what();
    }
    if (calls_.size() == 1) {
      for (const int64_t operand : operands_) unused_inputs_.push_back(leaves_[~operand]);
    }
    begin();
    throw;
  }
  begin();
}

void Program::give_back(Submission& submission) {
  submission.inputs.assign(unused_inputs_.begin(), unused_inputs_.end());
  unused_inputs_.clear();
}

std::vector<int64_t> Program::find_live(c10::SmallVectorImpl<char>& donatable) {
  // What is live, and what could be donated, tells programs apart as much as the calls do.
  std::vector<int64_t> live;
  key_.push_back(-1);
  for (size_t i = 0; i < results_.size(); ++i) {
    if (results_[i].use_count() > 1) live.push_back(static_cast<int64_t>(i));
  }
  key_.insert(key_.end(), live.begin(), live.end());
  donatable.resize(leaves_.size());
  int64_t word = 0;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    donatable[i] = leaves_[i].use_count() == 1;
    word |= static_cast<int64_t>(donatable[i]) << (i % 62);
    if (i % 62 == 61 || i + 1 == leaves_.size()) {
      key_.push_back(~word);
      word = 0;
    }
  }
  return live;
}

Program::Plan Program::plan() {
  Plan plan;
  c10::SmallVector<char, 64> donatable;
  plan.live = find_live(donatable);
  plan.aliases = choose_aliases(plan.live, donatable);
  plan.key = key_;
  return plan;
}

void Program::execute() {
  auto& client = pjrt::Client::get();
  c10::SmallVector<char, 64> donatable;
  const std::vector<int64_t> live = find_live(donatable);
  if (live.empty()) {
    how_ = "nothing of it was needed";
    return;
  }

  const uint64_t hash = hash_of(key_);
  LoadedProgram* program = program_cache().find(key_, hash);
  if (program == nullptr) {
    how_ = "as a new program";
    program = compiled_meanwhile(hash, /*wait=*/calls_.size() == 1);
    if (program == nullptr && calls_.size() > 1 && background_compile()) {
      how_ = "call by call, until it is compiled in the background";
      compile_meanwhile(hash, live, donatable);
      run_call_by_call(live);
      return;
    }
    if (program == nullptr && !novelty().worth_compiling(hash, calls_.size())) {
      how_ = "call by call: its like never came again";
      run_call_by_call(live);
      return;
    }
    if (program == nullptr) {
      std::vector<int64_t> aliases = choose_aliases(live, donatable);
      program = program_cache().insert(key_, hash, compile(live, aliases));
      program->aliases = std::move(aliases);
    }
    program->small = is_small(live);
  } else {
    how_ = "as a program known before";
    Counters::add(Counter::kCacheHits);
    novelty().found(calls_.size());
  }

  c10::SmallVector<PJRT_Buffer*, 64> arguments;
  for (const DeviceValuePtr& leaf : leaves_) {
    TORCH_CHECK(leaf->buffer() != nullptr, "tpu: an operand has no value: ",
                leaf->abstract        ? "it was made under torch_tpu.aot, where nothing runs"
                : leaf->error.empty() ? "the program that makes it has not run"
                                      : leaf->error);
    arguments.push_back(leaf->buffer());
  }
  upload_numbers(*program, doubles_, integers_, device_, arguments);
  int64_t bytes = program->scratch_bytes;
  for (const int64_t i : live) bytes += results_[i]->type.nbytes();
  for (size_t i = 0; i < leaves_.size(); ++i) bytes -= program->aliases[i] < 0 ? 0 : leaves_[i]->type.nbytes();
  check_room(device_, bytes);
  std::vector<pjrt::Buffer> buffers(live.size());
  client.execute(program->executable.get(), arguments, {}, buffers, device_, program->small);
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (program->aliases[i] < 0) continue;
    leaves_[i]->surrender();
    Counters::add(Counter::kDonations);
  }
  for (size_t i = 0; i < live.size(); ++i) results_[live[i]]->fulfil(std::move(buffers[i]));
  MemoryCounters::on_run(device_, program->scratch_bytes);
}

pjrt::LoadedExecutable Program::compile(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const {
  return make_executable(module(live, aliases), parts(live, aliases), calls_.size(), {.fast = is_small(live)});
}

CompileQueue::Compiled Program::compile_later(const std::vector<int64_t>& live,
                                              const std::vector<int64_t>& aliases) const {
  return CompileQueue::get().add([text = module(live, aliases), key = parts(live, aliases), calls = calls_.size(),
                                  fast = is_small(live)] { return make_executable(text, key, calls, {.fast = fast}); });
}

// One call on little data takes longer to compile than to run, so compiling it fast pays.
bool Program::is_small(const std::vector<int64_t>& live) const {
  constexpr int64_t kSmall = 4096;
  const auto small = [](const DeviceValuePtr& value) { return value->type.numel() <= kSmall; };
  return calls_.size() == 1 && std::all_of(leaves_.begin(), leaves_.end(), small) &&
         std::all_of(live.begin(), live.end(), [&](int64_t i) { return small(results_[i]); });
}

std::vector<int64_t> Program::choose_aliases(const std::vector<int64_t>& live, c10::ArrayRef<char> donatable) const {
  std::vector<int64_t> aliases(leaves_.size(), -1);
  std::vector<int64_t> origin(results_.size(), -1);  // the leaf that a cell's new value came from
  for (const Recorded& call : calls_) {
    const Signature& s = *call.signature;
    const size_t fresh = s.output_types.size() - s.written_cells.size();
    for (size_t w = 0; w < s.written_cells.size(); ++w) {
      for (size_t k = 0; k < s.input_cells.size(); ++k) {
        if (s.input_cells[k] != s.written_cells[w]) continue;
        const int64_t operand = operands_[call.first_input + k];
        origin[call.first_result + fresh + w] = operand < 0 ? ~operand : origin[operand];
      }
    }
  }
  std::vector<bool> taken(live.size());
  const auto give = [&](size_t leaf, size_t output) {
    if (aliases[leaf] >= 0 || taken[output] || !donatable[leaf] || leaves_[leaf]->type != results_[live[output]]->type)
      return;
    aliases[leaf] = static_cast<int64_t>(output);
    taken[output] = true;
  };
  for (size_t o = 0; o < live.size(); ++o) {
    if (origin[live[o]] >= 0) give(origin[live[o]], o);
  }
  for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
    for (size_t o = 0; donatable[leaf] && aliases[leaf] < 0 && o < live.size(); ++o) give(leaf, o);
  }
  return aliases;
}

std::string Program::module(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const {
  return write_module({listing(), {}, {}}, live, aliases, /*stacked_arguments=*/false).text;
}

Listing Program::listing() const {
  Listing all;
  for (const DeviceValuePtr& leaf : leaves_) all.leaves.push_back(leaf->type);
  for (const DeviceValuePtr& value : results_) all.values.push_back(value->type);
  all.doubles = doubles_;
  all.integers = integers_;
  int64_t next_double = 0, next_integer = 0;
  for (const auto i : c10::irange(calls_.size())) {
    const Signature& s = *calls_[i].signature;
    Listing::Call& call = all.calls.emplace_back();
    call.signature = &s;
    call.source = i;
    const size_t inputs = s.input_cells.size();
    for (const auto k : c10::irange(inputs)) call.inputs.push_back(operands_[calls_[i].first_input + k]);
    for (size_t k = inputs; k < s.input_types.size(); ++k) {
      int64_t& next = s.input_types[k].dtype == at::kDouble ? next_double : next_integer;
      call.numbers.push_back(next);
      next += s.input_types[k].numel();
    }
    for (const auto k : c10::irange(s.output_types.size())) {
      call.results.push_back(static_cast<int64_t>(calls_[i].first_result + k));
    }
  }
  return all;
}

KeyParts Program::parts(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const {
  std::ostringstream calls, inputs, results;
  for (size_t i = 0, same = 1; i < calls_.size(); ++i) {
    const std::string& name = calls_[i].signature->row->name;
    if (i + 1 < calls_.size() && calls_[i + 1].signature->row->name == name) {
      ++same;
      continue;
    }
    calls << (calls.tellp() > 0 ? ", " : "") << name;
    if (same > 1) calls << " x " << same;
    same = 1;
  }
  for (size_t i = 0; i < leaves_.size(); ++i) {
    inputs << (i == 0 ? "" : ", ") << leaves_[i]->type;
    if (aliases[i] >= 0) inputs << " given to result " << aliases[i];
  }
  for (size_t i = 0; i < live.size(); ++i) results << (i == 0 ? "" : ", ") << results_[live[i]]->type;
  return {{"calls", calls.str()}, {"inputs", inputs.str()}, {"results", results.str()}};
}

}  // namespace torch_tpu
