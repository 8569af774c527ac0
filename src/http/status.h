// From an error of ours to the status of an HTTP answer: here and nowhere else.
#pragma once

#include "base/result.h"

namespace space::http {

// kExhausted is 429; an interface whose clients expect another one for it says so where it is used.
int StatusOf(ErrorCode code);

}  // namespace space::http
