// Linear algebra that reads a number on the host: the checks of factorizations, which raise
// where a matrix is singular or not positive-definite, and least squares, whose result has sizes
// that depend on the matrix's rank.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <unordered_map>

#include "aten/boxed.h"

namespace torch_tpu {

namespace {

using torch::jit::Stack;

// `out`, resized to and filled with `result`.
at::Tensor& write_out(at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  return out.copy_(result);
}

// --- checks

// The name by which PyTorch's own message calls the op.
const std::string& api_name(const std::string& op) {
  static const auto* names = new std::unordered_map<std::string, std::string>{
      {"aten::linalg_cholesky_ex", "linalg.cholesky_ex"},
      {"aten::linalg_inv_ex", "linalg.inv_ex"},
      {"aten::linalg_lu_factor_ex", "torch.linalg.lu_factor_ex"},
      {"aten::_linalg_solve_ex", "torch.linalg.solve_ex"},
  };
  return names->at(op);
}

// Front of the rows whose last result is info: raises if check_errors asks for it.
void checked(const c10::OperatorHandle& op, Stack* stack) {
  const auto index = op.schema().argumentIndexWithName("check_errors");
  const size_t base = stack->size() - op.schema().arguments().size();
  const bool check = (*stack)[base + static_cast<size_t>(*index)].toBool();
  const bool is_matrix = (*stack)[base].toTensor().dim() == 2;
  call_row(op, stack);
  if (check) at::_linalg_check_errors(stack->back().toTensor(), api_name(op.operator_name().name), is_matrix);
}

at::Tensor cholesky(const at::Tensor& self, bool upper) {
  if (self.numel() == 0) return self.clone();
  auto [factor, info] = at::linalg_cholesky_ex(self, upper);
  at::_linalg_check_errors(info, "cholesky", self.dim() == 2);
  return factor;
}

at::Tensor& cholesky_out(const at::Tensor& self, bool upper, at::Tensor& out) {
  return write_out(out, cholesky(self, upper));
}

// --- least squares

using LeastSquares = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Of a matrix of full rank, by QR; the solution of smallest norm where there are many.
at::Tensor solve_full_rank(const at::Tensor& a, const at::Tensor& b) {
  if (a.size(-2) >= a.size(-1)) {
    const auto [q, r] = at::linalg_qr(a);
    return at::linalg_solve_triangular(r, q.mH().matmul(b), /*upper=*/true);
  }
  const auto [q, r] = at::linalg_qr(a.mH());
  return q.matmul(at::linalg_solve_triangular(r.mH(), b, /*upper=*/false));
}

LeastSquares linalg_lstsq(const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond,
                          std::optional<std::string_view> driver) {
  TORCH_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(self.scalar_type() == b.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype ",
              self.scalar_type(), " and other's dtype ", b.scalar_type());
  const int64_t difference = self.dim() - b.dim();
  TORCH_CHECK(
      difference == 0 || difference == 1,
      "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1");
  const std::string name(driver.value_or("gelsy"));
  TORCH_CHECK(name == "gels" || name == "gelsy" || name == "gelsd" || name == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const bool is_vector = difference == 1;
  const at::Tensor rhs = is_vector ? b.unsqueeze(-1) : b;
  const int64_t m = self.size(-2);
  const int64_t n = self.size(-1);
  TORCH_CHECK(rhs.size(-2) == m, is_vector ? "torch.linalg.lstsq: input.size(-2) should match other.size(-1)"
                                           : "torch.linalg.lstsq: input.size(-2) should match other.size(-2)");

  const c10::ScalarType real = c10::toRealValueType(self.scalar_type());
  at::Tensor residuals = self.new_empty({0}, self.options().dtype(real));
  at::Tensor singular = self.new_empty({0}, self.options().dtype(real));
  at::Tensor rank = self.new_empty({0}, self.options().dtype(at::kLong));
  at::Tensor solution;
  bool full_rank = true;
  if (name == "gels") {
    solution = solve_full_rank(self, rhs);
  } else {
    const auto [u, s, vh] = at::linalg_svd(self, /*full_matrices=*/false);
    const double limit = rcond.value_or(
        (real == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon()) *
        static_cast<double>(std::max(m, n)));
    const at::Tensor counted = s.size(-1) == 0 ? s.gt(0) : s.gt(s.narrow(-1, 0, 1).mul(limit));
    rank = counted.sum(-1);
    const at::Tensor inverse = at::where(counted, s.reciprocal(), 0).unsqueeze(-1);
    solution = vh.mH().matmul(u.mH().matmul(rhs).mul(inverse));
    if (name != "gelsy") {
      singular = s;
      if (m > n && rank.numel() > 0) full_rank = rank.eq(n).all().item<bool>();
    }
  }
  if (m > n && name != "gelsy" && full_rank && rhs.size(-1) > 0) {
    residuals = self.matmul(solution).sub(rhs).abs().square().sum(-2);
  }
  if (is_vector) solution = solution.squeeze(-1);
  return {solution, residuals, rank, singular};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&> linalg_lstsq_out(
    const at::Tensor& self, const at::Tensor& b, std::optional<double> rcond, std::optional<std::string_view> driver,
    at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank, at::Tensor& singular_values) {
  const auto [x, r, k, s] = linalg_lstsq(self, b, rcond, driver);
  write_out(solution, x);
  write_out(residuals, r);
  write_out(rank, k);
  write_out(singular_values, s);
  return {solution, residuals, rank, singular_values};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("cholesky", cholesky);
  m.impl("cholesky.out", cholesky_out);
  m.impl("linalg_lstsq", linalg_lstsq);
  m.impl("linalg_lstsq.out", linalg_lstsq_out);
  for (const char* name :
       {"linalg_cholesky_ex", "linalg_cholesky_ex.L", "linalg_inv_ex", "linalg_inv_ex.inverse", "linalg_lu_factor_ex",
        "linalg_lu_factor_ex.out", "_linalg_solve_ex", "_linalg_solve_ex.result"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&checked>());
  }
}

}  // namespace torch_tpu
