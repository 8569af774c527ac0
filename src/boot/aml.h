// A small encoder for ACPI machine language: the few objects that our DSDT needs, each function one
// object's bytes. Spec: ACPI 6.4, chapter 20 (AML) and 6.4 (resource data types).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace space::boot::aml {

// Names: up to four of A-Z, 0-9, _ , padded with _; a leading backslash means the root.
std::string Scope(std::string_view name, std::string_view body);
std::string Device(std::string_view name, std::string_view body);
std::string Name(std::string_view name, std::string_view object);

std::string Integer(uint32_t value);
std::string String(std::string_view text);
// "PNP0501" as the compressed 32-bit id.
std::string EisaId(std::string_view id);
std::string Package(std::string_view elements, uint8_t count);
// A buffer of resource descriptors, end tag added.
std::string Resources(std::string_view descriptors);

std::string Memory32(uint32_t start, uint32_t size_bytes);  // read-write
std::string Interrupt(uint32_t gsi);                        // edge, active high, not shared
std::string Ports(uint16_t first, uint8_t count);           // 16-bit decode

}  // namespace space::boot::aml
