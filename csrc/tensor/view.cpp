#include "tensor/view.h"

#include <algorithm>
#include <numeric>

namespace torch_tpu {

namespace {

// Positions of the dims that are neither of size 1 nor broadcast, by descending stride.
Dims proper_dims(const View& view) {
  Dims order;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] != 1 && view.strides[i] != 0) order.push_back(static_cast<int64_t>(i));
  }
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return view.strides[a] > view.strides[b]; });
  return order;
}

// One dim of a value, and the dims of a view that step inside it: by descending stride, from `offset` on.
struct Block {
  int64_t length, offset;
  Dims sizes, strides;
};

// Elements from the first to the last that the dims of `block` from the k-th on show.
int64_t span(const Block& block, size_t k) {
  int64_t span = 1;
  for (; k < block.sizes.size(); ++k) span += (block.sizes[k] - 1) * block.strides[k];
  return span;
}

void add_cut(ViewSteps::Cut& cut, int64_t size, int64_t start, int64_t limit, int64_t step) {
  cut.refined.push_back(size);
  cut.start.push_back(start);
  cut.limit.push_back(limit);
  cut.step.push_back(step);
}

// Cuts `block`, and adds what remains to `rest`: a block for each view dim, with its length, or a block of
// several dims that the next cut divides. False if dims overlap.
bool add_cuts(const Block& block, ViewSteps::Cut& cut, std::vector<Block>& rest) {
  // A mixed-radix number: the outer dims' strides are the weights of the digits.
  int64_t length = block.length, offset = block.offset;
  const size_t count = block.sizes.size();
  for (size_t k = 0; k + 1 < count; ++k) {
    const int64_t n = block.sizes[k], stride = block.strides[k];
    if (span(block, k + 1) > stride) return false;
    if (length % stride != 0 || offset % stride + span(block, k + 1) > stride) {
      // No reshape has a row for each index: cut to whole rows first.
      const int64_t start = std::max(std::min(offset, length - n * stride), int64_t{0});
      add_cut(cut, length, start, start + n * stride, 1);
      rest.push_back({n * stride, offset - start, Dims(block.sizes.begin() + k, block.sizes.end()),
                      Dims(block.strides.begin() + k, block.strides.end())});
      return true;
    }
    add_cut(cut, length / stride, offset / stride, offset / stride + n, 1);
    rest.push_back({n, 0, {n}, {1}});
    length = stride;
    offset %= stride;
  }
  if (count == 0) {
    add_cut(cut, length, offset, offset + 1, 1);
  } else {
    const int64_t n = block.sizes.back(), stride = block.strides.back();
    add_cut(cut, length, offset, offset + (n - 1) * stride + 1, stride);
    rest.push_back({n, 0, {n}, {1}});
  }
  return true;
}

}  // namespace

int64_t View::numel() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

int64_t View::extent() const {
  int64_t last = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

bool is_dense(const View& view) {
  if (view.offset != 0) return false;
  int64_t expected = 1;
  const Dims order = proper_dims(view);
  size_t proper = 0;
  for (const int64_t size : view.sizes) proper += size != 1;
  if (proper != order.size()) return false;  // a broadcast dim
  for (size_t i = order.size(); i-- > 0;) {
    if (view.strides[order[i]] != expected) return false;
    expected *= view.sizes[order[i]];
  }
  return true;
}

Type natural_type(const View& view) {
  Dims order(view.sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return view.strides[a] > view.strides[b]; });
  Dims dims;
  for (const int64_t i : order) dims.push_back(view.sizes[i]);
  return Type(view.dtype, dims);
}

std::optional<ViewSteps> find_steps(c10::IntArrayRef dims, const View& view) {
  const Dims order = proper_dims(view);
  Dims base;
  for (const int64_t d : dims) {
    if (d != 1) base.push_back(d);
  }
  if (base.empty()) base.push_back(1);

  // Base dims are merged until every proper dim of the view steps inside one of them.
  std::vector<Block> blocks;
  for (;;) {
    const Dims base_strides = row_major_strides(base);
    blocks.clear();
    int64_t rest = view.offset;
    size_t next = 0;              // into `order`
    std::optional<size_t> merge;  // base dims merge and merge + 1 become one
    for (size_t j = 0; j < base.size() && !merge; ++j) {
      const int64_t unit = base_strides[j];
      Block block{base[j], rest / unit, {}, {}};
      rest %= unit;
      for (; next < order.size() && view.strides[order[next]] >= unit; ++next) {
        const int64_t stride = view.strides[order[next]];
        if (stride % unit != 0) {
          merge = j;  // a diagonal: steps in this and the next dim at once
          break;
        }
        block.sizes.push_back(view.sizes[order[next]]);
        block.strides.push_back(stride / unit);
      }
      if (!merge && block.offset + span(block, 0) > block.length) {
        if (j == 0) return std::nullopt;
        merge = j - 1;  // a flattened view: spills over into the dim before
      }
      blocks.push_back(std::move(block));
    }
    if (!merge) break;
    base[*merge] *= base[*merge + 1];
    base.erase(base.begin() + static_cast<std::ptrdiff_t>(*merge) + 1);
  }

  ViewSteps steps;
  const auto divided = [](const Block& block) { return block.sizes.size() > 1; };
  do {
    std::vector<Block> rest;
    ViewSteps::Cut cut;
    for (const Block& block : blocks) {
      if (!add_cuts(block, cut, rest)) return std::nullopt;
    }
    steps.cuts.push_back(std::move(cut));
    blocks = std::move(rest);
  } while (std::any_of(blocks.begin(), blocks.end(), divided));
  for (const Block& block : blocks) steps.kept.push_back(block.length);

  // kept[rank] is the view's dim order[rank]; the permutation lists ranks in view order.
  Dims ranks(order.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) { return order[a] < order[b]; });
  steps.permutation = ranks;
  return steps;
}

}  // namespace torch_tpu
