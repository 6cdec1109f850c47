// Finds the PJRT plugin of this process and loads it. One plugin a process: the first that loads.
// Knows nothing of clients. Thread-safe.
#include <c10/util/Exception.h>
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "pjrt/call.h"
#include "pjrt/environment.h"
#include "pjrt/host_blocks.h"

namespace torch_tpu::pjrt {
namespace {

// The oldest plugin this was tried with.
constexpr int kOldestMinor = 81;

std::atomic<const PJRT_Api*> loaded_api{nullptr};

std::mutex mutex;  // guards the three below
std::string loaded_path;
std::vector<std::string> cpu_candidates;
std::vector<std::string> tpu_candidates;

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

// True if `folder` has an entry that `matches`.
template <typename Matches>
bool any_entry(const char* folder, const Matches& matches) {
  DIR* dir = opendir(folder);
  if (dir == nullptr) {
    return false;
  }
  bool found = false;
  while (const dirent* entry = readdir(dir)) {
    if (matches(entry->d_name)) {
      found = true;
      break;
    }
  }
  closedir(dir);
  return found;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// vfio also hands out graphics and network cards: ask for a PCI device made by Google.
bool has_google_pci_device() {
  return any_entry("/sys/bus/pci/devices", [](const char* name) {
    return first_line(std::string("/sys/bus/pci/devices/") + name + "/vendor") == "0x1ae0";
  });
}

bool file_exists(const std::string& path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_libtpu(const std::string& path) { return path.find("libtpu") != std::string::npos; }

void set_default(const char* name, const char* value) { setenv(name, value, /*overwrite=*/0); }

// What a plugin reads from the environment while it is loaded.
void prepare_environment(const std::string& path) {
  const std::string log = environment("TORCH_TPU_LOG");
  if (log.empty() || log == "0") {
    set_default("TF_CPP_MIN_LOG_LEVEL", "3");
  }
  if (!is_libtpu(path)) {
    return;
  }
  // Off Google's cloud, libtpu waits minutes for a metadata server that does not answer.
  if (first_line("/sys/class/dmi/id/product_name").find("Google") == std::string::npos) {
    set_default("TPU_SKIP_MDS_QUERY", "1");
  }
  if (log.empty() || log == "0") {
    set_default("TPU_LOG_DIR", "disabled");
  }
  // Only the compiler is used: no device to lock, none to ask for its type.
  if (!has_tpu()) {
    set_default("ALLOW_MULTIPLE_LIBTPU_LOAD", "1");
    set_default("TPU_ACCELERATOR_TYPE", "v6e-1");
    set_default("TPU_WORKER_HOSTNAMES", "localhost");
  }
}

constexpr const char* kChooseAnother =
    "\nSet TORCH_TPU_PJRT_PLUGIN to a plugin's path, or unset it to use the installed one.";

const PJRT_Api* open_plugin(const std::string& path) {
  TORCH_CHECK(file_exists(path), "tpu: there is no PJRT plugin at ", path, ".", kChooseAnother);
  prepare_environment(path);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    TORCH_CHECK(false, "tpu: the PJRT plugin ", path,
                " does not load: ", reason == nullptr ? "no reason given" : reason, ".", kChooseAnother);
  }
  if (!is_libtpu(path)) cache_host_blocks(library);
  using GetApi = const PJRT_Api* (*)();
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "GetPjrtApi"));
  TORCH_CHECK(get_api != nullptr, "tpu: ", path, " is not a PJRT plugin: it has no function GetPjrtApi.",
              kChooseAnother);
  const PJRT_Api* table = get_api();
  TORCH_CHECK(table != nullptr, "tpu: the PJRT plugin ", path, " gives no API.", kChooseAnother);
  const PJRT_Api_Version& version = table->pjrt_api_version;
  TORCH_CHECK(version.major_version == PJRT_API_MAJOR && version.minor_version >= kOldestMinor, "tpu: the PJRT plugin ",
              path, " has API version ", version.major_version, ".", version.minor_version, "; expected ",
              PJRT_API_MAJOR, ".", kOldestMinor, " or a newer ", PJRT_API_MAJOR,
              ".x.\nUpgrade the plugin's package, or set TORCH_TPU_PJRT_PLUGIN to another plugin.");
  return table;
}

}  // namespace

const PJRT_Api* api() { return loaded_api.load(std::memory_order_acquire); }

bool compiles_for_tpu() {
  const std::lock_guard<std::mutex> lock(mutex);
  return is_libtpu(loaded_path);
}

bool has_tpu() {
  static const bool answer = [] {
    const auto is_accel = [](const char* name) {
      return starts_with(name, "accel") && std::isdigit(static_cast<unsigned char>(name[5])) != 0;
    };
    const auto is_number = [](const char* name) { return std::isdigit(static_cast<unsigned char>(name[0])) != 0; };
    // Where there is no TPU, libtpu (which JAX loads) puts a sentence into the variable, for all child processes.
    return any_entry("/dev", is_accel) || (any_entry("/dev/vfio", is_number) && has_google_pci_device()) ||
           is_number(environment("TPU_WORKER_ID").c_str());
  }();
  return answer;
}

void set_plugin_candidates(std::vector<std::string> cpu, std::vector<std::string> tpu) {
  const std::lock_guard<std::mutex> lock(mutex);
  cpu_candidates = std::move(cpu);
  tpu_candidates = std::move(tpu);
}

std::optional<PluginChoice> choose_plugin() {
  if (std::string path = environment("TORCH_TPU_PJRT_PLUGIN"); !path.empty()) {
    const PluginKind kind = is_libtpu(path) ? PluginKind::kTpu : PluginKind::kCpu;
    return PluginChoice{std::move(path), kind};
  }
  const std::string platform = environment("TORCH_TPU_PLATFORM");
  const std::lock_guard<std::mutex> lock(mutex);
  if (platform != "cpu" && (platform == "tpu" || has_tpu()) && !tpu_candidates.empty()) {
    return PluginChoice{tpu_candidates.front(), PluginKind::kTpu};
  }
  if (platform != "tpu" && !cpu_candidates.empty()) {
    return PluginChoice{cpu_candidates.front(), PluginKind::kCpu};
  }
  return std::nullopt;
}

const PJRT_Api* load_plugin(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (const PJRT_Api* table = api()) {
    TORCH_CHECK(path == loaded_path, "tpu: this process uses the PJRT plugin ", loaded_path, " already; got ", path,
                ".\nUse another process for another plugin.");
    return table;
  }
  const PJRT_Api* table = open_plugin(path);
  // PJRT_CALL, and the text of an error, need the table.
  loaded_api.store(table, std::memory_order_release);
  try {
    PJRT_CALL(PJRT_Plugin_Initialize);
  } catch (...) {
    loaded_api.store(nullptr, std::memory_order_release);
    throw;
  }
  loaded_path = path;
  return table;
}

}  // namespace torch_tpu::pjrt
