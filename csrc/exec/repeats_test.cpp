// What is found to repeat in sequences of numbers.
#include "exec/repeats.h"

#include <gtest/gtest.h>

namespace torch_tpu {
namespace {

using Items = std::vector<int64_t>;

// "first period count slack" of each.
std::vector<std::vector<size_t>> repeats(const Items& items, size_t least_period = 2, size_t least_count = 3) {
  std::vector<std::vector<size_t>> found;
  for (const Repeat& r : find_repeats(items, least_period, least_count)) {
    found.push_back({r.first, r.period, r.count, r.slack});
  }
  return found;
}

using Expected = std::vector<std::vector<size_t>>;

TEST(Repeats, AreFoundBetweenOtherItems) {
  EXPECT_EQ(repeats({9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 8}), (Expected{{1, 3, 3, 0}}));
}

TEST(Repeats, GoOnAsSlackWhereTheLastIsCutShort) {
  EXPECT_EQ(repeats({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}), (Expected{{0, 3, 3, 2}}));
}

TEST(Repeats, HaveTheShortestPeriod) {
  EXPECT_EQ(repeats({1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}), (Expected{{0, 2, 6, 0}}));
}

TEST(Repeats, AreFoundWhereEveryItemComesTwiceInOne) {
  EXPECT_EQ(repeats({1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}), (Expected{{0, 4, 3, 0}}));
}

TEST(Repeats, OfSeveralKindsFollowEachOther) {
  EXPECT_EQ(repeats({1, 2, 1, 2, 1, 2, 7, 3, 4, 5, 3, 4, 5, 3, 4, 5}), (Expected{{0, 2, 3, 0}, {7, 3, 3, 0}}));
}

TEST(Repeats, TooFewOrTooShortAreNone) {
  EXPECT_TRUE(repeats({1, 2, 1, 2}).empty());
  EXPECT_TRUE(repeats({5, 5, 5, 5, 5, 5, 5}, /*least_period=*/8).empty());
  EXPECT_TRUE(repeats({}).empty());
}

}  // namespace
}  // namespace torch_tpu
