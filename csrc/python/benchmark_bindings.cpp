// What benchmarks need below PyTorch: a StableHLO module run bare, the limit for any
// framework on the same plugin.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include <chrono>
#include <stdexcept>

#include "aten/factories.h"
#include "exec/policy.h"
#include "pjrt/phase_compile.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

// Seconds: of the compilation, then of each of `steps` runs. Results are awaited and dropped.
std::vector<double> time_module(const std::string& module, const py::list& tensors, int steps) {
  using Clock = std::chrono::steady_clock;
  std::vector<PJRT_Buffer*> arguments;
  for (const py::handle t : tensors) arguments.push_back(buffer_of(cell_of(THPVariable_Unpack(t.ptr()))->get()));
  const py::gil_scoped_release unlocked;
  auto& client = pjrt::Client::get();
  std::vector<double> seconds;
  auto start = Clock::now();
  const auto lap = [&] {
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    start = Clock::now();
  };
  const pjrt::LoadedExecutable executable = client.compile(module, {});
  lap();
  for (int i = 0; i < steps; ++i) {
    std::vector<pjrt::Buffer> results;
    client.execute(executable.get(), arguments, {}, results, 0);
    for (const pjrt::Buffer& result : results) pjrt::await(result.get());
    lap();
  }
  return seconds;
}

}  // namespace

void bind_benchmark(py::module_& m) {
  m.def("time_module", &time_module);
  // PJRT's statistics of a module, compiled.
  m.def("memory_of_module", [](const std::string& module) {
    const py::gil_scoped_release unlocked;
    const pjrt::LoadedExecutable loaded = pjrt::Client::get().compile(module, {});
    return pjrt::memory_of(pjrt::executable_of(loaded.get()).get());
  });
}

}  // namespace torch_tpu
