# shellcheck shell=bash
# What every recipe under images/ shares: options, progress, temporary files, stamps, apt, ext4, cpio.
# Sourced, never run. A recipe calls `begin NAME "$@"` first.

images_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=trees.sh
source "$images_dir/trees.sh"

# Variables that a recipe reads after `begin`.
part=""        # name of the recipe, printed before each line
out=""         # output folder, absolute
work=""        # temporary folder inside $out (same file system, so that mv is atomic)
agent=""       # --agent
force=0        # --force
refresh=0      # --refresh
step_pid=""
ticker_pid=""
started_at=$EPOCHREALTIME

# ---- messages -----------------------------------------------------------------------------------------------------

say() { printf '[%s] %s\n' "$part" "$*"; }
warn() { printf '[%s] warning: %s\n' "$part" "$*" >&2; }

# die MESSAGE [HOW TO GO ON]
die() {
  printf '[%s] error: %s\n' "$part" "$1" >&2
  [[ -z ${2:-} ]] || printf '[%s]   next: %s\n' "$part" "$2" >&2
  exit 1
}

seconds_since() {
  local now=$EPOCHREALTIME
  local tenths=$(((${now/[.,]/} - ${1/[.,]/}) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# ---- start, end, options -------------------------------------------------------------------------------------------

options_help='  --out DIR      where everything is put (made when missing); required
  --agent PATH   static agent binary, becomes /init of the guest initramfs
  --force        build even when nothing changed
  --refresh      ask the package archives again (otherwise once a day)
  --help         this text'

# begin NAME HELP_HEAD ARGS...: parses the common options, takes the lock of this recipe, makes $work.
begin() {
  part=$1
  local help_head=$2
  shift 2
  while (($#)); do
    case $1 in
      --out | --agent)
        (($# >= 2)) || die "$1 needs a value" "see --help"
        if [[ $1 == --out ]]; then out=$2; else agent=$2; fi
        shift 2
        ;;
      --force) force=1; shift ;;
      --refresh) refresh=1; shift ;;
      -h | --help) printf '%s\n\n%s\n' "$help_head" "$options_help"; exit 0 ;;
      *) die "unknown argument '$1'" "see --help" ;;
    esac
  done
  [[ -n $out ]] || die "--out DIR is missing" "see --help"
  mkdir -p "$out/.cache" || die "cannot make the output folder $out"
  out=$(cd "$out" && pwd)
  # One build of one part at a time; other parts may run beside it.
  exec {lock_fd}>"$out/.cache/$part.lock"
  if ! flock -n "$lock_fd"; then
    say "another build of this part is running, waiting for it"
    flock "$lock_fd"
  fi
  # What a killed run left (SIGKILL runs no trap) is ours to remove: we hold the lock.
  rm -rf --one-file-system "$out/.cache/tmp.$part".*
  work=$(mktemp -d "$out/.cache/tmp.$part.XXXXXX")
  trap 'leave $?' EXIT
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
  trap 'interrupted 129' HUP
  umask 022
  export LC_ALL=C TZ=UTC
  # Daemons and sbin tools are off the PATH of ordinary users on Debian.
  PATH=$PATH:/usr/sbin:/sbin
}

leave() {
  trap - EXIT INT TERM HUP
  stop_step
  [[ -z $work ]] || rm -rf --one-file-system "$work"
  exit "$1"
}

interrupted() {
  trap '' INT TERM HUP
  printf '\n[%s] interrupted, cleaning up\n' "$part" >&2
  leave "$1"
}

stop_step() {
  if [[ -n $ticker_pid ]]; then kill "$ticker_pid" 2>/dev/null || true; wait "$ticker_pid" 2>/dev/null || true; fi
  ticker_pid=""
  [[ -n $step_pid ]] || return 0
  # The whole group, and its end is waited for: mmdebstrap takes a moment to clean up behind itself.
  local tries=0
  kill -TERM -- "-$step_pid" 2>/dev/null || true
  while kill -0 -- "-$step_pid" 2>/dev/null && ((++tries < 150)); do sleep 0.1; done
  kill -KILL -- "-$step_pid" 2>/dev/null || true
  wait "$step_pid" 2>/dev/null || true
  step_pid=""
}

need() {  # need TOOL PACKAGE ...: pairs
  local missing=()
  while (($#)); do
    command -v "$1" >/dev/null || missing+=("$2")
    shift 2
  done
  ((${#missing[@]} == 0)) || die "tools are missing" "apt-get install --no-install-recommends ${missing[*]}"
}

# step TITLE COMMAND...: runs it with its output in a log; prints one line with the seconds it took, and signs of life
# when it lasts. Ends the build with the log's tail when the command fails.
# The command runs in its own process group, so that an interrupt can end all of it. errexit holds inside.
step() {
  local title=$1 log=$work/log begun=$EPOCHREALTIME rc=0
  shift
  ticker "$title" "$begun" &
  ticker_pid=$!
  set -m
  (
    trap - EXIT INT TERM HUP
    exec {lock_fd}>&-
    set -euo pipefail
    "$@"
  ) >"$log" 2>&1 </dev/null &
  step_pid=$!
  set +m
  wait "$step_pid" || rc=$?
  step_pid=""
  stop_step
  [[ ! -t 1 ]] || printf '\r\033[K'
  if ((rc != 0)); then
    tail -n 25 "$log" | sed 's/^/    | /' >&2
    die "step '$title' failed after $(seconds_since "$begun") s (exit $rc)" "${step_hint:-mend the cause above and run the same command again; finished parts are not rebuilt}"
  fi
  printf '[%s] %-58s %6s s\n' "$part" "$title" "$(seconds_since "$begun")"
}

ticker() {
  trap - EXIT INT TERM HUP
  local tick=0 never
  exec {lock_fd}>&-
  # Waits without a child, which would outlive us and hold the caller's pipe open.
  exec {never}<> <(:)
  while ! read -r -t 2 -u "$never"; do
    tick=$((tick + 1))
    if [[ -t 1 ]]; then
      printf '\r[%s] %-58s %6s s ...' "$part" "$1" "$(seconds_since "$2")"
    elif ((tick == 1 || tick % 5 == 0)); then  # a log file does not need a line every other second
      printf '[%s]   ... %s, %s s so far\n' "$part" "$1" "$(seconds_since "$2")"
    fi
  done
}

# ---- stamps --------------------------------------------------------------------------------------------------------

# fingerprint: sha256 over the arguments' texts (strings) and over standard input.
fingerprint() { { printf '%s\n' "$@"; cat; } | sha256sum | cut -d' ' -f1; }

# recipe_files FILE...: their content, for fingerprint's standard input. trees.sh is always part of it; this file is not,
# so that a change of messages rebuilds nothing.
recipe_files() { cat "$images_dir/trees.sh" "$@"; }

# up_to_date HASH FILE...: true when the stamp has this hash and all outputs are there.
up_to_date() {
  local hash=$1 file
  shift
  ((force == 0)) || return 1
  for file in "$@"; do [[ -e $file ]] || return 1; done
  [[ -f $out/.cache/$part.stamp && $(<"$out/.cache/$part.stamp") == "$hash" ]]
}

set_stamp() { printf '%s\n' "$1" >"$work/stamp" && mv "$work/stamp" "$out/.cache/$part.stamp"; }

finish() { say "$1, total $(seconds_since "$started_at") s"; }

# ---- apt -----------------------------------------------------------------------------------------------------------
# A private apt state below $out/.cache/apt: sees only Debian bookworm, as if no package were installed, whatever else
# the host has. The host's own apt settings (proxy, authentication) stay in force, since they are what reaches a mirror.

apt_dir() { printf '%s' "$out/.cache/apt"; }

apt_options() {
  local dir
  dir=$(apt_dir)
  apt_opts=(
    -o "Dir::Etc::sourcelist=$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
    -o "Dir::State=$dir/state" -o "Dir::State::lists=$dir/lists" -o "Dir::State::status=$dir/status"
    -o "Dir::Cache=$dir/cache" -o Dir::Cache::pkgcache=pkgcache.bin -o Dir::Cache::srcpkgcache=srcpkgcache.bin
    -o "Dir::Cache::archives=$dir/archives"
    -o APT::Architecture=amd64 -o APT::Architectures=amd64 -o APT::Install-Recommends=false
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o APT::Keep-Downloaded-Packages=true -o APT::Sandbox::User=root -o Acquire::Retries=3
    -o Acquire::GzipIndexes=false
  )
}

# The host's Debian mirrors when it has them for bookworm, else the public ones.
write_sources() {
  local signed="[arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
  local main="" security="" origin codename uri
  while IFS='|' read -r origin codename uri; do
    [[ $origin == Debian ]] || continue
    case $codename in
      bookworm) main=$uri ;;
      bookworm-security) security=$uri ;;
    esac
  done < <(apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null || true)
  main=${main:-http://deb.debian.org/debian}
  security=${security:-http://deb.debian.org/debian-security}
  printf "deb $signed %s %s main\n" \
    "$main" bookworm "$main" bookworm-updates "$security" bookworm-security
}

apt_refresh_now() {
  local dir
  dir=$(apt_dir)
  write_sources >"$dir/sources.list"
  apt-get "${apt_opts[@]}" -qq update && touch "$dir/updated"
}

# Makes the state, and brings the lists up to date when they are older than a day.
apt_prepare() {
  local dir age=999999
  dir=$(apt_dir)
  need apt-get apt flock util-linux
  [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] ||
    die "Debian's archive keys are missing" "apt-get install debian-archive-keyring"
  mkdir -p "$dir"/{state,lists/partial,cache,archives/partial}
  : >>"$dir/status"
  apt_options
  exec {apt_lock}>"$dir/lock"
  flock "$apt_lock"
  [[ ! -e $dir/updated ]] || age=$(($(date +%s) - $(stat -c %Y "$dir/updated")))
  if ((refresh == 1 || age > 86400)); then
    if [[ -e $dir/updated ]] && ! timeout 20 apt-get "${apt_opts[@]}" -qq update >/dev/null 2>&1; then
      warn "the package archive cannot be reached; going on with the lists of $((age / 3600)) h ago"
    elif [[ -e $dir/updated ]]; then
      touch "$dir/updated"
    else
      step_hint="check the network and the Debian mirror in the host's apt sources, then run the same command again" \
        step "fetch package lists" apt_refresh_now
    fi
  fi
  flock -u "$apt_lock"
}

# Newest date among the lists, at day granularity: two builds of one archive state get the same.
archive_date() {
  local newest=0 seconds line
  while IFS= read -r line; do
    seconds=$(date -u -d "${line#Date: }" +%s)
    ((seconds <= newest)) || newest=$seconds
  done < <(grep -h -m1 '^Date: ' "$(apt_dir)"/lists/*Release)
  ((newest > 0)) || die "the package lists carry no date" "remove $(apt_dir) and run the same command again"
  date -u -d "@$newest" +%F
}

# cached_lookup COMMAND...: its output, kept as long as the package lists and the command are the same, since apt takes
# seconds to answer.
cached_lookup() {
  local key file
  key=$(printf '%s\n' "$@" | cat - "$(apt_dir)"/lists/*Release | sha256sum | cut -c1-32)
  file=$out/.cache/lookup.$part.$1
  if [[ ! -s $file || $(head -n 1 "$file") != "$key" ]]; then
    { echo "$key" && "$@"; } >"$work/lookup" || die "apt cannot resolve: ${*:2}" "look at the package names, or run again with --refresh"
    mv "$work/lookup" "$file"
  fi
  tail -n +2 "$file"
}

# resolve PACKAGE...: "name version" of the whole closure of a minimal system with these packages, sorted.
resolve() {
  apt-get "${apt_opts[@]}" -s install '?essential' '?priority(required)' apt "$@" |
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1 \2/p' | sort
}

# fetch_closure PACKAGE...: the same packages as resolve, into the archive cache.
fetch_closure() {
  flock "$apt_lock"
  apt-get "${apt_opts[@]}" -y -qq --download-only install '?essential' '?priority(required)' apt "$@"
  flock -u "$apt_lock"
}

human() { numfmt --to=iec-i --suffix=B "$1"; }
# Bytes that a sparse file really takes.
used_bytes() { echo $(($(stat -c '%b * %B' "$1"))); }
