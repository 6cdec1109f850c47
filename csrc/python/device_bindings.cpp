// The Python bindings of the device layer, behind torch.tpu.
#include <pybind11/pybind11.h>
#include <torch/csrc/Generator.h>

#include "device/accelerator.h"
#include "device/generator.h"
#include "device/guard.h"
#include "pjrt/pjrt.h"
#include "python/bindings.h"
#include "tensor/fork.h"

namespace py = pybind11;

namespace torch_tpu {

void bind_device(py::module_& m) {
  m.def("device_count", &device_count);
  m.def("current_device", &current_device);
  m.def("exchange_device", &exchange_device);
  m.def("is_initialized", &pjrt::Client::is_created);
  m.def("current_stream", [](int device) { return current_stream(checked_device(device)); });
  m.def("exchange_stream", [](int device, int64_t id) { return exchange_stream(checked_device(device), id); });
  m.def("in_forked_child", &in_forked_child);
  m.def("check_not_forked", &check_not_forked);
  m.def("prefers_other_accelerator", &prefers_other_accelerator);
  m.def("yield_accelerator", &yield_accelerator);
  m.def("has_tpu", &pjrt::has_tpu);
  // Opens the client if it is not open yet.
  m.def("device_kind", [](int device) {
    check_not_forked();
    const py::gil_scoped_release release;
    return pjrt::Client::get().device_kind(checked_device(device));
  });
  m.def("default_generator",
        [](int device) { return py::reinterpret_steal<py::object>(THPGenerator_Wrap(default_generator(device))); });
}

}  // namespace torch_tpu
