// Large host blocks, kept for the next execution: see host_blocks.h.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>

namespace torch_tpu::pjrt {

// Blocks of whole huge pages. Thread-safe.
class LargeBlocks {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kSmallest = size_t{8} << 20;  // what is smaller the C library keeps itself

  static LargeBlocks& get();

  // Aligned to huge pages; null if there is no memory.
  void* take(size_t bytes);

  // False if the block is not one of ours.
  bool give_back(void* start);

  // Returns the blocks that nobody uses to the system.
  void release();

 private:
  struct Block {
    void* start;
    size_t size;
  };

  LargeBlocks();
  void trim(size_t most);  // REQUIRES: the lock is held.

  std::mutex mutex_;
  std::list<Block> used_, free_;  // most recently used first
  size_t idle_ = 0;               // bytes of free_
  const size_t most_idle_;
};

}  // namespace torch_tpu::pjrt
