// Says once on stderr that a program is being compiled, when that has taken two seconds, so that nobody takes it for a
// hang. Only where stderr is a terminal; TORCH_TPU_PROGRESS=1 says it anywhere, 0 nowhere.
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

namespace torch_tpu {

// Lives while a program of `calls` calls is compiled.
class CompileProgress {
 public:
  explicit CompileProgress(size_t calls);
  ~CompileProgress();
  CompileProgress(const CompileProgress&) = delete;
  CompileProgress& operator=(const CompileProgress&) = delete;

 private:
  std::mutex lock_;
  std::condition_variable ended_;
  bool has_ended_ = false;  // guarded by lock_
  std::thread watcher_;
};

}  // namespace torch_tpu
