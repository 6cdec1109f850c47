#include "exec/policy.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

#include "exec/abstract.h"
#include "exec/capture.h"
#include "exec/counters.h"
#include "exec/journal.h"
#include "exec/room.h"
#include "tensor/fork.h"

namespace torch_tpu {

namespace {

// A longer program takes longer to compile than it saves; and what is pending holds memory.
constexpr size_t kMaxPendingCalls = 4096;
constexpr int64_t kMaxPendingBytes = int64_t{4} << 30;
constexpr size_t kMaxDevices = 256;

struct Recorder {
  std::mutex lock;
  // By device; made at its first use. Guarded by lock, as is all below.
  std::array<std::unique_ptr<Program>, kMaxDevices> programs;
  std::array<int64_t, kMaxDevices> pending_bytes{};

  Program& program(int device) {
    auto& p = programs.at(static_cast<size_t>(device));
    if (!p) p = std::make_unique<Program>(device);
    return *p;
  }
};

Recorder& recorder() {
  static auto* r = new Recorder();  // values may die after static destructors ran
  return *r;
}

Mode mode_from_environment() {
  const char* name = std::getenv("TORCH_TPU_MODE");
  return name == nullptr || *name == '\0' ? Mode::kDefer : mode_named(name);
}

std::atomic<Mode>& current_mode() {
  static std::atomic<Mode> mode{mode_from_environment()};
  return mode;
}

std::atomic<bool> check_nan{false};
std::atomic<std::string (*)()> location{nullptr};

std::string sync_point() {
  const std::string where = python_location();
  return where.empty() ? "a sync point" : "a sync point at " + where;
}

// last: it is not to be kept if there is no room for its results.
// REQUIRES: the recorder's lock, taken after a LocatedEvents was made.
void flush_locked(Recorder& r, int device, const char* cause, bool last) {
  Program& program = r.program(device);
  if (program.size() == 0) return;
  Counters::add(Counter::kFlushes);
  r.pending_bytes[device] = 0;
  const size_t calls = program.size();
  const auto start = std::chrono::steady_clock::now();
  const auto note = [&](const char* how) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    Journal::add({.kind = Event::Kind::kFlush, .what = cause, .note = how, .calls = calls, .seconds = taken.count()});
  };
  try {
    program.run(last);
  } catch (...) {
    note("it failed");
    throw;
  }
  note(program.how());
}

template <typename T>
bool all_finite(const DeviceValuePtr& value) {
  std::vector<T> host(value->type.numel());
  pjrt::Client::get().to_host(value->buffer(), host.data(), host.size() * sizeof(T));
  for (const T x : host) {
    if (!std::isfinite(x)) return false;
  }
  return true;
}

void check_outputs(const Signature& signature, const DeviceValues& outputs) {
  for (const DeviceValuePtr& value : outputs) {
    pjrt::await(value->buffer());
    if (!check_nan) continue;
    const bool finite = value->type.dtype == at::kFloat    ? all_finite<float>(value)
                        : value->type.dtype == at::kDouble ? all_finite<double>(value)
                                                           : true;
    TORCH_CHECK(finite, "tpu: NaN or Inf in the result of ", signature.row->name, " (", value->type, ") at ",
                python_location(), ".\nIts operands are the place to look; torch_tpu.mode('debug') checks every call.");
  }
}

}  // namespace

Mode mode() { return current_mode(); }

void set_mode(Mode mode) {
  flush_all("the mode is set");
  current_mode() = mode;
}

Mode mode_named(const std::string& name) {
  if (name == "strict") return Mode::kStrict;
  if (name == "debug") return Mode::kDebug;
  TORCH_CHECK_VALUE(name == "defer", "tpu: unknown mode '", name, "'; expected 'strict', 'debug' or 'defer'.");
  return Mode::kDefer;
}

std::string name_of(Mode mode) { return mode == Mode::kStrict ? "strict" : mode == Mode::kDebug ? "debug" : "defer"; }

void submit(Submission& submission, int device, DeviceValues& outputs) {
  check_not_forked();
  Counters::add(Counter::kCalls);
  if (Capture* capture = Capture::active()) {
    capture->add(submission, outputs);
    return;
  }
  if (AbstractSession* session = AbstractSession::active()) {
    session->add(submission, outputs);
    return;
  }
  const Mode mode = current_mode();
  Recorder& r = recorder();
  const LocatedEvents located;
  const Signature& signature = *submission.signature;
  bool added = false;
  with_room(device, [&](bool last) {
    const std::lock_guard guard(r.lock);
    Program& program = r.program(device);
    if (!added && mode != Mode::kDefer) flush_locked(r, device, "the mode is not defer", last);
    if (!added) program.add(submission, outputs);
    const bool first = !std::exchange(added, true);
    if (mode == Mode::kDefer) {
      int64_t& bytes = r.pending_bytes[device];
      for (const DeviceValuePtr& value : outputs) bytes += first ? value->type.nbytes() : 0;
      if (program.size() >= kMaxPendingCalls) flush_locked(r, device, "4,096 calls are recorded", last);
      if (bytes >= kMaxPendingBytes) flush_locked(r, device, "4 GiB of results are recorded", last);
      return;
    }
    try {
      program.run(last);
    } catch (...) {
      if (program.size() == 0) program.give_back(submission);
      throw;
    }
  });
  if (mode == Mode::kDebug) check_outputs(signature, outputs);
}

void flush(int device, const char* cause) {
  if (AbstractSession* session = AbstractSession::active()) return session->cut(sync_point());
  Recorder& r = recorder();
  const LocatedEvents located;
  with_room(device, [&](bool last) {
    const std::lock_guard guard(r.lock);
    flush_locked(r, device, cause, last);
  });
}

void flush_all(const char* cause) {
  if (in_forked_child()) return;  // what is recorded is the parent's
  if (AbstractSession* session = AbstractSession::active()) return session->cut(sync_point());
  Recorder& r = recorder();
  c10::SmallVector<int, 8> used;
  {
    const std::lock_guard guard(r.lock);
    for (size_t device = 0; device < kMaxDevices; ++device) {
      if (r.programs[device]) used.push_back(static_cast<int>(device));
    }
  }
  for (const int device : used) flush(device, cause);
}

void end_step() {
  if (AbstractSession* session = AbstractSession::active()) return session->cut("an optimizer's step");
  flush_all("an optimizer's step ends");
  Journal::end_step();
}

void synchronize(int device) {
  check_not_forked();
  if (AbstractSession* session = AbstractSession::active()) return session->cut(sync_point());
  flush(device, "synchronize()");
  wait_for_queue(device);
}

void wait_for_queue(int device) {
  if (pjrt::Client::is_created()) pjrt::Client::get().wait_for_all(device);
}

PJRT_Buffer* buffer_of(const DeviceValuePtr& value, const char* cause) {
  check_not_forked();
  TORCH_CHECK(!value->abstract || Capture::active() != nullptr,
              "tpu: this tensor was made under torch_tpu.aot, where nothing runs: it has no data.\nMake it outside.");
  TORCH_CHECK(!value->abstract, "tpu: a program that is being captured cannot read a value on the host",
              python_location().empty() ? "" : " (" + python_location() + ")",
              ".\nMove .item(), .cpu(), printing and data-dependent branches out of the captured function.");
  if (value->buffer() == nullptr && value->error.empty()) flush(value->device, cause);
  TORCH_CHECK(value->buffer() != nullptr,
              "tpu: this value was lost when the program that makes it failed: ", value->error);
  return value->buffer();
}

void set_python_location(std::string (*f)()) { location = f; }

std::string python_location() {
  const auto f = location.load();
  return f == nullptr ? std::string() : f();
}

void set_check_nan(bool check) { check_nan = check; }

}  // namespace torch_tpu
