// The allocator behind tpu storages: each gets a Cell, and device memory only when a program
// writes to it. Also page-aligned ("pinned") host memory.
// Thread-safe.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

namespace torch_tpu {

// Makes cells on the current device. A DataPtr's data and context are both the Cell*.
c10::Allocator* cell_allocator();

// Host memory that is_pinned() knows.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

// `resize(storage, nbytes)` changes the size of a storage whose cell has a value. The layer that
// can run programs installs it; an empty cell, or a new size of 0, needs none.
void set_storage_resizer(void (*resize)(const c10::Storage& storage, size_t nbytes));
void resize_storage(const c10::Storage& storage, size_t nbytes);

}  // namespace torch_tpu
