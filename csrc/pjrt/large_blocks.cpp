#include "pjrt/large_blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace torch_tpu::pjrt {
namespace {

constexpr size_t kHugePage = LargeBlocks::kHugePage;

size_t whole_pages(size_t n) { return (n + kHugePage - 1) / kHugePage * kHugePage; }

// Aligned to huge pages, and asking for them: one page fault for 512.
void* map(size_t n) {
  char* raw =
      static_cast<char*>(mmap(nullptr, n + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (raw == MAP_FAILED) return nullptr;
  const size_t before = whole_pages(reinterpret_cast<uintptr_t>(raw)) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) munmap(raw, before);
  char* start = raw + before;
  munmap(start + n, kHugePage - before);
  madvise(start, n, MADV_HUGEPAGE);
  return start;
}

}  // namespace

LargeBlocks& LargeBlocks::get() {
  static auto* blocks = new LargeBlocks;  // outlives the plugin's threads
  return *blocks;
}

LargeBlocks::LargeBlocks()
    : most_idle_(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 4) {}

void* LargeBlocks::take(size_t bytes) {
  const size_t n = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->size < n || it->size > n + n / 4) continue;
    void* start = it->start;
    idle_ -= it->size;
    used_.splice(used_.begin(), free_, it);
    return start;
  }
  void* start = map(n);
  if (start != nullptr) used_.push_front({start, n});
  return start;
}

bool LargeBlocks::give_back(void* start) {
  const std::lock_guard lock(mutex_);
  for (auto it = used_.begin(); it != used_.end(); ++it) {
    if (it->start != start) continue;
    idle_ += it->size;
    free_.splice(free_.begin(), used_, it);
    trim(most_idle_);
    return true;
  }
  return false;
}

void LargeBlocks::release() {
  const std::lock_guard lock(mutex_);
  trim(0);
}

void LargeBlocks::trim(size_t most) {
  while (idle_ > most && !free_.empty()) {
    munmap(free_.back().start, free_.back().size);
    idle_ -= free_.back().size;
    free_.pop_back();
  }
}

}  // namespace torch_tpu::pjrt
