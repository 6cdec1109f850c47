// Device discovery: /dev and /sys for a TPU, the environment for the CPU plugin.
#include "device/discovery.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "pjrt/pjrt.h"

namespace torch_tpu {
namespace {

namespace fs = std::filesystem;

// c10::DeviceIndex is an int8_t.
constexpr int kMostDevices = 127;

int numbered_entries(const char* folder, std::string_view prefix) {
  std::error_code error;
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    count += name.size() > prefix.size() && name.compare(0, prefix.size(), prefix) == 0 &&
             std::all_of(name.begin() + static_cast<ptrdiff_t>(prefix.size()), name.end(),
                         [](unsigned char c) { return std::isdigit(c); });
  }
  return count;
}

std::string first_word(const fs::path& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// v2, v3 and TPU7x chips show as two devices each; the others as one.
int cores_a_chip() {
  constexpr std::array<std::string_view, 2> two_cores{"0x0027", "0x0076"};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    if (first_word(entry.path() / "vendor") == "0x1ae0") {
      const std::string id = first_word(entry.path() / "device");
      if (std::find(two_cores.begin(), two_cores.end(), id) != two_cores.end()) {
        return 2;
      }
    }
  }
  return 1;
}

int tpu_cores() {
  for (const char* name : {"TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"}) {
    const char* visible = std::getenv(name);
    if (visible != nullptr && *visible != '\0') {
      const std::string_view list = visible;
      return cores_a_chip() * static_cast<int>(1 + std::count(list.begin(), list.end(), ','));
    }
  }
  int chips = numbered_entries("/dev", "accel");
  if (chips == 0) {
    chips = numbered_entries("/dev/vfio", "");
  }
  return cores_a_chip() * std::max(chips, 1);
}

int asked_for() {
  const char* text = std::getenv("TORCH_TPU_DEVICE_COUNT");
  return text == nullptr ? 0 : std::clamp(std::atoi(text), 0, kMostDevices);
}

}  // namespace

int discover_devices() noexcept {
  try {
    const auto plugin = pjrt::choose_plugin();
    if (!plugin) {
      return 0;
    }
    const int asked = asked_for();
    if (plugin->kind == pjrt::PluginKind::kCpu) {
      return asked > 0 ? asked : 1;
    }
    const int cores = std::min(tpu_cores(), kMostDevices);
    return asked > 0 ? std::min(asked, cores) : cores;
  } catch (...) {
    return 0;
  }
}

}  // namespace torch_tpu
