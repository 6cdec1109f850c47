// histogram and histogramdd, of calls whose shapes are known from the bin counts: nothing is
// read on the host. A value belongs to the last bin edge that is not above it; the last edge is inside.
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

namespace torch_tpu {

namespace {

using Weight = const std::optional<at::Tensor>&;
using Range = std::optional<c10::ArrayRef<double>>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

// `bins` equal bins of column `x` over `range`, or over its own smallest to largest element.
at::Tensor equal_edges(const at::Tensor& x, int64_t bins, Range range, size_t dim) {
  TORCH_CHECK(bins > 0, "torch.histogramdd(): bins must be > 0, but got ", bins);
  if (range) {
    double low = (*range)[2 * dim];
    double high = (*range)[2 * dim + 1];
    TORCH_CHECK(low <= high, "torch.histogramdd: min should not exceed max, but got min ", low, " max ", high);
    if (low == high) {
      low -= 0.5;
      high += 0.5;
    }
    return at::linspace(low, high, bins + 1, x.options());
  }
  if (x.numel() == 0) return at::linspace(0, 1, bins + 1, x.options());
  const auto [low, high] = at::aminmax(x);
  const at::Tensor widening = low.eq(high).to(x.scalar_type()).mul(0.5);
  return at::linspace(low.sub(widening), high.add(widening), bins + 1, x.options());
}

// The counts, or weights, of the rows of x [n, d] in a grid of edges, one list a dim; normalized to a
// density if asked.
at::Tensor count(const at::Tensor& x, const std::vector<at::Tensor>& edges, Weight weight, bool density) {
  std::vector<int64_t> sizes;
  int64_t total = 1;
  for (const at::Tensor& edge : edges) {
    sizes.push_back(edge.numel() - 1);
    total *= sizes.back();
  }
  at::Tensor place = at::zeros({x.size(0)}, x.options().dtype(at::kLong));
  at::Tensor inside = at::zeros({x.size(0)}, x.options().dtype(at::kBool)).logical_not();
  for (const auto d : c10::irange(edges.size())) {
    const at::Tensor column = x.select(1, static_cast<int64_t>(d)).contiguous();
    const at::Tensor last = edges[d].select(0, sizes[d]);
    at::Tensor bin = at::searchsorted(edges[d].contiguous(), column, /*out_int32=*/false, /*right=*/true).sub(1);
    bin = at::where(column.eq(last), at::full({}, sizes[d] - 1, bin.options()), bin);
    inside = inside.logical_and(bin.ge(0)).logical_and(bin.lt(sizes[d]));
    place = place.mul(sizes[d]).add(bin);
  }
  // Beyond the end, where writes are dropped.
  place = at::where(inside, place, at::full({}, total, place.options()));
  const bool weighted = weight.has_value() && weight->defined();
  const at::Tensor amounts =
      weighted ? weight->reshape({-1}).to(x.scalar_type()) : at::full({x.size(0)}, 1, x.options());
  at::Tensor result = at::zeros({total}, x.options()).index_add(0, place, amounts).view(sizes);
  if (!density) return result;
  result = result.div(result.sum());
  for (const auto d : c10::irange(edges.size())) {
    std::vector<int64_t> along(edges.size(), 1);
    along[d] = sizes[d];
    result = result.div(edges[d].slice(0, 1).sub(edges[d].slice(0, 0, -1)).view(along));
  }
  return result;
}

at::Tensor as_column(const at::Tensor& self) { return self.reshape({-1, 1}); }

TwoTensors histogram_bins(const at::Tensor& self, const at::Tensor& bins, Weight weight, bool density) {
  TORCH_CHECK(bins.dim() == 1 && bins.numel() > 1,
              "torch.histogram: bins must be 1-d with at least two edges, but got ", bins.sizes());
  TORCH_CHECK(bins.scalar_type() == self.scalar_type(),
              "torch.histogram: input tensor and bins tensors should have the same dtype");
  return {count(as_column(self), {bins}, weight, density), bins.clone()};
}

TwoTensors histogram_count(const at::Tensor& self, int64_t bins, Range range, Weight weight, bool density) {
  const at::Tensor edges = equal_edges(self.reshape({-1}), bins, range, 0);
  return {count(as_column(self), {edges}, weight, density), edges};
}

std::tuple<at::Tensor&, at::Tensor&> write_out(const TwoTensors& results, at::Tensor& hist, at::Tensor& edges) {
  hist.resize_(std::get<0>(results).sizes()).copy_(std::get<0>(results));
  edges.resize_(std::get<1>(results).sizes()).copy_(std::get<1>(results));
  return {hist, edges};
}

std::tuple<at::Tensor&, at::Tensor&> histogram_bins_out(const at::Tensor& self, const at::Tensor& bins, Weight weight,
                                                        bool density, at::Tensor& hist, at::Tensor& edges) {
  return write_out(histogram_bins(self, bins, weight, density), hist, edges);
}

std::tuple<at::Tensor&, at::Tensor&> histogram_count_out(const at::Tensor& self, int64_t bins, Range range,
                                                         Weight weight, bool density, at::Tensor& hist,
                                                         at::Tensor& edges) {
  return write_out(histogram_count(self, bins, range, weight, density), hist, edges);
}

// [..., d] as rows of d.
at::Tensor as_points(const at::Tensor& self) {
  TORCH_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions, but got ",
              self.dim());
  return self.reshape({-1, self.size(-1)});
}

std::vector<at::Tensor> histogramdd_edges(const at::Tensor& self, c10::IntArrayRef bins, Range range, Weight /*weight*/,
                                          bool /*density*/) {
  const at::Tensor points = as_points(self);
  TORCH_CHECK(points.size(1) == static_cast<int64_t>(bins.size()),
              "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  std::vector<at::Tensor> edges;
  for (const auto d : c10::irange(bins.size())) {
    edges.push_back(equal_edges(points.select(1, static_cast<int64_t>(d)), bins[d], range, d));
  }
  return edges;
}

at::Tensor histogramdd_counts(const at::Tensor& self, c10::IntArrayRef bins, Range range, Weight weight, bool density) {
  return count(as_points(self), histogramdd_edges(self, bins, range, weight, density), weight, density);
}

at::Tensor histogramdd_bins(const at::Tensor& self, at::TensorList bins, Weight weight, bool density) {
  return count(as_points(self), bins.vec(), weight, density);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("histogram.bins_tensor", histogram_bins);
  m.impl("histogram.bins_tensor_out", histogram_bins_out);
  m.impl("histogram.bin_ct", histogram_count);
  m.impl("histogram.bin_ct_out", histogram_count_out);
  m.impl("_histogramdd_bin_edges", histogramdd_edges);
  m.impl("_histogramdd_from_bin_cts", histogramdd_counts);
  m.impl("_histogramdd_from_bin_tensors", histogramdd_bins);
}

}  // namespace torch_tpu
