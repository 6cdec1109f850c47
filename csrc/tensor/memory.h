// Counts the bytes of live device buffers, for each device: what PyTorch calls "allocated".
// Knows nothing of allocators: a device value reports the buffer that it gets and loses.
// Thread-safe. What is noexcept may be called by destructors.
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
    int64_t peak_with_scratch = 0;  // of bytes, and what programs took beside them while they ran
  };

  static void on_alloc(int device, size_t nbytes) noexcept;
  static void on_free(int device, size_t nbytes) noexcept;
  // A program runs that takes `scratch` bytes beside the buffers that are alive, its results included.
  static void on_run(int device, int64_t scratch) noexcept;
  static Snapshot read(int device) noexcept;
  static void reset_peak(int device) noexcept;
  static void reset_accumulated(int device) noexcept;

  // The most bytes that the buffers of a device may take, 0: as many as it has. Until it is set,
  // TORCH_TPU_MEMORY_LIMIT ("2G"). Nothing here enforces it.
  static int64_t limit(int device);
  static void set_limit(int device, int64_t bytes) noexcept;
};

}  // namespace torch_tpu
