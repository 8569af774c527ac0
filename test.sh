#!/usr/bin/env bash
# Installs what the tests need, builds, passes all tests, ends with a line of counts.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

usage() {
  cat <<'EOF'
usage: ./test.sh [--all] [--only STEP]...

Runs every test of the project on this machine: style, unit tests (release and sanitizers), image
checks, and the end-to-end tests in microVMs. Where /dev/kvm cannot run Linux guests, they run on the
emulated host. Uses a data directory, port and machine of its own.

  --all        the long tier: bigger counts, benchmarks with --check
  --only STEP  one step of: packages style build unit asan images e2e sdk bench
  -h, --help   this text

Examples:
  ./test.sh                    everything, as CI does
  ./test.sh --only unit        unit tests alone (build first)
EOF
}

all=0
only=()
while [ $# -gt 0 ]; do
  case $1 in
    --all) all=1 ;;
    --only) only+=("${2:?--only needs a step}"); shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

logs=$PWD/build/test-logs
mkdir -p "$logs"
rm -f "$logs"/*.state
export SPACE_TEST_TIER=$([ "$all" = 1 ] && echo all || echo quick)
started=$SECONDS
jobs=$(nproc)

wanted() {
  [ ${#only[@]} -eq 0 ] && return 0
  local step
  for step in "${only[@]}"; do [ "$step" = "$1" ] && return 0; done
  return 1
}

# step NAME COMMAND...: runs it in a process group of its own, its output in a log. NAME.state says
# "running", "ok" or "FAILED", and since when or how long.
step() {
  local name=$1 begun=$SECONDS pid verdict=ok
  shift
  wanted "${name%%-*}" || return 0
  echo "running $begun" >"$logs/$name.state"
  set -m
  "$@" >"$logs/$name.log" 2>&1 </dev/null &
  pid=$!
  set +m
  # shellcheck disable=SC2064  # this pid, not the next one
  trap "kill -TERM -- -$pid 2>/dev/null; wait $pid; exit 143" TERM
  wait "$pid" || verdict=FAILED
  trap - TERM
  echo "$verdict $((SECONDS - begun))" >"$logs/$name.state"
  printf '== %-18s %-6s %5d s\n' "$name" "$verdict" $((SECONDS - begun))
  [ "$verdict" = ok ] && return 0
  echo "   the end of build/test-logs/$name.log:"
  tail -n 40 "$logs/$name.log" | sed 's/^/   | /'
  return 1
}

# What is going on, once a minute: somebody watches.
tell() {
  local file state since text
  trap 'kill $!; exit' TERM
  while sleep 60 & wait $!; do
    text=
    for file in "$logs"/*.state; do
      read -r state since <"$file"
      [ "$state" = running ] && text+="${text:+, }$(basename "$file" .state) for $((SECONDS - since)) s"
    done
    [ -n "$text" ] && echo "   running: $text"
  done
}

packages() {
  local missing
  missing=$(tools/missing-packages deploy/packages/*.txt)
  [ -z "$missing" ] && return 0
  apt-get update
  # shellcheck disable=SC2086  # a list of words
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}
build_preset() { cmake --preset "$1" && cmake --build --preset "$1" -j "$jobs"; }
unit_tests() { ctest --test-dir "build/$1" --verbose; }
images() { images/build --out build/images --agent build/release/bin/space-agent all; }

# Guests on the emulated host keep one core busy, compilers the other: two lanes, the second one yields.
lane_of_guests() {
  step unit unit_tests release
  step images images && step images-check images/base/check build/images
  [ -e build/images/base.json ] || return
  step e2e tests/e2e/run
  step sdk tests/sdk/run
}
lane_of_compilers() {
  renice -n 10 -p "$BASHPID" >/dev/null
  step style tools/check
  step asan-build build_preset asan && step asan unit_tests asan
}

lane_to_start() {
  step packages packages || {
    echo "Could not install packages; is this Debian 12, as root, with a reachable mirror?"
    return 1
  }
  step build-release build_preset release
}
lane_of_benches() {
  local bench
  for bench in boot overhead create fork resume density; do
    step "bench-$bench" "bench/$bench" --check
  done
}

lanes=()
# Runs these functions at the same time; false when one of them is.
run_lanes() {
  local lane pid code=0
  for lane in "$@"; do
    "$lane" &
    lanes+=($!)
  done
  for pid in "${lanes[@]}"; do wait "$pid" || code=1; done
  lanes=()
  return $code
}
tell &
teller=$!
trap 'kill -TERM "$teller" "${lanes[@]}" 2>/dev/null; wait; exit 130' INT TERM
trap 'kill "$teller" 2>/dev/null' EXIT

run_lanes lane_to_start || exit 1
run_lanes lane_of_guests lane_of_compilers
[ "$all" = 0 ] || run_lanes lane_of_benches

# Adds up "N passed, N failed[, N skipped]" lines and GoogleTest's summaries of this run's logs.
passed=0
failed=0
skipped=0
broken=()
for file in "$logs"/*.state; do
  name=$(basename "$file" .state)
  read -r state _ <"$file"
  if [ "$state" != ok ]; then
    broken+=("$name")
    failed=$((failed + 1))
  fi
  case $name in style | unit | images-check | asan | e2e | sdk)
    read -r p f s < <(python3 tools/count-tests "$logs/$name.log")
    passed=$((passed + p))
    failed=$((failed + f))
    skipped=$((skipped + s))
    ;;
  esac
done

echo
echo "took $((SECONDS - started)) s; logs in build/test-logs"
[ ${#broken[@]} -gt 0 ] && echo "failed steps: ${broken[*]}"
if [ "$skipped" -gt 0 ]; then
  echo "skipped:"
  for file in "$logs"/*.state; do
    grep -hE '^\[  SKIPPED \] [A-Za-z]|^skip ' "${file%.state}.log"
  done | sort -u | sed 's/^/   /'
fi
if [ $((passed + failed)) -eq 0 ]; then
  echo "no test ran" >&2
  exit 1
fi
if [ "$skipped" -gt 0 ]; then
  echo "$passed passed, $failed failed, $skipped skipped"
else
  echo "$passed passed, $failed failed"
fi
[ "$failed" -eq 0 ]
