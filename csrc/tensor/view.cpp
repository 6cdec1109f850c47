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
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return view.strides[a] > view.strides[b]; });
  return order;
}


}  // namespace

int64_t View::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

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
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return view.strides[a] > view.strides[b]; });
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
  ViewSteps steps;
  for (;;) {
    const Dims base_strides = row_major_strides(base);
    steps = ViewSteps{};
    int64_t rest = view.offset;
    size_t next = 0;  // into `order`
    std::optional<size_t> merge;  // base dims merge and merge + 1 become one
    for (size_t j = 0; j < base.size() && !merge; ++j) {
      const int64_t unit = base_strides[j], size = base[j];
      const int64_t digit = rest / unit;
      rest %= unit;
      Dims sizes, strides;  // of the view dims inside, in units of this base dim
      int64_t span = digit + 1;
      for (; next < order.size() && view.strides[order[next]] >= unit; ++next) {
        const int64_t n = view.sizes[order[next]], s = view.strides[order[next]];
        if (s % unit != 0) {
          merge = j;  // a diagonal: steps in this and the next dim at once
          break;
        }
        sizes.push_back(n);
        strides.push_back(s / unit);
        span += (n - 1) * (s / unit);
      }
      if (merge) break;
      if (span > size) {  // a flattened view: spills over into the dim before
        if (j == 0) return std::nullopt;
        merge = j - 1;
        break;
      }
      if (sizes.empty()) {
        steps.refined.push_back(size);
        steps.start.push_back(digit);
        steps.limit.push_back(digit + 1);
        steps.step.push_back(1);
        continue;
      }
      // A mixed-radix number: the outer dims' strides are the weights of the digits.
      int64_t offset = digit, length = size;
      const bool split = sizes.size() > 1;
      if (split && length % strides[0] != 0) {
        // Only whole blocks can be reshaped; a base dim of its own is never cut short here.
        return std::nullopt;
      }
      for (size_t k = 0; k < sizes.size(); ++k) {
        const bool innermost = k + 1 == sizes.size();
        const int64_t weight = innermost ? 1 : strides[k];
        if (!innermost && strides[k] % strides[k + 1] != 0 && k + 2 != sizes.size()) return std::nullopt;
        if (length % weight != 0) return std::nullopt;
        const int64_t extent = length / weight;
        const int64_t start = offset / weight;
        const int64_t step = innermost ? strides[k] : 1;
        const int64_t limit = start + (sizes[k] - 1) * step + 1;
        if (limit > extent) return std::nullopt;  // overlapping
        steps.refined.push_back(extent);
        steps.start.push_back(start);
        steps.limit.push_back(limit);
        steps.step.push_back(step);
        steps.kept.push_back(sizes[k]);
        offset %= weight;
        length = weight;
      }
    }
    if (!merge) break;
    if (*merge + 1 >= base.size()) return std::nullopt;
    base[*merge] *= base[*merge + 1];
    base.erase(base.begin() + static_cast<std::ptrdiff_t>(*merge) + 1);
  }

  // kept[rank] is the view's dim order[rank]; the permutation lists ranks in view order.
  Dims ranks(order.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::sort(ranks.begin(), ranks.end(), [&](int64_t a, int64_t b) { return order[a] < order[b]; });
  steps.permutation = ranks;
  return steps;
}

}  // namespace torch_tpu
