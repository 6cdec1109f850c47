// Bindings of compiled graphs. The arguments are a Python list, torch.compile's boxed
// calling convention: it is emptied, so that tensors can die while the graph runs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "aten/compiled_graph.h"
#include "aten/factories.h"
#include "exec/executables.h"
#include "exec/policy.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

GraphArgument from_python(PyObject* p) {
  if (THPVariable_Check(p)) return {&THPVariable_Unpack(p), {}};
  if (p == Py_None) return {};
  const py::handle object(p);
  if (PyBool_Check(p)) return {nullptr, object.cast<bool>()};
  if (PyLong_Check(p)) return {nullptr, object.cast<int64_t>()};
  if (PyFloat_Check(p)) return {nullptr, object.cast<double>()};
  TORCH_CHECK_TYPE(false, "tpu: a compiled graph takes tensors and numbers: got ", Py_TYPE(p)->tp_name);
}

// What comes back points into `objects`, a list or a tuple.
std::vector<GraphArgument> arguments_from_python(const py::object& objects) {
  const py::object fast =
      py::reinterpret_steal<py::object>(PySequence_Fast(objects.ptr(), "tpu: a compiled graph takes a list"));
  if (!fast) throw py::error_already_set();
  std::vector<GraphArgument> arguments;
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(fast.ptr());
  arguments.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) arguments.push_back(from_python(PySequence_Fast_GET_ITEM(fast.ptr(), i)));
  return arguments;
}

PyObject* plain_to_python(const GraphPlain& plain) {
  return std::visit(
      [](const auto& v) -> PyObject* {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) {
          return py::none().release().ptr();
        } else {
          return py::cast(v).release().ptr();
        }
      },
      plain);
}

py::list list_to_python(std::vector<GraphResult>& results) {
  py::list objects(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    PyObject* object = results[i].tensor.defined() ? THPVariable_Wrap(std::move(results[i].tensor))
                                                   : plain_to_python(results[i].plain);
    PyList_SET_ITEM(objects.ptr(), static_cast<Py_ssize_t>(i), object);
  }
  return objects;
}

// A StableHLO module from elsewhere, compiled: takes tensors, each the whole of its storage and contiguous.
class LoadedModule {
 public:
  LoadedModule(const std::string& module, std::vector<at::ScalarType> dtypes, std::vector<std::vector<int64_t>> sizes)
      : executable_(make_executable(module, {}, 1, {})), dtypes_(std::move(dtypes)), sizes_(std::move(sizes)) {}

  std::vector<GraphResult> run(const std::vector<GraphArgument>& arguments) {
    std::vector<PJRT_Buffer*> buffers;
    int device = 0;
    for (const GraphArgument& argument : arguments) {
      TORCH_CHECK(argument.tensor != nullptr && argument.tensor->device().type() == c10::DeviceType::PrivateUse1,
                  "tpu: a loaded program takes tpu tensors");
      const Cell* cell = cell_of(*argument.tensor);
      buffers.push_back(buffer_of(cell->get(), "a loaded program takes a value"));
      device = cell->device();
    }
    std::vector<pjrt::Buffer> made(dtypes_.size());
    pjrt::Client::get().execute(executable_.get(), buffers, {}, made, device);
    std::vector<GraphResult> results;
    for (size_t i = 0; i < made.size(); ++i) {
      const View view{dtypes_[i], Dims(sizes_[i].begin(), sizes_[i].end()), row_major_strides(sizes_[i]), 0};
      auto value = c10::make_intrusive<DeviceValue>(Type(dtypes_[i], sizes_[i]), device);
      value->fulfil(std::move(made[i]));
      results.push_back({make_tensor(view, device, std::move(value)), {}});
    }
    return results;
  }

 private:
  pjrt::LoadedExecutable executable_;
  std::vector<at::ScalarType> dtypes_;
  std::vector<std::vector<int64_t>> sizes_;
};

}  // namespace

void bind_compile(py::module_& m) {
  m.def("stablehlo_type", [](const py::object& tensor) {
    const at::Tensor& t = THPVariable_Unpack(tensor.ptr());
    return to_string(Type(t.scalar_type(), t.sizes()));
  });
  // results: tensors of the results' dtypes and sizes.
  py::class_<LoadedModule>(m, "LoadedModule")
      .def(py::init([](const std::string& module, const py::object& results) {
        std::vector<at::ScalarType> dtypes;
        std::vector<std::vector<int64_t>> sizes;
        for (const GraphArgument& result : arguments_from_python(results)) {
          TORCH_CHECK_TYPE(result.tensor != nullptr, "tpu: a module's results are tensors");
          dtypes.push_back(result.tensor->scalar_type());
          sizes.push_back(result.tensor->sizes().vec());
        }
        const py::gil_scoped_release unlocked;
        return std::make_unique<LoadedModule>(module, std::move(dtypes), std::move(sizes));
      }))
      .def("run", [](LoadedModule& module, const py::object& arguments) {
        auto results = module.run(arguments_from_python(arguments));
        return list_to_python(results);
      });
  py::class_<CompiledGraph>(m, "CompiledGraph")
      .def(py::init<std::vector<int>, bool>(), py::arg("dying") = std::vector<int>(), py::arg("roll") = false)
      .def("begin_capture",
           [](CompiledGraph& g, const py::object& arguments) {
             auto stand_ins = g.begin_capture(arguments_from_python(arguments));
             return list_to_python(stand_ins);
           })
      .def("finish_capture",
           [](CompiledGraph& g, const py::object& results) {
             const auto values = arguments_from_python(results);
             const py::gil_scoped_release unlocked;
             g.finish_capture(values);
           })
      .def("cancel_capture", &CompiledGraph::cancel_capture)
      .def("run",
           [](CompiledGraph& g, py::list list) -> py::object {
             const auto arguments = arguments_from_python(list);
             std::vector<GraphResult> results;
             // Only a layout that is known may take the list's references.
             const auto release = [&list] { PyList_SetSlice(list.ptr(), 0, PyList_GET_SIZE(list.ptr()), nullptr); };
             if (!g.run(arguments, release, results)) return py::none();
             return list_to_python(results);
           })
      .def("signature",
           [](const CompiledGraph& g) {
             const CompiledGraph::Signature s = g.signature();
             py::dict d;
             d["module"] = s.module;
             d["arguments"] = s.arguments;
             d["doubles"] = s.doubles;
             d["integers"] = s.integers;
             d["results"] = s.results;
             d["draws"] = s.draws;
             return d;
           })
      .def("modules", &CompiledGraph::modules);
}

}  // namespace torch_tpu
