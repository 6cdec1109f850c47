// The threads of PyTorch's autograd engine, one a device.
#pragma once

namespace torch_tpu {

// Waits until those threads have let go of the last backward pass. Call without the GIL, before Python ends: what a
// pass holds of Python is released by its thread some time after backward() has returned, and a thread that asks for
// the GIL of a Python that ends brings the process down. Does nothing where no such thread has begun, in a forked
// child, or if the device was never opened and nothing is recorded abstractly.
void settle_autograd_threads() noexcept;

}  // namespace torch_tpu
