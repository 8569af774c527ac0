#include "machine/guest_files.h"

namespace space::machine {

// Everything runs in sessions of its own, away from init's.
std::string StartScript() {
  return R"script(#!/bin/bash
# Written by `space machine start`; run once by init.
export PATH=/opt/space/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/root LANG=C.UTF-8 TZ=UTC
modprobe virtio_console || echo "space-machine: no virtio_console" >/dev/console
mkdir -p /etc/space /run/space /var/log/space
[[ ! -e /opt/space/config.toml ]] || install -m 0600 /opt/space/config.toml /etc/space/config.toml
ln -sf /opt/space/bin/* /usr/local/bin/

# One VM without a processor, for ever. KVM patches the scheduler's code when the first VM of a host
# is made and when the last one is gone, and QEMU's emulation can go on executing the old bytes where
# two processors run the code that is patched: both then take the same int3 without end. With this
# VM it is patched once, while little runs. The child keeps what the parent opened.
[[ ! -e /dev/kvm ]] || python3 -c '
import fcntl, os, signal
KVM_CREATE_VM = 0xAE01
kept = fcntl.ioctl(os.open("/dev/kvm", os.O_RDWR), KVM_CREATE_VM, 0)
if os.fork() == 0:
    os.setsid()
    signal.pause()
' </dev/null >/dev/null 2>&1 || echo "space-machine: no VM could be kept" >/dev/console

# keep NAME COMMAND...: runs it, and again a second after it has ended.
keep() {
  local name=$1
  shift
  setsid bash -c '
    name=$1
    shift
    log=/var/log/space/$name.log
    while :; do
      "$@" >>"$log" 2>&1 </dev/null
      code=$?
      echo "space-machine: $name ended with $code" >>"$log"
      (( code != 127 && code != 126 )) || exit
      sleep 1
    done' keep "$name" "$@" >/dev/null 2>&1 </dev/null &
  echo $! >"/run/keep-$name.pid"
}

# Logs live in memory: above 8 MiB the older part goes to NAME.log.1.
setsid bash -c 'while sleep 20; do
  for log in /var/log/space/*.log; do
    [[ -e $log ]] && (( $(stat -c %s "$log") > 8388608 )) && cp "$log" "$log.1" && : >"$log"
  done
done' >/dev/null 2>&1 </dev/null &

keep agent /opt/space/bin/space-agent serve --listen unix:/run/space-agent.sock
keep relay /opt/space/bin/space machine-relay
if [[ -x /opt/space/bin/spaced && -e /opt/space-images/kernel/vmlinux ]]; then
  keep spaced /opt/space/bin/spaced --config /etc/space/config.toml
fi
)script";
}

std::string StopScript() {
  return R"script(#!/bin/bash
# Written by `space machine start`; run by the relay when the host asks the machine to stop.
[[ ! -e /run/keep-spaced.pid ]] || kill -KILL "$(</run/keep-spaced.pid)" 2>/dev/null
pkill -TERM -x spaced 2>/dev/null
for ((i = 0; i < 50; i++)); do pgrep -x spaced >/dev/null || break; sleep 0.1; done
pkill -KILL -x spaced 2>/dev/null
pkill -KILL -x space-vmm 2>/dev/null
sync
umount /var/lib/space 2>/dev/null || mount -o remount,ro /var/lib/space 2>/dev/null
exit 0
)script";
}

}  // namespace space::machine
