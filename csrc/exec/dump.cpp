#include "exec/dump.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace torch_tpu {

void dump_module(const std::string& module, size_t calls) {
  static const char* folder = std::getenv("TORCH_TPU_DUMP");
  static std::atomic<int> next{0};
  if (folder == nullptr || *folder == '\0') return;
  std::error_code ignored;  // the file's own error says it
  std::filesystem::create_directories(folder, ignored);
  const auto path =
      std::filesystem::path(folder) / ("program_" + std::to_string(next++) + "_" + std::to_string(calls) + ".mlir");
  std::ofstream file(path);
  file << module;
  if (!file.good()) TORCH_WARN_ONCE("tpu: TORCH_TPU_DUMP: ", path.string(), " could not be written.");
}

}  // namespace torch_tpu
