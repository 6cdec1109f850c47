#include "cache/background.h"

#include <unistd.h>

#include <chrono>
#include <utility>

namespace torch_tpu {

namespace {
constexpr size_t kMostWaiting = 256;
}  // namespace

void Background::add(std::function<void()> work) {
  if (process_ != 0 && process_ != getpid()) return;
  const std::lock_guard guard(lock_);
  if (finished_ || waiting_.size() >= kMostWaiting) return;
  waiting_.push_back(std::move(work));
  if (!thread_.joinable()) {
    process_ = getpid();
    thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

void Background::run() {
  std::unique_lock guard(lock_);
  for (;;) {
    changed_.wait(guard, [this] { return finished_ || !waiting_.empty(); });
    if (finished_) return;
    {
      busy_ = true;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      guard.unlock();
      work();
      guard.lock();
    }
    busy_ = false;
    changed_.notify_all();
  }
}

void Background::drain() {
  if (process_ != getpid()) return;
  std::unique_lock guard(lock_);
  changed_.wait(guard, [this] { return finished_ || (waiting_.empty() && !busy_); });
}

void Background::finish(double seconds) {
  if (process_ != getpid()) return;
  {
    std::unique_lock guard(lock_);
    changed_.wait_for(guard, std::chrono::duration<double>(seconds), [this] { return waiting_.empty() && !busy_; });
    finished_ = true;
    waiting_.clear();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

}  // namespace torch_tpu
