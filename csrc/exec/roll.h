// Rolls the layers of a program: calls that come again and again, with other operands, become a loop
// over stacked values, forward and backward alike. Decides only; module_text.cpp writes it down.
// In a loop, an operand comes from inside the iteration, from the iteration before, from outside (one value for all
// iterations), or from a stack: an array of as many values as there are iterations, or more.
// A loop that only works on elements, as an optimizer's step does, is its calls over whole stacks instead.
#pragma once

#include <vector>

#include "exec/listing.h"
#include "exec/over_stacks.h"

namespace torch_tpu {

// Values of one type as one array, with a dimension before theirs.
struct Stack {
  enum class Kind : uint8_t {
    kLeaves,   // inputs of the program
    kResults,  // what a call of a loop makes, by iteration
    kEntries,  // what a loop carries, as each iteration finds it
    kValues,   // any others
  };
  Kind kind;
  std::vector<int64_t> members;
};

struct Loop {
  size_t first = 0, period = 0, count = 0;  // calls

  // Values inside are named by the first iteration's.
  struct Operand {
    enum class Kind : uint8_t { kInside, kCarried, kOutside, kStacked };
    Kind kind;
    int64_t which;  // a value; which of `carried`; a value; which of `reads`
  };
  struct Carried {
    int64_t initial, next;  // a value outside, a value inside
  };
  struct Read {
    int stack;
    int64_t start, step;  // iteration i reads member start + i * step
  };
  struct Write {
    int stack;
    int64_t value;      // inside; or
    int carried;        // which of `carried`, as the iteration finds it
    int replaces = -1;  // a stack that ends here, and gives its buffer
  };
  std::vector<std::vector<Operand>> operands;  // by call of the period, by input
  std::vector<Carried> carried;
  std::vector<Read> reads;
  std::vector<Write> writes;
  std::vector<int64_t> kept;  // values inside of which the last iteration's is needed
  bool reversed = false;      // iteration i makes member count - 1 - i
  // By call of the period: what all iterations compute, as one call. Empty: it has to be a loop.
  std::vector<StackedFunction> whole;
};

struct Rolled {
  Listing listing;  // list ops taken apart
  std::vector<Stack> stacks;
  std::vector<Loop> loops;  // in order
};

// What `live` results and `aliases` (by input: the live result that gets its buffer, or -1) let be done.
// No loops: there is nothing to roll.
Rolled roll(Listing listing, const std::vector<int64_t>& live, const std::vector<int64_t>& aliases);

}  // namespace torch_tpu
