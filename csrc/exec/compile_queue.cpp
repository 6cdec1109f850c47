#include "exec/compile_queue.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "exec/journal.h"

namespace torch_tpu {

namespace {

// Compilers need memory, some hundred MB for a large program.
constexpr size_t kMostThreads = 8;

std::atomic<CompileQueue*> of_process{nullptr};

}  // namespace

CompileQueue& CompileQueue::get() {
  static auto* queue = [] {
    auto* made = new CompileQueue();
    of_process = made;
    return made;
  }();
  return *queue;
}

size_t CompileQueue::threads() { return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads); }

CompileQueue::Compiled CompileQueue::add(Make make) {
  std::packaged_task<std::shared_ptr<pjrt::LoadedExecutable>()> task([make = std::move(make)] {
    const EventsWithoutPlace nowhere;
    return std::make_shared<pjrt::LoadedExecutable>(make());
  });
  Compiled compiled = task.get_future().share();
  const std::lock_guard guard(lock_);
  if (finished_) return compiled;
  waiting_.push_back(std::move(task));
  if (idle_ < waiting_.size() && threads_.size() < threads()) threads_.emplace_back([this] { run(); });
  changed_.notify_all();
  return compiled;
}

void CompileQueue::run() {
  std::unique_lock guard(lock_);
  for (;;) {
    ++idle_;
    changed_.notify_all();
    changed_.wait(guard, [this] { return finished_ || !waiting_.empty(); });
    --idle_;
    if (finished_) return;
    auto task = std::move(waiting_.front());
    waiting_.pop_front();
    guard.unlock();
    task();
    guard.lock();
  }
}

void CompileQueue::drain() {
  std::unique_lock guard(lock_);
  changed_.wait(guard, [this] { return finished_ || (waiting_.empty() && idle_ == threads_.size()); });
}

void CompileQueue::finish() {
  CompileQueue* queue = of_process;
  if (queue == nullptr) return;
  std::vector<std::thread> threads;
  {
    const std::lock_guard guard(queue->lock_);
    queue->finished_ = true;
    queue->waiting_.clear();
    threads.swap(queue->threads_);
  }
  queue->changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace torch_tpu
