// Bindings of the compiler without a device, for the child process of torch_tpu.aot.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "pjrt/phase_compile.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

using Flags = std::vector<std::pair<std::string, std::string>>;

struct Topology {
  pjrt::TopologyDescription description;
};

pjrt::Client::CompileOptions target_options(const std::string& module, int partitions, Flags flags) {
  pjrt::Client::CompileOptions options;
  options.partitions = partitions;
  options.shardy = module.find("sdy.mesh") != std::string::npos;
  options.flags = std::move(flags);
  return options;
}

}  // namespace

void bind_aot(py::module_& m) {
  m.def("load_plugin", [](const std::string& path) {
    const py::gil_scoped_release unlocked;
    pjrt::load_plugin(path);
  });
  m.def("has_phases", &pjrt::has_phases);
  py::class_<Topology, std::shared_ptr<Topology>>(m, "Topology")
      .def(py::init([](const std::string& name, const Flags& options) {
             const py::gil_scoped_release unlocked;
             return std::make_shared<Topology>(Topology{pjrt::topology(name, options)});
           }),
           py::arg("name"), py::arg("options") = Flags{})
      // (kind, attributes) of each device.
      .def("devices",
           [](const Topology& t) {
             std::vector<std::pair<std::string, std::map<std::string, int64_t>>> devices;
             for (auto& d : pjrt::devices_of(t.description.get())) devices.emplace_back(d.kind, d.attributes);
             return devices;
           })
      .def("run_phase",
           [](const Topology& t, const std::string& module, const std::string& phase, int partitions, Flags flags) {
             std::vector<std::string> results;
             {
               const py::gil_scoped_release unlocked;
               results = pjrt::run_phase(t.description.get(), module,
                                         target_options(module, partitions, std::move(flags)), phase);
             }
             std::vector<py::bytes> bytes;
             for (const std::string& r : results) bytes.emplace_back(r);
             return bytes;
           })
      // (format and bytes of the optimized program, memory in bytes).
      .def("compile", [](const Topology& t, const std::string& module, int partitions, Flags flags) {
        pjrt::OptimizedProgram program;
        std::map<std::string, int64_t> memory;
        {
          const py::gil_scoped_release unlocked;
          const auto executable =
              pjrt::compile_for(t.description.get(), module, target_options(module, partitions, std::move(flags)));
          program = pjrt::optimized_program(executable.get());
          memory = pjrt::memory_of(executable.get());
        }
        return py::make_tuple(program.format, py::bytes(program.bytes), memory);
      });
}

}  // namespace torch_tpu
