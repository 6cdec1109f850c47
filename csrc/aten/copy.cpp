// Copies between host and device, between devices, and within one: the last is the row
// aten::copy_. Reading a value on the host is a sync point.
#include "aten/copy.h"

#include <ATen/ops/conj_physical.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceType.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "aten/boxed.h"
#include "aten/factories.h"
#include "exec/abstract.h"
#include "exec/counters.h"
#include "exec/journal.h"
#include "exec/policy.h"
#include "exec/room.h"
#include "tensor/fork.h"

namespace torch_tpu {

namespace {

bool on_tpu(const at::Tensor& t) { return t.device().type() == c10::DeviceType::PrivateUse1; }

// The same bytes without the lazy conjugate and negative bits.
at::Tensor physical(const at::Tensor& t) {
  if (!t.is_conj() && !t.is_neg()) return t;
  at::Tensor plain = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(t.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype());
  plain.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  plain.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  return plain;
}

View contiguous_view(const at::Tensor& t) {
  return View{t.scalar_type(), Dims(t.sizes().begin(), t.sizes().end()), row_major_strides(t.sizes()), 0};
}

// True if the tensor's bytes in storage order are the whole of its cell's value.
bool is_whole_value(const at::Tensor& t) {
  const Type& type = cell_of(t)->type();
  return type.dtype == t.scalar_type() && type.numel() == t.numel() && is_dense(view_of(t));
}

// True if dst's cell can take src's value as it is: values are immutable, so a copy of a whole one is free.
bool can_share(const at::Tensor& src, const at::Tensor& dst) {
  return cell_of(src)->get() && src.scalar_type() == dst.scalar_type() && src.sizes() == dst.sizes() &&
         src.strides() == dst.strides() && src.storage_offset() == 0 && dst.storage_offset() == 0 &&
         is_whole_value(src) && src.storage().nbytes() == src.nbytes() && dst.storage().nbytes() == dst.nbytes();
}

void copy_within(const at::Tensor& src, const at::Tensor& dst) {
  if (can_share(src, dst)) {
    cell_of(dst)->put(cell_of(src)->get());
    return;
  }
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{dst, src, false};
  call_row(op, &stack);
}

// `t`, or a copy of it that is the whole of a value.
at::Tensor whole(const at::Tensor& t) {
  if (cell_of(t)->get() && is_whole_value(t)) return t;
  at::Tensor copy = make_tensor(contiguous_view(t), t.device().index());
  copy_within(t, copy);
  return copy;
}

// True if reading all of t's cell costs less than a program that cuts t out of it: sizes that change
// from call to call would need a program each.
bool is_most_of_value(const at::Tensor& t) {
  constexpr int64_t kMost = 4, kSmall = 1 << 14;
  const DeviceValuePtr& value = cell_of(t)->get();
  return value && !value->abstract && value->type.dtype == t.scalar_type() &&
         view_of(t).extent() <= value->type.numel() && value->type.numel() <= std::max(kSmall, kMost * t.numel());
}

// The elements of `t`, cut out of its cell's value on the host.
at::Tensor cut_on_host(const at::Tensor& t) {
  const DeviceValuePtr& value = cell_of(t)->get();
  const at::Tensor all = at::empty({value->type.numel()}, t.options().device(c10::DeviceType::CPU));
  Counters::add(Counter::kHostReads);
  pjrt::Client::get().to_host(buffer_of(value), all.mutable_data_ptr(), all.nbytes());
  return all.as_strided(t.sizes(), t.strides(), t.storage_offset());
}

// The bytes of `t` (plain of lazy bits) on the host, with t's strides if they are dense.
at::Tensor to_host(const at::Tensor& t) {
  if (t.numel() > 0 && !is_whole_value(t) && is_most_of_value(t)) return cut_on_host(t);
  const at::Tensor source = t.numel() == 0 ? t : whole(t);
  at::Tensor host = at::empty_strided(source.sizes(), source.strides(), source.options().device(c10::DeviceType::CPU));
  if (t.numel() == 0) return host;
  Counters::add(Counter::kHostReads);
  AbstractSession* session = AbstractSession::active();
  if (session != nullptr && cell_of(source)->get()->abstract) {
    return host.fill_(session->read(Type(t.scalar_type(), Dims(t.sizes().begin(), t.sizes().end()))));
  }
  Journal::add({.kind = Event::Kind::kHostRead, .what = to_string(cell_of(source)->type())});
  const LocatedEvents located;
  PJRT_Buffer* buffer = buffer_of(cell_of(source)->get());
  pjrt::Client::get().to_host(buffer, host.mutable_data_ptr(), host.nbytes());
  return host;
}

// A device value of the host's bytes, which are in the order of `type`. `stage` gives them.
template <typename Stage>
DeviceValuePtr upload(const Stage& stage, const Type& type, int device) {
  Counters::add(Counter::kTransfers);
  check_not_forked();
  if (AbstractSession* session = AbstractSession::active()) return session->input(type, device, /*from_host=*/true);
  auto value = c10::make_intrusive<DeviceValue>(type, device);
  const at::Tensor staged = stage();
  value->fulfil(with_room(device, [&](bool) {
    check_room(device, type.nbytes());
    return pjrt::Client::get().from_host(staged.const_data_ptr(), type, device);
  }));
  return value;
}

void from_host(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.numel() == 0) return;
  const View view = view_of(dst);
  const int device = dst.device().index();
  Cell* cell = cell_of(dst);
  const bool replaces = is_dense(view) && dst.storage().nbytes() == dst.nbytes();
  // In dst's own strides, so that the bytes are in storage order.
  const auto stage = [&] {
    const auto options = dst.options().device(c10::DeviceType::CPU);
    const Dims strides = replaces ? view.strides : row_major_strides(view.sizes);
    const bool as_is = src.scalar_type() == view.dtype && src.sizes() == dst.sizes() &&
                       src.strides() == c10::IntArrayRef(strides) && !src.is_conj() && !src.is_neg();
    return as_is ? src : at::empty_strided(dst.sizes(), strides, options).copy_(src);
  };
  const bool keep_type = replaces && (cell->get() || cell->has_natural()) && cell->type().dtype == view.dtype &&
                         cell->type().numel() == dst.numel();
  const Type type = keep_type ? cell->type() : replaces ? natural_type(view) : Type(view.dtype, view.sizes);
  DeviceValuePtr value = upload(stage, type, device);
  if (replaces) {
    cell->put(std::move(value));
  } else {
    copy_within(make_tensor(contiguous_view(dst), device, std::move(value)), dst);
  }
}

void between_devices(const at::Tensor& src, const at::Tensor& dst) {
  if (src.numel() == 0) return;
  const at::Tensor source = whole(src);
  const DeviceValuePtr& from = cell_of(source)->get();
  const int device = dst.device().index();
  DeviceValuePtr value;
  if (AbstractSession* session = AbstractSession::active()) {
    value = session->input(from->type, device, /*from_host=*/false);
  } else {
    value = c10::make_intrusive<DeviceValue>(from->type, device);
    value->fulfil(with_room(device, [&](bool) {
      check_room(device, from->type.nbytes());
      return pjrt::Client::get().copy_to_device(buffer_of(from, "a value is copied to another device"), device);
    }));
  }
  View view = view_of(source);
  copy_within(make_tensor(view, device, std::move(value)), dst);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (!on_tpu(dst)) {
    at::Tensor host = to_host(physical(self));
    if (self.is_conj()) host._set_conj(true);
    if (self.is_neg()) host._set_neg(true);
    dst.copy_(host);
    return dst;
  }
  TORCH_CHECK(on_tpu(self) || self.device().is_cpu(), "tpu: copying from ", self.device(), " to ", dst.device(),
              " is not supported.\nGo through the CPU: x.cpu().to('tpu').");
  if (!on_tpu(self)) {
    // The host side resolves src's lazy bits; dst's are undone by conjugating once more.
    const at::Tensor plain = physical(dst);
    at::Tensor source = self;
    if (dst.is_conj()) source = source.conj();
    if (dst.is_neg()) source = source.neg();
    from_host(source.resolve_conj().resolve_neg(), plain);
    return dst;
  }
  const at::Tensor plain = physical(dst);
  at::Tensor source = physical(self);
  if (self.is_conj() != dst.is_conj()) source = at::conj_physical(source);
  if (self.is_neg() != dst.is_neg()) source = source.neg();
  if (self.device() == dst.device()) {
    copy_within(source, plain);
  } else {
    between_devices(source, plain);
  }
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

}  // namespace

at::Tensor read_on_host(const at::Tensor& t) {
  at::Tensor host = to_host(physical(t));
  if (t.is_conj()) host._set_conj(true);
  if (t.is_neg()) host._set_neg(true);
  return host;
}

at::Tensor& write_out(at::Tensor& out, const at::Tensor& result) {
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "Expected out tensor to have dtype ", result.scalar_type(),
              " but got ", out.scalar_type(), " instead");
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  return out.copy_(result);
}

namespace {

at::Scalar local_scalar_dense(const at::Tensor& self) { return read_on_host(self).item(); }

bool equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ", self.scalar_type(),
              " but got data type ", other.scalar_type(), " for argument 'other' in call to equal");
  if (self.sizes() != other.sizes()) return false;
  return self.numel() == 0 || self.eq(other).all().item().toBool();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("equal", equal);
}

// Lazy bits reach copy_from(), which resolves them; the generic fallback would recurse.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
  m.impl("_copy_from_and_resize", torch::CppFunction::makeFallthrough());
}

}  // namespace

}  // namespace torch_tpu
