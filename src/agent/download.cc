#include "agent/download.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "agent/accept.h"
#include "agent/access.h"
#include "agent/entry.h"
#include "agent/gzip.h"
#include "agent/paths.h"
#include "agent/respond.h"
#include "base/fd.h"

namespace space::agent {
namespace {

constexpr size_t kChunkBytes = 64 * 1024;

struct OpenFile {
  std::string path;
  UniqueFd fd;
  struct stat info {};
};

Result<OpenFile> OpenForDownload(const std::string& path) {
  OpenFile file{.path = path,
                .fd = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))};
  if (!file.fd.valid() || fstat(file.fd.get(), &file.info) < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return Fail(ErrorCode::kNotFound, "path '" + path + "' does not exist");
    }
    return FailErrno("open", path);
  }
  if (S_ISDIR(file.info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is a directory");
  }
  if (!S_ISREG(file.info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is not a regular file");
  }
  return file;
}

std::string_view GuessType(std::string_view path) {
  struct Row {
    std::string_view ending;
    std::string_view type;
  };
  static constexpr std::array<Row, 16> kTypes{{{".txt", "text/plain; charset=utf-8"},
                                               {".log", "text/plain; charset=utf-8"},
                                               {".md", "text/markdown; charset=utf-8"},
                                               {".html", "text/html; charset=utf-8"},
                                               {".css", "text/css; charset=utf-8"},
                                               {".csv", "text/csv; charset=utf-8"},
                                               {".js", "text/javascript; charset=utf-8"},
                                               {".json", "application/json"},
                                               {".xml", "text/xml; charset=utf-8"},
                                               {".pdf", "application/pdf"},
                                               {".png", "image/png"},
                                               {".jpg", "image/jpeg"},
                                               {".gif", "image/gif"},
                                               {".svg", "image/svg+xml"},
                                               {".webp", "image/webp"},
                                               {".gz", "application/gzip"}}};
  for (const Row& row : kTypes) {
    if (path.ends_with(row.ending)) {
      return row.type;
    }
  }
  return "application/octet-stream";
}

// RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(time_t seconds) {
  tm parts{};
  char text[64];
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts) == 0) {
    return {};
  }
  return text;
}

std::string Disposition(const std::string& path) {
  std::string name;
  bool is_plain = true;
  for (const char c : BaseName(path)) {
    const bool is_safe = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    name += is_safe ? c : '_';
    is_plain = is_plain && is_safe;
  }
  std::string text = "inline; filename=\"" + name + "\"";
  if (!is_plain) {  // RFC 6266, 4.3
    text += "; filename*=UTF-8''" + http::PercentEncode(AsUtf8(BaseName(path)));
  }
  return text;
}

http::ResponseHead FileHead(const http::Exchange& exchange, int status, const OpenFile& file) {
  auto head = MakeHead(exchange, status, GuessType(file.path));
  head.headers.Add("Content-Disposition", Disposition(file.path));
  head.headers.Add("Last-Modified", HttpDate(file.info.st_mtime));
  head.headers.Add("Accept-Ranges", "bytes");
  head.headers.Add("Vary", "Accept-Encoding");
  head.headers.Add("X-Content-Type-Options", "nosniff");
  return head;
}

// The next bytes at `offset`; an empty result is the end.
Result<std::string_view> ReadChunk(const OpenFile& file, uint64_t offset, size_t limit,
                                   std::string& buffer) {
  while (true) {
    const ssize_t bytes = pread(file.fd.get(), buffer.data(), std::min(limit, buffer.size()),
                                static_cast<off_t>(offset));
    if (bytes >= 0) {
      return std::string_view(buffer).substr(0, static_cast<size_t>(bytes));
    }
    if (errno != EINTR) {
      return FailErrno("read", file.path);
    }
  }
}

// Exactly `range`; a file that shrinks meanwhile cuts the connection, as the length is out already.
asio::awaitable<void> SendRange(http::Exchange& exchange, const OpenFile& file,
                                http::ResponseHead head, ByteRange range) {
  if (range.count == 0 || exchange.request().method == "HEAD") {
    if (co_await exchange.Start(std::move(head), range.count)) {
      co_await exchange.Finish();
    }
    co_return;
  }
  if (!co_await exchange.Start(std::move(head), range.count)) {
    co_return;
  }
  std::string buffer(kChunkBytes, '\0');
  while (range.count > 0) {
    const auto chunk = ReadChunk(file, range.first, range.count, buffer);
    if (!chunk || chunk->empty()) {
      exchange.Cut();
      co_return;
    }
    if (!co_await exchange.Write(*chunk)) {
      co_return;
    }
    range.first += chunk->size();
    range.count -= chunk->size();
  }
  co_await exchange.Finish();
}

// Files of unknown length (/proc says 0), and compressed answers.
asio::awaitable<void> SendAll(http::Exchange& exchange, const OpenFile& file,
                              http::ResponseHead head, bool is_compressed) {
  std::optional<Deflater> deflater;
  if (is_compressed) {
    deflater.emplace();
    head.headers.Add("Content-Encoding", "gzip");
  }
  if (!co_await exchange.Start(std::move(head), std::nullopt)) {
    co_return;
  }
  std::string buffer(kChunkBytes, '\0');
  std::string packed;
  uint64_t offset = 0;
  while (true) {
    const auto chunk = ReadChunk(file, offset, buffer.size(), buffer);
    if (!chunk) {
      exchange.Cut();
      co_return;
    }
    offset += chunk->size();
    packed.clear();
    if (deflater) {
      deflater->Step(*chunk, chunk->empty(), packed);
    }
    const std::string_view out = deflater ? std::string_view(packed) : *chunk;
    if (!out.empty() && !co_await exchange.Write(out)) {
      co_return;
    }
    if (chunk->empty()) {
      break;
    }
  }
  co_await exchange.Finish();
}

asio::awaitable<void> SendFile(http::Exchange& exchange, const OpenFile& file) {
  const auto& headers = exchange.request().headers;
  const auto size = static_cast<uint64_t>(file.info.st_size);
  if (const auto since = headers.Find("If-Modified-Since");
      since && *since == HttpDate(file.info.st_mtime)) {
    co_await exchange.Respond(FileHead(exchange, 304, file), {});
    co_return;
  }
  const auto range_header = headers.Find("Range");
  const auto if_range = headers.Find("If-Range");
  if (range_header && (!if_range || *if_range == HttpDate(file.info.st_mtime))) {
    const auto range = ParseRange(*range_header, size);
    if (!range) {
      auto head = MakeHead(exchange, 416, "text/plain");
      head.headers.Add("Content-Range", "bytes */" + std::to_string(size));
      co_await exchange.Respond(std::move(head), {});
      co_return;
    }
    if (*range) {
      auto head = FileHead(exchange, 206, file);
      head.headers.Add("Content-Range", "bytes " + std::to_string((*range)->first) + "-" +
                                            std::to_string((*range)->first + (*range)->count - 1) +
                                            "/" + std::to_string(size));
      co_return co_await SendRange(exchange, file, std::move(head), **range);
    }
  }
  const Coding coding = ChooseCoding(headers.Find("Accept-Encoding"));
  if (coding == Coding::kNone) {
    co_return co_await RespondRestError(exchange, 406, "no acceptable content encoding");
  }
  std::string probe(1, '\0');
  const auto first = size == 0 ? ReadChunk(file, 0, 1, probe) : Result<std::string_view>("");
  const bool is_unsized = first && !first->empty();
  auto head = FileHead(exchange, 200, file);
  if (coding == Coding::kGzip || is_unsized) {
    co_return co_await SendAll(exchange, file, std::move(head), coding == Coding::kGzip);
  }
  co_await SendRange(exchange, file, std::move(head), {.first = 0, .count = size});
}

}  // namespace

asio::awaitable<void> ServeDownload(http::Exchange& exchange, const http::Target& target,
                                    const Settings& settings) {
  const auto name = target.Query("path");
  if (!name || name->empty()) {
    co_return co_await RespondRestError(exchange, 400, "query parameter path is missing");
  }
  const auto user = SelectUser(exchange.request(), target.Query("username"), settings);
  if (!user) {
    co_return co_await RespondRestError(exchange, 401, user.error().message());
  }
  const auto path = ResolvePath(*name, *user, settings.default_workdir);
  if (!path) {
    co_return co_await RespondRestError(exchange, 400, path.error().message());
  }
  const auto file = OpenForDownload(*path);
  if (!file) {
    co_return co_await RespondRestError(exchange, RestStatus(file.error()), file.error().message());
  }
  co_await SendFile(exchange, *file);
}

}  // namespace space::agent
