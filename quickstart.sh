#!/usr/bin/env bash
# From a bare Debian 12 to a command in its own microVM.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

usage() {
  cat <<'EOF'
usage: ./quickstart.sh [--no-install | --undo]

Checks memory and disk, installs Debian packages, builds, makes the guest kernel and the base image,
starts the daemon (on the emulated host where KVM cannot run Linux), runs a hello in a sandbox and says
what to do next. Run it again at any time: what is done already takes seconds.

  --no-install   do not touch packages; fail when one is missing
  --undo         remove what this made: packages it installed, build/ and bin/ (after 'space down --purge',
                 which calls it)
  -h, --help     this text

Examples:
  ./quickstart.sh
  SPACE_CONFIG=$PWD/mine.toml ./quickstart.sh     with folders, port and limits of your own
EOF
}

install=1
undo=0
while (($#)); do
  case $1 in
    --no-install) install=0 ;;
    --undo) undo=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "unknown option: $1" >&2; usage >&2; exit 2 ;;
  esac
  shift
done

logs=$PWD/build/quickstart-logs
# Every package that came with ours, one a line; --undo removes them again.
record=$PWD/build/quickstart-packages
begun=$SECONDS
changes=()

say() { printf '%s\n' "$*"; }
# die WHAT [HOW TO GO ON]
die() {
  printf '\nquickstart: %s\n' "$1" >&2
  [[ -z ${2:-} ]] || printf '  -> %s\n' "$2" >&2
  printf '  Run ./quickstart.sh again afterwards: it goes on where it stopped.\n' >&2
  exit 1
}

# step TITLE HINT COMMAND...: output goes to a log; a sign of life every few seconds.
step() {
  local title=$1 hint=$2 log pid from=$SECONDS
  shift 2
  log=$logs/${title//[^a-z0-9]/-}.log
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  # Ctrl-C ends what runs, not only this script.
  trap 'kill "$pid" 2>/dev/null; wait "$pid" 2>/dev/null; echo; exit 130' INT TERM
  printf '== %-46s' "$title"
  local tick=0
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    tick=$((tick + 1))
    ((tick % 25)) && continue
    if [[ -t 1 ]]; then
      printf '\r== %-46s %4d s  %.60s\033[K' "$title" $((SECONDS - from)) "$(tail -n 1 "$log" | tr -d '\r\033')"
    elif ((tick % 100 == 0)); then
      printf '.'
    fi
  done
  local code=0
  wait "$pid" || code=$?
  trap - INT TERM
  [[ ! -t 1 ]] || printf '\r== %-46s' "$title"
  if ((code)); then
    printf ' FAILED after %d s\n' $((SECONDS - from))
    tail -n 25 "$log" | sed 's/^/   | /' >&2
    die "'$title' failed (exit $code); the whole log is $log" "$hint"
  fi
  printf ' ok %5d s\033[K\n' $((SECONDS - from)) | if [[ -t 1 ]]; then cat; else sed 's/\x1b\[K//'; fi
}

check_host() {
  [[ $(uname -m) == x86_64 ]] || die "this processor is $(uname -m); SPACE runs on x86-64 only"
  ((EUID == 0)) || die "this needs root" "sudo ./quickstart.sh"
  command -v apt-get >/dev/null || die "apt-get is missing: SPACE is built for Debian 12"
  # shellcheck source=/dev/null
  if ! (. /etc/os-release && [[ ${ID:-} == debian && ${VERSION_ID:-} == 12 ]]); then
    say "   note: this is not Debian 12; it may work, but nobody has tried"
  fi
  local memory_mib disk_mib
  memory_mib=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
  ((memory_mib >= 3500)) || die "this host has $memory_mib MiB of memory; 4 GiB are the least, 8 GiB are good"
  disk_mib=$(df -Pm . | awk 'NR == 2 {print $4}')
  local needed=12000
  [[ ! -e build/release/bin/spaced ]] || needed=3000
  ((disk_mib >= needed)) || die "$PWD has $disk_mib MiB free; $needed MiB are needed" "make room"
  say "== memory $memory_mib MiB, disk $disk_mib MiB free, $(nproc) CPUs"
}

packages() {
  local missing
  missing=$(tools/missing-packages deploy/packages/{build,images,machine,run}.txt | tr '\n' ' ')
  if [[ -z ${missing// /} ]]; then
    say "== packages are all there"
    return
  fi
  ((install)) || die "packages are missing: $missing" "apt-get install --no-install-recommends $missing"
  changes+=("installed Debian packages: $missing")
  step "fetch package lists" "check the network and /etc/apt/sources.list" apt-get update
  # shellcheck disable=SC2086  # a list of words
  local before
  before=$(installed)
  step "install $(wc -w <<<"$missing") packages" "read the log; apt-get -f install may help" \
    env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
  comm -13 <(printf '%s\n' "$before") <(installed) >>"$record"
}
installed() { dpkg-query -W -f '${db:Status-Abbrev} ${binary:Package}\n' | awk '$1 == "ii" {print $2}' | LC_ALL=C sort; }

undo() {
  local packages others
  packages=$(cat "$record" 2>/dev/null | tr '\n' ' ')
  if [[ -n ${packages// /} ]]; then
    # What came later and needs one of them would go too: then they stay.
    # shellcheck disable=SC2086  # a list of words
    others=$(apt-get -s purge $packages | awk '$1 == "Purg" || $1 == "Remv" {print $2}' | LC_ALL=C sort -u |
      comm -23 - <(tr ' ' '\n' <<<"$packages" | sed 's/:.*//' | LC_ALL=C sort -u) | tr '\n' ' ')
    if [[ -n ${others// /} ]]; then
      say "kept the packages of quickstart.sh, which others need now: $others"
      say "  by hand: apt-get purge $packages"
    else
      # shellcheck disable=SC2086
      DEBIAN_FRONTEND=noninteractive apt-get purge -y $packages >/dev/null || die "cannot remove packages: $packages"
      say "removed $(wc -w <<<"$packages") packages"
    fi
  fi
  rm -rf build bin || die "cannot remove $PWD/build and $PWD/bin"
  say "removed $PWD/build and $PWD/bin"
}

build() {
  # One compiler takes up to 1 GiB.
  local jobs memory_jobs
  jobs=$(nproc)
  memory_jobs=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  ((memory_jobs >= 1)) || memory_jobs=1
  ((jobs <= memory_jobs)) || jobs=$memory_jobs
  cmake --preset release &&
    cmake --build --preset release -j "$jobs" --target space spaced space-vmm space-agent
}

link_programs() {
  mkdir -p bin
  local name
  for name in space spaced space-vmm space-agent; do
    ln -sfn "../build/release/bin/$name" "bin/$name" || return 1
  done
}

if ((undo)); then
  undo
  exit
fi
mkdir -p "$logs" || exit 1
check_host
packages
step "build" "read the log; the compiler's first error counts" build
link_programs || die "cannot make links in $PWD/bin"
images=$(./bin/space config show images_dir) || die "the configuration cannot be read, see above"
[[ -d $images ]] || changes+=("made $images (guest kernel, base image, emulated host)")
step "kernel and images in $images" "check the network and the disk; finished parts are kept" \
  images/build --out "$images" --agent "$PWD/build/release/bin/space-agent" all
changes+=("made $PWD/build and $PWD/bin")
./bin/space config show data_dir >build/quickstart-data-dir

say "== start"
./bin/space up || die "'space up' failed, see above" "./bin/space doctor says what is wrong and how to mend it"
changes+=("started the daemon; its data is in data_dir, your key in ~/.config/space/credentials")

say "== hello from a microVM"
hello=$(./bin/space run sh -c 'echo "hello from $(uname -sr), PID 1 is $(cat /proc/1/comm), I am $(id -un)"') ||
  die "the hello in a sandbox failed" "./bin/space doctor; ./bin/space ls -a"
say "   $hello"

cat <<EOF

SPACE is ready ($((SECONDS - begun)) s). Next:

  ./bin/space run python3 -c 'print(6*7)'     a command in a microVM of its own
  ./bin/space run -t bash                     a terminal in one
  id=\$(./bin/space create)                    one that stays; then exec, shell, cp, logs, kill
  ./bin/space --help                          everything else

For an E2B SDK (eval "\$(./bin/space env)" sets these):

$(./bin/space env | sed 's/^/  /')

What this changed on the host:
EOF
printf '  - %s\n' "${changes[@]}"
say "Undo all of it: ./bin/space down --purge"
