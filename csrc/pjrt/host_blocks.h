// Large host blocks of the CPU plugin, kept for its next execution.
//
// XLA's CPU plugin takes a program's scratch memory from the C library at each execution and gives it
// back after it. Above glibc's largest mmap threshold (32 MB) that maps, clears and unmaps every page
// each time: 15 % of the CPU time of a GPT training step. So the plugin's own calls of the C library's
// aligned allocation and of free are led to a cache of large blocks, as torch's CUDA allocator does
// for cudaMalloc. Nothing else in the process is touched. Thread-safe.
#pragma once

#include <cstddef>

namespace torch_tpu::pjrt {

// `library` (of dlopen) allocates through the cache from now on. False if its imports cannot be found or
// changed: then what was not changed goes on as it was.
bool keep_large_blocks(void* library);

// Returns the blocks that nobody uses to the system.
void release_large_blocks();

}  // namespace torch_tpu::pjrt
