#include "lowerings/resample.h"

#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/contract.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr size_t kMaxTerms = 8;
constexpr size_t kMaxRuns = 16;

// A run of indices first, first + step, ..: `count` of them. step 0 repeats.
struct Run {
  int64_t first, step, count;
};

std::vector<Run> runs_of(const std::vector<int64_t>& index) {
  std::vector<Run> runs;
  for (const int64_t i : index) {
    if (!runs.empty()) {
      Run& run = runs.back();
      const int64_t step = i - (run.first + run.step * (run.count - 1));
      if (run.count == 1) run.step = step;
      if (step == run.step) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({i, 0, 1});
  }
  return runs;
}

Value read_run(Emitter& e, const Value& x, int64_t dim, const Run& run) {
  if (run.step == 0) {
    Dims dims = x.dims(), where;
    dims[dim] = run.count;
    for (const auto d : c10::irange(x.rank())) where.push_back(d);
    return e.broadcast_in_dim(slice_dim(e, x, dim, run.first, run.first + 1), dims, where);
  }
  const int64_t last = run.first + run.step * (run.count - 1);
  if (run.step > 0) return slice_dim(e, x, dim, run.first, last + 1, run.step);
  return e.reverse(slice_dim(e, x, dim, last, run.first + 1, -run.step), {dim});
}

// x[0], x[0], .., x[1], x[1], ..: each element `times` times.
Value repeat_each(Emitter& e, const Value& x, int64_t dim, int64_t times) {
  Dims dims = x.dims(), where, result = x.dims();
  dims.insert(dims.begin() + dim + 1, times);
  result[dim] *= times;
  for (const auto d : c10::irange(x.rank())) where.push_back(d <= dim ? d : d + 1);
  return e.reshape(e.broadcast_in_dim(x, dims, where), result);
}

Value select_rows(Emitter& e, const Value& x, int64_t dim, const std::vector<int64_t>& index) {
  const auto count = static_cast<int64_t>(index.size());
  if (count > 0 && count % x.dim(dim) == 0) {
    const int64_t times = count / x.dim(dim);
    bool repeats = times > 1;
    for (int64_t i = 0; repeats && i < count; ++i) repeats = index[i] == i / times;
    if (repeats) return repeat_each(e, x, dim, times);
  }
  const std::vector<Run> runs = runs_of(index);
  if (runs.size() <= kMaxRuns) {
    Values parts;
    for (const Run& run : runs) parts.push_back(read_run(e, x, dim, run));
    return e.concatenate(parts, dim);
  }
  return take(e, x, dim, e.list(index, at::kInt));
}

// `weights` along `dim` of x. A weight of 0 is a missing term: zero even where it meets an infinity.
Value weighted(Emitter& e, const Value& x, int64_t dim, const std::vector<double>& weights) {
  const auto plain = [](double w) { return w == 1 || w == 0; };
  Value out = x;
  if (!std::all_of(weights.begin(), weights.end(), plain)) {
    out = e.multiply(out, e.broadcast_in_dim(e.list(weights, x.dtype()), x.dims(), {dim}));
  }
  if (std::find(weights.begin(), weights.end(), 0) == weights.end()) return out;
  std::vector<int64_t> mask;
  for (const double w : weights) mask.push_back(w != 0);
  const Value present = e.compare("NE", e.list(mask, at::kInt), at::Scalar(0));
  return e.select(e.broadcast_in_dim(present, x.dims(), {dim}), out, e.constant_like(0, out));
}

Value by_matrix(Emitter& e, const Value& x, int64_t dim, const Resample& map) {
  std::vector<double> entries(static_cast<size_t>(map.in * map.out()), 0);
  for (const auto o : c10::irange(map.out())) {
    for (const auto& [index, weight] : map.rows[o]) entries[o * map.in + index] += weight;
  }
  const Value matrix = e.reshape(e.list(entries, x.dtype()), {map.out(), map.in});
  const Value out = contract(e, x, matrix, {{}, {}, {dim}, {1}}, Precision::kHighest);
  Dims order;
  for (const auto d : c10::irange(x.rank())) {
    order.push_back(d < dim ? d : d == dim ? x.rank() - 1 : d - 1);
  }
  return e.convert(e.transpose(out, order), x.dtype());
}

}  // namespace

Resample Resample::transposed() const {
  Resample map;
  map.in = out();
  map.rows.resize(in);
  for (const auto o : c10::irange(out())) {
    for (const auto& [index, weight] : rows[o]) map.rows[index].push_back({o, weight});
  }
  return map;
}

Resample selection(int64_t in, const std::vector<int64_t>& index) {
  Resample map;
  map.in = in;
  for (const int64_t i : index) map.rows.push_back({{i, 1}});
  return map;
}

Value resample(Emitter& e, const Value& x, int64_t dim, const Resample& map) {
  size_t terms = 0;
  for (const auto& row : map.rows) terms = std::max(terms, row.size());
  Type type = x.type;
  type.dims[dim] = map.out();
  if (type.numel() == 0 || terms == 0) return e.constant(0, type);
  if (terms > kMaxTerms) return by_matrix(e, x, dim, map);

  Value sum;
  for (const auto t : c10::irange(terms)) {
    std::vector<int64_t> index;
    std::vector<double> weights;
    for (const auto& row : map.rows) {
      const bool missing = t >= row.size();
      // A missing term repeats a neighbour, which keeps runs long.
      index.push_back(!missing ? row[t].index : index.empty() ? 0 : index.back());
      weights.push_back(missing ? 0 : row[t].weight);
    }
    const Value term = weighted(e, select_rows(e, x, dim, index), dim, weights);
    sum = sum.defined() ? e.add(sum, term) : term;
  }
  return sum;
}

}  // namespace torch_tpu
