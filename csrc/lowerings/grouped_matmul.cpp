// Matrix products by group (mixture of experts): the groups are runs of rows whose ends, `offs`, are
// data. A loop over blocks of rows does about as many products as there are rows, whatever the groups.
#include <c10/util/Exception.h>

#include <algorithm>

#include "lowerings/contract.h"
#include "lowerings/families.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr int64_t kMaxBlock = 128;

int64_t block_of(int64_t rows) { return std::min(kMaxBlock, (rows + 7) / 8 * 8); }

struct Block {
  Value group;  // 0-d
  Value end;    // of the group, 0-d
};

// The group that `row` lies in.
Block block_at(Emitter& e, const Value& offs, const Value& row) {
  const Value before = e.compare("LE", offs, e.broadcast_in_dim(row, offs.dims(), {}));
  const Value count = e.reduce(e.convert(before, at::kInt), at::Scalar(0), {0}, "add");
  const Value group = e.minimum(count, offs.dim(0) - 1);
  return {group, e.reshape(e.dynamic_slice(offs, {group}, {1}), {})};
}

Value last(Emitter& e, const Value& offs) { return e.reshape(e.slice(offs, {offs.dim(0) - 1}, {offs.dim(0)}), {}); }

Value pad_rows(Emitter& e, const Value& x, int64_t rows) {
  return e.pad(x, scalar(e, 0, x.dtype()), {0, 0}, {rows, 0});
}

// x (T, K), whose rows group g multiplies by w[g] of w (G, K, N) -> (T, N). Rows of no group give zeros.
Value rows_by_group(Emitter& e, const Value& x, const Value& w, const Value& offs, at::ScalarType dtype) {
  const int64_t rows = x.dim(0);
  const int64_t k = w.dim(1);
  const int64_t n = w.dim(2);
  const int64_t block = block_of(rows);
  const Value zero = scalar(e, 0, at::kInt);
  const Value padded = pad_rows(e, x, block);
  const Value start = e.constant(0, Type(dtype, {rows + block, n}));
  const Values end = e.while_loop(
      {zero, start, padded, w, offs}, [&](const Values& s) { return Values{e.compare("LT", s[0], last(e, s[4]))}; },
      [&](const Values& s) {
        const Value none = scalar(e, 0, at::kInt);
        const Block at = block_at(e, s[4], s[0]);
        const Value left = e.dynamic_slice(s[2], {s[0], none}, {block, k});
        const Value right = e.reshape(e.dynamic_slice(s[3], {at.group, none, none}, {1, k, n}), {k, n});
        const Value product = e.convert(matrix_product(e, left, right, Precision::kHighest), dtype);
        // What it writes past the group's end, the next block overwrites.
        const Value out = e.dynamic_update_slice(s[1], product, {s[0], none});
        return Values{e.minimum(e.add(s[0], block), at.end), out, s[2], s[3], s[4]};
      });
  const Value out = e.slice(end[1], {0, 0}, {rows, n});
  const Value row = e.iota(Type(at::kInt, out.dims()), 0);
  const Value inside = e.compare("LT", row, e.broadcast_in_dim(last(e, offs), out.dims(), {}));
  return e.select(inside, out, e.constant_like(0, out));
}

// a (M, T) and b (T, N), contracted over each group's part of T -> (G, M, N).
Value contract_by_group(Emitter& e, const Value& a, const Value& b, const Value& offs, at::ScalarType dtype) {
  const int64_t groups = offs.dim(0);
  const int64_t m = a.dim(0);
  const int64_t n = b.dim(1);
  const int64_t block = block_of(b.dim(0));
  const Value left = pad_rows(e, e.transpose(a, {1, 0}), block);
  const Value right = pad_rows(e, b, block);
  const Value start = e.constant(0, Type(opmath(dtype), {groups, m, n}));
  const Values end = e.while_loop(
      {scalar(e, 0, at::kInt), start, left, right, offs},
      [&](const Values& s) { return Values{e.compare("LT", s[0], last(e, s[4]))}; },
      [&](const Values& s) {
        const Value none = scalar(e, 0, at::kInt);
        const Block at = block_at(e, s[4], s[0]);
        const auto part = [&](const Value& x) {
          const Value rows = e.dynamic_slice(x, {s[0], none}, {block, x.dim(1)});
          const Value row = e.add(e.iota(Type(at::kInt, rows.dims()), 0), e.broadcast_in_dim(s[0], rows.dims(), {}));
          const Value inside = e.compare("LT", row, e.broadcast_in_dim(at.end, rows.dims(), {}));
          return e.select(inside, rows, e.constant_like(0, rows));
        };
        Value product = contract(e, part(s[2]), part(s[3]), {{}, {}, {0}, {0}}, Precision::kHighest);
        product = e.reshape(product, {1, m, n});
        const Value old = e.dynamic_slice(s[1], {at.group, none, none}, {1, m, n});
        const Value out = e.dynamic_update_slice(s[1], e.add(old, product), {at.group, none, none});
        return Values{e.minimum(e.add(s[0], block), at.end), out, s[2], s[3], s[4]};
      });
  return e.convert(end[1], dtype);
}

Dims grouped_dims(const Call& c, const char* op) {
  const Value a = c.tensor("self");
  const Value b = c.tensor("mat2");
  if (a.rank() == 3 && b.rank() == 3) return {a.dim(0), a.dim(1), b.dim(2)};
  TORCH_CHECK_VALUE(c.has("offs"), "tpu: ", op, " of ", a.type, " and ", b.type,
                    " got no offs.\nPass the ends of the groups.");
  if (a.rank() == 2 && b.rank() == 2) return {c.tensor("offs").dim(0), a.dim(0), b.dim(1)};
  return {a.dim(a.rank() - 2), b.dim(b.rank() - 1)};
}

std::vector<Type> grouped_mm_types(const Call& c) {
  return {Type(c.dtype("out_dtype").value_or(c.tensor("self").dtype()), grouped_dims(c, "_grouped_mm"))};
}

// a @ b by groups, as `type`.
Value grouped_product(Emitter& e, const Call& c, const Value& a, const Value& b, const Type& type) {
  if (type.numel() == 0 || a.type.numel() == 0 || b.type.numel() == 0) return e.constant(0, type);
  if (a.rank() == 3 && b.rank() == 3) return e.convert(matrix_product(e, a, b, c.precision()), type.dtype);
  const Value offs = e.convert(c.tensor("offs"), at::kInt);
  if (a.rank() == 2 && b.rank() == 3) return rows_by_group(e, a, b, offs, type.dtype);
  if (a.rank() == 2) return contract_by_group(e, a, b, offs, type.dtype);
  const Value swapped = rows_by_group(e, e.transpose(b, {1, 0}), e.transpose(a, {0, 2, 1}), offs, type.dtype);
  return e.transpose(swapped, {1, 0});
}

Value lower_grouped_mm(Emitter& e, const Call& c) {
  const Value out = grouped_product(e, c, c.tensor("self"), c.tensor("mat2"), grouped_mm_types(c)[0]);
  if (!c.has("bias")) return out;
  return e.add(out, broadcast_to(e, e.convert(c.tensor("bias"), out.dtype()), out.dims()));
}

// The group of each of `rows` rows: [rows]. Those of no group get the last one.
Value groups_of(Emitter& e, const Value& offs, int64_t rows) {
  const Dims all = {rows, offs.dim(0)};
  const Value ended = e.compare("LE", broadcast_along(e, offs, all, {0}), e.iota(Type(at::kInt, all), 0));
  return e.minimum(e.reduce(e.convert(ended, at::kInt), 0, {1}, "add"), offs.dim(0) - 1);
}

// scales (G, N) of groups of rows -> (rows, N).
Value scales_of_rows(Emitter& e, const Value& scales, const Value& offs, int64_t rows) {
  return take(e, scales, 0, groups_of(e, offs, rows));
}

Value swap(Emitter& e, const Value& x) { return e.transpose(x, {1, 0}); }

std::vector<Type> scaled_grouped_mm_types(const Call& c) {
  return {Type(c.dtype("out_dtype").value_or(at::kBFloat16), grouped_dims(c, "_scaled_grouped_mm"))};
}

// One scale a row of self and one a column of mat2, of each group where that operand has groups. Of two matrices, whose
// common dim has the groups: (G * rows) and (G * columns).
Value lower_scaled_grouped_mm(Emitter& e, const Call& c) {
  const Value a = c.tensor("self");
  const Value b = c.tensor("mat2");
  const Type type = scaled_grouped_mm_types(c)[0];
  Value out = grouped_product(e, c, e.convert(a, at::kBFloat16), e.convert(b, at::kBFloat16), type.with(at::kFloat));
  Value left = e.convert(c.tensor("scale_a"), at::kFloat);
  Value right = e.convert(c.tensor("scale_b"), at::kFloat);
  if (out.rank() == 3) {
    left = e.reshape(left, {out.dim(0), out.dim(1), 1});
    right = e.reshape(right, {out.dim(0), 1, out.dim(2)});
  } else {
    const Value offs = e.convert(c.tensor("offs"), at::kInt);
    left = a.rank() == 2 ? unsqueeze(e, left, 1) : swap(e, scales_of_rows(e, left, offs, out.dim(1)));
    right = b.rank() == 2 ? unsqueeze(e, right, 0) : scales_of_rows(e, right, offs, out.dim(0));
  }
  for (const Value& scale : {left, right}) out = e.multiply(out, broadcast_to(e, scale, out.dims()));
  if (c.has("bias")) out = e.add(out, broadcast_to(e, e.convert(c.tensor("bias"), at::kFloat), out.dims()));
  if (c.has("scale_result")) {
    out = e.multiply(out, broadcast_to(e, e.convert(c.tensor("scale_result"), at::kFloat), out.dims()));
  }
  return e.convert(out, type.dtype);
}

}  // namespace

void add_grouped_matmul(Table& t) {
  t.add("aten::_grouped_mm", lower_grouped_mm).with_shape(grouped_mm_types);
  t.add("aten::_scaled_grouped_mm", lower_scaled_grouped_mm).with_shape(scaled_grouped_mm_types);
}

}  // namespace torch_tpu
