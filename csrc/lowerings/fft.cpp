// Fourier transforms. The compiler's transforms are over the last one to three dims, and its
// inverse ones divide by their lengths.
#include <c10/util/irange.h>

#include <algorithm>
#include <cmath>

#include "lowerings/families.h"
#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

// How many dims one transform takes at most.
constexpr size_t kMaxDims = 3;

// PyTorch's normalization modes.
enum class Norm : int64_t { kNone = 0, kByRoot = 1, kByLength = 2 };

Norm norm_of(const Call& c) { return static_cast<Norm>(c.integer("normalization")); }

double scale_for(Norm norm, int64_t length) {
  const auto n = static_cast<double>(length);
  return norm == Norm::kNone ? 1.0 : norm == Norm::kByRoot ? 1 / std::sqrt(n) : 1 / n;
}

Value normalized(Emitter& e, const Value& x, double scale) { return scale == 1 ? x : scaled(e, x, scale); }

// The dims of a call, which may count from the end, in its order.
Dims given_dims(const Call& c, int64_t rank) {
  Dims dims;
  for (const int64_t d : c.integers("dim")) dims.push_back(Call::wrap(d, rank));
  return dims;
}

// `dims` behind all others, in their order.
Dims moved_last(int64_t rank, const Dims& dims) {
  Dims order;
  for (const auto d : c10::irange(rank)) {
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  }
  order.append(dims.begin(), dims.end());
  return order;
}

Dims inverse(const Dims& permutation) {
  Dims result(permutation.size());
  for (const auto i : c10::irange(permutation.size())) result[permutation[i]] = static_cast<int64_t>(i);
  return result;
}

// One transform of the last dim as a matrix product: TPUs have no complex128 transform.
Value transform_by_matrix(Emitter& e, const Value& x, bool forward) {
  const int64_t n = x.dim(x.rank() - 1);
  const Type square(at::kLong, {n, n});
  const Value turns = e.remainder(e.multiply(e.iota(square, 0), e.iota(square, 1)), n);
  const double unit = (forward ? -2 : 2) * M_PI / static_cast<double>(n);
  const Value angle = e.multiply(e.convert(turns, c10::toRealValueType(x.dtype())), unit);
  const Value matrix = e.complex(e.unary("cosine", angle), e.unary("sine", angle));
  const Value rows = e.reshape(x, {x.type.numel() / n, n});
  return e.reshape(matmul(e, rows, matrix, Precision::kHighest), x.dims());
}

// Without any factor, over `dims`. REQUIRES: x is complex and not empty.
Value transform(Emitter& e, const Call& c, Value x, const Dims& dims, bool forward) {
  const bool by_matrix = c.context().tpu && x.dtype() == at::kComplexDouble;
  const size_t most = by_matrix ? 1 : kMaxDims;
  double correction = 1;
  for (size_t first = 0; first < dims.size(); first += most) {
    const Dims group(dims.begin() + first, dims.begin() + std::min(first + most, dims.size()));
    const Dims order = moved_last(x.rank(), group);
    Dims lengths;
    for (const int64_t d : group) lengths.push_back(x.dim(d));
    Value y = e.transpose(x, order);
    if (by_matrix) {
      y = transform_by_matrix(e, y, forward);
    } else {
      y = e.fft(y, forward ? "FFT" : "IFFT", lengths);
      if (!forward) correction *= static_cast<double>(count_along(x, group));
    }
    x = e.transpose(y, inverse(order));
  }
  return normalized(e, x, correction);
}

Value lower_fft_c2c(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  const Dims dims = given_dims(c, self.rank());
  if (dims.empty() || self.type.numel() == 0) return self;
  const double scale = scale_for(norm_of(c), count_along(self, dims));
  return normalized(e, transform(e, c, self, dims, c.flag("forward")), scale);
}

Value lower_fft_r2c(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  Dims dims = given_dims(c, self.rank());
  const at::ScalarType dtype = c10::toComplexType(self.dtype());
  const int64_t last = dims.back();
  const bool onesided = c.flag("onesided");
  const int64_t half = self.dim(last) / 2 + 1;
  Type empty = self.type.with(dtype);
  if (onesided) empty.dims[last] = half;
  if (self.type.numel() == 0) return e.constant(0, empty);
  const double scale = scale_for(norm_of(c), count_along(self, dims));
  if (!onesided || (c.context().tpu && dtype == at::kComplexDouble)) {
    const Value whole = transform(e, c, e.convert(self, dtype), dims, /*forward=*/true);
    return normalized(e, onesided ? slice_dim(e, whole, last, 0, half) : whole, scale);
  }
  const Dims order = moved_last(self.rank(), {last});
  const Value x = e.transpose(e.fft(e.transpose(self, order), "RFFT", {self.dim(last)}), inverse(order));
  dims.pop_back();
  return normalized(e, transform(e, c, x, dims, /*forward=*/true), scale);
}

// The half spectrum along `dim`, of a real result of length n, as the whole one.
Value whole_spectrum(Emitter& e, const Value& half, int64_t dim, int64_t n) {
  const Value mirrored = slice_dim(e, half, dim, 1, n - half.dim(dim) + 1);
  return e.concatenate({half, conjugate(e, e.reverse(mirrored, {dim}))}, dim);
}

Value lower_fft_c2r(Emitter& e, const Call& c) {
  const Value self = c.tensor("self");
  Dims dims = given_dims(c, self.rank());
  const int64_t last = dims.back();
  const int64_t n = c.integer("last_dim_size");
  const int64_t half = n / 2 + 1;
  Type result = self.type.with(c10::toRealValueType(self.dtype()));
  result.dims[last] = n;
  if (self.type.numel() == 0 || result.numel() == 0) return e.constant(0, result);

  Value x = self;
  if (x.dim(last) > half) {
    x = slice_dim(e, x, last, 0, half);
  } else if (x.dim(last) < half) {
    Dims high(x.dims().size(), 0);
    high[last] = half - x.dim(last);
    x = e.pad(x, scalar(e, 0, x.dtype()), Dims(high.size(), 0), high);
  }
  dims.pop_back();
  const double scale = scale_for(norm_of(c), count_along(self, dims) * n);
  x = transform(e, c, x, dims, /*forward=*/false);
  if (c.context().tpu && x.dtype() == at::kComplexDouble) {
    return normalized(e, e.real(transform(e, c, whole_spectrum(e, x, last, n), {last}, /*forward=*/false)), scale);
  }
  const Dims order = moved_last(x.rank(), {last});
  const Value y = e.transpose(e.fft(e.transpose(x, order), "IRFFT", {n}), inverse(order));
  return normalized(e, y, scale * static_cast<double>(n));
}

}  // namespace

void add_fft(Table& t) {
  t.add("aten::_fft_c2c", lower_fft_c2c);
  t.add("aten::_fft_r2c", lower_fft_r2c);
  t.add("aten::_fft_c2r", lower_fft_c2r);
}

}  // namespace torch_tpu
