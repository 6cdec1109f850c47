// Counts the bytes of live device buffers, for each device: what PyTorch calls "allocated".
// Knows nothing of allocators: a device value reports the buffer that it gets and loses.
// Thread-safe, and never throws: a destructor calls it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch_tpu {

struct MemoryCounters {
  // Bytes, then buffers: alive now, the most at once since the last reset_peak(), and how many
  // were ever made and freed since the last reset_accumulated().
  struct Counts {
    int64_t current = 0;
    int64_t peak = 0;
    int64_t allocated = 0;
    int64_t freed = 0;
  };
  struct Snapshot {
    Counts bytes;
    Counts buffers;
  };

  static void on_alloc(int device, size_t nbytes) noexcept;
  static void on_free(int device, size_t nbytes) noexcept;
  static Snapshot read(int device) noexcept;
  static void reset_peak(int device) noexcept;
  static void reset_accumulated(int device) noexcept;
};

}  // namespace torch_tpu
