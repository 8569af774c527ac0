// Random bytes from the kernel and the ids made of them. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace space {

void FillRandom(std::span<std::byte> into);
// `length` characters of a-z and 0-9, uniform. Sandbox ids are "i" and 20 of them (E2B.md 2.1).
std::string RandomLowerAlnum(size_t length);
// `bytes` random bytes as lower-case hex.
std::string RandomHex(size_t bytes);
std::string RandomUuid();

}  // namespace space
