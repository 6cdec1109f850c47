// The third level of the compile cache: key -> serialized executable, on disk, shared by processes.
// Nothing here fails a program: what goes wrong with the disk is said once, as a warning, and the program is compiled.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "cache/background.h"
#include "cache/entry.h"
#include "cache/folder.h"
#include "cache/key.h"

namespace torch_tpu {

struct DiskSettings {
  std::string folder;
  std::string off;      // why nothing is kept on disk; empty if something is
  std::string overlay;  // a folder that is only read, after the other; empty: none
  int64_t limit = 0;    // bytes
};
// TORCH_TPU_CACHE (0: off), TORCH_TPU_CACHE_DIR, TORCH_TPU_CACHE_READONLY_DIR, TORCH_TPU_CACHE_SIZE ("500M"; 2G if
// unset). ValueError for a size that is none.
DiskSettings disk_settings();

class DiskCache {
 public:
  explicit DiskCache(DiskSettings settings);
  // As the environment says. Leaked: programs may be compiled until the process ends.
  static DiskCache& get();
  // Ends the background thread of get(), if there is one, after at most `seconds` and one write.
  static void finish(double seconds);

  // False if there is nothing to find and nowhere to store.
  bool on() const { return readable_ || overlay_readable_; }

  // Null if there is no entry that can be used; then `why` says so.
  pjrt::LoadedExecutable find(const std::string& digest, std::string& why);
  // Null where nothing is written, or another process kept it for too long.
  std::shared_ptr<Claim> claim(const std::string& digest);
  // Serializes it, and writes it in the background, and keeps the folder within its bound. REQUIRES: it has not been
  // executed: XLA's CPU plugins refuse to serialize a sort that has.
  void store(const std::string& digest, KeyParts parts, PJRT_LoadedExecutable* executable, int64_t compile_microseconds,
             std::shared_ptr<Claim> claim);
  // Waits for the writes so far.
  void drain();

 private:
  pjrt::LoadedExecutable find_in(const Folder& folder, const std::string& digest, std::string& why);
  void write(const std::string& digest, const Entry& entry);
  bool writes();
  void stop_writing(const std::string& warning);
  void warn(const std::string& kind, const std::string& text);
  void say_warnings();

  const DiskSettings settings_;
  const Folder folder_;
  bool readable_ = true, overlay_readable_ = true;
  Background background_;
  int64_t bytes_ = -1;  // in the folder, about; -1 before it was looked at. Of the background thread

  std::mutex lock_;  // guards all below
  bool writes_ = true;
  std::unordered_set<std::string> warned_;  // kinds
  std::vector<std::string> warnings_;       // to say on a thread of the caller's
};

}  // namespace torch_tpu
