// TORCH_TPU_DUMP=FOLDER: every module that is compiled is written there, as
// program_<n>_<calls>.mlir. For people who look at what the compiler gets.
#pragma once

#include <cstddef>
#include <string>

namespace torch_tpu {

void dump_module(const std::string& module, size_t calls);

}  // namespace torch_tpu
