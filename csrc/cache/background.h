// A thread that does things in the order they are given, so that writing to disk delays no program.
// Started at the first one. Thread-safe. In a forked child nothing is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace torch_tpu {

class Background {
 public:
  // `work` must not throw. Left out, with what it holds, if much is waiting already or finish() was called.
  void add(std::function<void()> work);
  // Waits until all is done.
  void drain();
  // As drain(), but for `seconds` at most; what was not begun then is left out. Ends the thread.
  void finish(double seconds);

 private:
  void run();

  std::mutex lock_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool busy_ = false, finished_ = false;
  std::thread thread_;
  std::atomic<int> process_{0};  // that the thread is of
};

}  // namespace torch_tpu
