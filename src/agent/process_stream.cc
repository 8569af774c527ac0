#include "agent/process_stream.h"

#include <utility>

#include "agent/base64.h"
#include "agent/event_stream.h"
#include "agent/proto/process.pb.h"

namespace space::agent {
namespace {

namespace pb = rpc::process;

constexpr size_t kMaxBatchBytes = 128 * 1024;

std::string_view JsonName(OutputKind kind) {
  switch (kind) {
    case OutputKind::kStdout:
      return "stdout";
    case OutputKind::kStderr:
      return "stderr";
    case OutputKind::kTerminal:
      return "pty";
  }
  return "stdout";
}

// By hand: protobuf's JSON writer takes several times as long, and output may be gigabytes.
void AppendJsonOutput(const Output& output, std::string& batch) {
  std::string payload = R"({"event":{"data":{")";
  payload += JsonName(output.kind);
  payload += R"(":")";
  AppendBase64(*output.bytes, payload);
  payload += R"("}}})";
  AppendEnvelope(0, payload, batch);
}

void AppendProtoOutput(const Output& output, std::string& batch) {
  pb::EventResponse response;
  auto* data = response.mutable_event()->mutable_data();
  switch (output.kind) {
    case OutputKind::kStdout:
      data->set_stdout(*output.bytes);
      break;
    case OutputKind::kStderr:
      data->set_stderr(*output.bytes);
      break;
    case OutputKind::kTerminal:
      data->set_pty(*output.bytes);
      break;
  }
  AppendEnvelope(0, response.SerializeAsString(), batch);
}

std::string TakeBatch(Codec codec, Subscription& subscription) {
  std::string batch;
  while (batch.size() < kMaxBatchBytes) {
    const auto output = subscription.Pop();
    if (!output) {
      break;
    }
    if (codec == Codec::kJson) {
      AppendJsonOutput(*output, batch);
    } else {
      AppendProtoOutput(*output, batch);
    }
  }
  return batch;
}

pb::EventResponse EndEvent(const ProcessEnd& end) {
  pb::EventResponse response;
  auto* event = response.mutable_event()->mutable_end();
  event->set_exit_code(end.exit_code);
  event->set_exited(end.exited);
  event->set_status(end.status);
  if (end.exit_code != 0) {
    event->set_error(end.status);
  }
  return response;
}

class ProcessEvents final : public EventSource {
 public:
  ProcessEvents(std::shared_ptr<Process> process, std::shared_ptr<Subscription> subscription)
      : process_(std::move(process)), subscription_(std::move(subscription)) {}

  void Close() override { subscription_->Close(); }
  bool is_closed() const override { return subscription_->is_closed(); }
  const std::optional<Error>& error() const override { return subscription_->error(); }
  std::string TakeBatch(Codec codec) override {
    std::string batch = space::agent::TakeBatch(codec, *subscription_);
    if (!batch.empty()) {
      process_->OnOutputTaken();
    }
    return batch;
  }
  std::optional<Result<std::string>> TakeEnd(Codec codec) override {
    if (!subscription_->end()) {
      return std::nullopt;
    }
    return AsEnvelope(codec, EndEvent(*subscription_->end()));
  }
  std::string Keepalive(Codec codec) const override {
    pb::EventResponse response;
    response.mutable_event()->mutable_keepalive();
    return AsEnvelope(codec, response);
  }
  Wake& changed() override { return subscription_->changed(); }

 private:
  std::shared_ptr<Process> process_;
  std::shared_ptr<Subscription> subscription_;
};

}  // namespace

asio::awaitable<void> StreamProcess(RpcCall& call, std::shared_ptr<Process> process,
                                    std::shared_ptr<Subscription> subscription,
                                    Clock::time_point deadline) {
  pb::EventResponse start;
  start.mutable_event()->mutable_start()->set_pid(static_cast<uint32_t>(process->pid()));
  std::string first = AsEnvelope(call.codec(), start);
  std::shared_ptr<EventSource> source = std::make_shared<ProcessEvents>(process, subscription);
  co_await StreamEvents(call, std::move(first), std::move(source), deadline);
  process->Unsubscribe(subscription);
}

}  // namespace space::agent
