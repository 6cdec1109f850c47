#include "exec/capture.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "exec/counters.h"
#include "exec/executables.h"
#include "exec/journal.h"
#include "exec/module_text.h"
#include "exec/policy.h"
#include "exec/room.h"
#include "tensor/memory.h"

namespace torch_tpu {

namespace {
thread_local Capture* current = nullptr;
}  // namespace

Capture::Capture(int device, bool rolls) : program_(device), device_(device), rolls_(rolls) {
  TORCH_CHECK(current == nullptr, "tpu: a program is being captured on this thread already; captures do not nest.");
  current = this;
}

Capture::~Capture() { current = nullptr; }

Capture* Capture::active() { return current; }

DeviceValuePtr Capture::input(const Type& type) {
  auto value = c10::make_intrusive<DeviceValue>(type, device_);
  value->abstract = true;
  inputs_.push_back(value);
  return value;
}

void Capture::add(Submission& submission, DeviceValues& outputs) {
  for (const DeviceValuePtr& input : submission.inputs) {
    if (!input->abstract && !program_.made(*input)) buffer_of(input);  // a constant: computed by now
  }
  const Signature& signature = *submission.signature;
  if (signature.random) {
    // Replays draw anew: only the distance from the start is the program's.
    random_.push_back({program_.integers().size() + submission.integers.size() - 2, draws_});
    draws_ += signature.draws;
  }
  program_.add(submission, outputs);
  for (const DeviceValuePtr& value : outputs) value->abstract = true;
}

std::shared_ptr<Replay> Capture::finish(const std::vector<DeviceValuePtr>& outputs, const std::vector<int>& replaced,
                                        const std::vector<char>& dying) {
  auto replay = std::make_shared<Replay>();
  replay->device_ = device_;
  replay->draws_ = draws_;
  replay->random_ = random_;
  replay->doubles_ = program_.doubles();
  replay->integers_ = program_.integers();
  replay->returned_.resize(inputs_.size());
  std::vector<int64_t> live;
  for (const DeviceValuePtr& value : outputs) {
    replay->output_types_.push_back(value->type);
    if (program_.made(*value)) {
      const auto found = std::find(live.begin(), live.end(), value->slot);
      replay->outputs_.push_back(static_cast<int>(found - live.begin()));
      if (found == live.end()) {
        live.push_back(value->slot);
        replay->output_bytes_ += value->type.nbytes();
      }
      continue;
    }
    const auto input = std::find(inputs_.begin(), inputs_.end(), value);
    TORCH_CHECK(input != inputs_.end(),
                "tpu: a captured program returns a tensor that it neither got nor made.\nPass it as an input.");
    replay->outputs_.push_back(~static_cast<int>(input - inputs_.begin()));
    replay->returned_[input - inputs_.begin()] = true;
  }
  replay->executable_outputs_ = live.size();
  if (live.empty()) return replay;
  for (const DeviceValuePtr& leaf : program_.leaves()) {
    const auto input = std::find(inputs_.begin(), inputs_.end(), leaf);
    const bool constant = input == inputs_.end();
    replay->sources_.push_back(
        {constant ? -1 : static_cast<int>(input - inputs_.begin()), constant ? leaf : DeviceValuePtr()});
  }
  // A cell's new value gets its old one's buffer; then what dies goes to the outputs that are left.
  std::vector<int64_t>& aliases = replay->program_.aliases;
  aliases.assign(replay->sources_.size(), -1);
  std::vector<bool> taken(live.size());
  const auto give = [&](size_t source, int output) {
    const Type& type = program_.leaves()[source]->type;
    const auto o = static_cast<size_t>(replay->outputs_[output]);
    if (aliases[source] >= 0 || taken[o] || replay->output_types_[output] != type) return;
    aliases[source] = static_cast<int64_t>(o);
    taken[o] = true;
  };
  for (const bool replacing : {true, false}) {
    for (size_t source = 0; source < replay->sources_.size(); ++source) {
      const int input = replay->sources_[source].input;
      if (input < 0 || replay->returned_[input]) continue;
      for (size_t output = 0; output < outputs.size(); ++output) {
        if (replay->outputs_[output] < 0) continue;
        if (replacing ? replaced[output] == input : dying[input] != 0) give(source, static_cast<int>(output));
      }
    }
  }
  Rolled rolled;
  if (rolls_) rolled = roll(program_.listing(), live, aliases);
  replay->module_ = rolled.loops.empty() ? program_.module(live, aliases)
                                         : write_module(rolled, live, aliases, /*stacked_arguments=*/false).text;
  const LocatedEvents located;
  replay->program_.executable = make_executable(replay->module_, program_.parts(live, aliases), program_.size(), {});
  replay->program_.scratch_bytes = pjrt::scratch_bytes(replay->program_.executable.get());
  return replay;
}

std::vector<int> Replay::arguments() const {
  std::vector<int> inputs;
  for (const Source& source : sources_) inputs.push_back(source.input);
  return inputs;
}

std::vector<DeviceValuePtr> Replay::run(std::vector<DeviceValuePtr>& inputs, uint64_t seed, uint64_t offset) {
  std::vector<DeviceValuePtr> made(executable_outputs_);
  if (program_.executable) {
    for (const RandomState& r : random_) {
      integers_[r.position] = static_cast<int64_t>(seed);
      integers_[r.position + 1] = static_cast<int64_t>(offset) + r.start;
    }
    c10::SmallVector<PJRT_Buffer*, 64> arguments;
    c10::SmallVector<int64_t, 64> kept;  // may not be donated
    c10::SmallVector<int, 64> donated;
    for (const Source& source : sources_) {
      const DeviceValuePtr& value = source.input < 0 ? source.constant : inputs[source.input];
      const auto i = static_cast<int64_t>(arguments.size());
      arguments.push_back(value->buffer() != nullptr ? value->buffer()
                                                     : buffer_of(value, "a compiled graph takes a value"));
      if (program_.aliases[i] < 0) continue;
      if (value.use_count() > 1 || returned_[source.input]) {
        kept.push_back(i);
      } else {
        donated.push_back(source.input);
      }
    }
    upload_numbers(program_, doubles_, integers_, device_, arguments);
    std::vector<pjrt::Buffer> buffers(executable_outputs_);
    int64_t bytes = output_bytes_ + program_.scratch_bytes;
    for (const int input : donated) bytes -= inputs[input]->type.nbytes();
    with_room(device_, [&](bool) {
      check_room(device_, bytes);
      pjrt::Client::get().execute(program_.executable.get(), arguments, kept, buffers, device_);
    });
    for (const int input : donated) inputs[input].reset();
    Counters::add(Counter::kDonations, static_cast<int64_t>(donated.size()));
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i] < 0 || made[outputs_[i]]) continue;
      made[outputs_[i]] = c10::make_intrusive<DeviceValue>(output_types_[i], device_);
      made[outputs_[i]]->fulfil(std::move(buffers[outputs_[i]]));
    }
    MemoryCounters::on_run(device_, program_.scratch_bytes);
  }
  std::vector<DeviceValuePtr> results;
  results.reserve(outputs_.size());
  for (const int o : outputs_) results.push_back(o < 0 ? inputs[~o] : made[o]);
  return results;
}

}  // namespace torch_tpu
