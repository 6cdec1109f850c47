// Bindings of the journal, which torch_tpu.explain() puts into words.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "exec/journal.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

constexpr const char* kKindNames[] = {"flush", "compile", "fallback", "host_read"};

// (steps that ended, events)
py::tuple journal() {
  py::list list;
  for (const Event& e : Journal::events()) {
    py::dict d;
    d["kind"] = kKindNames[static_cast<size_t>(e.kind)];
    d["what"] = e.what;
    d["where"] = e.where;
    d["note"] = e.note;
    d["calls"] = e.calls;
    d["seconds"] = e.seconds;
    d["count"] = e.count;
    d["step"] = e.step;
    py::dict parts;
    if (e.parts) {
      for (const KeyPart& part : *e.parts) parts[py::str(part.name)] = part.value;
    }
    d["parts"] = parts;
    list.append(d);
  }
  return py::make_tuple(Journal::steps(), list);
}

}  // namespace

void bind_journal(py::module_& m) { m.def("journal", &journal); }

}  // namespace torch_tpu
