// Environment variables as strings.
#pragma once

#include <cstdlib>
#include <string>

namespace torch_tpu {

// Empty if it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace torch_tpu
