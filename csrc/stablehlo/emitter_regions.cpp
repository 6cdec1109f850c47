// The emitter's operations with windows, dimension numbers and regions:
// reductions, indexing, contractions, control flow, and the rest.
#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>

#include "stablehlo/emitter.h"
#include "stablehlo/random_block.h"

namespace torch_tpu {

namespace {

std::string boolean(bool value) { return value ? "true" : "false"; }

std::string integer(int64_t value) { return std::to_string(value) + " : i64"; }

Dims or_filled(const Dims& dims, int64_t size, int64_t value) {
  return dims.empty() ? Dims(static_cast<size_t>(size), value) : dims;
}

// `dense<[[0, 1], [2, 0]]> : tensor<2x2xi64>`.
std::string padding_attribute(const Dims& low, const Dims& high) {
  std::string text = "dense<";
  if (!low.empty()) {
    text += '[';
    for (const auto i : c10::irange(low.size())) {
      if (i != 0) text += ", ";
      text += list_attribute({low[i], high[i]});
    }
    text += ']';
  }
  return text + "> : tensor<" + std::to_string(low.size()) + "x2xi64>";
}

std::string precision_attribute(Precision precision) {
  if (precision == Precision::kDefault) return {};
  const std::string one =
      precision == Precision::kHigh ? "#stablehlo<precision HIGH>" : "#stablehlo<precision HIGHEST>";
  return ", precision_config = [" + one + ", " + one + "]";
}

// The window with every list at its full length.
Window complete(const Window& window, int64_t rank) {
  return {or_filled(window.sizes, rank, 1),
          or_filled(window.strides, rank, 1),
          or_filled(window.base_dilations, rank, 1),
          or_filled(window.window_dilations, rank, 1),
          or_filled(window.low, rank, 0),
          or_filled(window.high, rank, 0)};
}

int64_t dilated(int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; }

Dims window_result(const Dims& dims, const Window& window) {
  Dims result;
  for (const auto i : c10::irange(dims.size())) {
    const int64_t padded = dilated(dims[i], window.base_dilations[i]) + window.low[i] + window.high[i];
    const int64_t size = dilated(window.sizes[i], window.window_dilations[i]);
    result.push_back(padded == 0 || size > padded ? 0 : (padded - size) / window.strides[i] + 1);
  }
  return result;
}

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> types;
  for (const Value& value : values) types.push_back(value.type);
  return types;
}

std::vector<Type> elements_of(const Values& values) {
  std::vector<Type> types;
  for (const Value& value : values) types.emplace_back(value.dtype(), c10::IntArrayRef{});
  return types;
}

Values joined(const Values& a, const Values& b) {
  Values all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

std::vector<Type> joined(std::vector<Type> a, const std::vector<Type>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

bool holds(const Dims& dims, int64_t value) { return std::find(dims.begin(), dims.end(), value) != dims.end(); }

Region by_operation(Emitter& e, std::string_view name) {
  return [&e, name](const Values& in) { return Values{e.binary(name, in[0], in[1])}; };
}

}  // namespace

// --- reductions

Values Emitter::reduce(const Values& xs, const Values& inits, c10::IntArrayRef dims, const Region& body) {
  TORCH_INTERNAL_ASSERT(!xs.empty() && xs.size() == inits.size());
  if (dims.empty()) return xs;
  std::vector<Type> results;
  for (const auto i : c10::irange(xs.size())) {
    TORCH_INTERNAL_ASSERT(xs[i].dims() == xs[0].dims() && inits[i].rank() == 0, "reduce of ", xs[i].type, " from ",
                          inits[i].type);
    Type result(inits[i].dtype(), {});
    for (const auto d : c10::irange(xs[i].rank())) {
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) result.dims.push_back(xs[i].dim(d));
    }
    results.push_back(result);
  }
  const std::string reducer = region(joined(elements_of(inits), elements_of(xs)), body);
  return op("reduce", joined(xs, inits), "dimensions = " + array_attribute(dims), results, {reducer});
}

Value Emitter::reduce(const Value& x, const Value& init, c10::IntArrayRef dims, std::string_view name) {
  TORCH_INTERNAL_ASSERT(init.type == Type(x.dtype(), {}), "reduce of ", x.type, " from ", init.type);
  return reduce({x}, {init}, dims, by_operation(*this, name))[0];
}

Value Emitter::reduce(const Value& x, const at::Scalar& init, c10::IntArrayRef dims, std::string_view name) {
  return dims.empty() ? x : reduce(x, constant(init, Type(x.dtype(), {})), dims, name);
}

Values Emitter::reduce_window(const Values& xs, const Values& inits, const Window& window, const Region& body) {
  TORCH_INTERNAL_ASSERT(!xs.empty() && xs.size() == inits.size());
  const Window full = complete(window, xs[0].rank());
  std::vector<Type> results;
  for (const auto i : c10::irange(xs.size())) {
    TORCH_INTERNAL_ASSERT(xs[i].dims() == xs[0].dims() && inits[i].rank() == 0, "reduce_window of ", xs[i].type,
                          " from ", inits[i].type);
    results.emplace_back(inits[i].dtype(), window_result(xs[i].dims(), full));
  }
  const std::string reducer = region(joined(elements_of(inits), elements_of(xs)), body);
  return op("reduce_window", joined(xs, inits),
            "window_dimensions = " + array_attribute(full.sizes) + ", window_strides = " +
                array_attribute(full.strides) + ", base_dilations = " + array_attribute(full.base_dilations) +
                ", window_dilations = " + array_attribute(full.window_dilations) +
                ", padding = " + padding_attribute(full.low, full.high),
            results, {reducer});
}

Value Emitter::reduce_window(const Value& x, const Value& init, const Window& window, std::string_view name) {
  TORCH_INTERNAL_ASSERT(init.type == Type(x.dtype(), {}), "reduce_window of ", x.type, " from ", init.type);
  return reduce_window({x}, {init}, window, by_operation(*this, name))[0];
}

Value Emitter::select_and_scatter(const Value& x, const Value& source, const Value& init, const Window& window,
                                  std::string_view selects) {
  const Window full = complete(window, x.rank());
  TORCH_INTERNAL_ASSERT(source.type == x.type.with(window_result(x.dims(), full)), "select_and_scatter of ",
                        source.type, " into ", x.type);
  const Type element(x.dtype(), {});
  const std::string selector =
      region({element, element}, [&](const Values& in) { return Values{compare(selects, in[0], in[1])}; });
  const std::string adder = region({element, element}, by_operation(*this, "add"));
  return op1("select_and_scatter", {x, source, init},
             "window_dimensions = " + array_attribute(full.sizes) + ", window_strides = " +
                 array_attribute(full.strides) + ", padding = " + padding_attribute(full.low, full.high),
             x.type, {selector, adder});
}

// --- index

Value Emitter::gather(const Value& x, const Value& indices, const GatherDims& dims) {
  TORCH_INTERNAL_ASSERT(static_cast<int64_t>(dims.slice_sizes.size()) == x.rank(), "gather from ", x.type);
  Dims batch;
  for (const auto i : c10::irange(indices.rank())) {
    if (i != dims.index_vector_dim) batch.push_back(indices.dim(i));
  }
  Dims window;
  for (const auto i : c10::irange(x.rank())) {
    if (!holds(dims.collapsed_slice_dims, i) && !holds(dims.operand_batching_dims, i)) {
      window.push_back(dims.slice_sizes[i]);
    }
  }
  TORCH_INTERNAL_ASSERT(window.size() == dims.offset_dims.size(), "gather from ", x.type, " at ", indices.type);
  Type result(x.dtype(), {});
  size_t from_batch = 0;
  size_t from_window = 0;
  for (const auto i : c10::irange(static_cast<int64_t>(batch.size() + window.size()))) {
    result.dims.push_back(holds(dims.offset_dims, i) ? window[from_window++] : batch[from_batch++]);
  }
  return op1("gather", {x, indices},
             "dimension_numbers = #stablehlo.gather<offset_dims = " + list_attribute(dims.offset_dims) +
                 ", collapsed_slice_dims = " + list_attribute(dims.collapsed_slice_dims) +
                 ", operand_batching_dims = " + list_attribute(dims.operand_batching_dims) +
                 ", start_indices_batching_dims = " + list_attribute(dims.start_indices_batching_dims) +
                 ", start_index_map = " + list_attribute(dims.start_index_map) + ", index_vector_dim = " +
                 std::to_string(dims.index_vector_dim) + ">, indices_are_sorted = " + boolean(dims.sorted) +
                 ", slice_sizes = " + array_attribute(dims.slice_sizes),
             result);
}

Value Emitter::scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
                       const Region& body) {
  TORCH_INTERNAL_ASSERT(x.dtype() == updates.dtype(), "scatter of ", updates.type, " into ", x.type);
  const Type element(x.dtype(), {});
  const std::string combiner =
      region({element, element}, [&](const Values& in) { return body ? body(in) : Values{in[1]}; });
  return op1("scatter", {x, indices, updates},
             "indices_are_sorted = " + boolean(dims.sorted) +
                 ", scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " +
                 list_attribute(dims.update_window_dims) +
                 ", inserted_window_dims = " + list_attribute(dims.inserted_window_dims) +
                 ", input_batching_dims = " + list_attribute(dims.input_batching_dims) +
                 ", scatter_indices_batching_dims = " + list_attribute(dims.scatter_indices_batching_dims) +
                 ", scatter_dims_to_operand_dims = " + list_attribute(dims.scatter_dims_to_operand_dims) +
                 ", index_vector_dim = " + std::to_string(dims.index_vector_dim) +
                 ">, unique_indices = " + boolean(dims.unique),
             x.type, {combiner});
}

Value Emitter::scatter(const Value& x, const Value& indices, const Value& updates, const ScatterDims& dims,
                       std::string_view name) {
  return scatter(x, indices, updates, dims, by_operation(*this, name));
}

Values Emitter::sort(const Values& xs, int64_t dim, bool stable, const Region& comparator) {
  TORCH_INTERNAL_ASSERT(!xs.empty() && 0 <= dim && dim < xs[0].rank(), "sort along ", dim);
  std::vector<Type> pairs;
  for (const Value& x : xs) {
    TORCH_INTERNAL_ASSERT(x.dims() == xs[0].dims(), "sort of ", xs[0].type, " with ", x.type);
    pairs.insert(pairs.end(), 2, Type(x.dtype(), {}));
  }
  const std::string order = region(pairs, comparator);
  return op("sort", xs, "dimension = " + integer(dim) + ", is_stable = " + boolean(stable), types_of(xs), {order});
}

// --- contractions

Value Emitter::dot_general(const Value& a, const Value& b, const DotDims& dims, at::ScalarType result,
                           Precision precision) {
  Type type(result, {});
  for (const int64_t d : dims.lhs_batch) type.dims.push_back(a.dim(d));
  for (const auto d : c10::irange(a.rank())) {
    if (!holds(dims.lhs_batch, d) && !holds(dims.lhs_contract, d)) type.dims.push_back(a.dim(d));
  }
  for (const auto d : c10::irange(b.rank())) {
    if (!holds(dims.rhs_batch, d) && !holds(dims.rhs_contract, d)) type.dims.push_back(b.dim(d));
  }
  const auto agree = [&](const Dims& lhs, const Dims& rhs) {
    return std::equal(lhs.begin(), lhs.end(), rhs.begin(), rhs.end(),
                      [&](int64_t l, int64_t r) { return a.dim(l) == b.dim(r); });
  };
  TORCH_INTERNAL_ASSERT(agree(dims.lhs_batch, dims.rhs_batch) && agree(dims.lhs_contract, dims.rhs_contract),
                        "dot_general of ", a.type, " and ", b.type);
  const bool exact = c10::isIntegralType(a.dtype(), /*includeBool=*/true);
  return op1("dot_general", {a, b},
             "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = " + list_attribute(dims.lhs_batch) +
                 ", rhs_batching_dimensions = " + list_attribute(dims.rhs_batch) +
                 ", lhs_contracting_dimensions = " + list_attribute(dims.lhs_contract) +
                 ", rhs_contracting_dimensions = " + list_attribute(dims.rhs_contract) + ">" +
                 (exact ? std::string() : precision_attribute(precision)),
             type);
}

Value Emitter::convolution(const Value& x, const Value& kernel, const Convolution& how, const Type& result,
                           Precision precision) {
  const int64_t spatial = x.rank() - 2;
  TORCH_INTERNAL_ASSERT(spatial >= 0 && kernel.rank() == x.rank() && result.rank() == x.rank(), "convolution of ",
                        x.type, " with ", kernel.type, " to ", result);
  std::string dims = how.dims;
  if (dims.empty()) {
    std::string numbers;
    for (const auto i : c10::irange(spatial)) numbers += ", " + std::to_string(i);
    dims = "[b, f" + numbers + "]x[o, i" + numbers + "]->[b, f" + numbers + "]";
  }
  std::string reversal = "array<i1";
  for (const auto i : c10::irange(spatial)) reversal += (i == 0 ? ": " : ", ") + boolean(how.reverse_kernel);
  const bool exact = c10::isIntegralType(x.dtype(), /*includeBool=*/true);
  return op1("convolution", {x, kernel},
             "batch_group_count = " + integer(how.batch_groups) + ", dimension_numbers = #stablehlo.conv<" + dims +
                 ">, feature_group_count = " + integer(how.feature_groups) +
                 ", lhs_dilation = " + array_attribute(or_filled(how.lhs_dilation, spatial, 1)) +
                 ", padding = " + padding_attribute(or_filled(how.low, spatial, 0), or_filled(how.high, spatial, 0)) +
                 ", rhs_dilation = " + array_attribute(or_filled(how.rhs_dilation, spatial, 1)) +
                 ", window_reversal = " + reversal +
                 ">, window_strides = " + array_attribute(or_filled(how.strides, spatial, 1)) +
                 (exact ? std::string() : precision_attribute(precision)),
             result);
}

// --- control flow

Values Emitter::while_loop(const Values& init, const Region& condition, const Region& body) {
  const std::vector<Type> types = types_of(init);
  const std::string test = region(types, condition);
  const std::string step = region(types, body);
  return op("while", init, {}, types, {test, step});
}

Values Emitter::if_else(const Value& pred, const std::function<Values()>& on_true,
                        const std::function<Values()>& on_false) {
  std::vector<Type> types;
  const auto branch = [&](const std::function<Values()>& body) {
    return region({}, [&](const Values&) {
      Values results = body();
      TORCH_INTERNAL_ASSERT(types.empty() || types == types_of(results), "the branches' types differ");
      types = types_of(results);
      return results;
    });
  };
  const std::string first = branch(on_true);
  const std::string second = branch(on_false);
  return op("if", {pred}, {}, types, {first, second});
}

// --- others

Value Emitter::random_bits(const Value& state, const Type& type) {
  const Type block = random_block(type);
  const Value bits =
      op("rng_bit_generator", {state}, "rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>", {state.type, block})[1];
  if (block.dims == type.dims) return bits;
  return reshape(slice(reshape(bits, {block.numel()}), {0}, {type.numel()}), type.dims);
}

Value Emitter::fft(const Value& x, std::string_view kind, c10::IntArrayRef lengths) {
  Type result = x.type;
  if (kind == "RFFT") {
    result.dtype = c10::toComplexType(x.dtype());
    result.dims.back() = lengths.back() / 2 + 1;
  } else if (kind == "IRFFT") {
    result.dtype = c10::toRealValueType(x.dtype());
    result.dims.back() = lengths.back();
  }
  return op1("fft", {x},
             "fft_length = " + array_attribute(lengths) + ", fft_type = #stablehlo<fft_type " + std::string(kind) + ">",
             result);
}

Value Emitter::cholesky(const Value& x, bool lower) {
  return op1("cholesky", {x}, "lower = " + boolean(lower), x.type);
}

Value Emitter::triangular_solve(const Value& a, const Value& b, bool left_side, bool lower, bool unit_diagonal,
                                std::string_view transpose) {
  return op1("triangular_solve", {a, b},
             "left_side = " + boolean(left_side) + ", lower = " + boolean(lower) +
                 ", transpose_a = #stablehlo<transpose " + std::string(transpose) +
                 ">, unit_diagonal = " + boolean(unit_diagonal),
             b.type);
}

Values Emitter::custom_call(std::string_view target, const Values& operands, const std::vector<Type>& results,
                            std::string_view attributes) {
  std::string all = "call_target_name = \"" + std::string(target) + "\"";
  if (!attributes.empty()) all += ", " + std::string(attributes);
  return op("custom_call", operands, all, results);
}

Value Emitter::optimization_barrier(const Value& x) { return op1("optimization_barrier", {x}, {}, x.type); }

}  // namespace torch_tpu
