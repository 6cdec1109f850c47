// A graph that torch.compile hands over: captured once for each layout of its inputs
// (types, views, which share a storage), then replayed as one executable.
// Not thread-safe: callers hold the GIL.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "exec/capture.h"
#include "tensor/view.h"

namespace torch_tpu {

// What is no tensor: None, or a number, which is part of the layout.
using GraphPlain = std::variant<std::monostate, int64_t, double, bool>;

// An argument: a tensor that the caller owns; or, where that is null, `plain`.
struct GraphArgument {
  const at::Tensor* tensor = nullptr;
  GraphPlain plain;
};

// A result: a tensor; or, where that is undefined, `plain`.
struct GraphResult {
  at::Tensor tensor;
  GraphPlain plain;
};

class CompiledGraph {
 public:
  // dying: positions of the arguments that nobody else holds when a call comes. rolls: see Capture.
  explicit CompiledGraph(std::vector<int> dying, bool rolls = false) : dying_(std::move(dying)), rolls_(rolls) {}

  // What stands for `arguments` while the graph is captured; ends with finish_capture()
  // or cancel_capture(). REQUIRES: all tensors are on one tpu device.
  std::vector<GraphResult> begin_capture(const std::vector<GraphArgument>& arguments);
  void finish_capture(const std::vector<GraphArgument>& results);
  void cancel_capture();

  // Replays the program of this layout. False: it has to be captured first. Else calls `release`, for the
  // caller to drop its references, so that a value nobody else holds can be donated, and fills `results`.
  bool run(const std::vector<GraphArgument>& arguments, const std::function<void()>& release,
           std::vector<GraphResult>& results);

  // What the program captured last takes and gives, for export.
  struct Signature {
    std::string module;
    std::vector<int> arguments;     // by argument of the module: the graph's; -1: a value from before the capture
    std::vector<double> doubles;    // the module's next argument, if there are any
    std::vector<int64_t> integers;  // and the next
    std::vector<int> results;       // by result of the graph: the module's, or ~i for argument i of the graph
    int64_t draws = 0;              // random numbers
  };
  Signature signature() const;

  // Of the programs captured so far, in order: their StableHLO modules.
  std::vector<std::string> modules() const;

 private:
  // A layout's program.
  struct Program;
  struct Session;
  std::vector<std::shared_ptr<Program>> programs_;  // in the order they were captured
  size_t last_ = 0;                                 // the one that ran last
  std::shared_ptr<Session> session_;
  std::vector<int> dying_;
  bool rolls_;
};

}  // namespace torch_tpu
