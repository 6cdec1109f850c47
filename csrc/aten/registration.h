// Registers every row of the lowering table with PyTorch's dispatcher.
#pragma once

#include <string>
#include <vector>

#include "lowerings/table.h"

namespace torch_tpu {

// Call once, when the extension is loaded.
void register_rows();

// An overload that a row serves.
struct Served {
  std::string overload;  // "aten::add_.Tensor"
  const Row* row;
};
const std::vector<Served>& served_overloads();

// What is wrong with the table: rows that name no op of PyTorch, overloads that two rows claim. For tests.
const std::vector<std::string>& table_problems();

}  // namespace torch_tpu
