// Products with sparse matrices, as gathers of rows of the dense operand and sums into rows of the result. Memory and
// work grow with the stored elements, not with the sizes of the matrix.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_convert_indices_from_coo_to_csr.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <array>
#include <string_view>
#include <tuple>

#include "aten/copy.h"
#include "aten/sparse.h"

namespace torch_tpu {

namespace {

bool is_dense(const at::Tensor& t) { return t.layout() == at::kStrided; }

// Sums of narrow floats are kept in float32, and rounded once.
at::ScalarType sum_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

void check_matrices(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "tpu: sparse matmul: expected two matrices; got ", a.dim(), "-d and ",
              b.dim(), "-d tensors.");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x", a.size(1), " and ",
              b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected mat1 and mat2 to have the same dtype, but got: ", a.scalar_type(), " != ", b.scalar_type());
}

// entries [n, m] @ dense [m, k], in sum_dtype().
at::Tensor product(const Entries& entries, const at::Tensor& dense, int64_t n) {
  const at::ScalarType dtype = sum_dtype(dense.scalar_type());
  const at::Tensor terms = dense.index_select(0, entries.columns).to(dtype).mul(entries.values.to(dtype).unsqueeze(1));
  return at::zeros({n, dense.size(1)}, terms.options()).index_add(0, entries.rows, terms);
}

// The product of two COO matrices: each element of the first meets the row of the second that its column names.
at::Tensor sparse_sparse_matmul(const at::Tensor& self, const at::Tensor& other) {
  check_matrices(self, other);
  const Entries a = entries_of(self, "a product of sparse matrices");
  const at::Tensor sorted = other.coalesce();
  const Entries b = entries_of(sorted, "a product of sparse matrices");
  const at::Tensor starts = at::_convert_indices_from_coo_to_csr(b.rows, other.size(0));
  const at::Tensor first = starts.index_select(0, a.columns);
  const at::Tensor meets = starts.index_select(0, a.columns.add(1)).sub(first);
  const at::Tensor left = at::repeat_interleave(meets);
  const at::Tensor before = meets.cumsum(0).sub(meets);
  const at::Tensor step = at::arange(left.size(0), left.options()).sub(before.index_select(0, left));
  const at::Tensor right = first.index_select(0, left).add(step);
  const at::Tensor indices = at::stack({a.rows.index_select(0, left), b.columns.index_select(0, right)});
  const at::Tensor values = a.values.index_select(0, left).mul(b.values.index_select(0, right));
  return at::_sparse_coo_tensor_unsafe(indices, values, {self.size(0), other.size(1)}).coalesce();
}

at::Tensor as_coo(const at::Tensor& t) { return t.layout() == at::kSparse ? t : t.to_sparse(); }

// mat1 @ mat2, at least one of them sparse: sparse if both are, in the first one's layout; else dense, in sum_dtype().
at::Tensor matmul(const at::Tensor& mat1, const at::Tensor& mat2) {
  check_matrices(mat1, mat2);
  if (is_dense(mat2)) return product(entries_of(mat1, "matmul"), mat2, mat1.size(0));
  if (is_dense(mat1)) {
    const Entries e = entries_of(mat2, "matmul");
    return product({e.columns, e.rows, e.values}, mat1.t(), mat2.size(1)).t();
  }
  const at::Tensor both = sparse_sparse_matmul(as_coo(mat1), as_coo(mat2));
  return mat1.layout() == at::kSparse ? both : both.to_sparse(mat1.layout());
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2) { return matmul(self, mat2).to(self.scalar_type()); }

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  const at::Tensor result = mm(self, mat2);
  return is_dense(out) ? write_out(out, is_dense(result) ? result : result.to_dense()) : out.copy_(result);
}

// beta * self + alpha * x; self is not read if beta is 0.
at::Tensor weigh(const at::Tensor& self, const at::Tensor& x, const at::Scalar& beta, const at::Scalar& alpha) {
  const at::Tensor scaled = alpha.equal(1) ? x : x.mul(alpha);
  if (beta.equal(0)) return scaled;
  const at::Tensor wide = self.to(x.scalar_type());
  return scaled.add(beta.equal(1) ? wide : wide.mul(beta));
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const at::Tensor x = matmul(mat1, mat2);
  if (is_dense(self)) {
    return weigh(self.expand(x.sizes()), is_dense(x) ? x : x.to_dense(), beta, alpha).to(self.scalar_type());
  }
  const at::Tensor scaled = (alpha.equal(1) ? x : x.mul(alpha)).to(self.scalar_type());
  return beta.equal(0) || self._nnz() == 0 ? scaled : scaled.add(self, beta);
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  return write_out(out, addmm(self, mat1, mat2, beta, alpha));
}

at::Tensor& addmm_(at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  return self.copy_(addmm(self, mat1, mat2, beta, alpha));
}

at::Tensor mv(const at::Tensor& self, const at::Tensor& vec) { return mm(self, vec.unsqueeze(1)).squeeze(1); }

at::Tensor addmv(const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const at::Tensor x = matmul(mat, vec.unsqueeze(1)).squeeze(1);
  return weigh(self.expand(x.sizes()), x, beta, alpha).to(self.scalar_type());
}

at::Tensor& addmv_out(const at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
                      const at::Scalar& alpha, at::Tensor& out) {
  return write_out(out, addmv(self, mat, vec, beta, alpha));
}

at::Tensor& addmv_(at::Tensor& self, const at::Tensor& mat, const at::Tensor& vec, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  return self.copy_(addmv(self, mat, vec, beta, alpha));
}

// COO [b, n, m] of three sparse dims @ dense [b, m, k]: one matrix product of b * n rows.
at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.layout() == at::kSparse && self.sparse_dim() == 3 && is_dense(mat2),
                              "tpu: bmm of a ", self.layout(), " and a ", mat2.layout(),
                              " tensor is not supported; COO with 3 sparse dims and a dense one is.");
  TORCH_CHECK(mat2.dim() == 3 && self.size(0) == mat2.size(0) && self.size(2) == mat2.size(1),
              "bmm: got tensors of sizes ", self.sizes(), " and ", mat2.sizes());
  const at::Tensor indices = self._indices();
  const at::Tensor batch = indices.select(0, 0);
  const Entries entries{batch.mul(self.size(1)).add(indices.select(0, 1)),
                        batch.mul(self.size(2)).add(indices.select(0, 2)), self._values()};
  return product(entries, mat2.flatten(0, 1), self.size(0) * self.size(1))
      .to(mat2.scalar_type())
      .reshape({self.size(0), self.size(1), mat2.size(2)});
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  return write_out(out, bmm(self, mat2));
}

// --- sampled products

// Of [.., n, k] @ [.., k, m], the elements that `entries` stores.
at::Tensor sampled(const Entries& entries, const at::Tensor& mat1, const at::Tensor& mat2) {
  const int64_t n = mat1.size(-2), m = mat2.size(-1);
  const at::ScalarType dtype = sum_dtype(mat1.scalar_type());
  const at::Tensor left = mat1.flatten(0, -2).index_select(0, entries.rows).to(dtype);
  const at::Tensor columns = mat2.mT().flatten(0, -2);
  at::Tensor column = entries.columns;
  if (mat2.dim() > 2) column = entries.rows.div(n, "floor").mul(m).add(column);
  return left.mul(columns.index_select(0, column).to(dtype)).sum(1);
}

// beta * self + alpha * (mat1 @ mat2) at the stored places of the CSR tensor `self`.
at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
                         const at::Scalar& alpha) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "sampled_addmm: expected self in layout SparseCsr; got ", self.layout());
  TORCH_CHECK(is_dense(mat1) && is_dense(mat2), "sampled_addmm: expected dense mat1 and mat2; got ", mat1.layout(),
              " and ", mat2.layout());
  const auto batch = self.sizes().slice(0, self.dim() - 2);
  TORCH_CHECK(mat1.dim() == self.dim() && mat2.dim() == self.dim() && mat1.sizes().slice(0, batch.size()) == batch &&
                  mat2.sizes().slice(0, batch.size()) == batch && mat1.size(-1) == mat2.size(-2) &&
                  mat1.size(-2) == self.size(-2) && mat2.size(-1) == self.size(-1),
              "sampled_addmm: self ", self.sizes(), " does not fit the product of ", mat1.sizes(), " and ",
              mat2.sizes());
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type() && self.scalar_type() == mat2.scalar_type(),
              "sampled_addmm: expected one dtype; got ", self.scalar_type(), ", ", mat1.scalar_type(), " and ",
              mat2.scalar_type());
  const at::Tensor x = sampled(entries_of(self, "sampled_addmm"), mat1, mat2);
  at::Tensor result = self.clone();
  result.values().copy_(weigh(self.values(), x.reshape(self.values().sizes()), beta, alpha));
  return result;
}

at::Tensor& sampled_addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                              const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  const at::Tensor result = sampled_addmm(self, mat1, mat2, beta, alpha);
  if (out.sizes() != result.sizes() || out._nnz() != result._nnz()) out.resize_as_sparse_(result);
  return out.copy_(result);
}

// --- products with another reduction than the sum

bool is_extreme(std::string_view reduce) { return reduce == "amax" || reduce == "amin"; }

// How many elements each row stores, at least 1.
at::Tensor counts(const Entries& e, int64_t n, at::ScalarType dtype) {
  return at::zeros({n}, e.values.options().dtype(dtype))
      .index_add(0, e.rows, at::ones_like(e.rows, e.rows.options().dtype(dtype)))
      .clamp_min(1);
}

// The reduction over the stored elements e of row i of values[e] * other[columns[e]], and for an extreme the first
// element that gave it (nnz where the row has none).
std::tuple<at::Tensor, at::Tensor> mm_reduce(const at::Tensor& self, const at::Tensor& other, c10::string_view how) {
  const std::string_view reduce(how.data(), how.size());
  check_matrices(self, other);
  const Entries e = entries_of(self, "sparse.mm with a reduction");
  const int64_t n = self.size(0), nnz = e.values.size(0);
  const at::ScalarType dtype = sum_dtype(other.scalar_type());
  const at::Tensor none = at::empty({0}, e.columns.options());
  if (!is_extreme(reduce)) {
    at::Tensor sum = product(e, other, n);
    if (reduce == "mean") sum = sum.div(counts(e, n, dtype).unsqueeze(1));
    return {sum.to(other.scalar_type()), none};
  }
  const at::Tensor terms = other.index_select(0, e.columns).mul(e.values.unsqueeze(1));
  const at::Tensor zeros = at::zeros({n, other.size(1)}, terms.options());
  const at::Tensor best = zeros.index_reduce(0, e.rows, terms, reduce, /*include_self=*/false);
  const at::Tensor position = at::arange(nnz, e.columns.options()).unsqueeze(1);
  const at::Tensor reached = best.index_select(0, e.rows);
  const at::Tensor hits = terms.eq(reached).logical_or(terms.isnan());
  const at::Tensor candidate = at::where(hits, position, at::full({}, nnz, position.options()));
  const at::Tensor start = at::full({n, other.size(1)}, nnz, position.options());
  return {best, start.index_reduce(0, e.rows, candidate, "amin")};
}

std::tuple<at::Tensor, at::Tensor> mm_reduce_backward(const at::Tensor& self, const at::Tensor& grad_out,
                                                      const at::Tensor& weight, c10::string_view how,
                                                      const at::Tensor& arg_out, std::array<bool, 2> wanted) {
  const std::string_view reduce(how.data(), how.size());
  const Entries e = entries_of(self, "sparse.mm with a reduction");
  at::Tensor grad = grad_out.index_select(0, e.rows);
  if (reduce == "mean") {
    grad = grad.div(counts(e, self.size(0), grad.scalar_type()).index_select(0, e.rows).unsqueeze(1));
  } else if (is_extreme(reduce)) {
    const at::Tensor position = at::arange(e.values.size(0), arg_out.options()).unsqueeze(1);
    grad = at::where(arg_out.index_select(0, e.rows).eq(position), grad, at::zeros({}, grad.options()));
  }
  const at::ScalarType dtype = sum_dtype(grad.scalar_type());
  at::Tensor grad_self, grad_other;
  if (wanted[0]) {
    const at::Tensor terms = grad.to(dtype).mul(weight.index_select(0, e.columns).to(dtype));
    grad_self = self.clone();
    grad_self.values().copy_(terms.sum(1));
  }
  if (wanted[1]) {
    const at::Tensor terms = grad.to(dtype).mul(e.values.to(dtype).unsqueeze(1));
    grad_other = at::zeros(weight.sizes(), terms.options()).index_add(0, e.columns, terms).to(weight.scalar_type());
  }
  return {grad_self, grad_other};
}

void add_products(torch::Library& m) {
  m.impl("mm", mm);
  m.impl("mm.out", mm_out);
  m.impl("addmm", addmm);
  m.impl("addmm_", addmm_);
  m.impl("addmm.out", addmm_out);
  m.impl("mv", mv);
  m.impl("addmv", addmv);
  m.impl("addmv_", addmv_);
  m.impl("addmv.out", addmv_out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  add_products(m);
  m.impl("_sparse_sparse_matmul", sparse_sparse_matmul);
  m.impl("bmm", bmm);
  m.impl("bmm.out", bmm_out);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  add_products(m);
  m.impl("sparse_sampled_addmm", sampled_addmm);
  m.impl("sparse_sampled_addmm.out", sampled_addmm_out);
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", mm_reduce_backward);
}

}  // namespace torch_tpu
