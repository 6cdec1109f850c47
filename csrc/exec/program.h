// A list of calls that is compiled and run as one. The only caller of PJRT's compile
// and execute on behalf of eager calls; every policy is made of programs.
// A value that a call of the program makes is pending until run(). Results that nobody
// holds at run() are not computed; inputs that nobody else holds are donated.
// Not thread-safe: guarded by the policy's lock.
#pragma once

#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "cache/key.h"
#include "cache/programs.h"
#include "exec/compile_queue.h"
#include "exec/listing.h"
#include "exec/signature.h"
#include "tensor/cell.h"

namespace torch_tpu {

// A call about to be recorded: the operands' values and the numbers, in the signature's order.
struct Submission {
  const Signature* signature = nullptr;
  c10::SmallVector<DeviceValuePtr, 8> inputs;
  c10::SmallVector<double, 8> doubles;
  c10::SmallVector<int64_t, 8> integers;  // a random call's seed and offset last
  void clear();
};
using DeviceValues = c10::SmallVector<DeviceValuePtr, 4>;

// The programs of this process that are compiled. Guarded by the policy's lock.
ProgramCache& program_cache();

// Appends the packs of numbers to a program's arguments. A pack that was sent last is not sent again.
void upload_numbers(LoadedProgram& program, const std::vector<double>& doubles, const std::vector<int64_t>& integers,
                    int device, c10::SmallVectorImpl<PJRT_Buffer*>& arguments);

// Whether a program of several calls that comes again is compiled on another thread, while its calls run one by one.
// TORCH_TPU_BACKGROUND_COMPILE=1 at start.
bool background_compile();
void set_background_compile(bool on);

class Program {
 public:
  explicit Program(int device) : device_(device) { begin(); }

  // Takes over the submission's inputs; appends one pending value an output of the signature.
  void add(Submission& submission, DeviceValues& outputs);
  size_t size() const { return calls_.size(); }
  // Compiles (or finds) and runs the calls, and is empty again, also if it throws: then the
  // pending values carry the error.
  // last: false keeps the calls if there was no room on the device for their results and none of them has run.
  void run(bool last);
  // After run() of a single call threw: returns its inputs to the submission they came from.
  void give_back(Submission& submission);

  // For a program that is not to run: what run() would look up and compile now, ...
  struct Plan {
    std::vector<int64_t> key;      // what tells it from other programs
    std::vector<int64_t> live;     // the results that somebody holds
    std::vector<int64_t> aliases;  // by leaf: the live result that gets its buffer, or -1
  };
  Plan plan();
  // ... and forgetting its calls: their results are inputs of later programs.
  void drop() { begin(); }
  // The row of call i, and result i. True if the value is an input or a result of this program.
  const std::string& row(size_t i) const { return calls_[i].signature->row->name; }
  const DeviceValuePtr& result(int64_t i) const { return results_[i]; }
  bool involves(const DeviceValue& value) const { return value.epoch == epoch_; }

  // True if a call of this program makes the value.
  bool made(const DeviceValue& value) const { return value.epoch == epoch_ && value.slot >= 0; }
  const std::vector<DeviceValuePtr>& leaves() const { return leaves_; }
  const std::vector<double>& doubles() const { return doubles_; }
  const std::vector<int64_t>& integers() const { return integers_; }

  // By leaf: the live result that gets its buffer, or -1. A cell's new value gets its old one's.
  std::vector<int64_t> choose_aliases(const std::vector<int64_t>& live, c10::ArrayRef<char> donatable) const;
  // The StableHLO module of the calls as they stand, with `live` results returned and argument
  // i's buffer given to output aliases[i] (-1: to none).
  // The text is the same in every process: it names nothing by what happened before.
  std::string module(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const;
  // The same for people: the calls, the inputs' types with what gets their buffers, the results' types.
  KeyParts parts(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const;
  // The calls as they stand, written out.
  Listing listing() const;
  // How the last run() got its executable.
  const char* how() const { return how_; }

 private:
  struct Recorded {
    const Signature* signature;
    size_t first_input, first_result;
  };
  void begin();
  void record(Submission& submission, DeviceValues outputs);
  void execute();
  // The results that somebody holds; says by leaf whether only this program holds it. Completes key_.
  std::vector<int64_t> find_live(c10::SmallVectorImpl<char>& donatable);
  // As execute(), for a program that is not worth compiling (call_by_call.cpp). Consumes leaves_ and results_.
  void run_call_by_call(const std::vector<int64_t>& live);
  bool is_small(const std::vector<int64_t>& live) const;
  pjrt::LoadedExecutable compile(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const;
  // compile() on another thread; nothing that it needs dies with this program.
  CompileQueue::Compiled compile_later(const std::vector<int64_t>& live, const std::vector<int64_t>& aliases) const;

  // compile_ahead.cpp:
  // The program of this key, if another thread compiles it or has. wait: until it has; else null meanwhile.
  LoadedProgram* compiled_meanwhile(uint64_t hash, bool wait);
  // Has it compiled by another thread if it was asked for before.
  void compile_meanwhile(uint64_t hash, const std::vector<int64_t>& live, c10::ArrayRef<char> donatable);
  // Starts to compile what run_call_by_call() will run, where several programs are missing. By call: whether it runs;
  // by result and by leaf: the last call that takes it.
  void compile_calls_ahead(const std::vector<bool>& runs, const std::vector<size_t>& last_use,
                           const std::vector<size_t>& last_use_of_leaf) const;

  int device_;
  uint64_t epoch_ = 0;
  std::vector<Recorded> calls_;
  std::vector<int64_t> operands_;       // of every call in turn: >= 0 a result slot, < 0 leaf ~i
  std::vector<int64_t> key_;            // signature ids and operands; what tells programs apart
  std::vector<DeviceValuePtr> leaves_;  // inputs
  std::vector<DeviceValuePtr> results_;
  std::vector<double> doubles_;
  std::vector<int64_t> integers_;
  std::vector<DeviceValuePtr> unused_inputs_;  // of a single call that failed
  const char* how_ = "";
  bool started_ = false;  // some of the calls have run
};

}  // namespace torch_tpu
