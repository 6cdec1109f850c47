// See attention_tiles.h.
#include "lowerings/attention_tiles.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "lowerings/contract.h"
#include "lowerings/draws.h"
#include "stablehlo/compose.h"

namespace torch_tpu {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// What libtpu's schedules for v4, v5e and v6e keep in vector memory, and where their times are shortest.
constexpr int64_t kTileElements = int64_t{1} << 23;
constexpr int64_t kLongestSide = 512;
constexpr int64_t kShortestSide = 128;

const DotDims kScores{{0, 1}, {0, 1}, {4}, {3}};        // (.., rows, E) x (.., keys, E)
const DotDims kMixed{{0, 1}, {0, 1}, {4}, {2}};         // (.., rows, keys) x (.., keys, E)
const DotDims kToKeys{{0, 1}, {0, 1}, {2, 3}, {2, 3}};  // over the group and the rows

int64_t up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A side of at most `longest`, a multiple of the lanes, that divides `size` into about equal parts.
int64_t side_of(int64_t size, int64_t longest) {
  if (size <= longest) return size;
  return up(up(size, up(size, longest)), kShortestSide) * kShortestSide;
}

// --- loops

using Step = std::function<Values(const Value& index, const Values& changing, const Values& fixed)>;

// Runs `step` for index 0 to `count`; it returns the successors of `changing`, and sees no other values but constants
// and `fixed`. Undefined values may be among both.
Values repeat(Emitter& e, const Value& count, const Values& changing, const Values& fixed, const Step& step) {
  Values given = {scalar(e, 0, at::kInt), count};
  const auto pack = [](const Values& values, Values& into) {
    for (const Value& v : values) {
      if (v.defined()) into.push_back(v);
    }
  };
  pack(changing, given);
  pack(fixed, given);
  const auto unpack = [](const Values& like, size_t& at, const Values& from) {
    Values values;
    for (const Value& v : like) values.push_back(v.defined() ? from[at++] : Value{});
    return values;
  };
  const Values end = e.while_loop(
      given, [&](const Values& s) { return Values{e.compare("LT", s[0], s[1])}; },
      [&](const Values& s) {
        size_t at = 2;
        const Values now = unpack(changing, at, s);
        const size_t first_fixed = at;
        const Values others = unpack(fixed, at, s);
        Values next = {e.add(s[0], 1), s[1]};
        pack(step(s[0], now, others), next);
        next.insert(next.end(), s.begin() + static_cast<std::ptrdiff_t>(first_fixed), s.end());
        return next;
      });
  size_t at = 2;
  return unpack(changing, at, end);
}

// --- parts of arrays. A start that is undefined is 0.

Values starts_of(Emitter& e, const Values& starts) {
  Values found;
  for (const Value& s : starts) found.push_back(s.defined() ? s : scalar(e, 0, at::kInt));
  return found;
}

Value part(Emitter& e, const Value& x, const Values& starts, const Dims& sizes) {
  return !x.defined() || x.dims() == sizes ? x : e.dynamic_slice(x, starts_of(e, starts), sizes);
}

Value with_part(Emitter& e, const Value& x, const Value& update, const Values& starts) {
  return x.dims() == update.dims() ? update : e.dynamic_update_slice(x, update, starts_of(e, starts));
}

// x, or nothing yet, plus `addend` at `starts`.
Value plus_part(Emitter& e, const Value& x, const Value& addend, const Values& starts) {
  if (!x.defined()) return addend;
  return with_part(e, x, e.add(part(e, x, starts, addend.dims()), addend), starts);
}

Value zero_padded(Emitter& e, const Value& x, int64_t dim, int64_t size) {
  if (!x.defined() || x.dim(dim) == size) return x;
  const Dims low(x.dims().size(), 0);
  Dims high = low;
  high[dim] = size - x.dim(dim);
  return e.pad(x, scalar(e, 0, x.dtype()), low, high);
}

Value first_of(Emitter& e, const Value& x, int64_t dim, int64_t size) {
  return !x.defined() || x.dim(dim) == size ? x : slice_dim(e, x, dim, 0, size);
}

// --- one tile

// Where a tile is. Undefined: at 0.
struct Place {
  Value batch, row, key;
  Value number;  // counts the tiles, 0-d int32
};

// A tile of rows with all keys, or with a tile of them.
struct Part {
  Attention a;
  Place at;
  int64_t keys;  // of the whole problem: those after it are padding
};

Value at_index(Emitter& e, const Type& index, int64_t dim, const Value& start) {
  const Value within = e.iota(index, dim);
  return start.defined() ? e.add(within, e.broadcast_in_dim(start, index.dims, {})) : within;
}

// (B, Hk, G, rows, keys), scaled and masked.
Value scores_of(Emitter& e, const Part& p, bool padded) {
  const Attention& a = p.a;
  Value scores = contract(e, a.query, a.key, kScores, a.precision);
  const Type type = scores.type;
  scores = e.multiply(scores, e.broadcast_in_dim(a.scale, type.dims, {}));
  const Value never = e.constant(kNever, type);
  if (a.mask.defined()) {
    Dims all;
    for (const auto i : c10::irange(type.rank())) all.push_back(i);
    const Value mask = e.broadcast_in_dim(a.mask, type.dims, all);
    scores = mask.dtype() == at::kBool ? e.select(mask, scores, never) : e.add(scores, e.convert(mask, type.dtype));
  }
  const Type index(at::kInt, {type.dims[3], type.dims[4]});
  const auto limit = [&](const Value& seen) {
    scores = e.select(e.broadcast_in_dim(seen, type.dims, {3, 4}), scores, never);
  };
  const Value key = a.causal || padded ? at_index(e, index, 1, p.at.key) : Value{};
  if (a.causal) limit(e.compare("GE", at_index(e, index, 0, p.at.row), key));
  if (padded) limit(e.compare("LT", key, p.keys));
  return scores;
}

// by_row, or 0 where a row is wholly masked: exp(scores - that) is then 0.
Value shift_of(Emitter& e, const Value& by_row) {
  return e.select(e.compare("EQ", by_row, kNever), e.constant_like(0, by_row), by_row);
}

Value exponentials(Emitter& e, const Value& scores, const Value& by_row) {
  return e.unary("exponential", e.subtract(scores, broadcast_along(e, shift_of(e, by_row), scores.dims(), {4})));
}

// An operand of a matrix product that is computed before it, once: the TPU compiler would compute it within the
// product, again for each of the product's own tiles.
Value kept_apart(Emitter& e, const Value& x) { return e.on_host() ? x : e.optimization_barrier(x); }

// What the probabilities of a tile are multiplied by, 0 or 1 / (1 - p): the same numbers each time it is asked.
Value kept(Emitter& e, const Part& p, const Value& like) {
  const auto bits = [&](at::ScalarType dtype, c10::IntArrayRef dims) {
    Value state = p.a.seed;
    if (p.at.number.defined()) {
      const Value step = e.constant(like.type.numel(), Type(at::kUInt64, {}));
      const Value count = e.multiply(e.convert(p.at.number, at::kUInt64), step);
      state = e.add(state, e.concatenate({e.list({0}, at::kUInt64), e.reshape(count, {1})}, 0));
    }
    return e.random_bits(state, Type(dtype, dims));
  };
  const Value drawn = draw_uniform(e, bits, at::kFloat, like.dims());
  const Value stays = e.compare("GE", drawn, e.broadcast_in_dim(e.convert(p.a.dropout, at::kFloat), like.dims(), {}));
  const Value dropout = e.convert(p.a.dropout, like.dtype());
  const Value factor = e.divide(e.constant_like(1, dropout), e.subtract(at::Scalar(1), dropout));
  return e.select(stays, e.broadcast_in_dim(factor, like.dims(), {}), e.constant_like(0, like));
}

// The keys [start, start + size) of a part.
Part with_keys(Emitter& e, const Part& p, const Value& start, int64_t size) {
  Part tile = p;
  tile.at.key = start;
  const auto cut = [&](const Value& x, int64_t dim) {
    if (!x.defined() || x.dim(dim) == 1) return x;
    Dims sizes = x.dims();
    sizes[dim] = size;
    Values starts(sizes.size());
    starts[dim] = start;
    return part(e, x, starts, sizes);
  };
  tile.a.key = cut(p.a.key, 2);
  tile.a.value = cut(p.a.value, 2);
  tile.a.mask = cut(p.a.mask, 4);
  return tile;
}

// --- the walk over tiles of rows

struct Walk {
  TileSize tile;
  int64_t batches, rows, keys;  // how many tiles
  Dims query, key, value;       // dims of the whole problem, padded

  Walk(const Attention& a, const TileSize& t)
      : tile(t),
        batches(a.query.dim(0) / t.batch),
        rows(up(a.query.dim(3), t.rows)),
        keys(up(a.key.dim(2), t.keys)),
        query(a.query.dims()),
        key(a.key.dims()),
        value(a.value.dims()) {
    query[3] = rows * t.rows;
    key[2] = value[2] = keys * t.keys;
  }
  bool loops() const { return batches * rows > 1; }
};

// What a walk carries unchanged, beside the attention: packed for repeat().
struct Fixed {
  Attention a;
  Value grad, out, log_sum;

  Values pack() const { return {a.query, a.key, a.value, a.scale, a.mask, a.dropout, a.seed, grad, out, log_sum}; }
  Fixed with(const Values& v) const {
    Fixed f = *this;
    f.a.query = v[0], f.a.key = v[1], f.a.value = v[2], f.a.scale = v[3], f.a.mask = v[4], f.a.dropout = v[5];
    f.a.seed = v[6], f.grad = v[7], f.out = v[8], f.log_sum = v[9];
    return f;
  }
};

Fixed padded(Emitter& e, const Walk& w, Fixed f) {
  const auto rows = [&](const Value& x) { return zero_padded(e, x, 3, w.query[3]); };
  f.a.query = rows(f.a.query), f.grad = rows(f.grad), f.out = rows(f.out), f.log_sum = rows(f.log_sum);
  f.a.key = zero_padded(e, f.a.key, 2, w.key[2]), f.a.value = zero_padded(e, f.a.value, 2, w.key[2]);
  if (f.a.mask.defined()) {
    if (f.a.mask.dim(3) != 1) f.a.mask = rows(f.a.mask);
    if (f.a.mask.dim(4) != 1) f.a.mask = zero_padded(e, f.a.mask, 4, w.key[2]);
  }
  return f;
}

// The rows of tile `index` of the walk; undefined: of the only one.
Fixed with_rows(Emitter& e, const Walk& w, const Fixed& f, const Value& index, Place& at) {
  if (index.defined()) {
    at.number = w.keys > 1 ? e.multiply(index, w.keys) : index;
    if (w.rows > 1) {
      const Value row = w.batches > 1 ? e.remainder(index, w.rows) : index;
      at.row = e.multiply(row, w.tile.rows);
    }
    if (w.batches > 1) {
      const Value batch = w.rows > 1 ? e.divide(index, w.rows) : index;
      at.batch = e.multiply(batch, w.tile.batch);
    }
  }
  const auto cut = [&](const Value& x, bool by_row) {
    if (!x.defined()) return x;
    Dims sizes = x.dims();
    Values starts(sizes.size());
    if (sizes[0] != 1) sizes[0] = w.tile.batch, starts[0] = at.batch;
    if (by_row && sizes[3] != 1) sizes[3] = w.tile.rows, starts[3] = at.row;
    return part(e, x, starts, sizes);
  };
  Fixed tile = f;
  tile.a.query = cut(f.a.query, true), tile.grad = cut(f.grad, true), tile.out = cut(f.out, true);
  tile.log_sum = cut(f.log_sum, true), tile.a.mask = cut(f.a.mask, true);
  tile.a.key = cut(f.a.key, false), tile.a.value = cut(f.a.value, false);
  return tile;
}

// Runs `step` for each tile of rows, and `changing` through them.
Values over_rows(Emitter& e, const Walk& w, const Fixed& f, const Values& changing,
                 const std::function<Values(const Fixed& tile, const Place& at, const Values& changing)>& step) {
  const auto run = [&](const Value& index, const Values& now, const Values& fixed) {
    Place at;
    const Fixed tile = with_rows(e, w, f.with(fixed), index, at);
    return step(tile, at, now);
  };
  if (!w.loops()) return run(Value{}, changing, f.pack());
  return repeat(e, scalar(e, w.batches * w.rows, at::kInt), changing, f.pack(), run);
}

// Runs `step` for each tile of keys that is not wholly above the diagonal, for one tile of rows.
Values over_keys(Emitter& e, const Walk& w, const Fixed& rows, const Place& at, int64_t keys, const Values& changing,
                 const std::function<Values(const Fixed& f, const Part& tile, const Values& changing)>& step) {
  if (w.keys == 1) return step(rows, with_keys(e, {rows.a, at, keys}, Value{}, w.tile.keys), changing);
  Value count = scalar(e, w.keys, at::kInt);
  if (rows.a.causal && at.row.defined()) {
    const Value last = e.add(at.row, w.tile.rows + w.tile.keys - 1);
    count = e.minimum(e.divide(last, w.tile.keys), count);
  } else if (rows.a.causal) {
    count = scalar(e, std::min(w.keys, up(w.tile.rows, w.tile.keys)), at::kInt);
  }
  Values fixed = rows.pack();
  fixed.insert(fixed.end(), {at.batch, at.row, at.number});
  return repeat(e, count, changing, fixed, [&](const Value& index, const Values& now, const Values& others) {
    const Fixed f = rows.with(others);
    Place here{others[10], others[11], {}, {}};
    here.number = others[12].defined() ? e.add(others[12], index) : index;
    return step(f, with_keys(e, {f.a, here, keys}, e.multiply(index, w.tile.keys), w.tile.keys), now);
  });
}

}  // namespace

TileSize tile_size(const Attention& a, const Parts& parts) {
  const int64_t batch = a.query.dim(0);
  const int64_t all_heads = a.query.dim(1) * a.query.dim(2);
  const int64_t heads = all_heads / std::gcd(all_heads, parts.heads);
  const int64_t rows = a.query.dim(3);
  const int64_t keys = a.key.dim(2);
  const bool shared = parts.batch > 1 && batch % parts.batch == 0;
  const int64_t here = shared ? batch / parts.batch : batch;
  if (here * heads * rows * keys <= kTileElements) return {batch, rows, keys};
  // Devices that share the batch each take their part of every tile: its batch stays whole.
  const int64_t together = shared ? here * heads : heads;
  int64_t longest = kLongestSide;
  while (longest > kShortestSide && together * longest * longest > kTileElements) longest /= 2;
  TileSize tile{batch, side_of(rows, longest), side_of(keys, longest)};
  if (shared) return tile;
  while (tile.batch > 1 && (batch % tile.batch != 0 || tile.batch * heads * tile.rows * tile.keys > kTileElements)) {
    --tile.batch;
  }
  return tile;
}

AttentionResult attend(Emitter& e, const Attention& a, const TileSize& size) {
  const Walk w(a, size);
  const Fixed whole = padded(e, w, {a, {}, {}, {}});
  const at::ScalarType narrow = a.query.dtype();
  const Dims rows(w.query.begin(), w.query.begin() + 4);
  Dims out = rows;
  out.push_back(w.value[3]);
  Values start(2);
  if (w.loops()) start = {e.constant(0, Type(narrow, out)), e.constant(0, Type(a.wide(), rows))};

  const Values end = over_rows(e, w, whole, start, [&](const Fixed& f, const Place& at, const Values& results) {
    const Dims here = {f.a.query.dim(0), w.query[1], w.query[2], size.rows};
    Dims mixed_dims = here;
    mixed_dims.push_back(w.value[3]);
    // The highest score of a row so far, the sum of exponentials relative to it, and the mixed values.
    Values running(3);
    if (w.keys > 1) {
      const Type by_row(a.wide(), here);
      running = {e.constant(kNever, by_row), e.constant(0, by_row), e.constant(0, Type(a.wide(), mixed_dims))};
    }
    running =
        over_keys(e, w, f, at, a.key.dim(2), running, [&](const Fixed& /*f*/, const Part& tile, const Values& before) {
          const Value scores = scores_of(e, tile, w.key[2] != a.key.dim(2));
          Value highest = max(e, scores, {4});
          if (before[0].defined()) highest = e.maximum(before[0], highest);
          Value weights = exponentials(e, scores, highest);
          Value total = sum(e, weights, {4});
          if (a.dropout.defined()) weights = e.multiply(weights, kept(e, tile, weights));
          Value mixed = contract(e, kept_apart(e, e.convert(weights, narrow)), tile.a.value, kMixed, a.precision);
          if (before[0].defined()) {
            const Value less = e.unary("exponential", e.subtract(before[0], shift_of(e, highest)));
            total = e.add(e.multiply(before[1], less), total);
            mixed = e.add(e.multiply(before[2], broadcast_along(e, less, mixed.dims(), {4})), mixed);
          }
          return Values{highest, total, mixed};
        });
    const Value& total = running[1];
    const Value divisor = e.select(e.compare("EQ", total, at::Scalar(0)), e.constant_like(1, total), total);
    const Value mean = e.divide(running[2], broadcast_along(e, divisor, mixed_dims, {4}));
    const Value log_sum = e.add(running[0], e.unary("log", divisor));
    if (!results[0].defined()) return Values{e.convert(mean, narrow), log_sum};
    return Values{with_part(e, results[0], e.convert(mean, narrow), {at.batch, {}, {}, at.row, {}}),
                  with_part(e, results[1], log_sum, {at.batch, {}, {}, at.row})};
  });
  return {first_of(e, end[0], 3, a.query.dim(3)), first_of(e, end[1], 3, a.query.dim(3))};
}

AttentionGradients attend_backward(Emitter& e, const Attention& a, const AttentionResult& result, const Value& grad,
                                   bool with_mask, const TileSize& size) {
  const Walk w(a, size);
  const Fixed whole = padded(e, w, {a, grad, result.out, result.log_sum});
  const at::ScalarType narrow = a.query.dtype();
  const at::ScalarType wide = a.wide();
  // Keys and values meet every tile of rows: their gradients are summed up in the wide dtype.
  const bool sums = w.loops() || w.keys > 1;
  Values start(4);
  if (w.loops()) start[0] = e.constant(0, Type(narrow, w.query));
  if (sums) start[1] = e.constant(0, Type(wide, w.key)), start[2] = e.constant(0, Type(wide, w.value));
  if (sums && with_mask) start[3] = e.constant(0, Type(wide, whole.a.mask.dims()));

  const Values end = over_rows(e, w, whole, start, [&](const Fixed& f, const Place& at, const Values& before) {
    const Value along = sum(e, e.multiply(e.convert(f.grad, wide), e.convert(f.out, wide)), {4});
    Values running = {w.keys > 1 ? e.constant(0, Type(wide, f.a.query.dims())) : Value{}, before[1], before[2],
                      before[3]};
    // `along` rides in the place of the output, which no tile needs.
    Fixed rows = f;
    rows.out = along;
    running =
        over_keys(e, w, rows, at, a.key.dim(2), running, [&](const Fixed& r, const Part& tile, const Values& now) {
          const Attention& t = tile.a;
          const Value scores = scores_of(e, tile, w.key[2] != a.key.dim(2));
          const Value weights = exponentials(e, scores, r.log_sum);
          Value grad_weights = contract(e, r.grad, t.value, kScores, a.precision);
          Value used = weights;
          if (a.dropout.defined()) {
            const Value factor = kept(e, tile, weights);
            used = e.multiply(weights, factor);
            grad_weights = e.multiply(grad_weights, factor);
          }
          const Value grad_masked =
              e.multiply(weights, e.subtract(grad_weights, broadcast_along(e, r.out, weights.dims(), {4})));
          const Value scaled = e.multiply(grad_masked, e.broadcast_in_dim(t.scale, weights.dims(), {}));
          const Value grad_scores = kept_apart(e, e.convert(scaled, narrow));
          const Value to_query = contract(e, grad_scores, t.key, kMixed, a.precision);
          const Value to_key = contract(e, grad_scores, t.query, kToKeys, a.precision);
          const Value to_value = contract(e, kept_apart(e, e.convert(used, narrow)), r.grad, kToKeys, a.precision);
          const Values keys_at = {tile.at.batch, {}, tile.at.key, {}};
          Values next = {now[0].defined() ? e.add(now[0], to_query) : to_query,
                         plus_part(e, now[1], to_key, keys_at),
                         plus_part(e, now[2], to_value, keys_at),
                         {}};
          if (with_mask) {
            Dims sizes = weights.dims();
            Dims gone;
            for (const auto i : c10::irange(5)) {
              if (t.mask.dim(i) == 1 && sizes[i] != 1) gone.push_back(i), sizes[i] = 1;
            }
            const Value to_mask = e.reshape(sum(e, grad_masked, gone), sizes);
            const auto start_of = [&](int64_t dim, const Value& at_dim) { return sizes[dim] == 1 ? Value{} : at_dim; };
            next[3] =
                plus_part(e, now[3], to_mask,
                          {start_of(0, tile.at.batch), {}, {}, start_of(3, tile.at.row), start_of(4, tile.at.key)});
          }
          return next;
        });
    Values after = running;
    after[0] = e.convert(running[0], narrow);
    if (before[0].defined()) after[0] = with_part(e, before[0], after[0], {at.batch, {}, {}, at.row, {}});
    return after;
  });
  AttentionGradients g;
  g.query = first_of(e, end[0], 3, a.query.dim(3));
  g.key = e.convert(first_of(e, end[1], 2, a.key.dim(2)), narrow);
  g.value = e.convert(first_of(e, end[2], 2, a.key.dim(2)), narrow);
  if (with_mask) {
    g.mask = a.mask.dim(3) == 1 ? end[3] : first_of(e, end[3], 3, a.query.dim(3));
    if (a.mask.dim(4) != 1) g.mask = first_of(e, g.mask, 4, a.key.dim(2));
  }
  return g;
}

}  // namespace torch_tpu
