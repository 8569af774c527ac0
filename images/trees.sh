# shellcheck shell=bash
# How trees and images are made. Sourced by lib.sh; part of every stamp, since it decides what the outputs hold.

# debian_tree TAR EPOCH PACKAGES(comma separated) [mmdebstrap options]: a minimal bookworm with the packages, as a tar
# with sorted members, numeric owners and clamped times. Packages come from the cache only, so nothing of the mirror is
# needed inside; sources.list is replaced by the public names.
debian_tree() {
  local tar=$1 epoch=$2 packages=$3 dir
  shift 3
  dir=$(apt_dir)
  # What a killed mmdebstrap leaves goes with $work. Its user namespace could not get in there, so only as root.
  if ((EUID == 0)); then export TMPDIR=$work; fi
  SOURCE_DATE_EPOCH=$epoch mmdebstrap --variant=minbase --architectures=amd64 --format=tar \
    --skip=update,essential/unlink \
    --aptopt='APT::Install-Recommends "false"' --dpkgopt='force-unsafe-io' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/locale/locale.alias' \
    --dpkgopt='path-exclude=/usr/share/gcc/python/*' \
    --setup-hook="mkdir -p \"\$1/var/cache/apt/archives\" \"\$1/var/lib/apt/lists\"" \
    --setup-hook="cp -a $(printf %q "$dir")/lists/. \"\$1/var/lib/apt/lists/\"" \
    --setup-hook="cp -l $(printf %q "$dir")/archives/*.deb \"\$1/var/cache/apt/archives/\" 2>/dev/null || cp $(printf %q "$dir")/archives/*.deb \"\$1/var/cache/apt/archives/\"" \
    --include="$packages" \
    "$@" \
    --customize-hook="$images_dir/neutral \"\$1\"" \
    bookworm "$tar" "$dir/sources.list"
}

# as_root COMMAND...: root, or root of a user namespace with the ids that a tree needs.
as_root() {
  if ((EUID == 0)); then "$@"; else mmdebstrap --unshare-helper "$@"; fi
}

# ext4_image IMAGE TREE EPOCH UUID LABEL SIZE [mke2fs options]: from the tar or folder TREE, without mounting anything.
# Fixed ids, time and features; no journal unless asked for. MKE2FS_EXTENDED adds extended options.
ext4_image() {
  as_root bash "$images_dir/ext4" "$@"
}

# cpio_image IMAGE FOLDER: newc, sorted, no times, owner root, zstd (smallest and the kernel unpacks it fastest).
cpio_image() {
  local image=$1 folder=$2
  find "$folder" -exec touch -h -d @0 {} +
  (cd "$folder" && find . -mindepth 1 -printf '%P\0' | sort -z |
    cpio --quiet --null --create --format=newc --reproducible --owner=+0:+0) |
    zstd -q -T0 -10 -o "$image.new"
  mv "$image.new" "$image"
}

# load_order MODULES_ROOT RELEASE MODULE...: paths of the modules with all they depend on, in an order that loads.
# Built-in ones vanish.
load_order() {
  local root=$1 release=$2 module
  shift 2
  for module in "$@"; do
    modprobe --dirname "$root" --set-version "$release" --show-depends "$module" |
      sed -n 's/^insmod \([^ ]*\).*/\1/p'
  done | awk '!seen[$0]++'
}

# module_folder MODULES_ROOT RELEASE FOLDER MODULE...: the files, unpacked, and `order` with one name per line.
module_folder() {
  local root=$1 release=$2 folder=$3 path name
  shift 3
  mkdir -p "$folder"
  : >"$folder/order"
  while IFS= read -r path; do
    name=$(basename "$path")
    case $name in
      *.xz) name=${name%.xz}; xz -dc "$path" >"$folder/$name" ;;
      *.zst) name=${name%.zst}; zstd -qdc "$path" >"$folder/$name" ;;
      *.gz) name=${name%.gz}; gzip -dc "$path" >"$folder/$name" ;;
      *) cp "$path" "$folder/$name" ;;
    esac
    chmod 0644 "$folder/$name"
    printf '%s\n' "$name" >>"$folder/order"
  done < <(load_order "$root" "$release" "$@")
  [[ -s $folder/order ]] || { echo "no module found for: $*" >&2; return 1; }
}
