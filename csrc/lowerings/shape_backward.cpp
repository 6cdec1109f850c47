// Gradients of views: zeros with the incoming gradient put where the view was, which is a pad.
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/families.h"
#include "lowerings/shape.h"

namespace torch_tpu {

namespace {

Dims input_sizes(const Call& c) {
  const std::vector<int64_t> sizes = c.integers("input_sizes");
  return Dims(sizes.begin(), sizes.end());
}

// `x` along `dim` from `start` by `step` of `size` elements, zeros elsewhere.
Value placed(Emitter& e, const Value& x, int64_t dim, int64_t size, int64_t start, int64_t step) {
  Dims low(static_cast<size_t>(x.rank()), 0);
  Dims high = low;
  Dims interior = low;
  low[dim] = start;
  interior[dim] = step - 1;
  high[dim] = size - start - (x.dim(dim) - 1) * step - 1;
  return e.pad(x, scalar(e, 0, x.dtype()), low, high, interior);
}

Value lower_slice_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Dims sizes = input_sizes(c);
  const int64_t dim = Call::wrap(c.integer("dim"), static_cast<int64_t>(sizes.size()));
  if (grad.type.numel() == 0) return e.constant(0, grad.type.with(sizes));
  const int64_t start = slice_bounds(c.integer("start"), c.integer("end"), sizes[dim]).first;
  return placed(e, grad, dim, sizes[dim], start, c.integer("step"));
}

Value lower_select_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Dims sizes = input_sizes(c);
  const int64_t dim = Call::wrap(c.integer("dim"), static_cast<int64_t>(sizes.size()));
  if (grad.type.numel() == 0) return e.constant(0, grad.type.with(sizes));
  int64_t index = c.integer("index");
  if (index < 0) index += sizes[dim];
  return placed(e, unsqueeze(e, grad, dim), dim, sizes[dim], index, 1);
}

Value lower_diagonal_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_output");
  const Dims sizes = input_sizes(c);
  const int64_t rank = static_cast<int64_t>(sizes.size());
  if (grad.type.numel() == 0) return e.constant(0, grad.type.with(sizes));
  const int64_t dim1 = Call::wrap(c.integer("dim1"), rank);
  const int64_t dim2 = Call::wrap(c.integer("dim2"), rank);
  return embed_diagonal(e, grad, sizes[dim1], sizes[dim2], c.integer("offset"), dim1, dim2);
}

// The windows of `step` elements each that the unfolded ones fall into do not overlap: one addition for
// each of the ceil(size / step) of them.
Value lower_unfold_backward(Emitter& e, const Call& c) {
  const Value grad = c.tensor("grad_in");
  const Dims sizes = input_sizes(c);
  if (sizes.empty()) return sum(e, grad, {0});
  const int64_t dim = Call::wrap(c.integer("dim"), static_cast<int64_t>(sizes.size()));
  const int64_t size = c.integer("size");
  const int64_t step = c.integer("step");
  const Type result = grad.type.with(sizes);
  if (grad.type.numel() == 0) return e.constant(0, result);
  const int64_t windows = grad.dim(dim);
  const int64_t parts = (size + step - 1) / step;
  const at::ScalarType compute = opmath(grad.dtype());
  const Value zero = scalar(e, 0, compute);

  Dims permutation;
  for (const auto d : c10::irange(grad.rank() - 1)) permutation.push_back(d);
  permutation.insert(permutation.begin() + dim + 1, grad.rank() - 1);
  Value x = e.transpose(e.convert(grad, compute), permutation);
  Dims low(static_cast<size_t>(x.rank()), 0);
  Dims high = low;
  high[dim + 1] = parts * step - size;
  x = e.pad(x, zero, low, high);

  Value total;
  for (const auto part : c10::irange(parts)) {
    Dims dims = sizes;
    dims[dim] = windows * step;
    const Value piece = e.reshape(slice_dim(e, x, dim + 1, part * step, (part + 1) * step), dims);
    Dims before(sizes.size(), 0);
    Dims after = before;
    before[dim] = part * step;
    after[dim] = sizes[dim] - windows * step - part * step;
    const Value placed_piece = e.pad(piece, zero, before, after);
    total = total.defined() ? e.add(total, placed_piece) : placed_piece;
  }
  return e.convert(total, grad.dtype());
}

}  // namespace

void add_shape_backward(Table& t) {
  t.add("aten::slice_backward", lower_slice_backward);
  t.add("aten::select_backward", lower_select_backward);
  t.add("aten::diagonal_backward", lower_diagonal_backward);
  t.add("aten::unfold_backward", lower_unfold_backward);
}

}  // namespace torch_tpu
