#include "cache/entry.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include "cache/sha256.h"

namespace torch_tpu {
namespace {

std::string some_entry() { return write_entry({{{"calls", "aten::mm"}, {"options", ""}}, 1234567, "machine code"}); }

TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(hex(Sha256().finish()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(Sha256().add("abc").finish()), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1000000, 'a');
  EXPECT_EQ(hex(Sha256().add(million).finish()), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnTheCuts) {
  for (size_t n = 0; n < 200; ++n) {
    const std::string text(n, 'x');
    Sha256 in_two;
    in_two.add(text.substr(0, n / 3)).add(text.substr(n / 3));
    EXPECT_EQ(in_two.finish(), Sha256().add(text).finish()) << n;
  }
}

TEST(Keys, DependOnEveryPart) {
  const KeyParts parts = {{"a", "1"}, {"b", "2"}};
  EXPECT_EQ(digest(parts), digest(KeyParts(parts)));
  EXPECT_NE(digest(parts), digest({{"a", "1"}, {"b", "3"}}));
  EXPECT_NE(digest(parts), digest({{"a", "1"}, {"c", "2"}}));
  EXPECT_NE(digest(parts), digest({{"a", "1"}}));
  EXPECT_NE(digest({{"a", "1\nb\n1\n2"}}), digest({{"a", "1"}, {"b", "2"}}));
}

TEST(Entries, ComeBackWhole) {
  const std::string bytes = some_entry();
  const Entry entry = read_entry(bytes);
  EXPECT_EQ(entry.parts, (KeyParts{{"calls", "aten::mm"}, {"options", ""}}));
  EXPECT_EQ(entry.compile_microseconds, 1234567);
  EXPECT_EQ(entry.executable, "machine code");
}

TEST(Entries, ShowEveryFlippedBitAndEveryTruncation) {
  const std::string bytes = some_entry();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_THROW(read_entry(damaged), c10::ValueError) << i;
    EXPECT_THROW(read_entry(bytes.substr(0, i)), c10::ValueError) << i;
  }
  EXPECT_THROW(read_entry(bytes + "x"), c10::ValueError);
}

// The checksum of a made-up entry may be right: lengths are checked all the same.
TEST(Entries, RefuseLengthsBeyondTheirEnd) {
  for (const int count : {0, 1, 255}) {
    std::string body(40, '\0');
    body[0] = static_cast<char>(count);
    for (size_t i = 8; i < body.size(); ++i) body[i] = '\xff';
    EXPECT_THROW(read_entry("torch_tpu executable 1\n" + Sha256().add(body).finish() + body), c10::ValueError);
  }
}

}  // namespace
}  // namespace torch_tpu
