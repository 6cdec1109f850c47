// Environment variables as strings and as numbers of bytes.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace torch_tpu {

// Empty if it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A size such as "500M"; `otherwise` if it is not set. ValueError for what is none.
inline int64_t environment_bytes(const char* name, int64_t otherwise) {
  const std::string text = environment(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string_view unit = end;
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  TORCH_CHECK_VALUE(end != text.c_str() && shift >= 0 && number > 0 && number < 1e12, "tpu: ", name, " is ", text,
                    "; expected a number of bytes, or one with K, M or G, such as 500M.");
  return static_cast<int64_t>(number * static_cast<double>(int64_t{1} << shift));
}

}  // namespace torch_tpu
