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
  --only STEP  one step of: packages style build unit asan images e2e bench
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
export SPACE_TEST_TIER=$([ "$all" = 1 ] && echo all || echo quick)
passed=0
failed=0
skipped=0
broken=()
started=$SECONDS
jobs=$(nproc)

wanted() {
  [ ${#only[@]} -eq 0 ] && return 0
  local step
  for step in "${only[@]}"; do [ "$step" = "$1" ] && return 0; done
  return 1
}

# step NAME COMMAND...: runs it with its output in a log and a sign of life every 20 s on the screen.
step() {
  local name=$1 begun=$SECONDS pid
  shift
  wanted "${name%%-*}" || return 0
  printf '== %-18s ' "$name"
  "$@" >"$logs/$name.log" 2>&1 </dev/null &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    [ $(((SECONDS - begun) % 20)) -eq 19 ] && printf '.'
  done
  if wait "$pid"; then
    printf ' ok     %4d s\n' $((SECONDS - begun))
    return 0
  fi
  printf ' FAILED %4d s  (%s)\n' $((SECONDS - begun)) "build/test-logs/$name.log"
  tail -n 40 "$logs/$name.log" | sed 's/^/   | /'
  broken+=("$name")
  failed=$((failed + 1))
  return 1
}

# Adds up "N passed, N failed[, N skipped]" lines and GoogleTest's summaries of one log.
count() {
  wanted "${1%%-*}" || return 0  # its log is of another run
  local numbers
  numbers=$(python3 tools/count-tests "$logs/$1.log")
  read -r p f s <<<"$numbers"
  passed=$((passed + p))
  failed=$((failed + f))
  skipped=$((skipped + s))
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

if wanted packages; then step packages packages || { echo "Could not install packages; is this Debian 12, as root, with a reachable mirror?"; exit 1; }; fi
step build-release build_preset release || exit 1
step style tools/check
count style
step unit unit_tests release
count unit
# The images need the network and a core, the sanitizer build needs the other.
step images images && step images-check images/base/check build/images
count images-check
step asan-build build_preset asan && { step asan unit_tests asan; count asan; }
if [ -e build/images/base.json ]; then
  step e2e tests/e2e/run
  count e2e
fi
if [ "$all" = 1 ]; then
  for bench in bench/boot bench/overhead bench/create bench/fork bench/resume bench/density; do
    step "bench-$(basename $bench)" "$bench" --check
  done
fi

echo
echo "took $((SECONDS - started)) s; logs in build/test-logs"
[ ${#broken[@]} -gt 0 ] && echo "failed steps: ${broken[*]}"
if [ "$skipped" -gt 0 ]; then
  echo "skipped:"
  grep -hE '^\[  SKIPPED \] [A-Za-z]|^skip ' "$logs"/*.log | sort -u | sed 's/^/   /'
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
