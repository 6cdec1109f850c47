// The policy Capture: calls on values that have no data are recorded to the end and the
// program is handed over, to be compiled once and replayed (torch.compile, export, ahead
// of time). It is per thread: other threads go on under their own policy.
// Reading a value on the host fails, with what to do.
#pragma once

#include <memory>
#include <vector>

#include "exec/program.h"

namespace torch_tpu {

// A captured program, compiled: replayed with other buffers in the inputs' places.
class Replay {
 public:
  // Runs it. inputs: one value an input of the capture, of the same types; results come back in the
  // order of the capture's outputs. An input that nobody else holds is donated where a result can take
  // its buffer; afterwards `inputs` holds those that were not. (seed, offset): where the random draws start.
  std::vector<DeviceValuePtr> run(std::vector<DeviceValuePtr>& inputs, uint64_t seed, uint64_t offset);

  // By argument of the executable: the input that it is, or -1 for a value that was there before the capture.
  // The packs of doubles() and of integers(), where there are any, follow them.
  std::vector<int> arguments() const;
  const std::vector<double>& doubles() const { return doubles_; }
  const std::vector<int64_t>& integers() const { return integers_; }
  // By output: a result of the executable, or ~i for input i itself.
  const std::vector<int>& outputs() const { return outputs_; }

  int64_t draws() const { return draws_; }  // counter steps a run takes from the generator
  const std::string& module() const { return module_; }
  int device() const { return device_; }

 private:
  friend class Capture;
  // Where an argument of the executable comes from.
  struct Source {
    int input = -1;           // an input of the capture; or
    DeviceValuePtr constant;  // a value that was there before
  };
  struct RandomState {
    size_t position;  // of the seed, among the integers; the offset follows
    int64_t start;    // draws before it
  };

  int device_ = 0;
  std::string module_;
  LoadedProgram program_;
  size_t executable_outputs_ = 0;
  int64_t output_bytes_ = 0;
  std::vector<Source> sources_;
  std::vector<Type> output_types_;
  std::vector<int> outputs_;    // as outputs()
  std::vector<char> returned_;  // by input: it is an output itself
  std::vector<double> doubles_;
  std::vector<int64_t> integers_;
  std::vector<RandomState> random_;
  int64_t draws_ = 0;
};

class Capture {
 public:
  // Captures this thread's calls until destruction. Captures do not nest.
  // rolls: layers that repeat become loops (roll.h).
  explicit Capture(int device, bool rolls = false);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // This thread's capture; null if there is none.
  static Capture* active();

  // A value of a type with no data: an input.
  DeviceValuePtr input(const Type& type);
  void add(Submission& submission, DeviceValues& outputs);
  // Compiles the calls so that they return `outputs`, each an input, a captured result, or a
  // value that was there before. replaced: by output, the input whose cell it is put into, or -1. dying: by input,
  // whether nobody will hold it when the program runs. Only such inputs give their buffers to outputs, since
  // the plugin copies one that was promised and is still held.
  std::shared_ptr<Replay> finish(const std::vector<DeviceValuePtr>& outputs, const std::vector<int>& replaced,
                                 const std::vector<char>& dying);

 private:
  Program program_;
  std::vector<DeviceValuePtr> inputs_;
  std::vector<Replay::RandomState> random_;
  int64_t draws_ = 0;
  int device_;
  bool rolls_;
};

}  // namespace torch_tpu
