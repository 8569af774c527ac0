# One call per folder of src/ and per program of apps/. Targets are space::<name>; DEPS equals the
# row of tools/layers.txt.

find_package(GTest REQUIRED)
find_package(Threads REQUIRED)

# Two ways to spare the compiler work. ccache makes the second build of anything quick, precompiled
# headers halve the first one of what uses Asio; a header of 200 MB is nothing for ccache, so it is one
# or the other: ccache where it holds something already. SPACE_PCH keeps what the first configuration
# chose.
find_program(SPACE_CCACHE ccache)
set(cached_files 0)
if(SPACE_CCACHE)
  execute_process(COMMAND ${SPACE_CCACHE} --print-stats OUTPUT_VARIABLE cache_stats ERROR_QUIET)
  if(cache_stats MATCHES "files_in_cache[ \t]+([0-9]+)")
    set(cached_files ${CMAKE_MATCH_1})
  endif()
endif()
if(cached_files LESS 500 AND NOT SPACE_FUZZ)
  set(prefer_pch ON)
else()
  set(prefer_pch OFF)
endif()
option(SPACE_PCH "Precompiled headers instead of ccache" ${prefer_pch})
# Paths relative to the source folder, so that another clone finds what this one compiled.
if(SPACE_CCACHE AND NOT SPACE_PCH)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=1 ${SPACE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

# Warnings and sanitizers: linked PRIVATE by everything of ours, so that no user inherits them.
add_library(space_flags INTERFACE)
target_compile_options(space_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Werror)
target_compile_definitions(space_flags INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION
                                                 BOOST_BEAST_SEPARATE_COMPILATION)
if(SPACE_SANITIZE)
  target_compile_options(space_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                               -fno-omit-frame-pointer)
  target_link_options(space_flags INTERFACE -fsanitize=address,undefined)
endif()
if(SPACE_FUZZ)
  # Coverage for libFuzzer in every library; the harnesses of fuzz/ link the engine.
  target_compile_options(space_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined
                                               -fno-sanitize-recover=all)
  target_link_options(space_flags INTERFACE -fsanitize=address,undefined)
endif()
find_program(SPACE_MOLD mold)
if(SPACE_MOLD AND NOT SPACE_SANITIZE AND NOT SPACE_FUZZ)
  target_link_options(space_flags INTERFACE -fuse-ld=mold)
endif()

# Boost 1.81: header only; Asio and Beast are compiled once, into space_asio (src/http/asio.cc).
add_library(space_boost INTERFACE)
target_include_directories(space_boost SYSTEM INTERFACE /usr/include)
target_link_libraries(space_boost INTERFACE Threads::Threads)

# What nearly every file with coroutines includes (src/http/CMakeLists.txt).
function(space_use_asio_headers target)
  if(SPACE_PCH AND TARGET space_asio_headers)
    target_precompile_headers(${target} REUSE_FROM space_asio_headers)
    # GCC 12 forgets that a precompiled <string> is a system header, and then warns of what it inlines
    # from it (GCC PR 105651 and its relatives). Builds without the header keep these warnings.
    target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow)
  endif()
endfunction()

# space_library(NAME SRCS a.cc DEPS base state PRIVATE_DEPS lib TESTS a_test.cc)
function(space_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS;PRIVATE_DEPS;TESTS" ${ARGN})
  add_library(space_${name} STATIC ${A_SRCS})
  add_library(space::${name} ALIAS space_${name})
  target_include_directories(space_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM A_DEPS REPLACE "^([a-z_]+)$" "space::\\1")
  target_link_libraries(space_${name} PUBLIC ${A_DEPS} PRIVATE space_flags ${A_PRIVATE_DEPS})
  if("http" IN_LIST ARGN OR name STREQUAL "http")
    space_use_asio_headers(space_${name})
  endif()
  if(A_TESTS)
    add_executable(${name}_test ${A_TESTS})
    target_link_libraries(${name}_test PRIVATE space::${name} space_flags ${A_PRIVATE_DEPS}
                                               GTest::gtest_main)
    if("http" IN_LIST ARGN OR name STREQUAL "http")
      space_use_asio_headers(${name}_test)
    endif()
    add_test(NAME ${name} COMMAND ${name}_test)
    set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  endif()
endfunction()

# space_program(NAME SRCS main.cc DEPS vmm) -> bin/NAME in the build folder
function(space_program name)
  cmake_parse_arguments(A "STATIC" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  list(TRANSFORM A_DEPS REPLACE "^([a-z_]+)$" "space::\\1")
  target_link_libraries(${name} PRIVATE ${A_DEPS} space_flags)
  if("http" IN_LIST ARGN OR "agent" IN_LIST ARGN OR "api" IN_LIST ARGN OR "cli" IN_LIST ARGN)
    space_use_asio_headers(${name})
  endif()
  if(A_STATIC AND NOT SPACE_SANITIZE)  # the sanitizers need the dynamic loader
    target_link_options(${name} PRIVATE -static)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()
