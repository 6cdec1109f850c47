// A folder of entries, one file each, named by the digest of its key. Shared by processes: a file appears
// whole or not at all, and is never changed. Knows no PJRT, and does not look into entries.
// Thread-safe: it keeps no state but the file system's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch_tpu {

class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string file(const std::string& digest) const { return path_ + "/" + digest + ".executable"; }

  // Makes it, for its user alone. What is wrong with it if it cannot be used, empty if nothing.
  std::string prepare() const;
  // Why nothing should be read from it, empty if nothing: who can write to it chooses what this process executes.
  std::string distrust() const;

  // The bytes of the entry, nullopt if absent. Marks it as used now. Throws if it is there and cannot be read.
  std::optional<std::string> read(const std::string& digest) const;
  // Throws a c10::Error with the system's reason, and leaves nothing behind.
  void write(const std::string& digest, const std::string& bytes) const;
  // False if it cannot be removed.
  bool remove(const std::string& digest) const;

  struct File {
    std::string digest;
    int64_t bytes = 0;
    double made = 0, used = 0;  // seconds since 1970
  };
  // Last used first. Empty if the folder cannot be read.
  std::vector<File> list() const;
  // Removes the entries used longest ago until `limit` bytes are left, and what killed processes left behind.
  // Returns how many bytes went.
  int64_t prune(int64_t limit) const;

 private:
  std::string path_;
};

// Keeps other processes from compiling the same program at the same time. It ends with this object, or with the
// process.
class Claim {
 public:
  Claim(const Folder& folder, const std::string& digest);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Waits while another process holds it. False after `seconds`, and where files cannot be locked.
  bool wait(double seconds);

 private:
  std::string path_;
  int file_;
  bool held_ = false;
};

}  // namespace torch_tpu
