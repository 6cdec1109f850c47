// Bindings of the policy Abstract, for torch_tpu.aot.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <sstream>

#include "aten/factories.h"
#include "exec/abstract.h"
#include "lowerings/partition.h"
#include "python/bindings.h"
#include "python/places.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

AbstractSession& session() {
  AbstractSession* active = AbstractSession::active();
  TORCH_CHECK(active != nullptr,
              "tpu: torch_tpu.aot is not recording.\nCall this in `with torch_tpu.aot.topology(...)`.");
  return *active;
}

std::string text_of(const Type& type) {
  std::ostringstream out;
  out << type;
  return out.str();
}

py::list to_python(const std::vector<AbstractSession::Argument>& arguments) {
  py::list list;
  for (const auto& a : arguments)
    list.append(py::make_tuple(a.name, text_of(a.type), a.type.nbytes(), a.donated, a.stacked));
  return list;
}

py::dict to_python(const AbstractSession::Captured& program) {
  using namespace py::literals;
  py::list loops;
  for (const auto& loop : program.loops) loops.append(py::make_tuple(loop.calls, loop.times));
  py::dict parts;
  for (const KeyPart& part : program.parts) parts[py::str(part.name)] = part.value;
  return py::dict("module"_a = program.module, "parts"_a = parts, "arguments"_a = to_python(program.arguments),
                  "results"_a = to_python(program.results), "rows"_a = program.rows, "loops"_a = loops,
                  "ended_by"_a = program.ended_by, "resident_bytes"_a = program.resident_bytes,
                  "host_bytes"_a = program.host_bytes);
}

// A Python function that may be destroyed without the GIL.
std::shared_ptr<py::function> kept(py::function f) {
  return {new py::function(std::move(f)), [](py::function* p) {
            const py::gil_scoped_acquire gil;
            delete p;
          }};
}

}  // namespace

void bind_abstract(py::module_& m) {
  install_places();
  // assume(type, where): the number that stands for what the host reads, or None to refuse.
  m.def("abstract_begin", [](py::function assume, int64_t roll_from) {
    clear_places();
    const auto f = kept(std::move(assume));
    AbstractSession::begin(
        [f](const Type& type, const std::string& where) -> AbstractSession::Assumed {
          const py::gil_scoped_acquire gil;
          const auto value = (*f)(text_of(type), where).cast<std::optional<double>>();
          return {value.has_value(), value.value_or(0)};
        },
        roll_from);
  });
  m.def("set_parts", [](int64_t batch, int64_t heads) { set_parts({batch, heads}); });
  m.def("parts", [] {
    const Parts shared = parts();
    return std::make_pair(shared.batch, shared.heads);
  });
  m.def("is_users_code", &is_users_code);
  m.def("abstract_active", [] { return AbstractSession::active() != nullptr; });
  // (programs, which of them each run was of)
  m.def("abstract_end", [] {
    AbstractSession::Programs programs;
    {
      const py::gil_scoped_release unlocked;
      programs = AbstractSession::end();
    }
    py::list list;
    for (const auto& program : programs.captured) list.append(to_python(program));
    return py::make_tuple(list, programs.runs);
  });
  m.def("abstract_findings", [] {
    py::list list;
    for (const auto& f : session().findings()) list.append(py::make_tuple(f.kind, f.what, f.where, f.count));
    return list;
  });
  m.def("abstract_runs", [] { return session().runs(); });
  m.def("abstract_cut", [](const std::string& why) { session().cut(why); }, py::call_guard<py::gil_scoped_release>());
  // Names the tensor's value in programs that take it; an unwritten tensor becomes an input. False: not on the device.
  m.def("abstract_name", [](py::handle object, const std::string& name) {
    const at::Tensor& t = THPVariable_Unpack(object.ptr());
    if (t.device().type() != c10::DeviceType::PrivateUse1 || !t.has_storage()) return false;
    Cell* cell = cell_of(t);
    if (!cell->get() && t.numel() > 0) {
      const View view = view_of(t);
      const bool whole = is_dense(view) && t.storage().nbytes() == t.nbytes();
      if (!whole) return false;
      cell->put(session().input(natural_type(view), cell->device(), /*from_host=*/false));
    }
    if (cell->get()) session().name(cell->get(), name);
    return true;
  });
  m.def("enter_scope", &enter_scope);
  m.def("leave_scope", &leave_scope);
}

}  // namespace torch_tpu
