// One file that is being uploaded. Main thread: writes go to the page cache.
#pragma once

#include <string>
#include <string_view>

#include "agent/metadata.h"
#include "agent/users.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

class FileWriter {
 public:
  // Makes missing parents, creates or empties the file, gives it to `user`.
  //   errors: kInvalidArgument for a directory or a parent that is none
  static Result<FileWriter> Create(const std::string& path, const User& user);

  // kExhausted with ENOSPC when the disk is full.
  Result<void> Write(std::string_view bytes);
  Result<void> Finish(const Metadata& metadata);
  const std::string& path() const { return path_; }

 private:
  FileWriter(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  UniqueFd fd_;
};

}  // namespace space::agent
