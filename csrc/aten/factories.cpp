#include "aten/factories.h"

#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <c10/core/StorageImpl.h>
#include <torch/library.h>

#include "device/memory.h"

namespace torch_tpu {

namespace {

size_t nbytes_of(const View& view) { return static_cast<size_t>(view.extent()) * c10::elementSize(view.dtype); }

int device_index(std::optional<c10::Device> device) {
  if (device && device->has_index()) return device->index();
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->getDevice().index();
}

void check_device(std::optional<c10::Device> device) {
  const auto count = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->deviceCount();
  TORCH_CHECK(count > 0,
              "tpu: no PJRT plugin was found.\nInstall one: pip install xla-cpu-pjrt (runs on the host), or libtpu "
              "on a TPU machine, or set TORCH_TPU_PJRT_PLUGIN to a plugin's path.");
  if (!device || !device->has_index()) return;
  TORCH_CHECK(device->index() < count, "tpu: there is no device ", *device, ": got index ",
              static_cast<int>(device->index()), ", expected less than ", static_cast<int>(count),
              ".\nOn the CPU plugin, set TORCH_TPU_DEVICE_COUNT to have more devices.");
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  check_device(device);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(layout.value_or(at::kStrided) == at::kStrided, "tpu: tensors are strided; got layout ",
                              *layout, ".\nMake the tensor on the CPU.");
  at::detail::check_size_nonnegative(size);
  View view;
  view.dtype = dtype.value_or(c10::get_default_dtype_as_scalartype());
  view.sizes.assign(size.begin(), size.end());
  view.strides = row_major_strides(size);
  const at::MemoryFormat format = memory_format.value_or(at::MemoryFormat::Contiguous);
  if (format == at::MemoryFormat::ChannelsLast) {
    const auto strides = c10::get_channels_last_strides_2d(size);
    view.strides.assign(strides.begin(), strides.end());
  } else if (format == at::MemoryFormat::ChannelsLast3d) {
    const auto strides = c10::get_channels_last_strides_3d(size);
    view.strides.assign(strides.begin(), strides.end());
  }
  return make_tensor(view, device_index(device));
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  check_device(device);
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  at::detail::check_size_nonnegative(size);
  TORCH_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
  View view;
  view.dtype = dtype.value_or(c10::get_default_dtype_as_scalartype());
  view.sizes.assign(size.begin(), size.end());
  view.strides.assign(stride.begin(), stride.end());
  return make_tensor(view, device_index(device));
}

}  // namespace

Cell* cell_of(const at::Tensor& t) {
  return static_cast<Cell*>(
      t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get());
}

View view_of(const at::Tensor& t) {
  View view;
  view.dtype = t.scalar_type();
  view.sizes.assign(t.sizes().begin(), t.sizes().end());
  view.strides.assign(t.strides().begin(), t.strides().end());
  view.offset = t.storage_offset();
  return view;
}

at::Tensor make_tensor(const View& view, int device, DeviceValuePtr value) {
  const size_t nbytes = nbytes_of(view);
  auto* cell = new Cell(nbytes, device);
  if (value) {
    cell->put(std::move(value));
  } else {
    cell->set_natural(is_dense(view) ? natural_type(view) : Type(view.dtype, {view.extent()}));
  }
  const c10::Device where(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                            c10::DataPtr(
                                                cell, cell, [](void* p) { delete static_cast<Cell*>(p); }, where),
                                            cell_allocator(), /*resizable=*/true);
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                                   c10::scalarTypeToTypeMeta(view.dtype));
  impl->set_sizes_and_strides(view.sizes, view.strides);
  return at::Tensor(std::move(impl));
}

void resize_cell(const c10::Storage& storage, size_t nbytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  auto* cell = static_cast<Cell*>(impl->_mutable_data_ptr_no_checks().get());
  impl->set_nbytes(nbytes);
  cell->set_nbytes(nbytes);
  if (nbytes == 0) cell->put({});  // frees the memory, as FSDP expects
}

void resize_to(const at::Tensor& t, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  auto* impl = t.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides);
  const View view = view_of(t);
  const size_t nbytes = nbytes_of(view);
  Cell* cell = cell_of(t);
  if (nbytes > t.storage().nbytes()) resize_cell(t.storage(), nbytes);
  if (!cell->get() && view.offset == 0 && is_dense(view)) cell->set_natural(natural_type(view));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
}

}  // namespace torch_tpu
