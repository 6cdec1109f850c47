// 64-bit division as it is written for a TPU (stablehlo/wide_division.h), run by a real CPU plugin,
// TORCH_TPU_PJRT_PLUGIN; skipped where that is not set.
#include <c10/util/irange.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "pjrt/pjrt.h"
#include "stablehlo/emitter.h"

namespace torch_tpu {
namespace {

template <typename T>
struct Case {
  std::vector<T> a, b;
};

// Every pair of numbers at the ends of the range and around powers of two, and pairs of random numbers of random
// lengths.
template <typename T>
Case<T> cases() {
  std::vector<T> ends = {0, 1, 2, 3, 7, 10, std::numeric_limits<T>::max(), std::numeric_limits<T>::min()};
  for (const int bits : {8, 23, 24, 25, 31, 32, 33, 47, 48, 53, 62}) {
    for (const int64_t around : {-1, 0, 1}) ends.push_back(static_cast<T>((uint64_t{1} << bits) + around));
  }
  if constexpr (std::is_signed_v<T>) {
    for (const size_t i : c10::irange(ends.size())) ends.push_back(static_cast<T>(-static_cast<uint64_t>(ends[i])));
  }
  Case<T> found;
  for (const T a : ends) {
    for (const T b : ends) {
      found.a.push_back(a);
      found.b.push_back(b);
    }
  }
  std::mt19937_64 random(0);
  const auto draw = [&random] { return static_cast<T>(static_cast<T>(random()) >> (random() % 64)); };
  for (int i = 0; i < 200'000; ++i) {
    found.a.push_back(draw());
    found.b.push_back(draw());
  }
  return found;
}

// C++'s, where that is defined; XLA's for a divisor of 0, and where the quotient is 2^63.
template <typename T>
std::pair<T, T> expected(T a, T b) {
  if (b == 0) return {static_cast<T>(-1), a};
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return {static_cast<T>(-static_cast<uint64_t>(a)), 0};
  return {a / b, a % b};
}

template <typename T>
void check(at::ScalarType dtype) {
  if (std::getenv("TORCH_TPU_PJRT_PLUGIN") == nullptr) GTEST_SKIP() << "TORCH_TPU_PJRT_PLUGIN is not set";
  const Case<T> given = cases<T>();
  const Type type(dtype, {static_cast<int64_t>(given.a.size())});
  Emitter e;
  const Value a = e.input(type), b = e.input(type);
  const std::string text = e.finish("main", {e.divide(a, b), e.remainder(a, b)}, /*is_public=*/true);
  EXPECT_EQ(text.find("\"stablehlo.remainder\""), std::string::npos);

  auto& client = pjrt::Client::get();
  const pjrt::LoadedExecutable program = client.compile(text, {});
  const pjrt::Buffer as = client.from_host(given.a.data(), type, 0), bs = client.from_host(given.b.data(), type, 0);
  std::vector<pjrt::Buffer> results;
  client.execute(program.get(), {as.get(), bs.get()}, {}, results, 0);
  std::vector<T> quotients(given.a.size()), remainders(given.a.size());
  client.to_host(results.at(0).get(), quotients.data(), quotients.size() * sizeof(T));
  client.to_host(results.at(1).get(), remainders.data(), remainders.size() * sizeof(T));
  for (const size_t i : c10::irange(given.a.size())) {
    const auto [quotient, remainder] = expected(given.a[i], given.b[i]);
    ASSERT_EQ(quotients[i], quotient) << given.a[i] << " / " << given.b[i];
    ASSERT_EQ(remainders[i], remainder) << given.a[i] << " % " << given.b[i];
  }
}

TEST(WideDivision, OfSignedNumbersIsExact) { check<int64_t>(at::kLong); }
TEST(WideDivision, OfUnsignedNumbersIsExact) { check<uint64_t>(at::kUInt64); }

}  // namespace
}  // namespace torch_tpu
