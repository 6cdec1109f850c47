#include "pjrt/host_blocks.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "pjrt/large_blocks.h"
#include "pjrt/small_blocks.h"

namespace torch_tpu::pjrt {
namespace {

// Null where neither cache serves such a block.
void* take(size_t alignment, size_t n) {
  if (n <= SmallBlocks::kLargest && alignment <= SmallBlocks::kAlignment) return SmallBlocks::get().take(n);
  if (n >= LargeBlocks::kSmallest && alignment <= LargeBlocks::kHugePage) return LargeBlocks::get().take(n);
  return nullptr;
}

int caching_posix_memalign(void** out, size_t alignment, size_t n) {
  if (void* block = take(alignment, n)) {
    *out = block;
    return 0;
  }
  return posix_memalign(out, alignment, n);
}

void* caching_aligned_alloc(size_t alignment, size_t n) {
  void* block = take(alignment, n);
  return block != nullptr ? block : std::aligned_alloc(alignment, n);
}

void caching_free(void* block) {
  if (SmallBlocks::get().owns(block)) return SmallBlocks::get().give_back(block);
  const bool maybe_large = block != nullptr && reinterpret_cast<uintptr_t>(block) % LargeBlocks::kHugePage == 0;
  if (maybe_large && LargeBlocks::get().give_back(block)) return;
  std::free(block);
}

struct Replacement {
  const char* name;
  void* function;
};

// free comes first: the C library's must never see a block of ours.
const Replacement kReplacements[] = {
    {"free", reinterpret_cast<void*>(&caching_free)},
    {"posix_memalign", reinterpret_cast<void*>(&caching_posix_memalign)},
    {"aligned_alloc", reinterpret_cast<void*>(&caching_aligned_alloc)},
};

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobalData = R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobalData = R_AARCH64_GLOB_DAT;
#endif

// The dynamic section of a loaded library: how it names what it takes from others.
struct Imports {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  struct Relocations {
    const ElfW(Rela) * first = nullptr;
    size_t bytes = 0;
  } plt, data;
};

Imports imports_of(const link_map& library) {
  Imports found;
  for (const ElfW(Dyn)* d = library.l_ld; d->d_tag != DT_NULL; ++d) {
    const auto* at = reinterpret_cast<const void*>(d->d_un.d_ptr);  // glibc has relocated these
    switch (d->d_tag) {
      case DT_SYMTAB:
        found.symbols = static_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        found.names = static_cast<const char*>(at);
        break;
      case DT_JMPREL:
        found.plt.first = static_cast<const ElfW(Rela)*>(at);
        break;
      case DT_PLTRELSZ:
        found.plt.bytes = d->d_un.d_val;
        break;
      case DT_RELA:
        found.data.first = static_cast<const ElfW(Rela)*>(at);
        break;
      case DT_RELASZ:
        found.data.bytes = d->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return found;
}

// The page of an import slot may be read-only since the library was relocated.
bool write_slot(void** slot, void* function) {
  const auto page_size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page_size * page_size);
  if (mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = function;
  return true;
}

}  // namespace

bool cache_host_blocks(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return false;
  const Imports imports = imports_of(*map);
  if (imports.symbols == nullptr || imports.names == nullptr) return false;
  const auto redirect = [&](const Imports::Relocations& relocations, uint32_t kind, const Replacement& by) {
    const size_t count = relocations.bytes / sizeof(ElfW(Rela));
    for (size_t i = 0; i < count; ++i) {
      const ElfW(Rela) & r = relocations.first[i];
      if (ELF64_R_TYPE(r.r_info) != kind) continue;
      if (std::strcmp(imports.names + imports.symbols[ELF64_R_SYM(r.r_info)].st_name, by.name) != 0) continue;
      if (!write_slot(reinterpret_cast<void**>(map->l_addr + r.r_offset), by.function)) return false;
    }
    return true;
  };
  for (const Replacement& by : kReplacements) {
    if (!redirect(imports.plt, kJumpSlot, by) || !redirect(imports.data, kGlobalData, by)) return false;
  }
  return true;
}

void release_host_blocks() { LargeBlocks::get().release(); }

}  // namespace torch_tpu::pjrt
