// Sparse COO and CSR tensors: how they are made, read and converted. PyTorch's own kernels serve where they work on
// any device's indices and values; those written over the CPU's memory are composed of dense ops here. Every other op
// on a sparse tensor is refused in a sentence.
#include "aten/sparse.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/irange.h>
#include <torch/library.h>

#include <sstream>
#include <vector>

namespace torch_tpu {

namespace {

using torch::jit::Stack;

// --- PyTorch's own kernels, which call other ops only

template <c10::DispatchKey kKey>
void borrow(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(kKey), stack);
}

template <c10::DispatchKey kKey>
void borrow_each(torch::Library& m, std::initializer_list<const char*> names) {
  for (const char* name : names) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&borrow<kKey>>());
}

// --- what has no kernel

void refuse(const c10::OperatorHandle& op, Stack* stack) {
  const auto& arguments = op.schema().arguments();
  std::ostringstream sparse;
  const auto describe = [&](const std::string& name, const at::Tensor& t) {
    if (!t.defined() || t.layout() == at::kStrided) return;
    sparse << (sparse.tellp() == 0 ? "" : ", ") << name << ": " << t.scalar_type() << t.sizes() << ' ' << t.layout();
  };
  for (const auto i : c10::irange(arguments.size())) {
    const c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (value.isTensor()) describe(arguments[i].name(), value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& t : value.toTensorVector()) describe(arguments[i].name(), t);
    }
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "tpu: ", op.operator_name(), " has no kernel for sparse tensors: got ",
                              sparse.tellp() == 0 ? "a sparse layout" : sparse.str(),
                              "; on tpu they convert, multiply as matrices and add.\nUse dense tensors "
                              "(x.to_dense()), or the CPU's (x.cpu()).");
}

// --- COO

std::vector<at::Tensor> by_dim(const at::Tensor& indices) { return indices.unbind(0); }

at::Tensor coo(const at::Tensor& indices, const at::Tensor& values, const at::Tensor& like, bool coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, like.sizes(), values.scalar_type(), at::kSparse,
                                       values.device(), /*pin_memory=*/false, coalesced);
}

// The sums of the rows of `values` that share a place: [count, ...]. A sum of bools is whether one is true.
at::Tensor sum_into(const at::Tensor& values, const at::Tensor& place, int64_t count) {
  const bool is_bool = values.scalar_type() == at::kBool;
  const at::Tensor terms = is_bool ? values.to(at::kInt) : values;
  std::vector<int64_t> sizes(values.sizes().begin(), values.sizes().end());
  sizes[0] = count;
  const at::Tensor sums = at::zeros(sizes, terms.options()).index_add(0, place, terms);
  return is_bool ? sums.ne(0) : sums;
}

at::Tensor coalesce(const at::Tensor& self) {
  const at::Tensor indices = self._indices();
  const int64_t dims = self.sparse_dim();
  const at::Tensor flat = flat_places(indices, self.sizes().slice(0, dims));
  const auto [places, run, counts] = at::_unique2(flat, /*sorted=*/true, /*return_inverse=*/true);
  std::vector<at::Tensor> coordinates(dims);
  at::Tensor rest = places;
  for (int64_t d = dims; d-- > 0;) {
    coordinates[d] = d == 0 ? rest : rest.remainder(std::max<int64_t>(self.size(d), 1));
    rest = rest.div(std::max<int64_t>(self.size(d), 1), "floor");
  }
  const int64_t count = places.size(0);
  const at::Tensor unique = dims == 0 ? indices.narrow(1, 0, std::min<int64_t>(count, 1)) : at::stack(coordinates);
  return coo(unique, sum_into(self._values(), run, count), self, /*coalesced=*/true);
}

// The values of `self`, dense or COO, at the stored places of the COO tensor `mask`.
at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  const at::Tensor indices = mask._indices();
  const bool coalesced = mask.is_coalesced();
  if (self.layout() == at::kStrided) {
    c10::List<std::optional<at::Tensor>> where;
    for (const at::Tensor& index : by_dim(indices)) where.push_back(index);
    return coo(indices.clone(), self.index(where), self, coalesced);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(self.layout() == at::kSparse && self.sparse_dim() == mask.sparse_dim(),
                              "tpu: sparse_mask of a ", self.layout(), " tensor with ", self.sparse_dim(),
                              " sparse dims by a ", mask.layout(), " mask with ", mask.sparse_dim(),
                              " is not supported.\nUse self.to_dense().");
  const at::Tensor source = self.coalesce();
  const auto sizes = self.sizes().slice(0, self.sparse_dim());
  const at::Tensor stored = flat_places(source._indices(), sizes);
  const at::Tensor wanted = flat_places(indices, sizes);
  std::vector<int64_t> value_sizes(source._values().sizes().begin(), source._values().sizes().end());
  value_sizes[0] = wanted.size(0);
  at::Tensor values = at::zeros(value_sizes, source._values().options());
  if (stored.size(0) != 0) {
    const at::Tensor place = at::searchsorted(stored, wanted).clamp_max(stored.size(0) - 1);
    at::Tensor found = stored.index_select(0, place).eq(wanted);
    while (found.dim() < values.dim()) found = found.unsqueeze(-1);
    values = at::where(found, source._values().index_select(0, place), values);
  }
  return coo(indices.clone(), values, self, coalesced);
}

// --- sums

// Adds alpha * sparse to a dense tensor, in place.
at::Tensor& add_to_dense(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected a sparse tensor of size ", self.sizes(), "; got ",
              other.sizes());
  const at::Tensor source = other.layout() == at::kSparse ? other : other.to_sparse();
  const at::Tensor values = source._values().to(self.scalar_type());
  const at::Tensor terms = alpha.equal(1) ? values : values.mul(alpha);
  if (source.sparse_dim() == 0) return self.add_(terms.sum(0));
  c10::List<std::optional<at::Tensor>> where;
  for (const at::Tensor& index : by_dim(source._indices())) where.push_back(index);
  return self.index_put_(where, terms, /*accumulate=*/true);
}

at::Tensor add(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  TORCH_CHECK(self.sizes() == other.sizes(), "add: expected sparse tensors of the same size; got ", self.sizes(),
              " and ", other.sizes());
  const at::ScalarType dtype = at::result_type(self, other);
  if (self.layout() == at::kStrided) {
    at::Tensor sum = self.to(dtype, /*non_blocking=*/false, /*copy=*/true);
    return add_to_dense(sum, other, alpha);
  }
  if (other.layout() == at::kStrided) {
    at::Tensor sum = other.to(dtype).mul(alpha);
    return add_to_dense(sum, self, 1);
  }
  if (self.layout() != at::kSparse) return self.to_sparse().add(other.to_sparse(), alpha).to_sparse(self.layout());
  const at::Tensor second = other.layout() == at::kSparse ? other : other.to_sparse();
  TORCH_CHECK(self.sparse_dim() == second.sparse_dim(), "add: expected sparse tensors with as many sparse dims; got ",
              self.sparse_dim(), " and ", second.sparse_dim());
  const at::Tensor added = second._values().to(dtype).mul(alpha);
  const at::Tensor both = coo(at::cat({self._indices(), second._indices()}, 1),
                              at::cat({self._values().to(dtype), added}), self, /*coalesced=*/false);
  return self.is_coalesced() && second.is_coalesced() ? both.coalesce() : both;
}

at::Tensor& add_(at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  const at::ScalarType dtype = at::result_type(self, other);
  TORCH_CHECK(c10::canCast(dtype, self.scalar_type()), "result type ", dtype,
              " can't be cast to the desired output type ", self.scalar_type());
  if (self.layout() == at::kStrided) return add_to_dense(self, other, alpha);
  TORCH_CHECK(other.layout() != at::kStrided, "add_(sparse, dense) is not supported: the sum is dense.\nUse add().");
  return self.copy_(add(self, other, alpha).to(self.scalar_type()));
}

at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  return out.copy_(add(self, other, alpha).to(out.scalar_type()));
}

// --- products with a number

at::Tensor with_values(const at::Tensor& sparse, const at::Tensor& values) {
  if (sparse.layout() == at::kSparse) {
    return coo(sparse._indices().clone(), values, sparse, sparse.is_coalesced());
  }
  const bool by_column = sparse.layout() == at::kSparseCsc;
  const at::Tensor compressed = by_column ? sparse.ccol_indices() : sparse.crow_indices();
  const at::Tensor plain = by_column ? sparse.row_indices() : sparse.col_indices();
  return at::_sparse_compressed_tensor_unsafe(compressed.clone(), plain.clone(), values, sparse.sizes(),
                                              values.scalar_type(), sparse.layout(), values.device(),
                                              /*pin_memory=*/false);
}

at::Tensor mul(const at::Tensor& self, const at::Tensor& other) {
  const bool by_other = other.dim() == 0 && other.layout() == at::kStrided;
  const at::Tensor& sparse = by_other ? self : other;
  const at::Tensor& factor = by_other ? other : self;
  const at::Layout layout = sparse.layout();
  TORCH_CHECK_NOT_IMPLEMENTED(factor.dim() == 0 && factor.layout() == at::kStrided &&
                                  (layout == at::kSparse || layout == at::kSparseCsr || layout == at::kSparseCsc),
                              "tpu: aten::mul.Tensor has no kernel for ", self.layout(), " times ", other.layout(),
                              ": got sizes ", self.sizes(), " and ", other.sizes(),
                              "; a COO, CSR or CSC tensor times a number has one.\nUse dense tensors.");
  const at::Tensor values = layout == at::kSparse ? sparse._values() : sparse.values();
  return with_values(sparse, values.mul(factor));
}

// --- CSR and CSC, by way of COO

at::Tensor to_csr(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return self.layout() == at::kSparseCsr ? self : self.to_sparse()._to_sparse_csr(dense_dim);
}

at::Tensor to_csc(const at::Tensor& self, std::optional<int64_t> dense_dim) {
  return self.layout() == at::kSparseCsc ? self : self.to_sparse()._to_sparse_csc(dense_dim);
}

at::Tensor compressed_to_sparse(const at::Tensor& self, std::optional<at::Layout> layout,
                                at::OptionalIntArrayRef blocksize, std::optional<int64_t> dense_dim) {
  const at::Layout target = layout.value_or(at::kSparse);
  if (target == self.layout()) return self;
  if (target == at::kSparse) return self._to_sparse(self.sparse_dim());
  if (target == at::kSparseCsr) return to_csr(self, dense_dim);
  TORCH_CHECK_NOT_IMPLEMENTED(target == at::kSparseCsc, "tpu: ", self.layout(), " to ", target,
                              " is not supported; to COO, CSR and CSC is.\nGo through x.to_dense().");
  return to_csc(self, dense_dim);
}

at::Tensor compressed_sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  const at::Tensor source = self.layout() == at::kStrided ? self : self.to_sparse();
  return source.sparse_mask(mask.to_sparse()).to_sparse(mask.layout());
}

}  // namespace

void refuse_the_rest_of_csr() {
  constexpr auto kKey = c10::DispatchKey::SparseCsrPrivateUse1;
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findOp(name);
    if (!op || op->hasKernelForDispatchKey(kKey) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
      continue;
    }
    handles->push_back(dispatcher.registerImpl(name, kKey, c10::KernelFunction::makeFromBoxedFunction<&refuse>(),
                                               std::nullopt, nullptr, "torch_tpu"));
  }
}

at::Tensor flat_places(const at::Tensor& indices, c10::IntArrayRef sizes) {
  at::Tensor flat = at::zeros({indices.size(1)}, indices.options());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    flat = flat.add(indices.select(0, static_cast<int64_t>(d)), stride);
    stride *= sizes[d];
  }
  return flat;
}

Entries entries_of(const at::Tensor& sparse, const char* op) {
  const at::Layout layout = sparse.layout();
  if (layout == at::kSparse) {
    TORCH_CHECK_NOT_IMPLEMENTED(sparse.sparse_dim() == 2, "tpu: ", op, ": expected a sparse matrix; got ",
                                sparse.sparse_dim(), " sparse dims.");
    const at::Tensor indices = sparse._indices();
    return {indices.select(0, 0), indices.select(0, 1), sparse._values()};
  }
  TORCH_CHECK_NOT_IMPLEMENTED(layout == at::kSparseCsr || layout == at::kSparseCsc, "tpu: ", op, " of layout ", layout,
                              " is not supported; COO, CSR and CSC are.\nConvert it first: x.to_sparse().");
  const bool by_column = layout == at::kSparseCsc;
  const at::Tensor compressed = by_column ? sparse.ccol_indices() : sparse.crow_indices();
  const at::Tensor plain = by_column ? sparse.row_indices() : sparse.col_indices();
  const int64_t batch_dims = compressed.dim() - 1;
  const at::Tensor indices = at::_convert_indices_from_csr_to_coo(
      compressed, plain, compressed.scalar_type() == at::kInt, /*transpose=*/by_column);
  const at::Tensor rows = flat_places(indices.narrow(0, 0, batch_dims + 1), sparse.sizes().slice(0, batch_dims + 1));
  const at::Tensor values = batch_dims == 0 ? sparse.values() : sparse.values().flatten(0, batch_dims);
  return {rows, indices.select(0, batch_dims + 1), values};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  borrow_each<c10::DispatchKey::CPU>(m, {"_to_sparse", "_to_sparse.sparse_dim", "_to_sparse_csr", "_to_sparse_csc",
                                         "_to_sparse_bsr", "_to_sparse_bsc"});
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  borrow_each<c10::DispatchKey::SparseCPU>(m, {"_sparse_coo_tensor_with_dims",
                                               "_sparse_coo_tensor_with_dims_and_tensors",
                                               "empty.memory_format",
                                               "empty_like",
                                               "sparse_resize_",
                                               "sparse_resize_and_clear_",
                                               "resize_as_sparse_",
                                               "sparse_dim",
                                               "_dimI",
                                               "dense_dim",
                                               "_dimV",
                                               "_nnz",
                                               "is_coalesced",
                                               "_coalesced_",
                                               "_indices",
                                               "_values",
                                               "indices",
                                               "values",
                                               "clone",
                                               "copy_",
                                               "copy_sparse_to_sparse_",
                                               "zero_",
                                               "zeros.out",
                                               "permute",
                                               "sum",
                                               "_to_dense",
                                               "_to_sparse",
                                               "_to_sparse.sparse_dim",
                                               "_to_sparse_csr",
                                               "_to_sparse_csc",
                                               "_to_sparse_bsr",
                                               "_to_sparse_bsc"});
  m.impl("_coalesce", coalesce);
  m.impl("sparse_mask", sparse_mask);
  m.impl("mul.Tensor", mul);
  m.impl("add.Tensor", add);
  m.impl("add_.Tensor", add_);
  m.impl("add.out", add_out);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  borrow_each<c10::DispatchKey::SparseCsrCPU>(m, {"empty.memory_format",
                                                  "empty_like",
                                                  "resize_",
                                                  "resize_as_sparse_",
                                                  "sparse_dim",
                                                  "dense_dim",
                                                  "_nnz",
                                                  "values",
                                                  "crow_indices",
                                                  "col_indices",
                                                  "ccol_indices",
                                                  "row_indices",
                                                  "clone",
                                                  "copy_",
                                                  "zero_",
                                                  "fill_.Scalar",
                                                  "select.int",
                                                  "sum",
                                                  "_to_dense",
                                                  "_to_sparse.sparse_dim"});
  m.impl("_to_sparse", compressed_to_sparse);
  m.impl("_to_sparse_csr", to_csr);
  m.impl("_to_sparse_csc", to_csc);
  m.impl("sparse_mask", compressed_sparse_mask);
  m.impl("mul.Tensor", mul);
  m.impl("add.Tensor", add);
  m.impl("add_.Tensor", add_);
  m.impl("add.out", add_out);
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

}  // namespace torch_tpu
