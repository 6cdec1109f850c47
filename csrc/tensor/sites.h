// Where the cells that are alive were made, in Python, while that is asked for. Off, it costs a cell one load.
// Thread-safe.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

namespace torch_tpu {

class Cell;

class Sites {
 public:
  // Notes here(), a number for this moment's place, for each cell made from now on. here() may take Python's lock.
  static void start(int (*here)());
  // Forgets all.
  static void stop();
  static bool on() noexcept { return here_.load(std::memory_order_relaxed) != nullptr; }

  static void add(const Cell* cell);
  static void remove(const Cell* cell) noexcept;
  // Cells and their places, in the order in which they were made. REQUIRES: no thread frees or writes tensors until the
  // caller has looked at the cells.
  static std::vector<std::pair<const Cell*, int>> all();

 private:
  static std::atomic<int (*)()> here_;
};

}  // namespace torch_tpu
