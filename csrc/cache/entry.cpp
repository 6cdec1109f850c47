#include "cache/entry.h"

#include <c10/util/Exception.h>

#include "cache/sha256.h"

namespace torch_tpu {

namespace {

constexpr std::string_view kMagic = "torch_tpu executable ";
constexpr size_t kHashBytes = 32;

std::string head() { return std::string(kMagic) + std::to_string(kEntryFormat) + "\n"; }

void put_number(std::string& out, uint64_t n) {
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>(n >> shift);
}

void put_bytes(std::string& out, std::string_view bytes) {
  put_number(out, bytes.size());
  out += bytes;
}

// Takes the parts of an entry one after the other; never reads past its end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  std::string_view take(uint64_t n) {
    TORCH_CHECK_VALUE(n <= rest_.size(), "it is truncated: ", rest_.size(), " bytes are left; expected ", n);
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  uint64_t number() {
    uint64_t n = 0;
    const std::string_view bytes = take(8);
    for (size_t i = 0; i < bytes.size(); ++i) n |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return n;
  }
  std::string_view bytes() { return take(number()); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

}  // namespace

std::string write_entry(const Entry& entry) {
  std::string body;
  body.reserve(entry.executable.size() + 16384);
  put_number(body, entry.parts.size());
  for (const KeyPart& part : entry.parts) {
    put_bytes(body, part.name);
    put_bytes(body, part.value);
  }
  put_number(body, static_cast<uint64_t>(entry.compile_microseconds));
  put_bytes(body, entry.executable);
  return head() + Sha256().add(body).finish() + body;
}

Entry read_entry(std::string_view bytes) {
  const std::string expected = head();
  TORCH_CHECK_VALUE(bytes.substr(0, kMagic.size()) == kMagic, "it is not a compiled program of torch_tpu");
  TORCH_CHECK_VALUE(bytes.substr(0, expected.size()) == expected, "it has another format than ", kEntryFormat);
  Reader reader(bytes.substr(expected.size()));
  const std::string_view hash = reader.take(kHashBytes);
  TORCH_CHECK_VALUE(Sha256().add(reader.rest()).finish() == hash, "its checksum is wrong");
  Entry entry;
  for (uint64_t n = reader.number(); n > 0; --n) {
    std::string name(reader.bytes());
    entry.parts.push_back({std::move(name), std::string(reader.bytes())});
  }
  entry.compile_microseconds = static_cast<int64_t>(reader.number());
  entry.executable = reader.bytes();
  TORCH_CHECK_VALUE(reader.rest().empty(), "bytes follow its end: ", reader.rest().size());
  return entry;
}

}  // namespace torch_tpu
