#!/usr/bin/env python3
"""Inside bench/overhead: what one running VM costs the host beyond the guest's own pages: private resident memory of
space-vmm outside the guest's memory, plus the kernel's memory of its cgroup (page tables of host and guest, KVM,
sockets, stacks). Run in the folder with the files, as root, with cgroup v2."""
import os
import pathlib
import re
import subprocess
import sys
import time

MEMORY_MIB = int(os.environ.get("MEMORY_MIB", "256"))
LIMIT_KIB = 5 * 1024
CGROUP = pathlib.Path("/sys/fs/cgroup/bench-overhead")


def mappings(pid):
    """(size, private, pss-free rss) in KiB and the name of every mapping."""
    current = None
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)", line)
        if head:
            if current:
                yield current
            current = {"kib": (int(head[2], 16) - int(head[1], 16)) // 1024, "private": 0, "name": head[3]}
        elif line.startswith("Private_"):
            current["private"] += int(line.split()[1])
    if current:
        yield current


def main():
    CGROUP.mkdir(exist_ok=True)
    wrapper = pathlib.Path("vmm-in-cgroup")
    wrapper.write_text(f"#!/bin/sh\necho $$ >{CGROUP}/cgroup.procs\nexec {os.path.abspath('space-vmm')}\n")
    wrapper.chmod(0o755)
    driver = subprocess.Popen(
        ["./vmm-driver", "--vmm", os.path.abspath(wrapper), "--kernel", "vmlinux", "--initramfs", "initramfs",
         "--memory", f"{MEMORY_MIB}m", "--append", "test=hold", "--hold", "20s", "--timeout", "300"],
        stdout=subprocess.PIPE, text=True)
    pid = None
    for line in driver.stdout:
        if line.startswith("pid "):
            pid = int(line.split()[1])
        if line.startswith("hello "):
            break
    else:
        raise SystemExit("the guest said no hello")
    time.sleep(2)  # the guest settles; nothing is decided by this
    guest = own = guest_pages = 0
    for mapping in mappings(pid):
        if mapping["kib"] >= MEMORY_MIB * 1024 and not mapping["name"]:
            guest, guest_pages = mapping["kib"], mapping["private"]
        else:
            own += mapping["private"]
    stat = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    tables = int(re.search(r"VmPTE:\s+(\d+)", status)[1])
    kernel = int(stat["kernel"]) // 1024
    if guest == 0:
        raise SystemExit("guest memory not found among the mappings")
    driver.wait()
    total = own + kernel
    print(f"host: {os.uname().release}; guest of {MEMORY_MIB} MiB, {guest_pages} KiB of it touched")
    print(f"private memory of space-vmm: {own} KiB")
    print(f"kernel memory of its cgroup: {kernel} KiB (page tables {tables}, the guest's "
          f"{int(stat.get('sec_pagetables', 0)) // 1024}, slab {int(stat['slab']) // 1024})")
    print(f"overhead: {total} KiB (at most {LIMIT_KIB} passes)")
    return 1 if os.environ.get("CHECK") == "1" and total > LIMIT_KIB else 0


sys.exit(main())
