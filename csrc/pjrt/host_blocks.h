// Host blocks of the CPU plugin, kept for its next execution.
//
// XLA's CPU plugin takes each result's memory and a program's scratch memory from the C library at each
// execution. glibc maps, clears and unmaps large blocks each time, 15 % of the CPU time of a GPT training step,
// and has no fast path for aligned ones, a tenth of the time of a one-op program. So the plugin's own calls of
// the C library's aligned allocation and of free are led to two caches, as torch's CUDA allocator does
// for cudaMalloc. Nothing else in the process is touched. Thread-safe.
#pragma once

#include <cstddef>

namespace torch_tpu::pjrt {

// `library` (of dlopen) allocates through the caches from now on. False if its imports cannot be found or
// changed: then what was not changed goes on as it was.
bool cache_host_blocks(void* library);

// Returns the large blocks that nobody uses to the system.
void release_host_blocks();

}  // namespace torch_tpu::pjrt
