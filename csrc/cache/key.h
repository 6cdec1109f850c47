// The key of a compiled program on disk: a list of named parts, so that a miss names its cause.
// Everything that changes what the compiler makes of a program is a part.
// Thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pjrt/pjrt.h"

namespace torch_tpu {

struct KeyPart {
  std::string name;
  std::string value;
  bool operator==(const KeyPart& other) const { return name == other.name && value == other.value; }
};
using KeyParts = std::vector<KeyPart>;

// 64 hex digits that name the entry with this key.
std::string digest(const KeyParts& parts);

// The parts that all programs of this process share: the format of entries, the plugin, the device, the
// host's processor where programs run on it, and the compilers' environment. Opens the client.
const KeyParts& process_parts();

// Tells files apart without reading all of them: the size, and a digest of samples spread over the file.
std::string fingerprint(const std::string& path);

}  // namespace torch_tpu
