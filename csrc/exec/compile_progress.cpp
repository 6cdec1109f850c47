#include "exec/compile_progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "pjrt/environment.h"

namespace torch_tpu {

namespace {

constexpr auto kPatience = std::chrono::seconds(2);

bool shown() {
  const std::string wish = environment("TORCH_TPU_PROGRESS");
  return wish.empty() ? isatty(STDERR_FILENO) == 1 : wish != "0";
}

}  // namespace

CompileProgress::CompileProgress(size_t calls) {
  if (!shown()) return;
  watcher_ = std::thread([this, calls] {
    std::unique_lock guard(lock_);
    if (ended_.wait_for(guard, kPatience, [this] { return has_ended_; })) return;
    std::fprintf(stderr, "torch_tpu: compiling a program of %zu calls, which takes more than 2 s\n", calls);
  });
}

CompileProgress::~CompileProgress() {
  if (!watcher_.joinable()) return;
  {
    const std::lock_guard guard(lock_);
    has_ended_ = true;
  }
  ended_.notify_all();
  watcher_.join();
}

}  // namespace torch_tpu
