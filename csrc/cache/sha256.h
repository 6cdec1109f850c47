// SHA-256 (FIPS 180-4): names cache entries by their key, and tells damaged ones.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace torch_tpu {

class Sha256 {
 public:
  Sha256& add(std::string_view bytes);
  // Ends the use of this object: the 32 bytes.
  std::string finish();

 private:
  void block(const unsigned char* p);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> rest_{};
  size_t rest_size_ = 0;
  uint64_t size_ = 0;
};

// Two lower-case hex digits a byte.
std::string hex(std::string_view bytes);

}  // namespace torch_tpu
