// What one distinct call means: its operands' views, the structure of its other
// arguments, and its lowering, written once as a private StableHLO function over the
// values of the cells involved. The function reads the views, computes, and writes
// the views of the written arguments back into their cells' values.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "lowerings/table.h"
#include "tensor/view.h"

namespace torch_tpu {

// A tensor argument: a view over cell number `cell` of the call; or a 0-d host tensor whose
// value is number `number` of the call; or undefined (both -1).
struct OperandSpec {
  int cell = -1;
  int number = -1;
  View view;
  bool wrapped_number = false;
  bool conjugate = false, negative = false;  // of the lazy views, which PyTorch lets through to matrix products
  bool read = true;                          // false: only written (out=)
  bool defined() const { return cell >= 0 || number >= 0; }
};
// A Python number: number `number` of the call, and its present value.
struct NumberSpec {
  int number = -1;
  at::Scalar value;
};
using ArgumentSpec =
    std::variant<std::monostate, OperandSpec, std::vector<OperandSpec>, NumberSpec, std::vector<NumberSpec>, bool,
                 int64_t, std::vector<int64_t>, std::vector<bool>, std::string>;

// How a number of a call travels: as f64, i64, or a pair of f64.
enum class NumberKind : uint8_t { kDouble, kInteger, kComplex };

struct ResultSpec {
  bool defined = true;
  View view;  // offset 0; of a fresh result
};
// A written view: where it stands among the arguments (in a list: at `element`).
struct WrittenSpec {
  size_t argument = 0;
  int element = -1;
};

struct CallSpec {
  const Row* row = nullptr;
  std::vector<std::string> names;  // of the arguments
  std::vector<ArgumentSpec> arguments;
  std::vector<Type> cells;       // the value types of the distinct cells
  std::vector<bool> cell_empty;  // never written: reads as zeros, and is no input
  std::vector<NumberKind> numbers;
  std::vector<ResultSpec> results;  // fresh ones; unknown until Meta ran, unless `shape` of the row gives them
  std::vector<WrittenSpec> written;
  Call::Context context;
};

struct Signature {
  uint64_t id = 0;
  const Row* row = nullptr;
  std::string function;             // what the function's name in a module begins with, `add_Tensor`
  std::string text;                 // its text, from the arguments on
  std::vector<Type> input_types;    // of the non-empty cells it takes, then of its numbers (0-d), then the random state
  std::vector<int> input_cells;     // which cells are inputs, in order
  std::vector<NumberKind> numbers;  // which are inputs too, all of them
  bool random = false;
  int64_t draws = 0;  // counter steps a call takes from the generator
  std::vector<ResultSpec> results;
  std::vector<Type> output_types;        // of the defined results' values, then of the written cells' new values
  std::vector<int> written_cells;        // in the order of the outputs
  std::shared_ptr<const CallSpec> spec;  // of rows that treat each element of their lists alike; null for others
};

// Guards what lowerings observe, and what is remembered of them.
std::mutex& lowering_lock();

// Fills spec.results by the shape function of the row. REQUIRES: it has one.
void infer_results(CallSpec& spec);

// Lowers `spec`. Sets `observed_more` if the lowering observed a number that the row's
// observations did not hold before: the caller's key, made without it, must be made again.
// REQUIRES: the caller holds lowering_lock().
std::unique_ptr<Signature> lower(const CallSpec& spec, bool& observed_more);

}  // namespace torch_tpu
