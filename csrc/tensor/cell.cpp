#include "tensor/cell.h"

#include <c10/util/Exception.h>

#include "tensor/fork.h"
#include "tensor/memory.h"

namespace torch_tpu {

void DeviceValue::fulfil(pjrt::Buffer buffer) {
  TORCH_INTERNAL_ASSERT(!buffer_, "a device value gets its buffer once");
  buffer_ = std::move(buffer);
  MemoryCounters::on_alloc(device, static_cast<size_t>(type.nbytes()));
}

void DeviceValue::surrender() {
  if (!buffer_) return;
  if (in_forked_child()) {
    // The client's threads are not in this process: the buffer is left alone.
    (void)buffer_.release();
    return;
  }
  buffer_.reset();
  MemoryCounters::on_free(device, static_cast<size_t>(type.nbytes()));
}

}  // namespace torch_tpu
