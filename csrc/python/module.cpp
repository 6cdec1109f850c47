// The extension module torch_tpu._C: thin bindings over the layers below, each in a file
// of its own where it is more than a few lines.
#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "aten/autograd_threads.h"
#include "aten/registration.h"
#include "exec/counters.h"
#include "exec/policy.h"
#include "pjrt/pjrt.h"
#include "python/bindings.h"
#include "python/places.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

// The innermost Python frame of the user's: "train.py:12". If there is none, the innermost.
std::string locate_python() {
  if (!Py_IsInitialized()) return {};
  const py::gil_scoped_acquire gil;
  std::string where;
  PyFrameObject* frame = PyEval_GetFrame();  // borrowed
  Py_XINCREF(frame);
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const std::string file = py::cast<std::string>(py::handle(code->co_filename));
    Py_DECREF(code);
    const bool internal = !is_users_code(file);
    if (!internal || where.empty()) where = file + ":" + std::to_string(PyFrame_GetLineNumber(frame));
    PyFrameObject* back = internal ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = back;
  }
  return where;
}

// PyTorch's exceptions as Python's, as PyTorch itself has them, without the C++ backtrace.
void translate(std::exception_ptr error) {
  const auto raise = [](PyObject* type, const c10::Error& e) { PyErr_SetString(type, e.what_without_backtrace()); };
  try {
    std::rethrow_exception(std::move(error));
  } catch (const c10::IndexError& e) {
    raise(PyExc_IndexError, e);
  } catch (const c10::ValueError& e) {
    raise(PyExc_ValueError, e);
  } catch (const c10::TypeError& e) {
    raise(PyExc_TypeError, e);
  } catch (const c10::NotImplementedError& e) {
    raise(PyExc_NotImplementedError, e);
  } catch (const c10::OutOfMemoryError& e) {
    raise(py::module_::import("torch").attr("OutOfMemoryError").ptr(), e);
  } catch (const c10::Error& e) {
    raise(PyExc_RuntimeError, e);
  }
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.doc() = "The C++ core of torch_tpu.";
  py::register_local_exception_translator(&translate);
  set_python_location(&locate_python);
  register_rows();

  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  m.def("set_mode", [](const std::string& name) { set_mode(mode_named(name)); }, unlocked);
  m.def("get_mode", [] { return name_of(mode()); });
  m.def("set_check_nan", &set_check_nan);
  m.def("flush", [] { flush_all("flush()"); }, unlocked);
  m.def("step_end", &end_step, unlocked);
  m.def("settle_autograd_threads", &settle_autograd_threads, unlocked);
  m.def("synchronize", &synchronize, unlocked);
  m.def("set_background_compile", &set_background_compile);
  m.def("background_compile", &background_compile);
  m.def("compile_drain", [] { CompileQueue::get().drain(); }, unlocked);
  m.def("compile_finish", &CompileQueue::finish, unlocked);
  m.def("counters", &Counters::all);
  // overload -> (row, the file in csrc/lowerings that holds it)
  m.def("served_overloads", [] {
    std::unordered_map<std::string, std::pair<std::string, std::string>> found;
    for (const Served& s : served_overloads()) found[s.overload] = {s.row->name, s.row->family};
    return found;
  });
  m.def("table_problems", &table_problems);

  m.def("set_plugin_candidates", &pjrt::set_plugin_candidates);
  m.def("platform", [] {
    const auto choice = pjrt::choose_plugin();
    return choice ? (choice->kind == pjrt::PluginKind::kTpu ? "tpu" : "cpu") : "";
  });
  m.def("plugin_path", [] {
    const auto choice = pjrt::choose_plugin();
    return choice ? choice->path : std::string();
  });

  bind_abstract(m);
  bind_aot(m);
  bind_benchmark(m);
  bind_cache(m);
  bind_compile(m);
  bind_device(m);
  bind_journal(m);
  bind_memory(m);
}

}  // namespace torch_tpu
