// One line on a terminal for what takes longer than two seconds: "creating sandbox ... 9 s".
// Nothing when standard error is no terminal.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/any_io_executor.hpp>

namespace space::cli {

class Progress {
 public:
  Progress(boost::asio::any_io_executor executor, std::string what);
  ~Progress();  // wipes the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

 private:
  struct Ticker;
  std::shared_ptr<Ticker> ticker_;
};

}  // namespace space::cli
