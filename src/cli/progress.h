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
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  Progress(Progress&&) = delete;
  Progress& operator=(Progress&&) = delete;

  bool is_visible() const { return ticker_ != nullptr; }  // somebody may see the line
  void SetText(std::string what);
  void Finish();  // wipes the line

 private:
  struct Ticker;
  std::shared_ptr<Ticker> ticker_;
};

}  // namespace space::cli
