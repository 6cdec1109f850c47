#include "pjrt/small_blocks.h"

#include <sys/mman.h>

#include <algorithm>

namespace torch_tpu::pjrt {

SmallBlocks& SmallBlocks::get() {
  static auto* blocks = new SmallBlocks;  // outlives the plugin's threads
  return *blocks;
}

SmallBlocks::SmallBlocks() {
  void* range = mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    slabs_ = slab_units_.size();      // nothing to give,
    start_ = ~uintptr_t{0} - kRange;  // and no address is ours: the top of the address space is never mapped
    return;
  }
  start_ = reinterpret_cast<uintptr_t>(range);
}

void* SmallBlocks::take(size_t bytes) {
  const size_t units = std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment);
  List& list = lists_[units];
  const std::lock_guard lock(list.mutex);
  if (list.first == nullptr && !fill(units)) return nullptr;
  void* block = list.first;
  list.first = *static_cast<void**>(block);
  return block;
}

void SmallBlocks::give_back(void* block) {
  List& list = lists_[slab_units_[(reinterpret_cast<uintptr_t>(block) - start_) / kSlab]];
  const std::lock_guard lock(list.mutex);
  *static_cast<void**>(block) = list.first;
  list.first = block;
}

// REQUIRES: the lock of the size's list is held.
bool SmallBlocks::fill(size_t units) {
  size_t slab;
  {
    const std::lock_guard lock(slabs_mutex_);
    if (slabs_ == slab_units_.size()) return false;
    slab = slabs_++;
  }
  slab_units_[slab] = static_cast<uint8_t>(units);
  char* start = reinterpret_cast<char*>(start_) + slab * kSlab;
  const size_t size = units * kAlignment;
  void* next = nullptr;
  for (size_t i = kSlab / size; i-- > 0;) {
    void* block = start + i * size;
    *static_cast<void**>(block) = next;
    next = block;
  }
  lists_[units].first = next;
  return true;
}

}  // namespace torch_tpu::pjrt
