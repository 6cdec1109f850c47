// Says whether this process is a fork of one that had opened the device: PJRT clients have
// threads and locks that a fork does not copy, so any use there could hang.
// Thread-safe.
#pragma once

namespace torch_tpu {

// True in a child forked after the parent's client was created.
bool in_forked_child() noexcept;

// Throws a RuntimeError that says what to do, if in_forked_child().
// Call before touching the client; whoever frees device memory must leak it in such a child.
void check_not_forked();

}  // namespace torch_tpu
