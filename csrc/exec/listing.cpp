#include "exec/listing.h"

#include <c10/util/irange.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "exec/elements.h"

namespace torch_tpu {

namespace {

Listing::Call part_of(const Listing::Call& whole, const Element& element) {
  Listing::Call part;
  part.signature = element.signature;
  part.source = whole.source;
  for (const int i : element.inputs) part.inputs.push_back(whole.inputs[i]);
  for (const int i : element.numbers) part.numbers.push_back(whole.numbers[i]);
  for (const int i : element.outputs) part.results.push_back(whole.results[i]);
  return part;
}

// Calls of list ops that follow each other, with lists of one length, taken apart.
class Group {
 public:
  bool empty() const { return by_element_.empty(); }

  // False: an element of the call needs what another element made, so that it cannot join.
  bool join(const Listing::Call& call, const std::vector<Element>& elements) {
    if (!empty() && elements.size() != by_element_.size()) return false;
    std::vector<Listing::Call> parts;
    for (const auto e : c10::irange(elements.size())) {
      parts.push_back(part_of(call, elements[e]));
      for (const int64_t input : parts.back().inputs) {
        const auto made = makers_.find(input);
        if (made != makers_.end() && made->second != e) return false;
      }
    }
    by_element_.resize(elements.size());
    for (const auto e : c10::irange(parts.size())) {
      for (const int64_t result : parts[e].results) makers_[result] = e;
      by_element_[e].push_back(std::move(parts[e]));
    }
    return true;
  }

  void move_to(std::vector<Listing::Call>& calls) {
    for (auto& element : by_element_) {
      for (Listing::Call& part : element) calls.push_back(std::move(part));
    }
    *this = Group();
  }

 private:
  std::vector<std::vector<Listing::Call>> by_element_;
  std::map<int64_t, size_t> makers_;  // result -> element
};

}  // namespace

void split_lists(Listing& listing) {
  std::vector<Listing::Call> calls;
  Group group;
  for (const Listing::Call& call : listing.calls) {
    const std::vector<Element>& elements = elements_of(*call.signature);
    if (elements.empty()) {
      group.move_to(calls);
      calls.push_back(call);
    } else if (!group.join(call, elements)) {
      group.move_to(calls);
      group.join(call, elements);
    }
  }
  group.move_to(calls);
  listing.calls = std::move(calls);
}

bool Listing::is_same_number(const Type& type, const std::vector<int64_t>& places) const {
  const auto equal = [&](const auto& numbers, int64_t a, int64_t b) {
    return std::memcmp(&numbers[a], &numbers[b], static_cast<size_t>(type.numel()) * sizeof(numbers[0])) == 0;
  };
  return std::all_of(places.begin(), places.end(), [&](int64_t place) {
    if (place == places[0]) return true;
    return type.dtype == at::kDouble ? equal(doubles, place, places[0]) : equal(integers, place, places[0]);
  });
}

}  // namespace torch_tpu
