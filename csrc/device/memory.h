// The allocator behind tpu storages: each gets a Cell, and device memory only when a program
// writes to it. Also page-aligned ("pinned") host memory.
// Thread-safe.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <utility>

#include "tensor/memory.h"

namespace torch_tpu {

// Makes cells on the current device. A DataPtr's data and context are both the Cell*.
c10::Allocator* cell_allocator();

// The counts of live buffers on `device`, and starting its peak again. Both run what is recorded
// first, so that a tensor counts from its creation on.
MemoryCounters::Snapshot read_memory(int device);
void reset_peak_memory(int device);

// (free, total) bytes of `device`; of the host on the CPU plugin. Opens the client.
std::pair<size_t, size_t> memory_info(int device);

// Host memory that is_pinned() knows.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

// `resize(storage, nbytes)` changes the size of a storage whose cell has a value. The layer that
// can run programs installs it; an empty cell, or a new size of 0, needs none.
void set_storage_resizer(void (*resize)(const c10::Storage& storage, size_t nbytes));
void resize_storage(const c10::Storage& storage, size_t nbytes);

}  // namespace torch_tpu
