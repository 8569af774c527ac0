// A Connect server stream that follows something: events as they come, keepalives in between, an
// end. Agent's main thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/rpc.h"

namespace space::agent {

class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  virtual ~EventSource() = default;

  // The client has left: nobody takes what comes from here on.
  virtual void Close() = 0;
  virtual bool is_closed() const = 0;
  // Overtakes what is queued, and ends the stream.
  virtual const std::optional<Error>& error() const = 0;
  // Envelopes of what is new, a bounded amount; empty when there is nothing.
  virtual std::string TakeBatch(Codec codec) = 0;
  // When all has been taken and nothing more can come: the end, as an error, or as the last
  // envelopes.
  virtual std::optional<Result<std::string>> TakeEnd(Codec codec) = 0;
  virtual std::string Keepalive(Codec codec) const = 0;
  virtual Wake& changed() = 0;
};

// Writes `first` (envelopes), then what `source` gives until its end, the client's leaving or
// `deadline`.
asio::awaitable<void> StreamEvents(RpcCall& call, std::string first,
                                   std::shared_ptr<EventSource> source, Clock::time_point deadline);

// One message as an envelope.
std::string AsEnvelope(Codec codec, const google::protobuf::Message& message);

}  // namespace space::agent
