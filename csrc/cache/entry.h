// One compiled program as bytes, in a file or in a bundle:
//
//   "torch_tpu executable 1\n"
//   SHA-256 of all that follows                              32 bytes
//   number of key parts                                      u64, little-endian, as all numbers here
//   for each part: name, value                               each a u64 length and its bytes
//   microseconds that compiling it took                      u64
//   what PJRT serialized                                     a u64 length and its bytes
//
// Reading one runs nothing of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cache/key.h"

namespace torch_tpu {

constexpr int kEntryFormat = 1;

struct Entry {
  KeyParts parts;
  int64_t compile_microseconds = 0;
  std::string_view executable;  // into the bytes it was read from, or its maker's
};

std::string write_entry(const Entry& entry);

// Throws c10::ValueError that says what is wrong: not an entry, another format, truncated, damaged.
Entry read_entry(std::string_view bytes);

}  // namespace torch_tpu
