// Streaming gzip with bounded output per step (zlib).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

// Takes compressed bytes, gives plain ones. Several members one after the other are one stream.
class Inflater {
 public:
  Inflater();
  ~Inflater();
  Inflater(Inflater&&) noexcept;
  Inflater& operator=(Inflater&&) noexcept;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Consumes from the front of `input` and fills `into`; the count of bytes written. 0 means that
  // all input is used up.
  //   errors: kInvalidArgument for what is not gzip
  Result<size_t> Step(std::string_view& input, std::span<char> into);
  // At the end of the input: kInvalidArgument when the stream is cut.
  Result<void> CheckEnd() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Takes plain bytes, gives gzip at the fastest level.
class Deflater {
 public:
  Deflater();
  ~Deflater();
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;
  Deflater(Deflater&&) = delete;
  Deflater& operator=(Deflater&&) = delete;

  // Appends what is ready to `out`; everything that is left when `is_last`.
  void Step(std::string_view input, bool is_last, std::string& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace space::agent
