#include "pjrt/host_blocks.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>

namespace torch_tpu::pjrt {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLarge = size_t{8} << 20;  // smaller blocks stay with the C library, which keeps those itself

size_t whole_pages(size_t n) { return (n + kHugePage - 1) / kHugePage * kHugePage; }

class Blocks {
 public:
  static Blocks& get() {
    static auto* blocks = new Blocks;  // outlives the plugin's threads
    return *blocks;
  }

  // Null if there is no memory.
  void* take(size_t n) {
    n = whole_pages(n);
    const std::lock_guard lock(mutex_);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->size < n || it->size > n + n / 4) continue;
      void* start = it->start;
      idle_ -= it->size;
      used_.splice(used_.begin(), free_, it);
      return start;
    }
    void* start = map(n);
    if (start != nullptr) used_.push_front({start, n});
    return start;
  }

  // False if the block is not one of ours.
  bool give_back(void* start) {
    const std::lock_guard lock(mutex_);
    for (auto it = used_.begin(); it != used_.end(); ++it) {
      if (it->start != start) continue;
      idle_ += it->size;
      free_.splice(free_.begin(), used_, it);
      trim(most_idle_);
      return true;
    }
    return false;
  }

  void release() {
    const std::lock_guard lock(mutex_);
    trim(0);
  }

 private:
  struct Block {
    void* start;
    size_t size;
  };

  // Aligned to huge pages, and asking for them: one page fault for 512.
  static void* map(size_t n) {
    char* raw =
        static_cast<char*>(mmap(nullptr, n + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (raw == MAP_FAILED) return nullptr;
    const size_t before = whole_pages(reinterpret_cast<uintptr_t>(raw)) - reinterpret_cast<uintptr_t>(raw);
    if (before > 0) munmap(raw, before);
    char* start = raw + before;
    munmap(start + n, kHugePage - before);
    madvise(start, n, MADV_HUGEPAGE);
    return start;
  }

  // REQUIRES: the lock is held.
  void trim(size_t most) {
    while (idle_ > most && !free_.empty()) {
      munmap(free_.back().start, free_.back().size);
      idle_ -= free_.back().size;
      free_.pop_back();
    }
  }

  std::mutex mutex_;
  std::list<Block> used_, free_;  // most recently used first
  size_t idle_ = 0;               // bytes of free_
  const size_t most_idle_ =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 4;
};

int keeping_posix_memalign(void** out, size_t alignment, size_t n) {
  if (n >= kLarge && alignment <= kHugePage) {
    if (void* block = Blocks::get().take(n)) {
      *out = block;
      return 0;
    }
    return ENOMEM;
  }
  return posix_memalign(out, alignment, n);
}

void* keeping_aligned_alloc(size_t alignment, size_t n) {
  if (n >= kLarge && alignment <= kHugePage) return Blocks::get().take(n);
  return std::aligned_alloc(alignment, n);
}

void keeping_free(void* block) {
  const bool maybe_ours = block != nullptr && reinterpret_cast<uintptr_t>(block) % kHugePage == 0;
  if (maybe_ours && Blocks::get().give_back(block)) return;
  std::free(block);
}

struct Replacement {
  const char* name;
  void* function;
};

// free comes first: the C library's must never see a block of the cache.
const Replacement kReplacements[] = {
    {"free", reinterpret_cast<void*>(&keeping_free)},
    {"posix_memalign", reinterpret_cast<void*>(&keeping_posix_memalign)},
    {"aligned_alloc", reinterpret_cast<void*>(&keeping_aligned_alloc)},
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

bool keep_large_blocks(void* library) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) return false;
  const Imports imports = imports_of(*map);
  if (imports.symbols == nullptr || imports.names == nullptr) return false;
  const auto redirect = [&](const Imports::Relocations& relocations, uint32_t kind, const Replacement& by) {
    const size_t count = relocations.bytes / sizeof(ElfW(Rela));
    for (size_t i = 0; i < count; ++i) {
      const ElfW(Rela)& r = relocations.first[i];
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

void release_large_blocks() { Blocks::get().release(); }

}  // namespace torch_tpu::pjrt
