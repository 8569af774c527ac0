// Takes the body out of received bytes: chunked, of a known length, or until the end. Beast does
// the parsing; it has been given the same head that head_check.h accepted and must have understood
// the same framing. Chunk extensions and trailers are dropped (EGRESS H-5). No input or output
// here.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "http/head_check.h"

namespace space::http {

class BodyDecoder {
 public:
  // kInvalidArgument when Beast reads the head otherwise than the check did.
  static Result<BodyDecoder> ForRequest(std::string_view raw_head, const CheckedRequest& checked);
  // `without_body`: the response to HEAD.
  static Result<BodyDecoder> ForResponse(std::string_view raw_head, const CheckedResponse& checked,
                                         bool without_body);
  ~BodyDecoder();
  BodyDecoder(BodyDecoder&&) noexcept;
  BodyDecoder& operator=(BodyDecoder&&) noexcept;
  BodyDecoder(const BodyDecoder&) = delete;
  BodyDecoder& operator=(const BodyDecoder&) = delete;

  struct Step {
    size_t consumed = 0;  // of `in`
    size_t produced = 0;  // of `out`
  };
  // Both zero and not is_done(): more input is needed. kInvalidArgument for broken chunks.
  Result<Step> Decode(std::string_view in, std::span<char> out);
  // The other side has ended. kIo when the body had not.
  Result<void> End();
  bool is_done() const;

 private:
  struct Impl;
  explicit BodyDecoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace space::http
