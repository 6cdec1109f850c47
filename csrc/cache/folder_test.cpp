#include "cache/folder.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace torch_tpu {
namespace {

namespace fs = std::filesystem;

struct Folders : testing::Test {
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "torch_tpu_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root = name;
    ASSERT_EQ(folder().prepare(), "");
  }
  void TearDown() override { fs::remove_all(root); }
  Folder folder() const { return Folder(root + "/a/b"); }
  // As if it had been used `seconds` ago.
  void age(const std::string& path, int seconds) const {
    const timespec then = {time(nullptr) - seconds, 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  size_t files() const { return std::distance(fs::directory_iterator(folder().path()), fs::directory_iterator()); }
  std::string root;
};

TEST_F(Folders, GiveBackWhatWasWritten) {
  folder().write("x", "bytes");
  EXPECT_EQ(folder().read("x"), "bytes");
  folder().write("x", "others");
  EXPECT_EQ(folder().read("x"), "others");
  EXPECT_EQ(folder().read("y"), std::nullopt);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Folders, LeaveNothingOfAWriteThatFails) {
  fs::create_directories(folder().file("x") + "/full");  // a folder in the entry's place
  EXPECT_THROW(folder().write("x", "bytes"), c10::Error);
  EXPECT_EQ(files(), 1u);
}

TEST_F(Folders, AreNotTrustedWhereOthersMayWrite) {
  EXPECT_EQ(folder().distrust(), "");
  chmod(folder().path().c_str(), 0720);
  EXPECT_NE(folder().distrust(), "");
  EXPECT_NE(folder().prepare(), "");
}

TEST_F(Folders, PruneWhatWasUsedLongestAgo) {
  for (const std::string name : {"a", "b", "c"}) folder().write(name, "0123456789");
  age(folder().file("a"), 100);
  age(folder().file("b"), 300);
  age(folder().file("c"), 200);
  folder().read("b");  // now
  EXPECT_EQ(folder().prune(25), 10);
  EXPECT_EQ(folder().read("c"), std::nullopt);
  EXPECT_EQ(folder().prune(0), 20);
  EXPECT_TRUE(folder().list().empty());
}

TEST_F(Folders, PruneWhatKilledProcessesLeft) {
  const std::string old = folder().path() + "/x.1.1.unfinished", young = folder().path() + "/x.2.1.unfinished";
  std::ofstream(old) << "half";
  std::ofstream(young) << "half";
  age(old, 7200);
  folder().prune(100);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young));
}

TEST_F(Folders, AreClaimedByOneAtATime) {
  auto first = std::make_unique<Claim>(folder(), "x");
  EXPECT_TRUE(first->wait(0));
  Claim other(folder(), "y"), second(folder(), "x");
  EXPECT_TRUE(other.wait(0));
  EXPECT_FALSE(second.wait(0.02));
  bool got = false;
  std::thread waiting([&] { got = second.wait(60); });
  first.reset();
  waiting.join();
  EXPECT_TRUE(got);
}

}  // namespace
}  // namespace torch_tpu
