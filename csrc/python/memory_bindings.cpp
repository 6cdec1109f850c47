// The Python bindings behind torch.tpu.memory: counts, limits, and where the tensors that are alive were made.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <unordered_set>

#include "device/accelerator.h"
#include "device/guard.h"
#include "device/memory.h"
#include "exec/room.h"
#include "pjrt/host_blocks.h"
#include "pjrt/pjrt.h"
#include "python/bindings.h"
#include "python/places.h"
#include "tensor/cell.h"
#include "tensor/fork.h"
#include "tensor/memory.h"
#include "tensor/sites.h"

namespace py = pybind11;

namespace torch_tpu {

namespace {

constexpr size_t kNamedSites = 5;  // in an error

py::dict counts(const MemoryCounters::Counts& c) {
  using namespace py::literals;
  return py::dict("current"_a = c.current, "peak"_a = c.peak, "allocated"_a = c.allocated, "freed"_a = c.freed);
}

// A buffer that a tensor holds, and where the first of the tensors that hold it was made.
struct Live {
  const DeviceValue* value;
  int place;
};

// Of the tensors made since Sites::start(), in that order.
std::vector<Live> live_buffers(int device) {
  std::vector<Live> live;
  std::unordered_set<const DeviceValue*> seen;  // tensors may share a buffer
  for (const auto& [cell, place] : Sites::all()) {
    const DeviceValue* value = cell->get().get();
    if (cell->device() != device || value == nullptr || value->buffer() == nullptr) continue;
    if (seen.insert(value).second) live.push_back({value, place});
  }
  return live;
}

py::list frames_of(int place) {
  using namespace py::literals;
  py::list frames;
  if (place < 0) return frames;
  for (const Place::Frame& f : place_of(place).frames) {
    frames.append(py::dict("name"_a = f.function, "filename"_a = f.file, "line"_a = f.line));
  }
  return frames;
}

void collect_garbage() {
  if (!Py_IsInitialized()) return;
  const py::gil_scoped_acquire gil;
  py::module_::import("gc").attr("collect")();  // PyGC_Collect() does nothing where collections are disabled
}

// A line a place, with the most bytes first; "" if places are not noted.
std::string largest_sites(int device) {
  if (!Sites::on() || !Py_IsInitialized()) return {};
  const py::gil_scoped_acquire gil;
  std::map<int, int64_t> bytes;
  for (const Live& live : live_buffers(device)) bytes[live.place] += live.value->type.nbytes();
  std::vector<std::pair<int64_t, int>> sorted;
  for (const auto& [place, n] : bytes) sorted.emplace_back(n, place);
  std::sort(sorted.rbegin(), sorted.rend());
  std::ostringstream out;
  for (size_t i = 0; i < std::min(sorted.size(), kNamedSites); ++i) {
    const auto& [n, place] = sorted[i];
    const auto* frame = place < 0 || place_of(place).frames.empty() ? nullptr : &place_of(place).frames[0];
    out << "\n  " << n / 1e6 << " MB ";
    if (frame == nullptr) {
      out << "by no line of Python";
    } else {
      out << frame->file << ':' << frame->line << (place_of(place).backward ? " (its gradient)" : "");
    }
  }
  return out.str();
}

}  // namespace

void bind_memory(py::module_& m) {
  set_python_memory(&collect_garbage, &largest_sites);
  // (free, total) bytes. Opens the client if it is not open yet.
  m.def("memory_info", [](int device) {
    check_not_forked();
    const py::gil_scoped_release release;
    return memory_info(checked_device(device));
  });
  m.def("memory_counts", [](int device) {
    const auto snapshot = [device] {
      const py::gil_scoped_release release;
      return read_memory(checked_device(device));
    }();
    return py::make_tuple(counts(snapshot.bytes), counts(snapshot.buffers), snapshot.peak_with_scratch);
  });
  // How often something was done again for want of memory, and how often in vain.
  m.def("room_counts", [] { return py::make_tuple(room_counts().retries, room_counts().failures); });
  m.def("empty_cache", &pjrt::release_host_blocks);
  m.def("reset_peak_memory", &reset_peak_memory, py::call_guard<py::gil_scoped_release>());
  m.def("reset_accumulated_memory", [](int device) {
    MemoryCounters::reset_accumulated(checked_device(device));
    reset_room_counts();
  });
  // Bytes; 0: no limit.
  m.def("memory_limit", [](int device) { return MemoryCounters::limit(checked_device(device)); });
  m.def("set_memory_limit",
        [](int device, int64_t bytes) { MemoryCounters::set_limit(checked_device(device), bytes); });
  m.def("record_sites", [](bool on) {
    keep_places(on);
    if (on) {
      Sites::start(&place_here);
    } else {
      Sites::stop();
    }
  });
  m.def("records_sites", &Sites::on);
  // Runs what is recorded, then: (address, bytes, type, frames, whether it is a gradient's) of each buffer.
  m.def("live_buffers", [](int device) {
    {
      const py::gil_scoped_release release;
      read_memory(checked_device(device));
    }
    py::list list;
    for (const Live& live : live_buffers(checked_device(device))) {
      list.append(py::make_tuple(reinterpret_cast<uintptr_t>(live.value->buffer()), live.value->type.nbytes(),
                                 to_string(live.value->type), frames_of(live.place),
                                 live.place >= 0 && place_of(live.place).backward));
    }
    return list;
  });
}

}  // namespace torch_tpu
