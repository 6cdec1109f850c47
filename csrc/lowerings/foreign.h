// Functions of StableHLO text that others wrote, such as JAX for its Pallas kernels, called as one op:
// torch_tpu::foreign. A signature's text ends with those that it calls; a program has each once.
#pragma once

#include <string>
#include <string_view>

#include "lowerings/table.h"

namespace torch_tpu {

void add_foreign(Table& t);

// What each of these functions begins with.
inline constexpr std::string_view kForeignFunction = "func.func private @foreign_";

// The text of the functions that lowerings called on this thread since this was last called.
std::string take_foreign_functions();

}  // namespace torch_tpu
