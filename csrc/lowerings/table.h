// The lowering table: one row an ATen op, whose in-place and out= forms are found
// from the schemas and share it. A family file adds its rows in add_<family>().
// Built once, before the rows are registered; read-only after, but for what
// lowerings observe (guarded by the signature table's lock).
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lowerings/call.h"

namespace torch_tpu {

struct Row {
  // Returns, in order: the fresh results (undefined ones undefined), then the written arguments
  // in schema order (a TensorList: each element). In-place and out= forms have no fresh results, so for
  // them and for the functional form the same values serve.
  using Lowering = std::function<Values(Emitter&, const Call&)>;
  // Types of the fresh results, for ops that have no Meta kernel. Dtype Undefined: an undefined result.
  using ShapeFunction = std::function<std::vector<Type>(const Call&)>;

  std::string name;    // "aten::add.Tensor"
  std::string family;  // the file that holds it: "binary" for csrc/lowerings/binary.cpp
  Lowering lower;
  ShapeFunction shape;              // null: PyTorch's Meta kernel
  std::vector<std::string> writes;  // arguments written though the schema does not say so
  std::vector<std::string> format_of;
  bool random = false;
  bool expanded = false;      // writes to expanded tensors are allowed
  bool host_indices = false;  // CPU tensors are moved to the device (index tensors)
  bool each = false;          // does to each element of its lists what it would do to that element alone
  bool range = false;         // start, end and step, its first arguments, choose how long the result is
  mutable Observations observed;

  // Fresh results of as many dims as these tensors are channels-last if one of them is, else contiguous.
  Row& in_format_of(std::vector<std::string> names) {
    format_of = std::move(names);
    return *this;
  }
  Row& by_element() {
    each = true;
    return *this;
  }
  Row& draws_random() {
    random = true;
    return *this;
  }
  Row& also_writes(std::vector<std::string> names) {
    writes = std::move(names);
    return *this;
  }
  Row& with_shape(ShapeFunction f) {
    shape = std::move(f);
    return *this;
  }
  // PyTorch allows this op to write to expanded tensors: what it changes anywhere counts everywhere.
  Row& writes_expanded() {
    expanded = true;
    return *this;
  }
  Row& sized_by_range() {
    range = true;
    return *this;
  }
  Row& takes_host_indices() {
    host_indices = true;
    return *this;
  }
};

class Table {
 public:
  Row& add(std::string_view name, Value (*lower)(Emitter&, const Call&));
  Row& add(std::string_view name, Values (*lower)(Emitter&, const Call&));
  Row& add(std::string_view name, Row::Lowering lower);
  // self alone, by one StableHLO or CHLO operation.
  Row& unary(std::string_view name, std::string_view op, Promote promote = Promote::kDefault);
  // self and other, promoted and broadcast, by one operation.
  Row& binary(std::string_view name, std::string_view op, Promote promote = Promote::kDefault);
  // self and other, promoted and broadcast; bool result.
  Row& comparison(std::string_view name, std::string_view direction);

  // Has `add` add its rows, which belong to the file of that name.
  void family(std::string_view name, void (*add)(Table&));

  const std::deque<Row>& rows() const { return rows_; }
  // REQUIRES: a row of that name was added.
  const Row& find(std::string_view name) const;

 private:
  std::deque<Row> rows_;
  std::string family_;  // of the rows being added
};

// The table of this process, with every family's rows.
const Table& table();

}  // namespace torch_tpu
