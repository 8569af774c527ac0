#include "agent/upload.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/access.h"
#include "agent/body_reader.h"
#include "agent/entry.h"
#include "agent/file_writer.h"
#include "agent/metadata.h"
#include "agent/multipart.h"
#include "agent/paths.h"
#include "agent/respond.h"
#include "base/log.h"

namespace space::agent {
namespace {

struct UploadPlan {
  User user;
  std::string workdir;
  std::optional<std::string> path;  // of the query
  Metadata metadata;
};

std::string AnswerJson(const std::vector<std::string>& paths, const Metadata& metadata) {
  std::string json = "[";
  for (const std::string& path : paths) {
    json += json.size() > 1 ? "," : "";
    json += "{\"path\":\"" + log::EscapeJson(AsUtf8(path)) + "\",\"name\":\"" +
            log::EscapeJson(AsUtf8(BaseName(path))) + "\",\"type\":\"file\"";
    std::string pairs;
    for (const auto& [key, value] : metadata) {
      pairs += pairs.empty() ? "\"" : ",\"";
      pairs += log::EscapeJson(key) + "\":\"" + log::EscapeJson(value) + "\"";
    }
    if (!pairs.empty()) {
      json += ",\"metadata\":{" + pairs + "}";
    }
    json += "}";
  }
  return json + "]";
}

// Writes the parts named "file" to their places.
class FileParts : public MultipartSink {
 public:
  explicit FileParts(const UploadPlan& plan) : plan_(plan) {}

  const std::vector<std::string>& written() const { return written_; }

  Result<void> OnPartBegin(const PartHead& head) override {
    if (head.name != "file") {
      return {};  // other fields of a form are not ours
    }
    if (!plan_.path && (!head.filename || head.filename->empty())) {
      return Fail(ErrorCode::kInvalidArgument, "part has no filename and the query no path");
    }
    if (plan_.path && !written_.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "only one file may be uploaded to a path");
    }
    const std::string& name = plan_.path ? *plan_.path : *head.filename;
    auto path = ResolvePath(name, plan_.user, plan_.workdir);
    if (!path) {
      return Fail(std::move(path).error());
    }
    if (!targets_.insert(*path).second) {
      return Fail(ErrorCode::kInvalidArgument, "file is uploaded twice", *path);
    }
    auto writer = FileWriter::Create(*path, plan_.user);
    if (!writer) {
      return Fail(std::move(writer).error());
    }
    writer_ = *std::move(writer);
    return {};
  }
  Result<void> OnPartData(std::string_view bytes) override {
    return writer_ ? writer_->Write(bytes) : Result<void>();
  }
  Result<void> OnPartEnd() override {
    if (!writer_) {
      return {};
    }
    auto finished = writer_->Finish(plan_.metadata);
    written_.push_back(writer_->path());
    writer_.reset();
    return finished;
  }

 private:
  const UploadPlan& plan_;
  std::optional<FileWriter> writer_;
  std::set<std::string> targets_;
  std::vector<std::string> written_;
};

asio::awaitable<Result<std::vector<std::string>>> TakeMultipart(BodyReader& body,
                                                                std::string_view content_type,
                                                                const UploadPlan& plan) {
  const auto boundary = MultipartBoundary(content_type);
  if (!boundary) {
    co_return Fail(boundary.error());
  }
  FileParts parts(plan);
  MultipartParser parser(*boundary, parts);
  while (true) {
    const auto chunk = co_await body.Next();
    if (!chunk) {
      co_return Fail(chunk.error());
    }
    auto fed = chunk->empty() ? parser.Finish() : parser.Feed(*chunk);
    if (!fed) {
      co_return Fail(std::move(fed).error());
    }
    if (chunk->empty()) {
      co_return parts.written();
    }
  }
}

asio::awaitable<Result<std::vector<std::string>>> TakeWhole(BodyReader& body,
                                                            const UploadPlan& plan) {
  if (!plan.path) {
    co_return Fail(ErrorCode::kInvalidArgument, "query parameter path is missing");
  }
  const auto path = ResolvePath(*plan.path, plan.user, plan.workdir);
  if (!path) {
    co_return Fail(path.error());
  }
  auto writer = FileWriter::Create(*path, plan.user);
  if (!writer) {
    co_return Fail(std::move(writer).error());
  }
  while (true) {
    const auto chunk = co_await body.Next();
    if (!chunk) {
      co_return Fail(chunk.error());
    }
    auto done = chunk->empty() ? writer->Finish(plan.metadata) : writer->Write(*chunk);
    if (!done) {
      co_return Fail(std::move(done).error());
    }
    if (chunk->empty()) {
      co_return std::vector<std::string>{*path};
    }
  }
}

asio::awaitable<Result<std::vector<std::string>>> Take(http::Exchange& exchange,
                                                       const UploadPlan& plan) {
  auto body = BodyReader::Create(exchange);
  if (!body) {
    co_return Fail(std::move(body).error());
  }
  const auto content_type = exchange.request().headers.Find("Content-Type").value_or("");
  const auto type = content_type.substr(0, content_type.find_first_of("; "));
  if (http::EqualsIgnoringCase(type, "multipart/form-data")) {
    co_return co_await TakeMultipart(*body, content_type, plan);
  }
  if (http::EqualsIgnoringCase(type, "application/octet-stream")) {
    co_return co_await TakeWhole(*body, plan);
  }
  co_return Fail(ErrorCode::kInvalidArgument,
                 "Content-Type must be multipart/form-data or application/octet-stream");
}

}  // namespace

asio::awaitable<void> ServeUpload(http::Exchange& exchange, const http::Target& target,
                                  const Settings& settings) {
  auto user = SelectUser(exchange.request(), target.Query("username"), settings);
  auto metadata = MetadataFromHeaders(exchange.request().headers);
  if (!user || !metadata) {
    const Error& error = user ? metadata.error() : user.error();
    co_return co_await RespondRestError(exchange, RestStatus(error), error.message());
  }
  UploadPlan plan{.user = *std::move(user),
                  .workdir = settings.default_workdir,
                  .path = std::nullopt,
                  .metadata = *std::move(metadata)};
  if (const auto path = target.Query("path"); path && !path->empty()) {
    plan.path = std::string(*path);
  }
  const auto taken = co_await Take(exchange, plan);
  if (!taken) {
    co_return co_await RespondRestError(exchange, RestStatus(taken.error()),
                                        taken.error().message());
  }
  co_await RespondJson(exchange, AnswerJson(*taken, plan.metadata));
}

}  // namespace space::agent
