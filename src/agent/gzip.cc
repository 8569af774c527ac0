#include "agent/gzip.h"

#include <zlib.h>

namespace space::agent {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: 16 asks for a gzip header

Bytef* AsInput(std::string_view text) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
}

}  // namespace

struct Inflater::State {
  z_stream stream{};
  bool is_started = false;  // inside a member
  ~State() { inflateEnd(&stream); }
};

Inflater::Inflater() : state_(std::make_unique<State>()) {
  SPACE_CHECK(inflateInit2(&state_->stream, kGzipWindow) == Z_OK);  // fails without memory only
}
Inflater::~Inflater() = default;
Inflater::Inflater(Inflater&&) noexcept = default;
Inflater& Inflater::operator=(Inflater&&) noexcept = default;

Result<size_t> Inflater::Step(std::string_view& input, std::span<char> into) {
  z_stream& stream = state_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(into.data());
  stream.avail_out = static_cast<uInt>(into.size());
  while (stream.avail_out == into.size()) {
    stream.next_in = AsInput(input);
    stream.avail_in = static_cast<uInt>(input.size());
    state_->is_started = state_->is_started || !input.empty();
    const int status = inflate(&stream, Z_NO_FLUSH);
    input.remove_prefix(input.size() - stream.avail_in);
    if (status == Z_STREAM_END) {
      state_->is_started = false;
      inflateReset(&stream);
      if (input.empty()) {
        break;
      }
    } else if (status == Z_BUF_ERROR) {
      break;  // needs more input
    } else if (status != Z_OK) {
      return Fail(ErrorCode::kInvalidArgument, "body is not valid gzip");
    }
  }
  return into.size() - stream.avail_out;
}

Result<void> Inflater::CheckEnd() const {
  if (state_->is_started) {
    return Fail(ErrorCode::kInvalidArgument, "gzip body is cut");
  }
  return {};
}

struct Deflater::State {
  z_stream stream{};
  ~State() { deflateEnd(&stream); }
};

Deflater::Deflater() : state_(std::make_unique<State>()) {
  SPACE_CHECK(deflateInit2(&state_->stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, 8,
                           Z_DEFAULT_STRATEGY) == Z_OK);
}
Deflater::~Deflater() = default;

void Deflater::Step(std::string_view input, bool is_last, std::string& out) {
  z_stream& stream = state_->stream;
  stream.next_in = AsInput(input);
  stream.avail_in = static_cast<uInt>(input.size());
  char chunk[16 * 1024];
  do {
    stream.next_out = reinterpret_cast<Bytef*>(chunk);
    stream.avail_out = sizeof(chunk);
    deflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH);
    out.append(chunk, sizeof(chunk) - stream.avail_out);
  } while (stream.avail_out == 0);
}

}  // namespace space::agent
