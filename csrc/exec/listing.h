// A program's calls written out, for what is done to a program before it becomes text: each call with
// the values that it takes and makes, and where its numbers stand in the packs.
// A value is named by a number: results count from 0; input i of the program is ~i.
#pragma once

#include <c10/util/SmallVector.h>

#include <vector>

#include "exec/signature.h"

namespace torch_tpu {

struct Listing {
  struct Call {
    const Signature* signature = nullptr;
    c10::SmallVector<int64_t, 4> inputs;   // values, in the order of the signature's cells
    c10::SmallVector<int64_t, 4> numbers;  // by number of the signature: its first place in its pack
    c10::SmallVector<int64_t, 2> results;  // values
    size_t source = 0;                     // which of the program's calls it is, or is a part of
  };
  std::vector<Call> calls;
  std::vector<Type> leaves;  // the program's inputs
  std::vector<Type> values;  // its results
  std::vector<double> doubles;
  std::vector<int64_t> integers;

  const Type& type(int64_t value) const { return value < 0 ? leaves[~value] : values[value]; }
  // Whether the numbers of a type at these places of its pack are all the same.
  bool is_same_number(const Type& type, const std::vector<int64_t>& places) const;
};

// Writes a call of a list op (a foreach op, a fused optimizer's step) as calls for one element each, and of list
// ops that follow each other all calls for element 0, then all for element 1: an element of the lists is
// mostly a parameter, and so the work on one layer's parameters comes together.
void split_lists(Listing& listing);

}  // namespace torch_tpu
