// Compiles on threads of its own: programs that do not wait for each other, and those that nobody waits for yet.
// Thread-safe. In a forked child nothing is compiled.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "pjrt/pjrt.h"

namespace torch_tpu {

class CompileQueue {
 public:
  using Compiled = std::shared_future<std::shared_ptr<pjrt::LoadedExecutable>>;
  using Make = std::function<pjrt::LoadedExecutable()>;

  // Leaked: programs may be compiled until the process ends.
  static CompileQueue& get();
  // Ends the threads of get(), if there are any, after what they compile now; what waits is not compiled.
  static void finish();

  // What `make` returns or throws, later.
  Compiled add(Make make);
  // Waits until nothing is left to compile.
  void drain();
  // As many programs as can be compiled at once.
  static size_t threads();

 private:
  void run();

  std::mutex lock_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::packaged_task<std::shared_ptr<pjrt::LoadedExecutable>()>> waiting_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool finished_ = false;
};

}  // namespace torch_tpu
