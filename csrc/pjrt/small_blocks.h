// Small aligned host blocks: a free list a size, over one reserved range of addresses; see host_blocks.h.
//
// The range bounds what is held, and tells a block of ours by its address. Its pages are taken from the
// system when first used, and kept. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace torch_tpu::pjrt {

class SmallBlocks {
 public:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kLargest = 4096;

  static SmallBlocks& get();

  // Aligned to kAlignment; null where the range is used up, or could not be reserved.
  // REQUIRES: bytes <= kLargest.
  void* take(size_t bytes);

  bool owns(const void* block) const {
    return reinterpret_cast<uintptr_t>(block) - start_ < kRange;  // wraps around below the range
  }

  // REQUIRES: owns(block), and the block is in use.
  void give_back(void* block);

 private:
  static constexpr size_t kRange = size_t{64} << 20;
  static constexpr size_t kSlab = size_t{64} << 10;  // holds blocks of one size

  // A free block's first word points to the next.
  struct List {
    std::mutex mutex;
    void* first = nullptr;
  };

  SmallBlocks();
  bool fill(size_t units);

  uintptr_t start_;
  std::mutex slabs_mutex_;
  size_t slabs_ = 0;                                   // in use, from the start of the range
  std::array<uint8_t, kRange / kSlab> slab_units_{};   // the size of a slab's blocks, in kAlignment
  std::array<List, kLargest / kAlignment + 1> lists_;  // by size in kAlignment
};

}  // namespace torch_tpu::pjrt
