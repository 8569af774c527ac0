// Files and folders between this host and a sandbox.
#pragma once

#include <memory>
#include <string>

#include "cli/envd.h"
#include "cli/signals.h"

namespace space::cli {

// One end of a copy: "ID:PATH" is in a sandbox, "-" is our standard input or output.
struct CopyPlace {
  std::string sandbox;  // empty: here
  std::string path;
  bool is_stream() const { return sandbox.empty() && path == "-"; }
};
CopyPlace ParseCopyPlace(const std::string& text);

// Local file, folder or stream to the sandbox. A target that is a folder there gets the source's
// name below it. Folders go as tar, which both sides need. A signal ends it and takes back what is
// half done.
asio::awaitable<Result<void>> CopyIn(std::shared_ptr<EnvdTarget> target, std::string source,
                                     FilePlace place, EndSignals& signals);
// The other way. What a guest sent never becomes a device, a set-id program or a file outside
// `into`.
asio::awaitable<Result<void>> CopyOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                      std::string into, EndSignals& signals);

}  // namespace space::cli
