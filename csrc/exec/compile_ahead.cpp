// Programs that other threads compile: whole ones while their calls run one by one, and those of single calls, all at
// once, before they run.
// Guarded by the recorder's lock.
#include <c10/util/irange.h>

#include <atomic>
#include <chrono>
#include <unordered_map>

#include "exec/program.h"
#include "pjrt/environment.h"

namespace torch_tpu {

namespace {

struct Meanwhile {
  std::vector<int64_t> key;
  CompileQueue::Compiled compiled;  // not valid: the program was asked for once
  std::vector<int64_t> aliases;
};

// By hash. Bounded: what is forgotten is asked for again.
constexpr size_t kRemembered = 4096;

std::unordered_map<uint64_t, Meanwhile>& meanwhile() {
  static auto* programs = new std::unordered_map<uint64_t, Meanwhile>();
  return *programs;
}

std::atomic<bool>& in_background() {
  static std::atomic<bool> on{environment("TORCH_TPU_BACKGROUND_COMPILE") == "1"};
  return on;
}

}  // namespace

bool background_compile() { return in_background(); }

void set_background_compile(bool on) { in_background() = on; }

LoadedProgram* Program::compiled_meanwhile(uint64_t hash, bool wait) {
  const auto it = meanwhile().find(hash);
  if (it == meanwhile().end() || it->second.key != key_ || !it->second.compiled.valid()) return nullptr;
  const bool done = it->second.compiled.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  // Where nothing is compiled in the background any more, what is begun is waited for.
  if (!done && !wait && background_compile()) return nullptr;
  Meanwhile found = std::move(it->second);
  meanwhile().erase(it);
  LoadedProgram* program = program_cache().insert(key_, hash, std::move(*found.compiled.get()));
  program->aliases = std::move(found.aliases);
  return program;
}

void Program::compile_meanwhile(uint64_t hash, const std::vector<int64_t>& live, c10::ArrayRef<char> donatable) {
  if (meanwhile().size() >= kRemembered) meanwhile().clear();
  Meanwhile& m = meanwhile()[hash];
  if (m.key != key_) {
    m = {key_, {}, {}};  // a first step often is like no other
    return;
  }
  if (m.compiled.valid()) return;
  m.aliases = choose_aliases(live, donatable);
  m.compiled = compile_later(live, m.aliases);
}

void Program::compile_calls_ahead(const std::vector<bool>& runs, const std::vector<size_t>& last_use,
                                  const std::vector<size_t>& last_use_of_leaf) const {
  if (CompileQueue::threads() < 2) return;
  struct Missing {
    uint64_t hash;
    Program program;
    std::vector<int64_t> live, aliases;
  };
  std::vector<Missing> missing;
  std::unordered_map<uint64_t, bool> seen;
  for (const auto i : c10::irange(calls_.size())) {
    if (!runs[i]) continue;
    // The program that the call will be: of values without data, held by as many as will hold the real ones.
    const Recorded& call = calls_[i];
    const Signature& signature = *call.signature;
    std::vector<DeviceValuePtr> held;
    std::unordered_map<int64_t, DeviceValuePtr> operands;
    Submission submission;
    submission.signature = &signature;
    for (const NumberKind kind : signature.numbers) {
      if (kind == NumberKind::kInteger) {
        submission.integers.push_back(0);
      } else {
        submission.doubles.resize(submission.doubles.size() + (kind == NumberKind::kComplex ? 2 : 1));
      }
    }
    if (signature.random) submission.integers.resize(submission.integers.size() + 2);
    for (const auto k : c10::irange(signature.input_cells.size())) {
      const int64_t operand = operands_[call.first_input + k];
      const DeviceValuePtr& real = operand < 0 ? leaves_[~operand] : results_[operand];
      DeviceValuePtr& value = operands[operand];
      if (!value) {
        value = c10::make_intrusive<DeviceValue>(real->type, device_);
        const bool dies = (operand < 0 ? last_use_of_leaf[~operand] : last_use[operand]) == i;
        if (!dies || real.use_count() > 1) held.push_back(value);
      }
      submission.inputs.push_back(value);
    }
    operands.clear();
    DeviceValues outputs;
    for (const auto r : c10::irange(signature.output_types.size())) {
      const size_t slot = call.first_result + r;
      outputs.push_back(c10::make_intrusive<DeviceValue>(signature.output_types[r], device_));
      if (last_use[slot] > i || results_[slot].use_count() > 1) held.push_back(outputs.back());
    }
    Program single(device_);
    single.record(submission, std::move(outputs));
    c10::SmallVector<char, 64> donatable;
    std::vector<int64_t> live = single.find_live(donatable);
    const uint64_t hash = hash_of(single.key_);
    if (live.empty() || !seen.emplace(hash, true).second || meanwhile().count(hash) != 0 ||
        program_cache().find(single.key_, hash) != nullptr) {
      continue;
    }
    std::vector<int64_t> aliases = single.choose_aliases(live, donatable);
    missing.push_back({hash, std::move(single), std::move(live), std::move(aliases)});
  }
  if (missing.size() < 2) return;
  for (Missing& m : missing) {
    if (meanwhile().size() >= kRemembered) meanwhile().clear();
    auto compiled = m.program.compile_later(m.live, m.aliases);
    meanwhile()[m.hash] = {m.program.key_, std::move(compiled), std::move(m.aliases)};
  }
}

}  // namespace torch_tpu
