// A program as one StableHLO module: each distinct call is a private function, and @main calls them in order, or in
// loops where its layers are rolled.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "exec/roll.h"

namespace torch_tpu {

struct ModuleText {
  std::string text;
  // By argument of @main, without the packs of numbers: the program's inputs that it is; several: a stack of them.
  std::vector<std::vector<int64_t>> arguments;
  // By result: which of the live results it is, or is a stack of.
  std::vector<std::vector<size_t>> results;
  std::vector<int64_t> aliases;  // by argument: the result that gets its buffer, or -1
  // By call in the text: the program's call; in a loop, of its first and of its second iteration.
  std::vector<std::pair<size_t, size_t>> calls;
};

// stacked_arguments: inputs that loops read as stacks are arguments as stacks, and so are results, as someone would
// hold them who writes the loop by hand. Otherwise the program takes and returns each for itself, which costs copies.
// Of a loop's numbers, those that are equal in all iterations now are taken to be equal in every run, but for random
// states.
ModuleText write_module(const Rolled& program, const std::vector<int64_t>& live, const std::vector<int64_t>& aliases,
                        bool stacked_arguments);

}  // namespace torch_tpu
