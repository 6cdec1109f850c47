// Pooling to a given size: output o of a dim takes elements floor(o * in / out) to ceil((o + 1) * in / out).
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/resample.h"
#include "lowerings/window_maximum.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

int64_t start_of(int64_t o, int64_t in, int64_t out) { return o * in / out; }
int64_t end_of(int64_t o, int64_t in, int64_t out) { return ((o + 1) * in + out - 1) / out; }

// (.., out, in / out, ..): the windows of a dim that `out` divides.
Dims split_dim(const Dims& dims, int64_t dim, int64_t out) {
  Dims split = dims;
  split[dim] = dims[dim] / out;
  split.insert(split.begin() + dim, out);
  return split;
}

Resample average_map(int64_t in, int64_t out) {
  Resample map;
  map.in = in;
  for (const auto o : c10::irange(out)) {
    std::vector<Resample::Term> row;
    const int64_t start = start_of(o, in, out), end = end_of(o, in, out);
    for (int64_t i = start; i < end; ++i) row.push_back({i, 1.0 / static_cast<double>(end - start)});
    map.rows.push_back(row);
  }
  return map;
}

Value lower_adaptive_avg_pool(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto out = c.integers("output_size");
  Value x = e.convert(self, opmath(self.dtype()));
  for (size_t i = out.size(); i-- > 0;) {
    const int64_t dim = x.rank() - static_cast<int64_t>(out.size() - i);
    const int64_t in = x.dim(dim);
    if (out[i] > 0 && in > 0 && in % out[i] == 0) {
      const Value windows = e.reshape(x, split_dim(x.dims(), dim, out[i]));
      x = e.divide(sum(e, windows, {dim + 1}), static_cast<double>(in / out[i]));
    } else {
      x = resample(e, x, dim, average_map(in, out[i]));
    }
  }
  return e.convert(x, self.dtype());
}

template <size_t kRank>
Value lower_adaptive_avg_pool_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Value grad = c.tensor("grad_output");
  Value x = e.convert(grad, opmath(grad.dtype()));
  for (const auto i : c10::irange(kRank)) {
    const int64_t dim = x.rank() - static_cast<int64_t>(kRank - i);
    const int64_t in = self.dim(dim), out = x.dim(dim);
    if (out > 0 && in > 0 && in % out == 0) {
      Dims dims = x.dims();
      dims[dim] = in;
      const Value share = e.divide(x, static_cast<double>(in / out));
      x = e.reshape(broadcast_along(e, share, split_dim(dims, dim, out), {dim + 1}), dims);
    } else {
      x = resample(e, x, dim, average_map(in, out).transposed());
    }
  }
  return e.convert(x, grad.dtype());
}

Values lower_adaptive_max_pool(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const auto out = c.integers("output_size");
  const size_t rank = out.size();
  const Dims spatial(self.dims().end() - rank, self.dims().end());
  const Dims lead(self.dims().begin(), self.dims().end() - rank);
  Dims result = lead;
  result.append(out.begin(), out.end());
  const Type type = self.type.with(result);
  if (type.numel() == 0) return {e.constant(0, type), e.constant(0, type.with(at::kLong))};

  const Dims ones(rank, 1), zeros(rank, 0), counts(out.begin(), out.end());
  Windows windows{{}, counts, {}, zeros, ones};
  bool even = true;
  for (const auto i : c10::irange(rank)) {
    even = even && spatial[i] % out[i] == 0;
    windows.sizes.push_back(spatial[i] / out[i]);
  }
  if (even) {
    windows.stride = windows.sizes;
    const Maximum best = window_maximum(e, self, windows);
    return {best.value, e.convert(best.position, at::kLong)};
  }

  // Windows of the largest size: shorter ones repeat their last element, which changes no maximum.
  Value x = self;
  std::vector<std::vector<int64_t>> index(rank);
  Dims split, inner;
  for (const auto i : c10::irange(rank)) {
    int64_t size = 0;
    for (const auto o : c10::irange(out[i])) {
      size = std::max(size, end_of(o, spatial[i], out[i]) - start_of(o, spatial[i], out[i]));
    }
    for (const auto o : c10::irange(out[i])) {
      for (const auto t : c10::irange(size)) {
        index[i].push_back(std::min(start_of(o, spatial[i], out[i]) + t, end_of(o, spatial[i], out[i]) - 1));
      }
    }
    const int64_t dim = x.rank() - static_cast<int64_t>(rank - i);
    x = take(e, x, dim, e.list(index[i], at::kInt));
    inner.push_back(static_cast<int64_t>(lead.size() + split.size()) + 1);
    split.append({out[i], size});
  }
  Dims windowed = lead;
  windowed.append(split.begin(), split.end());
  const Value position = e.reshape(flat_positions(e, index, spatial), split);
  const Maximum best = maximum_along(e, e.reshape(x, windowed), broadcast_to(e, position, windowed), inner);
  return {best.value, e.convert(best.position, at::kLong)};
}

template <size_t kRank>
Value lower_adaptive_max_pool_backward(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Dims spatial(self.dims().end() - kRank, self.dims().end());
  return scatter_positions(e, c.tensor("grad_output"), c.tensor("indices"), spatial, true);
}

}  // namespace

void add_adaptive_pool(Table& t) {
  t.add("aten::_adaptive_avg_pool2d", lower_adaptive_avg_pool);
  t.add("aten::_adaptive_avg_pool2d_backward", lower_adaptive_avg_pool_backward<2>);
  t.add("aten::_adaptive_avg_pool3d", lower_adaptive_avg_pool);
  t.add("aten::_adaptive_avg_pool3d_backward", lower_adaptive_avg_pool_backward<3>);
  t.add("aten::adaptive_max_pool2d", lower_adaptive_max_pool);
  t.add("aten::adaptive_max_pool2d_backward", lower_adaptive_max_pool_backward<2>);
  t.add("aten::adaptive_max_pool3d", lower_adaptive_max_pool);
  t.add("aten::adaptive_max_pool3d_backward", lower_adaptive_max_pool_backward<3>);
}

}  // namespace torch_tpu
