#include "cache/disk.h"

#include <c10/util/Exception.h>
#include <pwd.h>
#include <unistd.h>

#include <atomic>
#include <utility>

#include "pjrt/environment.h"

namespace torch_tpu {

namespace {

constexpr int64_t kDefaultLimit = int64_t{2} << 30;
constexpr double kLongestWait = 600;  // for another process's compilation, in seconds
constexpr char kTurnOff[] = "\nPrograms are compiled all the same. TORCH_TPU_CACHE=0 turns the cache on disk off.";

std::atomic<DiskCache*> of_process{nullptr};

std::string default_folder() {
  if (std::string cache = environment("XDG_CACHE_HOME"); !cache.empty() && cache[0] == '/') return cache + "/torch_tpu";
  std::string home = environment("HOME");
  if (home.empty()) {
    if (const passwd* user = getpwuid(geteuid())) home = user->pw_dir;
  }
  return home.empty() ? "" : home + "/.cache/torch_tpu";
}

}  // namespace

DiskSettings disk_settings() {
  DiskSettings settings;
  settings.limit = environment_bytes("TORCH_TPU_CACHE_SIZE", kDefaultLimit);
  if (environment("TORCH_TPU_CACHE") == "0") {
    settings.off = "TORCH_TPU_CACHE=0";
    return settings;
  }
  settings.overlay = environment("TORCH_TPU_CACHE_READONLY_DIR");
  settings.folder = environment("TORCH_TPU_CACHE_DIR");
  if (settings.folder.empty()) settings.folder = default_folder();
  if (settings.folder.empty()) settings.off = "there is no home folder, and TORCH_TPU_CACHE_DIR is not set";
  return settings;
}

DiskCache::DiskCache(DiskSettings settings) : settings_(std::move(settings)), folder_(settings_.folder) {
  readable_ = settings_.off.empty();
  writes_ = readable_;
  if (const std::string wrong = readable_ ? folder_.prepare() : ""; !wrong.empty()) {
    readable_ = false;
    stop_writing("tpu: the compile cache's folder " + folder_.path() + " is not used: " + wrong +
                 ".\nChoose another with TORCH_TPU_CACHE_DIR; TORCH_TPU_CACHE=0 turns the cache on disk off.");
  }
  overlay_readable_ = !settings_.overlay.empty();
  if (const std::string wrong = overlay_readable_ ? Folder(settings_.overlay).distrust() : ""; !wrong.empty()) {
    overlay_readable_ = false;
    warn("overlay", "tpu: TORCH_TPU_CACHE_READONLY_DIR, " + settings_.overlay + ", is not used: " + wrong + ".");
  }
}

DiskCache& DiskCache::get() {
  static auto* cache = [] {
    auto* made = new DiskCache(disk_settings());
    of_process = made;
    return made;
  }();
  return *cache;
}

void DiskCache::finish(double seconds) {
  DiskCache* cache = of_process;
  if (cache == nullptr) return;
  cache->background_.finish(seconds);
  cache->say_warnings();
}

pjrt::LoadedExecutable DiskCache::find(const std::string& digest, std::string& why) {
  say_warnings();
  pjrt::LoadedExecutable found;
  if (readable_) found = find_in(folder_, digest, why);
  if (!found && overlay_readable_) found = find_in(Folder(settings_.overlay), digest, why);
  say_warnings();
  return found;
}

pjrt::LoadedExecutable DiskCache::find_in(const Folder& folder, const std::string& digest, std::string& why) {
  try {
    const auto bytes = folder.read(digest);
    if (!bytes) {
      if (why.empty()) why = "it is not on disk";
      return {};
    }
    const Entry entry = read_entry(*bytes);
    TORCH_CHECK_VALUE(torch_tpu::digest(entry.parts) == digest, "it is of another program");
    return pjrt::Client::get().deserialize(entry.executable);
  } catch (const c10::Error& error) {
    why = error.what_without_backtrace();
    folder.remove(digest);  // where it may
    warn("entry", "tpu: the compile cache's entry " + folder.file(digest) + " cannot be used: " + why +
                      ".\nThe program is compiled again, and the entry replaced. (Said once a process.)");
    return {};
  }
}

std::shared_ptr<Claim> DiskCache::claim(const std::string& digest) {
  if (!writes()) return {};
  auto claim = std::make_shared<Claim>(folder_, digest);
  return claim->wait(kLongestWait) ? claim : nullptr;
}

void DiskCache::store(const std::string& digest, KeyParts parts, PJRT_LoadedExecutable* executable,
                      int64_t compile_microseconds, std::shared_ptr<Claim> claim) {
  if (!writes()) return;
  std::string serialized;
  try {
    serialized = pjrt::Client::get().serialize(executable);
  } catch (const c10::NotImplementedError&) {
    return;  // quietly: the plugin cannot keep this program, or any, and nothing can be done about it
  } catch (const c10::Error& error) {
    warn("serialize", std::string("tpu: a compiled program is not kept on disk: ") + error.what_without_backtrace() +
                          " (Said once a process.)");
    return;
  }
  background_.add([this, digest, parts = std::move(parts), serialized = std::move(serialized), compile_microseconds,
                   claim = std::move(claim)] { write(digest, {parts, compile_microseconds, serialized}); });
}

void DiskCache::write(const std::string& digest, const Entry& entry) {
  if (!writes()) return;
  const std::string bytes = write_entry(entry);
  const auto size = static_cast<int64_t>(bytes.size());
  if (size > settings_.limit) return;
  try {
    folder_.write(digest, bytes);
  } catch (const c10::Error& error) {
    stop_writing("tpu: the compile cache's folder " + folder_.path() +
                 " cannot be written to: " + error.what_without_backtrace() + "." + kTurnOff);
    return;
  }
  if (bytes_ < 0) {
    bytes_ = 0;
    for (const auto& file : folder_.list()) bytes_ += file.bytes;
  } else {
    bytes_ += size;
  }
  if (bytes_ > settings_.limit) {
    // To less than the bound, so that the folder is not listed at each write.
    folder_.prune(settings_.limit / 10 * 9);
    bytes_ = -1;
  }
}

void DiskCache::drain() {
  background_.drain();
  say_warnings();
}

bool DiskCache::writes() {
  const std::lock_guard guard(lock_);
  return writes_;
}

void DiskCache::stop_writing(const std::string& warning) {
  {
    const std::lock_guard guard(lock_);
    writes_ = false;
  }
  warn("write", warning);
}

void DiskCache::warn(const std::string& kind, const std::string& text) {
  const std::lock_guard guard(lock_);
  if (warned_.insert(kind).second) warnings_.push_back(text);
}

void DiskCache::say_warnings() {
  std::vector<std::string> texts;
  {
    const std::lock_guard guard(lock_);
    texts.swap(warnings_);
  }
  for (const std::string& text : texts) TORCH_WARN(text);
}

}  // namespace torch_tpu
