// PyTorch asks c10::is_privateuse1_backend_registered() in one place: where it chooses the
// accelerator. There is no setting for the answer, so libtorch_cpu's reference to that function
// is pointed at one that says no. Its autograd engine would then give tpu gradients the other
// accelerator's streams, so at::accelerator::isAccelerator() is answered for tpu as for the CPU.
#include "device/accelerator.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "pjrt/pjrt.h"

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace torch_tpu {
namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

bool exists(const char* path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool cuda_is_usable() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool hidden = visible != nullptr && (*visible == '\0' || std::string_view(visible) == "-1");
  const bool has_device = exists("/dev/nvidiactl") || exists("/dev/dxg") || exists("/dev/kfd");
  return !hidden && has_device && at::detail::getCUDAHooks().isBuilt();
}

bool xpu_is_usable() { return exists("/dev/dri") && at::detail::getXPUHooks().isBuilt(); }

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))

bool not_registered() { return false; }

bool is_other_accelerator(c10::DeviceType type) {
  return type != c10::DeviceType::PrivateUse1 && at::accelerator::isAccelerator(type);
}

struct Replacement {
  std::string_view symbol;
  void* function;
  bool done = false;
};

// A loaded library's dynamic section. Addresses are absolute with glibc.
struct Dynamic {
  const char* strings = nullptr;
  const ElfW(Sym) * symbols = nullptr;
  const ElfW(Rela) * tables[2] = {};  // PLT, then the rest
  size_t bytes[2] = {};
};

Dynamic read_dynamic(const dl_phdr_info& library) {
  Dynamic d;
  for (int i = 0; i < library.dlpi_phnum; ++i) {
    const auto& header = library.dlpi_phdr[i];
    if (header.p_type != PT_DYNAMIC) {
      continue;
    }
    for (auto* entry = reinterpret_cast<const ElfW(Dyn)*>(library.dlpi_addr + header.p_vaddr); entry->d_tag != DT_NULL;
         ++entry) {
      switch (entry->d_tag) {
        case DT_STRTAB:
          d.strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
          break;
        case DT_SYMTAB:
          d.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
          break;
        case DT_JMPREL:
          d.tables[0] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
          break;
        case DT_PLTRELSZ:
          d.bytes[0] = entry->d_un.d_val;
          break;
        case DT_RELA:
          d.tables[1] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
          break;
        case DT_RELASZ:
          d.bytes[1] = entry->d_un.d_val;
          break;
        default:
          break;
      }
    }
  }
  return d;
}

bool point_at(void** slot, void* function) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page * page);
  if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  *slot = function;
  return true;
}

int patch(dl_phdr_info* library, size_t, void* replacements) {
  if (std::strstr(library->dlpi_name, "libtorch_cpu.so") == nullptr) {
    return 0;
  }
  const Dynamic d = read_dynamic(*library);
  if (d.strings == nullptr || d.symbols == nullptr) {
    return 0;
  }
  for (const int t : {0, 1}) {
    for (size_t i = 0; d.tables[t] != nullptr && i < d.bytes[t] / sizeof(ElfW(Rela)); ++i) {
      const auto& relocation = d.tables[t][i];
      const auto symbol = ELF64_R_SYM(relocation.r_info);
      for (Replacement& r : *static_cast<std::array<Replacement, 2>*>(replacements)) {
        if (symbol != 0 && r.symbol == d.strings + d.symbols[symbol].st_name) {
          r.done |= point_at(reinterpret_cast<void**>(library->dlpi_addr + relocation.r_offset), r.function);
        }
      }
    }
  }
  return 0;
}

#endif

}  // namespace

bool prefers_other_accelerator() {
  if (is_set("TORCH_TPU_PLATFORM") || is_set("TORCH_TPU_PJRT_PLUGIN") || pjrt::has_tpu()) {
    return false;
  }
  return cuda_is_usable() || xpu_is_usable();
}

bool yield_accelerator() {
#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
  std::array<Replacement, 2> replacements{{
      {"_ZN3c1033is_privateuse1_backend_registeredEv", reinterpret_cast<void*>(&not_registered)},
      {"_ZN2at11accelerator13isAcceleratorEN3c1010DeviceTypeE", reinterpret_cast<void*>(&is_other_accelerator)},
  }};
  dl_iterate_phdr(&patch, &replacements);
  return replacements[0].done && replacements[1].done;
#else
  return false;
#endif
}

}  // namespace torch_tpu
