// Registers every row of the lowering table with PyTorch's dispatcher.
#pragma once

#include <string>
#include <vector>

namespace torch_tpu {

// Call once, when the extension is loaded.
void register_rows();

// The overloads that rows serve, and what is wrong with the table: rows that name no op of
// PyTorch, overloads that two rows claim. For tests and coverage.
const std::vector<std::string>& registered_overloads();
const std::vector<std::string>& table_problems();

}  // namespace torch_tpu
