#include "aten/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <unordered_set>

#include "aten/boxed.h"
#include "aten/factories.h"
#include "aten/sparse.h"
#include "device/memory.h"
#include "device/synchronize.h"
#include "exec/policy.h"

namespace torch_tpu {

namespace {

std::vector<Served>& served() {
  static auto* overloads = new std::vector<Served>();
  return *overloads;
}

std::vector<std::string>& problems() {
  static auto* texts = new std::vector<std::string>();
  return *texts;
}

// Overloads whose kernel on the dispatcher prepares the arguments and then calls the row.
bool has_front(const std::string& name) {
  static const auto* fronts = new std::unordered_set<std::string>{
      "aten::copy_",  // PyTorch's own checks, then _copy_from
      // bools to bool powers (bool_power.cpp)
      "aten::pow.Tensor_Scalar",
      "aten::pow_.Scalar",
      "aten::pow.Tensor_Scalar_out",
      "aten::_foreach_pow.Scalar",
      "aten::_foreach_pow_.Scalar",
      "aten::_foreach_pow.ScalarList",
      "aten::_foreach_pow_.ScalarList",
      // masks become positions (data_dependent.cpp)
      "aten::index.Tensor",
      "aten::index.Tensor_out",
      "aten::index_put",
      "aten::index_put_",
      "aten::index_put.out",
      "aten::_index_put_impl",
      "aten::_index_put_impl_",
      "aten::_index_put_impl.out",
      // the size of the result is read (data_dependent.cpp)
      "aten::repeat_interleave.Tensor",
      "aten::repeat_interleave.Tensor_out",
      // info may be read (linear_algebra.cpp)
      "aten::linalg_cholesky_ex",
      "aten::linalg_cholesky_ex.L",
      "aten::linalg_inv_ex",
      "aten::linalg_inv_ex.inverse",
      "aten::linalg_lu_factor_ex",
      "aten::linalg_lu_factor_ex.out",
      "aten::_linalg_solve_ex",
      "aten::_linalg_solve_ex.result",
  };
  return fronts->count(name) != 0;
}

}  // namespace

void register_rows() {
  set_synchronizer(&synchronize);
  set_flusher([](int device) { flush(device, "memory statistics are read"); });
  set_storage_resizer(&resize_cell);
  static auto* handles = new std::vector<c10::RegistrationHandleRAII>();
  auto& dispatcher = c10::Dispatcher::singleton();
  std::unordered_set<std::string> seen;
  for (const Row& row : table().rows()) {
    auto variants = variants_of(row);
    if (variants.empty()) problems().push_back(row.name + " is no op of PyTorch's");
    for (auto& [op, variant] : variants) {
      const std::string name = variant.name;
      if (!seen.insert(name).second) {
        problems().push_back(name + " is claimed by two rows, " + row.name + " the second");
        continue;
      }
      served().push_back({name, &row});
      c10::KernelFunction kernel = make_row_kernel(std::move(variant));
      if (has_front(name)) {
        static auto* kept = new std::vector<c10::KernelFunction>();
        kept->push_back(std::move(kernel));
        continue;
      }
      handles->push_back(dispatcher.registerImpl(op.operator_name(), c10::DispatchKey::PrivateUse1, std::move(kernel),
                                                 std::nullopt, nullptr, "torch_tpu"));
    }
  }
  refuse_the_rest_of_csr();
}

TORCH_LIBRARY(torch_tpu, m) {
  m.def("barrier(Tensor self) -> Tensor");
  m.def("foreign(Tensor[] operands, str functions, int[] results) -> Tensor[]");
}

const std::vector<Served>& served_overloads() { return served(); }
const std::vector<std::string>& table_problems() { return problems(); }

}  // namespace torch_tpu
