#include "cache/folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

namespace torch_tpu {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntry = ".executable", kLock = ".lock", kUnfinished = ".unfinished";
constexpr double kAbandoned = 3600;  // seconds after which a lock or an unfinished file is nobody's

std::string reason() { return std::strerror(errno); }

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

double seconds(const timespec& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9; }

double now() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  return seconds(t);
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~OpenFile() {
    if (number_ >= 0) close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

std::string Folder::prepare() const {
  const mode_t old = umask(077);
  std::error_code error;
  fs::create_directories(path_, error);
  umask(old);
  if (error) return "it cannot be made: " + error.message();
  if (std::string wrong = distrust(); !wrong.empty()) return wrong;
  struct stat info{};
  const bool foreign = stat(path_.c_str(), &info) == 0 && info.st_uid != geteuid() && info.st_uid != 0;
  return foreign ? "it belongs to another user" : "";
}

std::string Folder::distrust() const {
  struct stat info{};
  if (stat(path_.c_str(), &info) != 0) return reason();
  return (info.st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "others may write to it; chmod go-w ends that" : "";
}

std::optional<std::string> Folder::read(const std::string& digest) const {
  const std::string path = file(digest);
  const OpenFile opened(path, O_RDONLY);
  if (opened.number() < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  struct stat info{};
  TORCH_CHECK(opened.number() >= 0 && fstat(opened.number(), &info) == 0, "it cannot be read: ", reason());
  std::string bytes(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(opened.number(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    TORCH_CHECK(n >= 0, "it cannot be read: ", reason());
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  bytes.resize(size);
  // By hand, since file systems are mounted so that reading changes no time. A folder of others may refuse it.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  futimens(opened.number(), times);
  return bytes;
}

void Folder::write(const std::string& digest, const std::string& bytes) const {
  static std::atomic<int> next{0};
  const std::string unfinished =
      path_ + "/" + digest + "." + std::to_string(getpid()) + "." + std::to_string(next++) + std::string(kUnfinished);
  bool done = false;
  {
    const OpenFile opened(unfinished, O_WRONLY | O_CREAT | O_EXCL);
    TORCH_CHECK(opened.number() >= 0, reason());
    done = write_all(opened.number(), bytes) && fdatasync(opened.number()) == 0;
  }
  done = done && rename(unfinished.c_str(), file(digest).c_str()) == 0;
  if (done) return;
  const std::string why = reason();
  unlink(unfinished.c_str());
  TORCH_CHECK(false, why);
}

bool Folder::remove(const std::string& digest) const { return unlink(file(digest).c_str()) == 0; }

std::vector<Folder::File> Folder::list() const {
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat info{};
    if (!ends_with(name, kEntry) || stat(it->path().c_str(), &info) != 0) continue;
    files.push_back({name.substr(0, name.size() - kEntry.size()), static_cast<int64_t>(info.st_size),
                     seconds(info.st_mtim), std::max(seconds(info.st_atim), seconds(info.st_mtim))});
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used > b.used; });
  return files;
}

int64_t Folder::prune(int64_t limit) const {
  int64_t kept = 0, removed = 0;
  for (const File& f : list()) {
    kept += f.bytes;
    if (kept <= limit || !remove(f.digest)) continue;
    kept -= f.bytes;
    removed += f.bytes;
  }
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat info{};
    if ((!ends_with(name, kLock) && !ends_with(name, kUnfinished)) || stat(it->path().c_str(), &info) != 0) continue;
    if (now() - seconds(info.st_mtim) > kAbandoned) unlink(it->path().c_str());
  }
  return removed;
}

Claim::Claim(const Folder& folder, const std::string& digest)
    : path_(folder.path() + "/" + digest + std::string(kLock)),
      file_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}

Claim::~Claim() {
  if (held_) {
    unlink(path_.c_str());
    flock(file_, LOCK_UN);  // also for copies of the file in forked children
  }
  if (file_ >= 0) close(file_);
}

bool Claim::wait(double limit) {
  if (file_ < 0) return false;
  const double end = now() + limit;
  while (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  held_ = true;
  return true;
}

}  // namespace torch_tpu
