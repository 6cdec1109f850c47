// Bindings of compiled graphs. The arguments are a Python list, torch.compile's boxed
// calling convention: it is emptied, so that tensors can die while the graph runs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "aten/compiled_graph.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

GraphValue from_python(py::handle object) {
  PyObject* p = object.ptr();
  if (THPVariable_Check(p)) return THPVariable_Unpack(p);
  if (object.is_none()) return std::monostate{};
  if (PyBool_Check(p)) return object.cast<bool>();
  if (PyLong_Check(p)) return object.cast<int64_t>();
  if (PyFloat_Check(p)) return object.cast<double>();
  TORCH_CHECK_TYPE(false, "tpu: a compiled graph takes tensors and numbers: got ", Py_TYPE(p)->tp_name);
}

py::object to_python(const GraphValue& value) {
  return std::visit(
      [](const auto& v) -> py::object {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return py::none();
        } else if constexpr (std::is_same_v<T, at::Tensor>) {
          return py::reinterpret_steal<py::object>(THPVariable_Wrap(v));
        } else {
          return py::cast(v);
        }
      },
      value);
}

std::vector<GraphValue> list_from_python(const py::sequence& objects) {
  std::vector<GraphValue> values;
  values.reserve(objects.size());
  for (const py::handle object : objects) values.push_back(from_python(object));
  return values;
}

py::list list_to_python(const std::vector<GraphValue>& values) {
  py::list objects;
  for (const GraphValue& value : values) objects.append(to_python(value));
  return objects;
}

}  // namespace

void bind_compile(py::module_& m) {
  py::class_<CompiledGraph>(m, "CompiledGraph")
      .def(py::init<>())
      .def("begin_capture",
           [](CompiledGraph& g, const py::sequence& args) {
             return list_to_python(g.begin_capture(list_from_python(args)));
           })
      .def("finish_capture",
           [](CompiledGraph& g, const py::sequence& results) {
             const auto values = list_from_python(results);
             const py::gil_scoped_release unlocked;
             g.finish_capture(values);
           })
      .def("cancel_capture", &CompiledGraph::cancel_capture)
      .def("run",
           [](CompiledGraph& g, py::list args) -> py::object {
             std::vector<GraphValue> values = list_from_python(args);
             std::optional<std::vector<GraphValue>> results;
             // Only a layout that is known may take the list's references.
             results = g.run(values, [&args] { args.attr("clear")(); });
             return results ? py::object(list_to_python(*results)) : py::none();
           })
      .def("modules", &CompiledGraph::modules);
}

}  // namespace torch_tpu
