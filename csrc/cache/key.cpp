#include "cache/key.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

#include "cache/entry.h"
#include "cache/sha256.h"
#include "pjrt/environment.h"

namespace torch_tpu {

namespace {

// What code generation looks at, of the first processor.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string found;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    for (const char* field :
         {"vendor_id", "cpu family", "model\t", "flags", "CPU implementer", "CPU part", "Features", "isa", "uarch"}) {
      if (line.rfind(field, 0) != 0) continue;
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, line.find_first_of("\t:"));
      found += (found.empty() ? "" : "; ") + name + line.substr(colon);
    }
  }
  return found;
}

// Programs are cut for this many threads.
std::string processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::to_string(CPU_COUNT(&set)) : "unknown";
}

KeyParts find_process_parts() {
  auto& client = pjrt::Client::get();
  const std::string& path = client.plugin_path();
  KeyParts parts = {
      {"format", std::to_string(kEntryFormat)},
      {"plugin", std::filesystem::path(path).filename().string() + " " + fingerprint(path)},
      {"platform", client.platform() + " " + client.version()},
      {"device", client.device_kind(0)},
  };
  if (client.kind() == pjrt::PluginKind::kCpu) {
    parts.push_back({"processor", processor()});
    parts.push_back({"processors", processors()});
  }
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    if (std::string value = environment(name); !value.empty()) parts.push_back({name, std::move(value)});
  }
  return parts;
}

}  // namespace

std::string digest(const KeyParts& parts) {
  Sha256 hash;
  for (const KeyPart& part : parts) {
    hash.add(part.name).add("\n").add(std::to_string(part.value.size())).add("\n").add(part.value);
  }
  return hex(hash.finish());
}

const KeyParts& process_parts() {
  static const auto* parts = new KeyParts(find_process_parts());
  return *parts;
}

std::string fingerprint(const std::string& path) {
  constexpr std::streamoff kSamples = 64, kSampleBytes = 4096;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.good() ? static_cast<std::streamoff>(file.tellg()) : 0;
  Sha256 hash;
  std::string sample(kSampleBytes, '\0');
  for (std::streamoff i = 0; i < kSamples; ++i) {
    file.clear();
    file.seekg(size / kSamples * i);
    file.read(sample.data(), kSampleBytes);
    hash.add({sample.data(), static_cast<size_t>(file.gcount())});
  }
  return std::to_string(size) + " " + hex(hash.finish()).substr(0, 16);
}

}  // namespace torch_tpu
