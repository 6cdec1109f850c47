// For people who look at what the compiler gets. TORCH_TPU_DUMP=FOLDER: every module that is
// compiled is written there, as program_<n>_<calls>.mlir. TORCH_TPU_DUMP_CALLS=FOLDER: every
// distinct call, when it is lowered, as call_<n>.mlir: a module of its own as a TPU gets it,
// whatever executes, whose first line names the row.
#pragma once

#include <cstddef>
#include <string>

namespace torch_tpu {

void dump_module(const std::string& module, size_t calls);

bool dumps_calls();
// REQUIRES: dumps_calls(). text: that of the signature.
void dump_call(const std::string& row, const std::string& text);

}  // namespace torch_tpu
