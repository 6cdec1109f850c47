// The one place that executables come from: the disk, or the compiler.
// Thread-safe.
#pragma once

#include <string>

#include "cache/key.h"

namespace torch_tpu {

// The executable of a module of `calls` calls. `parts` describe the program to people, beside its text: they are
// parts of its key on disk, and name the cause of a miss.
pjrt::LoadedExecutable make_executable(const std::string& module, KeyParts parts, size_t calls,
                                       const pjrt::Client::CompileOptions& options);

}  // namespace torch_tpu
