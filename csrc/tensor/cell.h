// What a tpu Storage points to: a mutable cell that holds an immutable device value.
// Writing to a tensor never changes a buffer: it computes a new value and puts it
// here, and every view of the storage sees it at its next read.
// Cells are not thread-safe: PyTorch asks callers to serialize writes to one storage.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <string>
#include <utility>

#include "pjrt/pjrt.h"
#include "stablehlo/type.h"
#include "tensor/sites.h"

namespace torch_tpu {

// A device array: immutable, dense, row-major over `type.dims`. In one of these states:
// buffer (computed, or being computed by the device), pending (the result of a recorded
// program that has not run), abstract (a type with no data, for capture), failed (its
// program did not run; `error` says why).
class DeviceValue : public c10::intrusive_ptr_target {
 public:
  DeviceValue(Type type, int device) : type(std::move(type)), device(device) {}
  ~DeviceValue() override { surrender(); }
  // Frees the buffer when the last owner goes, though weak references may stay.
  void release_resources() override { surrender(); }

  // Gives the value its buffer. REQUIRES: it has none.
  void fulfil(pjrt::Buffer buffer);
  // Takes the buffer away, for a program that it is donated to.
  void surrender();
  PJRT_Buffer* buffer() const { return buffer_.get(); }

  const Type type;
  const int device;
  bool abstract = false;
  std::string error;

  // Where the value stands in the recorder's current program, valid while `epoch` is that
  // program's. Guarded by the recorder's lock.
  uint64_t epoch = 0;
  int64_t slot = 0;

 private:
  pjrt::Buffer buffer_;
};

using DeviceValuePtr = c10::intrusive_ptr<DeviceValue>;

class Cell {
 public:
  Cell(size_t nbytes, int device) : nbytes_(nbytes), device_(device), has_site_(Sites::on()) {
    if (has_site_) Sites::add(this);
  }
  ~Cell() {
    if (has_site_) Sites::remove(this);
  }
  Cell(const Cell&) = delete;
  Cell& operator=(const Cell&) = delete;

  // Null until written.
  const DeviceValuePtr& get() const { return value_; }
  void put(DeviceValuePtr value) { value_ = std::move(value); }
  DeviceValuePtr take() { return std::move(value_); }

  // The type a value written to an empty cell gets: the shape of the tensor that allocated
  // it, in the order of its strides.
  const Type& natural() const { return natural_; }
  void set_natural(Type type) {
    natural_ = std::move(type);
    has_natural_ = true;
  }
  bool has_natural() const { return has_natural_; }
  // The value's type, or the one it will get.
  const Type& type() const { return value_ ? value_->type : natural_; }

  size_t nbytes() const { return nbytes_; }
  void set_nbytes(size_t nbytes) { nbytes_ = nbytes; }
  int device() const { return device_; }

 private:
  DeviceValuePtr value_;
  Type natural_;
  bool has_natural_ = false;
  size_t nbytes_;
  int device_;
  bool has_site_;
};

}  // namespace torch_tpu
