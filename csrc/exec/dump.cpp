#include "exec/dump.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace torch_tpu {

namespace {

// The folder that an environment variable names; null if it names none.
const char* folder_in(const char* variable) {
  const char* folder = std::getenv(variable);
  return folder == nullptr || *folder == '\0' ? nullptr : folder;
}

void write(const char* variable, const char* folder, const std::string& name, const std::string& text) {
  std::error_code ignored;  // the file's own error says it
  std::filesystem::create_directories(folder, ignored);
  const auto path = std::filesystem::path(folder) / name;
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file.good()) TORCH_WARN_ONCE("tpu: ", variable, ": ", path.string(), " could not be written.");
}

}  // namespace

void dump_module(const std::string& module, size_t calls) {
  static const char* folder = folder_in("TORCH_TPU_DUMP");
  static std::atomic<int> next{0};
  if (folder == nullptr) return;
  write("TORCH_TPU_DUMP", folder, "program_" + std::to_string(next++) + "_" + std::to_string(calls) + ".mlir", module);
}

namespace {
const char* calls_folder() {
  static const char* folder = folder_in("TORCH_TPU_DUMP_CALLS");
  return folder;
}
}  // namespace

bool dumps_calls() { return calls_folder() != nullptr; }

void dump_call(const std::string& row, const std::string& text) {
  static std::atomic<int> next{0};
  write("TORCH_TPU_DUMP_CALLS", calls_folder(), "call_" + std::to_string(next++) + ".mlir",
        "// " + row + "\nmodule @call {\nfunc.func public @main" + text + "}\n");
}

}  // namespace torch_tpu
