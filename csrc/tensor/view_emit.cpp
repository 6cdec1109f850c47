// Emission of the view algebra: read() and write() are inverses, kept side by side.
#include <c10/util/Exception.h>

#include <algorithm>

#include "stablehlo/compose.h"
#include "tensor/view.h"

namespace torch_tpu {

namespace {

int64_t bytes_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

Value zeros(Emitter& e, const Type& type) {
  return e.constant(at::isComplexType(type.dtype) ? at::Scalar(0.0) : at::Scalar(0), type);
}

// The first n elements, in one dimension; zeros where `x` is shorter.
Value flat_prefix(Emitter& e, const Value& x, int64_t n) {
  const Value flat = e.reshape(x, {x.type.numel()});
  const int64_t missing = n - x.type.numel();
  return missing == 0 ? flat : e.pad(flat, scalar(e, 0, x.dtype()), {0}, {missing});
}

// The bits of `x` as elements of another dtype, as Tensor.view(dtype): the last dimension
// grows or shrinks. Complex numbers are pairs of reals, bools are bytes.
Value as_dtype(Emitter& e, const Value& x, at::ScalarType dtype) {
  const at::ScalarType from = x.dtype();
  if (from == dtype) return x;
  if (at::isComplexType(from)) {
    Dims pair = x.dims();
    pair.push_back(1);
    const Value parts =
        e.concatenate({e.reshape(e.real(x), pair), e.reshape(e.imag(x), pair)}, static_cast<int64_t>(pair.size()) - 1);
    return as_dtype(e, parts, dtype);
  }
  if (from == at::kBool) return as_dtype(e, e.convert(x, at::kByte), dtype);
  if (at::isComplexType(dtype)) {
    const Value reals = as_dtype(e, x, c10::toRealValueType(dtype));
    const int64_t n = reals.type.numel();
    const Value pairs = e.reshape(n % 2 == 0 ? reals : flat_prefix(e, reals, n + 1), {(n + 1) / 2, 2});
    const Value real = e.slice(pairs, {0, 0}, {pairs.dim(0), 1});
    const Value imag = e.slice(pairs, {0, 1}, {pairs.dim(0), 2});
    return e.reshape(e.complex(real, imag), {pairs.dim(0)});
  }
  if (dtype == at::kBool) return e.convert(as_dtype(e, x, at::kByte), at::kBool);
  const int64_t ratio = bytes_of(dtype) / std::min(bytes_of(from), bytes_of(dtype));
  if (ratio > 1) {
    const int64_t n = (x.type.numel() + ratio - 1) / ratio;
    return e.bitcast(e.reshape(flat_prefix(e, x, n * ratio), {n, ratio}), Type(dtype, {n}));
  }
  Dims dims = x.dims();
  if (bytes_of(from) > bytes_of(dtype)) dims.push_back(bytes_of(from) / bytes_of(dtype));
  return e.bitcast(x, Type(dtype, dims));
}

// Flat positions of the view's elements, in view order, as a column for gather and scatter.
Value positions(Emitter& e, const View& view) {
  const at::ScalarType dtype = view.extent() < INT32_MAX ? at::kInt : at::kLong;
  const Type type(dtype, view.sizes);
  Value at = e.constant(view.offset, type);
  for (int64_t i = 0; i < type.rank(); ++i) {
    at = e.add(at, e.multiply(e.iota(type, i), view.strides[i]));
  }
  return e.reshape(at, {view.numel(), 1});
}

// The dims of the view that are neither 1 nor broadcast, in view order.
Dims proper_positions(const View& view) {
  Dims where;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] != 1 && view.strides[i] != 0) where.push_back(static_cast<int64_t>(i));
  }
  return where;
}

// A view as contiguous runs: the dim of stride 1 (if there is one) comes last.
struct Rows {
  View starts;  // of the runs
  int64_t length = 1;
  Dims dims;         // starts.sizes, then the run
  Dims permutation;  // of dims, into the order the view has them
};

Rows find_rows(const View& view) {
  Rows rows{view, 1, {}, {}};
  const auto rank = static_cast<int64_t>(view.sizes.size());
  int64_t run = rank;
  for (int64_t i = 0; i < rank; ++i) {
    if (view.strides[i] == 1 && view.sizes[i] > rows.length) {
      rows.length = view.sizes[i];
      run = i;
    }
  }
  if (run < rank) rows.starts.sizes[run] = 1;
  rows.dims = rows.starts.sizes;
  for (int64_t i = 0; i < rank; ++i) rows.permutation.push_back(i);
  if (run < rank) {
    rows.dims.erase(rows.dims.begin() + run);
    rows.dims.push_back(rows.length);
    for (int64_t i = run; i < rank; ++i) rows.permutation[i] = i == run ? rank - 1 : i - 1;
  }
  return rows;
}

// Overlapping windows, as Tensor.unfold shows: element b of window a is at a * stride + b * unit, and windows overlap.
// In pieces of stride / unit elements they do not: piece k of window a is the first piece of window a + k.
struct Windows {
  size_t windows, elements;  // dims of the view
  int64_t piece;             // elements
};

std::optional<Windows> find_windows(const View& view) {
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    for (size_t j = 0; j < view.sizes.size(); ++j) {
      const int64_t stride = view.strides[i], unit = view.strides[j];
      if (i == j || view.sizes[i] == 1 || unit == 0 || stride < unit || stride % unit != 0) continue;
      if (stride == unit && view.sizes[j] > view.sizes[i]) continue;  // of two that step alike, the fewer are cut
      if (view.sizes[j] > stride / unit) return Windows{i, j, stride / unit};
    }
  }
  return std::nullopt;
}

// The pieces of a view of overlapping windows, which stand side by side along `found.elements`.
std::vector<View> pieces_of(const View& view, const Windows& found) {
  std::vector<View> pieces;
  for (int64_t start = 0; start < view.sizes[found.elements]; start += found.piece) {
    View piece = view;
    piece.offset += start * view.strides[found.elements];
    piece.sizes[found.elements] = std::min(found.piece, view.sizes[found.elements] - start);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// More pieces than that are picked out one by one instead.
constexpr size_t kMostPieces = 64;

// How many slices show the view, cut into pieces where windows overlap; more than kMostPieces: slices cannot.
size_t count_pieces(c10::IntArrayRef dims, const View& view) {
  if (find_steps(dims, view)) return 1;
  const auto found = find_windows(view);
  if (!found) return kMostPieces + 1;
  const std::vector<View> pieces = pieces_of(view, *found);
  return pieces.size() > kMostPieces ? pieces.size() : pieces.size() * count_pieces(dims, pieces[0]);
}

// `x` in the dims that `cut` slices.
Value refine(Emitter& e, const Value& x, const ViewSteps::Cut& cut) {
  const Value refined = e.reshape(x, cut.refined);
  Dims missing;
  bool enough = true;
  for (size_t i = 0; i < cut.refined.size(); ++i) {
    missing.push_back(std::max<int64_t>(cut.limit[i] - cut.refined[i], 0));
    enough &= missing[i] == 0;
  }
  return enough ? refined : e.pad(refined, scalar(e, 0, x.dtype()), Dims(missing.size(), 0), missing);
}

// `into`, cut as read() cuts it, with what is left replaced by `update`.
Value write_cuts(Emitter& e, const Value& into, c10::ArrayRef<ViewSteps::Cut> cuts, const Value& update) {
  const ViewSteps::Cut& cut = cuts[0];
  Dims extents, high, interior;
  bool strided = false;
  for (size_t i = 0; i < cut.refined.size(); ++i) {
    extents.push_back((cut.limit[i] - cut.start[i] + cut.step[i] - 1) / cut.step[i]);
    strided |= cut.step[i] != 1;
    interior.push_back(cut.step[i] - 1);
    high.push_back(std::max(cut.refined[i], cut.limit[i]) - cut.limit[i]);
  }
  const Value there = refine(e, into, cut);
  Value x = update;
  if (cuts.size() > 1) x = write_cuts(e, e.slice(there, cut.start, cut.limit, cut.step), cuts.slice(1), update);
  x = e.reshape(x, extents);
  if (strided) {
    const Value shown =
        e.pad(e.constant(true, x.type.with(at::kBool)), scalar(e, false, at::kBool), cut.start, high, interior);
    x = e.select(shown, e.pad(x, scalar(e, 0, x.dtype()), cut.start, high, interior), there);
  } else if (x.type != there.type) {
    Values starts;
    for (const int64_t s : cut.start) starts.push_back(scalar(e, s, at::kInt));
    x = e.dynamic_update_slice(there, x, starts);
  }
  return x.dims() == cut.refined ? x : e.slice(x, Dims(cut.refined.size(), 0), cut.refined);
}

// What an expanded view leaves in the elements it shows many times: of `x`, what differs from what is there.
// The view's broadcast dims become of size 1.
Value changed_along_broadcast_dims(Emitter& e, const Value& base, View& view, const Value& x) {
  Dims dims;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] == 0 && view.sizes[i] > 1) dims.push_back(static_cast<int64_t>(i));
  }
  if (dims.empty()) return x;
  const Value old = read(e, base, view);
  const auto differ = [&](const Value& a, const Value& b) { return e.compare("NE", a, b, /*total_order=*/true); };
  const Value changed = at::isComplexType(x.dtype())
                            ? e.logical_or(differ(e.real(x), e.real(old)), differ(e.imag(x), e.imag(old)))
                            : differ(x, old);
  const Values inits{scalar(e, false, at::kBool), zeros(e, Type(x.dtype(), {}))};
  const Values last = e.reduce({changed, x}, inits, dims, [&](const Values& in) {
    return Values{e.logical_or(in[0], in[2]), e.select(in[2], in[3], in[1])};
  });
  for (const int64_t d : dims) view.sizes[d] = 1;
  const Value there = read(e, base, view);
  return e.select(e.reshape(last[0], view.sizes), e.reshape(last[1], view.sizes), there);
}

bool is_identity(c10::IntArrayRef permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// `base` of the view's dtype, long enough for it.
Value prepare(Emitter& e, const Value& base, const View& view) {
  const Value cast = as_dtype(e, base, view.dtype);
  return view.extent() <= cast.type.numel() ? cast : flat_prefix(e, cast, view.extent());
}

}  // namespace

Value read(Emitter& e, const Value& base, const View& view) {
  if (view.numel() == 0) return zeros(e, Type(view.dtype, view.sizes));
  const Value from = prepare(e, base, view);
  const auto steps = find_steps(from.dims(), view);
  if (!steps && count_pieces(from.dims(), view) <= kMostPieces) {
    const Windows found = *find_windows(view);
    Values parts;
    for (const View& piece : pieces_of(view, found)) parts.push_back(read(e, from, piece));
    return e.concatenate(parts, static_cast<int64_t>(found.elements));
  }
  if (!steps) {
    const Rows rows = find_rows(view);
    const Value flat = e.reshape(from, {from.type.numel()});
    const Value picked =
        e.gather(flat, positions(e, rows.starts),
                 {.offset_dims = {1}, .start_index_map = {0}, .slice_sizes = {rows.length}, .index_vector_dim = 1});
    return e.transpose(e.reshape(picked, rows.dims), rows.permutation);
  }
  Value x = from;
  for (const ViewSteps::Cut& cut : steps->cuts) x = e.slice(refine(e, x, cut), cut.start, cut.limit, cut.step);
  x = e.reshape(x, steps->kept);
  if (!is_identity(steps->permutation)) x = e.transpose(x, steps->permutation);
  if (x.type.numel() == view.numel()) return e.reshape(x, view.sizes);
  return e.broadcast_in_dim(x, view.sizes, proper_positions(view));
}

Value write(Emitter& e, const Value& base, const View& shown, const Value& given) {
  TORCH_INTERNAL_ASSERT(given.type == Type(shown.dtype, shown.sizes), "a value of type ", given.type,
                        " written to a view of ", Type(shown.dtype, shown.sizes));
  if (shown.numel() == 0) return base;
  View view = shown;
  const Value x = changed_along_broadcast_dims(e, base, view, given);
  const Value into = prepare(e, base, view);
  const auto steps = find_steps(into.dims(), view);
  Value written;
  if (!steps) {
    const Rows rows = find_rows(view);
    Dims to_rows(rows.permutation.size());
    for (size_t i = 0; i < to_rows.size(); ++i) to_rows[rows.permutation[i]] = static_cast<int64_t>(i);
    const Value flat = e.reshape(into, {into.type.numel()});
    written = e.scatter(flat, positions(e, rows.starts),
                        e.reshape(e.transpose(x, to_rows), {rows.starts.numel(), rows.length}),
                        {.update_window_dims = {1}, .scatter_dims_to_operand_dims = {0}, .index_vector_dim = 1});
  } else {
    Dims proper, inverse(steps->permutation.size());
    for (const int64_t i : proper_positions(view)) proper.push_back(view.sizes[i]);
    for (size_t i = 0; i < inverse.size(); ++i) inverse[steps->permutation[i]] = static_cast<int64_t>(i);
    Value update = e.reshape(x, proper);
    if (!is_identity(inverse)) update = e.transpose(update, inverse);
    written = write_cuts(e, into, steps->cuts, update);
  }
  const Value back = as_dtype(e, e.reshape(written, into.dims()), base.dtype());
  const int64_t n = base.type.numel();
  if (back.type.numel() == n) return e.reshape(back, base.dims());
  // Longer than before: the storage has been resized, or its bytes were an odd number of elements.
  return view.extent() * bytes_of(view.dtype) > n * bytes_of(base.dtype())
             ? e.reshape(back, {back.type.numel()})
             : e.reshape(e.slice(e.reshape(back, {back.type.numel()}), {0}, {n}), base.dims());
}

}  // namespace torch_tpu
