// A graph that torch.compile hands over: captured once for each layout of its inputs
// (types, views, which share a storage), then replayed as one executable.
// Not thread-safe: callers hold the GIL.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "exec/capture.h"
#include "tensor/view.h"

namespace torch_tpu {

// An argument or a result of a graph: a tensor, None (nullopt) or a number that is part of the layout.
using GraphValue = std::variant<std::monostate, at::Tensor, int64_t, double, bool>;

class CompiledGraph {
 public:
  // A layout's program. Null if this layout has not been captured.
  struct Program;

  // The tensors that stand for `arguments` while the graph is captured; ends with finish_capture()
  // or cancel_capture(). REQUIRES: all tensors are on one tpu device.
  std::vector<GraphValue> begin_capture(const std::vector<GraphValue>& arguments);
  void finish_capture(const std::vector<GraphValue>& results);
  void cancel_capture();

  // Replays the program of this layout. nullopt: it has to be captured first. Else takes the arguments'
  // references, and calls `release` for the caller to drop its own, so that a value nobody else holds can be donated.
  std::optional<std::vector<GraphValue>> run(std::vector<GraphValue>& arguments, const std::function<void()>& release);

  // Of the programs captured so far, in order: their StableHLO modules.
  std::vector<std::string> modules() const;

 private:
  struct Session;
  std::unordered_multimap<uint64_t, std::shared_ptr<Program>> programs_;
  std::vector<std::shared_ptr<Program>> in_order_;
  std::shared_ptr<Session> session_;
};

}  // namespace torch_tpu
