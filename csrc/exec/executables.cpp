#include "exec/executables.h"

#include <chrono>
#include <memory>
#include <utility>

#include "cache/disk.h"
#include "cache/sha256.h"
#include "exec/compile_progress.h"
#include "exec/counters.h"
#include "exec/dump.h"
#include "exec/journal.h"

namespace torch_tpu {

namespace {

// A program that compiles faster than this many bytes of text is not worth waiting for another process.
constexpr size_t kWorthWaiting = 16384;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

pjrt::LoadedExecutable compile(const std::string& module, size_t calls, const pjrt::Client::CompileOptions& options) {
  dump_module(module, calls);
  const CompileProgress progress(calls);
  Counters::add(Counter::kCompiles);
  return pjrt::Client::get().compile(module, options);
}

}  // namespace

pjrt::LoadedExecutable make_executable(const std::string& module, KeyParts parts, size_t calls,
                                       const pjrt::Client::CompileOptions& options) {
  const auto start = Clock::now();
  const std::string encoded = pjrt::Client::encode(options);
  parts.push_back({"options", (options.fast ? "least effort " : "full effort ") + hex(encoded)});
  parts.push_back({"text", hex(Sha256().add(module).finish())});
  Event event{.kind = Event::Kind::kCompile, .calls = calls};
  DiskCache& disk = DiskCache::get();
  pjrt::LoadedExecutable executable;
  if (!disk.on()) {
    executable = compile(module, calls, options);
    event.what = "compiled";
    event.note = "nothing is kept on disk";
  } else {
    parts.insert(parts.begin(), process_parts().begin(), process_parts().end());
    const std::string key = digest(parts);
    executable = disk.find(key, event.note);
    std::shared_ptr<Claim> claim;
    if (!executable && module.size() >= kWorthWaiting) {
      claim = disk.claim(key);
      if (claim) executable = disk.find(key, event.note);  // another process may have made it meanwhile
    }
    event.what = executable ? "loaded from disk" : "compiled";
    if (executable) {
      Counters::add(Counter::kDiskHits);
      event.note.clear();
    } else {
      const auto begun = Clock::now();
      executable = compile(module, calls, options);
      const auto microseconds = static_cast<int64_t>(seconds_since(begun) * 1e6);
      disk.store(key, parts, executable.get(), microseconds, std::move(claim));
    }
  }
  event.seconds = seconds_since(start);
  event.parts = std::make_shared<const KeyParts>(std::move(parts));
  Journal::add(std::move(event));
  return executable;
}

}  // namespace torch_tpu
