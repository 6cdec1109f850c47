// find_steps() against the definition of a view: element addresses, one by one.
#include "tensor/view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace torch_tpu {

namespace {

// A dense row-major array of addresses.
struct Array {
  Dims dims;
  std::vector<int64_t> data;
};

// Calls f(position) for every index of a row-major array of `dims`, the position being offset + index . strides.
template <typename F>
void for_each_position(c10::IntArrayRef dims, c10::IntArrayRef strides, int64_t offset, const F& f, size_t dim = 0) {
  if (dim == dims.size()) return f(offset);
  for (int64_t i = 0; i < dims[dim]; ++i) for_each_position(dims, strides, offset + i * strides[dim], f, dim + 1);
}

std::vector<int64_t> addresses(c10::IntArrayRef dims, c10::IntArrayRef strides, int64_t offset) {
  std::vector<int64_t> result;
  for_each_position(dims, strides, offset, [&](int64_t at) { result.push_back(at); });
  return result;
}

int64_t product(c10::IntArrayRef dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// The addresses that `steps` show of a value of `dims`, broadcast to the view; empty if a step is malformed.
std::vector<int64_t> follow(c10::IntArrayRef dims, const View& view, const ViewSteps& steps) {
  Array x{Dims(dims.begin(), dims.end()), std::vector<int64_t>(product(dims))};
  std::iota(x.data.begin(), x.data.end(), 0);
  for (const ViewSteps::Cut& cut : steps.cuts) {
    if (product(cut.refined) != product(x.dims)) return {};
    Array padded{cut.refined, {}};
    for (size_t i = 0; i < padded.dims.size() && i < cut.limit.size(); ++i)
      padded.dims[i] = std::max(cut.refined[i], cut.limit[i]);
    padded.data.assign(product(padded.dims), -1);
    size_t from = 0;
    for (const int64_t at : addresses(cut.refined, row_major_strides(padded.dims), 0)) padded.data[at] = x.data[from++];
    const Dims strides = row_major_strides(padded.dims);
    Dims sizes, steps_of;
    int64_t offset = 0;
    for (size_t i = 0; i < cut.refined.size(); ++i) {
      if (cut.start[i] < 0 || cut.limit[i] <= cut.start[i] || cut.step[i] < 1) return {};
      sizes.push_back((cut.limit[i] - cut.start[i] + cut.step[i] - 1) / cut.step[i]);
      steps_of.push_back(cut.step[i] * strides[i]);
      offset += cut.start[i] * strides[i];
    }
    std::vector<int64_t> data;
    for (const int64_t at : addresses(sizes, steps_of, offset)) data.push_back(padded.data[at]);
    x = {sizes, data};
  }
  if (product(steps.kept) != product(x.dims)) return {};
  // The view's proper dims are kept dims; the others are 1 or broadcast.
  const Dims strides = row_major_strides(steps.kept);
  Dims view_strides;
  size_t next = 0;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const bool proper = view.sizes[i] != 1 && view.strides[i] != 0;
    view_strides.push_back(proper ? strides[steps.permutation[next++]] : 0);
  }
  std::vector<int64_t> result;
  for (const int64_t at : addresses(view.sizes, view_strides, 0)) result.push_back(x.data[at]);
  return result;
}

std::string text(c10::IntArrayRef dims, const View& view) {
  std::ostringstream out;
  out << "base " << dims << " sizes " << view.sizes << " strides " << view.strides << " offset " << view.offset;
  return out.str();
}

void expect_right(c10::IntArrayRef dims, const View& view, const ViewSteps& steps) {
  EXPECT_EQ(follow(dims, view, steps), addresses(view.sizes, view.strides, view.offset)) << text(dims, view);
}

class RandomViews {
 public:
  explicit RandomViews(uint32_t seed) : random_(seed) {}

  int64_t draw(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  Dims base() {
    Dims dims;
    for (int64_t i = draw(0, 4); i > 0; --i) dims.push_back(draw(1, 6));
    return dims;
  }

  // One of PyTorch's views: narrow with a step, select, transpose, expand, diagonal, flatten, unflatten.
  void step(View& v) {
    const auto rank = static_cast<int64_t>(v.sizes.size());
    const int64_t kind = rank == 0 ? 5 : draw(0, 6);
    const int64_t d = rank == 0 ? 0 : draw(0, rank - 1);
    if (kind == 0) {
      const int64_t start = draw(0, v.sizes[d] - 1), by = draw(1, 3);
      const int64_t length = draw(1, (v.sizes[d] - start + by - 1) / by);
      v.offset += start * v.strides[d];
      v.sizes[d] = length;
      v.strides[d] *= by;
    } else if (kind == 1) {
      v.offset += draw(0, v.sizes[d] - 1) * v.strides[d];
      erase(v, d);
    } else if (kind == 2) {
      const int64_t other = draw(0, rank - 1);
      std::swap(v.sizes[d], v.sizes[other]);
      std::swap(v.strides[d], v.strides[other]);
    } else if (kind == 3 && rank > 1) {
      const int64_t other = (d + 1) % rank;
      v.sizes[d] = std::min(v.sizes[d], v.sizes[other]);
      v.strides[d] += v.strides[other];
      erase(v, other);
    } else if (kind == 4 && d + 1 < rank && v.strides[d] == v.strides[d + 1] * v.sizes[d + 1]) {
      v.sizes[d + 1] *= v.sizes[d];
      erase(v, d);
    } else if (kind == 5) {
      v.sizes.insert(v.sizes.begin() + d, draw(1, 3));
      v.strides.insert(v.strides.begin() + d, 0);
    } else if (kind == 6) {
      for (const int64_t factor : {2, 3}) {
        if (v.sizes[d] % factor != 0) continue;
        v.sizes[d] /= factor;
        v.sizes.insert(v.sizes.begin() + d + 1, factor);
        v.strides.insert(v.strides.begin() + d, v.strides[d] * factor);
        break;
      }
    }
  }

 private:
  static void erase(View& v, int64_t d) {
    v.sizes.erase(v.sizes.begin() + d);
    v.strides.erase(v.strides.begin() + d);
  }

  std::mt19937 random_;
};

TEST(FindSteps, ShowChainsOfViewsWithoutGather) {
  RandomViews random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    const Dims dims = random.base();
    View view{at::kFloat, dims, row_major_strides(dims), 0};
    for (int64_t i = random.draw(0, 6); i > 0; --i) random.step(view);
    const auto steps = find_steps(dims, view);
    ASSERT_TRUE(steps.has_value()) << text(dims, view);
    expect_right(dims, view, *steps);
    if (HasFailure()) return;
  }
}

TEST(FindSteps, AreRightForAnyStrides) {
  RandomViews random(2);
  int found = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const Dims dims = random.base();
    View view{at::kFloat, {}, {}, random.draw(0, 5)};
    for (int64_t i = random.draw(0, 3); i > 0; --i) {
      view.sizes.push_back(random.draw(1, 4));
      view.strides.push_back(random.draw(0, 12));
    }
    if (view.extent() > product(dims)) continue;
    if (const auto steps = find_steps(dims, view)) {
      expect_right(dims, view, *steps);
      ++found;
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(found, 1000);
}

TEST(FindSteps, AWholeValueIsOneCut) {
  const auto steps = find_steps({2, 3}, View{at::kFloat, {2, 3}, {3, 1}, 0});
  ASSERT_TRUE(steps.has_value());
  ASSERT_EQ(steps->cuts.size(), 1u);
  EXPECT_EQ(steps->cuts[0].refined, Dims({2, 3}));
}

TEST(FindSteps, RowsThatStartInTheMiddleAreCutOutFirst) {
  const View view{at::kFloat, {2, 3}, {3, 1}, 2};  // x[2:8].view(2, 3)
  const auto steps = find_steps({10}, view);
  ASSERT_TRUE(steps.has_value());
  ASSERT_EQ(steps->cuts.size(), 2u);
  EXPECT_EQ(steps->cuts[0].start, Dims({2}));
  EXPECT_EQ(steps->cuts[0].limit, Dims({8}));
  EXPECT_EQ(steps->cuts[1].refined, Dims({2, 3}));
}

TEST(FindSteps, KeepDimsThatTheViewLeavesAlone) {
  // x[:, 2:8].view(4, 2, 3): the first dim is not flattened.
  const auto steps = find_steps({4, 10}, View{at::kFloat, {4, 2, 3}, {10, 3, 1}, 2});
  ASSERT_TRUE(steps.has_value());
  EXPECT_EQ(steps->cuts[0].refined, Dims({4, 10}));
  EXPECT_EQ(steps->cuts[1].refined, Dims({4, 2, 3}));
}

TEST(FindSteps, OverlappingWindowsNeedGather) {
  EXPECT_FALSE(find_steps({8}, View{at::kFloat, {6, 3}, {1, 1}, 0}).has_value());
}

TEST(View, KnowsItsExtentAndDensity) {
  const View view{at::kFloat, {2, 3}, {1, 2}, 0};
  EXPECT_EQ(view.extent(), 6);
  EXPECT_TRUE(is_dense(view));
  EXPECT_EQ(natural_type(view).dims, Dims({3, 2}));
  EXPECT_FALSE(is_dense(View{at::kFloat, {2, 3}, {0, 1}, 0}));
  EXPECT_EQ((View{at::kFloat, {2, 0}, {1, 1}, 4}).extent(), 0);
}

}  // namespace

}  // namespace torch_tpu
