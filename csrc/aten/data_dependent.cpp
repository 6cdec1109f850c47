// Ops whose result's size depends on the data: one number is read on the host, then the
// rest is calls of static shape. Also the fronts of rows that take masks as indices, which
// turn the masks into positions and then call the row.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/broadcast_tensors.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "aten/boxed.h"
#include "aten/copy.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

at::Tensor empty_indices(const at::Tensor& like) { return at::empty({0}, like.options().dtype(at::kLong)); }

// --- nonzero, masked_select

at::Tensor as_mask(const at::Tensor& t) { return t.scalar_type() == at::kBool ? t : t.ne(0); }

// The row-major positions of the true elements of a mask.
at::Tensor flat_positions(const at::Tensor& mask) {
  const at::Tensor flat = mask.flatten();
  return flat.nonzero_static(flat.sum().item<int64_t>()).select(1, 0);
}

at::Tensor nonzero(const at::Tensor& self) {
  const at::Tensor mask = as_mask(self);
  return mask.nonzero_static(mask.sum().item<int64_t>());
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  return write_out(out, nonzero(self));
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const std::vector<at::Tensor> both = at::broadcast_tensors({self, mask});
  return both[0].flatten().index_select(0, flat_positions(both[1]));
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  return write_out(out, masked_select(self, mask));
}

// --- unique

// Runs of equal neighbours among n elements.
struct Runs {
  at::Tensor starts;  // position of the first element of each run
  at::Tensor id;      // [n]: the run each element is in
  at::Tensor counts(int64_t n) const { return at::constant_pad_nd(starts.slice(0, 1), {0, 1}, n).sub(starts); }
};

// `changes` [n - 1]: whether element i + 1 differs from element i. REQUIRES: n > 0.
Runs find_runs(const at::Tensor& changes) {
  const at::Tensor first = at::constant_pad_nd(changes, {1, 0}, true);
  return {flat_positions(first), first.cumsum(0).sub(1)};
}

at::Tensor neighbours_differ(const at::Tensor& x) { return x.slice(0, 1).ne(x.slice(0, 0, -1)); }

using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ThreeTensors unique2(const at::Tensor& self, bool /*sorted*/, bool return_inverse, bool return_counts) {
  const at::Tensor flat = self.flatten();
  const at::Tensor none = empty_indices(self);
  if (flat.numel() == 0) {
    return {flat, return_inverse ? at::empty(self.sizes(), none.options()) : none, none};
  }
  const auto [values, order] = flat.sort(/*stable=*/true, 0, false);
  const Runs runs = find_runs(neighbours_differ(values));
  return {values.index_select(0, runs.starts),
          return_inverse ? runs.id.scatter(0, order, runs.id).view(self.sizes()) : none,
          return_counts ? runs.counts(flat.numel()) : none};
}

std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [values, inverse, counts] = unique2(self, sorted, return_inverse, false);
  return {values, inverse};
}

// What unique_dim and its kin give where `dim` or another one has no elements.
ThreeTensors unique_of_nothing(const at::Tensor& self, int64_t dim) {
  int64_t empty_dims = 0;
  for (const int64_t size : self.sizes()) empty_dims += size == 0;
  TORCH_CHECK(self.size(dim) == 0 && empty_dims == 1,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  return {at::empty(self.sizes(), self.options()), empty_indices(self), empty_indices(self)};
}

at::Tensor slices_as_rows(const at::Tensor& self, int64_t dim) {
  return self.movedim(dim, 0).reshape({self.size(dim), -1});
}

// The slices at `at`, in the strides in which the CPU stacks them.
at::Tensor slices_at(const at::Tensor& self, int64_t dim, const at::Tensor& at) {
  return self.movedim(dim, 0).index_select(0, at).movedim(0, dim);
}

ThreeTensors unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  if (self.numel() == 0) return unique_of_nothing(self, dim);
  const Runs runs = find_runs(neighbours_differ(slices_as_rows(self, dim)).any(1));
  const at::Tensor none = empty_indices(self);
  return {slices_at(self, dim, runs.starts), return_inverse ? runs.id : none,
          return_counts ? runs.counts(self.size(dim)) : none};
}

ThreeTensors unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts,
                                std::optional<int64_t> dim) {
  if (dim && !(self.dim() == 1 && (*dim == 0 || *dim == -1))) {
    return unique_dim_consecutive(self, *dim, return_inverse, return_counts);
  }
  const at::Tensor flat = self.flatten();
  const at::Tensor none = empty_indices(self);
  if (flat.numel() == 0) {
    return {flat, return_inverse ? at::empty(self.sizes(), none.options()) : none, none};
  }
  const Runs runs = find_runs(neighbours_differ(flat));
  return {flat.index_select(0, runs.starts), return_inverse ? runs.id.view(self.sizes()) : none,
          return_counts ? runs.counts(flat.numel()) : none};
}

// Of each column of x [n, m]: the rank of every element, equal elements sharing one.
at::Tensor ranks_by_column(const at::Tensor& x) {
  const auto [values, order] = x.sort(/*stable=*/true, 0, false);
  const at::Tensor changes = at::constant_pad_nd(neighbours_differ(values), {0, 0, 1, 0}, false);
  const at::Tensor ranks = changes.cumsum(0);
  return ranks.scatter(0, order, ranks);
}

// The rank of each row of x [n, m] in lexicographic order: ranks of columns, then of pairs of
// columns, of pairs of pairs, ...
at::Tensor ranks_of_rows(const at::Tensor& x) {
  at::Tensor ranks = ranks_by_column(x);
  while (ranks.size(1) > 1) {
    if (ranks.size(1) % 2 != 0) ranks = at::constant_pad_nd(ranks, {0, 1}, 0);
    const at::Tensor pairs = ranks.slice(1, 0, std::nullopt, 2).mul(x.size(0)).add(ranks.slice(1, 1, std::nullopt, 2));
    ranks = ranks_by_column(pairs);
  }
  return ranks.select(1, 0);
}

ThreeTensors unique_dim(const at::Tensor& self, int64_t dim, bool /*sorted*/, bool return_inverse, bool return_counts) {
  if (self.numel() == 0) return unique_of_nothing(self, dim);
  const at::Tensor ranks = ranks_of_rows(slices_as_rows(self, dim));
  const auto [values, order] = ranks.sort(/*stable=*/true, 0, false);
  const Runs runs = find_runs(neighbours_differ(values));
  const at::Tensor none = empty_indices(self);
  return {slices_at(self, dim, order.index_select(0, runs.starts)), return_inverse ? ranks : none,
          return_counts ? runs.counts(self.size(dim)) : none};
}

// --- bincount

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1 && c10::isIntegralType(self.scalar_type(), /*includeBool=*/false),
              "bincount only supports 1-d non-negative integral inputs.");
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const at::Tensor limits = at::stack({self.min(), self.max()}).to(at::kLong).cpu();
  const int64_t* limit = limits.const_data_ptr<int64_t>();
  TORCH_CHECK(limit[0] >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const int64_t bins = std::max(limit[1] + 1, minlength);
  const bool weighted = weights.has_value() && weights->defined();
  TORCH_CHECK(!weighted || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  const at::Tensor index = self.to(at::kLong);
  if (!weighted) return at::zeros({bins}, index.options()).index_add(0, index, at::ones_like(index));
  const at::ScalarType dtype = weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  return at::zeros({bins}, self.options().dtype(dtype)).index_add(0, index, weights->to(dtype));
}

// --- fronts

c10::IValue& argument(const c10::OperatorHandle& op, Stack* stack, size_t i) {
  return (*stack)[stack->size() - op.schema().arguments().size() + i];
}

// repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None)
void repeat_interleave(const c10::OperatorHandle& op, Stack* stack) {
  c10::IValue& size = argument(op, stack, 1);
  if (size.isNone()) {
    const at::Tensor repeats = argument(op, stack, 0).toTensor();
    TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
    TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
                "repeats has to be Long or Int tensor");
    int64_t total = 0;
    if (repeats.numel() > 0) {
      const at::Tensor read = at::stack({repeats.sum(), repeats.min().to(at::kLong)}).cpu();
      TORCH_CHECK(read.const_data_ptr<int64_t>()[1] >= 0, "repeats can not be negative");
      total = read.const_data_ptr<int64_t>()[0];
    }
    size = total;
  }
  call_row(op, stack);
}

using Indices = c10::List<std::optional<at::Tensor>>;

bool is_mask(const std::optional<at::Tensor>& index) {
  return index && index->defined() && (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
}

int64_t count_masks(const Indices& indices) {
  int64_t count = 0;
  for (const std::optional<at::Tensor> index : indices) count += is_mask(index);
  return count;
}

// Each mask becomes one index tensor for each of its dims.
Indices without_masks(const at::Tensor& self, const Indices& indices) {
  Indices expanded;
  for (const std::optional<at::Tensor> index : indices) {
    if (!is_mask(index)) {
      expanded.push_back(index);
      continue;
    }
    const int64_t first = static_cast<int64_t>(expanded.size());
    for (const auto d : c10::irange(index->dim())) {
      TORCH_CHECK_INDEX(first + d < self.dim() && index->size(d) == self.size(first + d), "The shape of the mask ",
                        index->sizes(), " at index ", d, " does not match the shape of the indexed tensor ",
                        self.sizes(), " at index ", first + d);
    }
    const at::Tensor where = index->nonzero();
    for (const auto d : c10::irange(index->dim())) expanded.push_back(where.select(1, d));
  }
  return expanded;
}

// index.Tensor(Tensor self, Tensor?[] indices) and its out= form.
void index(const c10::OperatorHandle& op, Stack* stack) {
  c10::IValue& indices = argument(op, stack, 1);
  const Indices given = indices.toOptionalTensorList();
  if (count_masks(given) != 0) indices = without_masks(argument(op, stack, 0).toTensor(), given);
  call_row(op, stack);
}

// A mask that is the only index, as a bool over the device's tensor: the row selects by it, without
// reading anything on the host, if each of its true elements takes the same values.
std::optional<at::Tensor> only_mask(const at::Tensor& self, const Indices& indices) {
  std::optional<at::Tensor> mask;
  for (const std::optional<at::Tensor> index : indices) {
    if (!index || !index->defined()) continue;
    if (mask || !is_mask(index) || index->dim() == 0) return std::nullopt;
    mask = *index;
  }
  return mask;
}

// Whether `values` has one row for all true elements of a mask followed by `after` dims of the tensor.
bool has_one_row(const at::Tensor& values, int64_t after) {
  const int64_t counted = values.dim() - after - 1;
  return counted < 0 || values.size(counted) == 1;
}

// index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) and
// _index_put_impl, which has a further bool unsafe=False, in all their forms.
void index_put(const c10::OperatorHandle& op, Stack* stack) {
  c10::IValue& indices = argument(op, stack, 1);
  const Indices given = indices.toOptionalTensorList();
  if (count_masks(given) != 0) {
    const at::Tensor self = argument(op, stack, 0).toTensor();
    const at::Tensor values = argument(op, stack, 2).toTensor();
    const auto& names = op.schema().arguments();
    const bool unsafe = names.size() > 4 && names[4].name() == "unsafe" && argument(op, stack, 4).toBool();
    const std::optional<at::Tensor> mask = only_mask(self, given);
    int64_t first = 0;
    while (mask && !(given.get(first) && given.get(first)->defined())) ++first;
    const bool matches =
        mask && first + mask->dim() <= self.dim() && self.sizes().slice(first, mask->dim()) == mask->sizes();
    if (matches && (unsafe || has_one_row(values, self.dim() - first - mask->dim()))) {
      Indices bools;
      for (const auto i : c10::irange(first)) bools.push_back(given.get(i));
      bools.push_back(as_mask(*mask));
      indices = bools;
    } else {
      indices = without_masks(self, given);
    }
  }
  call_row(op, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
  m.impl("_unique", unique);
  m.impl("_unique2", unique2);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim_consecutive", unique_dim_consecutive);
  m.impl("bincount", bincount);
  const auto front = [&m](const char* name, auto kernel) { m.impl(name, kernel()); };
  for (const char* name : {"repeat_interleave.Tensor", "repeat_interleave.Tensor_out"}) {
    front(name, [] { return torch::CppFunction::makeFromBoxedFunction<&repeat_interleave>(); });
  }
  for (const char* name : {"index.Tensor", "index.Tensor_out"}) {
    front(name, [] { return torch::CppFunction::makeFromBoxedFunction<&index>(); });
  }
  for (const char* name :
       {"index_put", "index_put_", "index_put.out", "_index_put_impl", "_index_put_impl_", "_index_put_impl.out"}) {
    front(name, [] { return torch::CppFunction::makeFromBoxedFunction<&index_put>(); });
  }
}

}  // namespace torch_tpu
