#include "lowerings/matrix.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>

#include "lowerings/pointwise.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

Value triangle(Emitter& e, const Value& x, std::string_view direction, int64_t diagonal) {
  const Type positions = x.type.with(at::kInt);
  const Value offset = e.subtract(e.iota(positions, 2), e.iota(positions, 1));
  return e.select(e.compare(direction, offset, diagonal), x, zeros(e, x.type));
}

Value resized(Emitter& e, const Value& x, int64_t dim, int64_t size) {
  if (size <= x.dim(dim)) return slice_dim(e, x, dim, 0, size);
  Dims high = {0, 0, 0};
  high[dim] = size - x.dim(dim);
  return e.pad(x, zeros(e, x.type.with(Dims{})), {0, 0, 0}, high);
}

}  // namespace

Value zeros(Emitter& e, const Type& type) { return e.constant(0, type); }

Dims batch_of(c10::IntArrayRef dims, int64_t matrix_dims) { return Dims(dims.begin(), dims.end() - matrix_dims); }

Value as_batch(Emitter& e, const Value& x) {
  TORCH_INTERNAL_ASSERT(x.rank() >= 2, "matrices of ", x.type);
  int64_t count = 1;
  for (const int64_t d : batch_of(x.dims())) count *= d;
  return e.reshape(x, {count, x.dim(x.rank() - 2), x.dim(x.rank() - 1)});
}

Value from_batch(Emitter& e, const Value& x, c10::IntArrayRef batch) {
  Dims dims(batch.begin(), batch.end());
  dims.append(x.dims().begin() + 1, x.dims().end());
  return e.reshape(x, dims);
}

Value broadcast_batch(Emitter& e, const Value& x, c10::IntArrayRef batch) {
  Dims dims(batch.begin(), batch.end());
  dims.append(x.dims().end() - 2, x.dims().end());
  return as_batch(e, broadcast_to(e, x, dims));
}

Value transposed(Emitter& e, const Value& x) { return e.transpose(x, {0, 2, 1}); }

Value adjoint(Emitter& e, const Value& x) { return conjugate(e, transposed(e, x)); }

Value product(Emitter& e, const Value& a, const Value& b) { return matmul(e, a, b, Precision::kHighest); }

Value identity(Emitter& e, const Type& type) {
  const Type positions = type.with(at::kInt);
  return e.convert(e.compare("EQ", e.iota(positions, 1), e.iota(positions, 2)), type.dtype);
}

Value lower_triangle(Emitter& e, const Value& x, int64_t diagonal) { return triangle(e, x, "LE", diagonal); }

Value upper_triangle(Emitter& e, const Value& x, int64_t diagonal) { return triangle(e, x, "GE", diagonal); }

Value diagonals(Emitter& e, const Value& x) {
  const int64_t k = std::min(x.dim(1), x.dim(2));
  const Value square = e.slice(x, {0, 0, 0}, {x.dim(0), k, k});
  const Type positions = square.type.with(at::kInt);
  const Value on = e.compare("EQ", e.iota(positions, 1), e.iota(positions, 2));
  return e.reduce(e.select(on, square, zeros(e, square.type)), 0, {2}, "add");
}

Value hermitian(Emitter& e, const Value& x, bool lower) {
  const Type positions = x.type.with(at::kInt);
  const Value row = e.iota(positions, 1);
  const Value column = e.iota(positions, 2);
  const Value stated = e.compare(lower ? "LT" : "GT", column, row);
  const Value mirrored = e.select(stated, x, adjoint(e, x));
  return e.select(e.compare("EQ", row, column), e.convert(e.real(x), x.dtype()), mirrored);
}

Value with_rows(Emitter& e, const Value& x, int64_t size) { return resized(e, x, 1, size); }

Value with_columns(Emitter& e, const Value& x, int64_t size) { return resized(e, x, 2, size); }

Value solve_triangular(Emitter& e, const Value& a, const Value& b, bool left, bool lower, bool unit_diagonal,
                       std::string_view transpose) {
  if (b.type.numel() == 0) return b;
  return e.triangular_solve(a, b, left, lower, unit_diagonal, transpose);
}

Values repeat(Emitter& e, int64_t first, int64_t step, int64_t count, const Values& state,
              const std::function<Values(const Value& k, const Values& state)>& body) {
  if (count == 0) return state;
  Values init = {scalar(e, first, at::kInt)};
  init.insert(init.end(), state.begin(), state.end());
  Values end = e.while_loop(
      init, [&](const Values& in) { return Values{e.compare("NE", in[0], first + step * count)}; },
      [&](const Values& in) {
        Values next = {e.add(in[0], step)};
        for (const Value& v : body(in[0], Values(in.begin() + 1, in.end()))) next.push_back(v);
        return next;
      });
  return Values(end.begin() + 1, end.end());
}

Value column_at(Emitter& e, const Value& x, const Value& k) {
  const Value zero = scalar(e, 0, at::kInt);
  return e.dynamic_slice(x, {zero, zero, k}, {x.dim(0), x.dim(1), 1});
}

Value row_at(Emitter& e, const Value& x, const Value& k) {
  const Value zero = scalar(e, 0, at::kInt);
  return e.dynamic_slice(x, {zero, k, zero}, {x.dim(0), 1, x.dim(2)});
}

Value with_element(Emitter& e, const Value& x, const Value& k, const Value& value) {
  return e.dynamic_update_slice(x, unsqueeze(e, value, 1), {scalar(e, 0, at::kInt), k});
}

Value position_is(Emitter& e, std::string_view direction, c10::IntArrayRef dims, int64_t dim, const Value& k) {
  const Type positions(at::kInt, dims);
  return e.compare(direction, e.iota(positions, dim), e.broadcast_in_dim(k, dims, {}));
}

}  // namespace torch_tpu
