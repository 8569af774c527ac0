#!/usr/bin/env python3
"""Inside bench/boot: boots the same kernel, initramfs and memory size to the guest's hello on vsock, by space-vmm and
by QEMU's microvm machine in turn, and prints medians. The clock runs from the start of the monitor's process (for
space-vmm: of the driver that starts it) to the arrival of the hello at the host. Run in the folder with the files."""
import os
import pathlib
import socket
import subprocess
import sys
import time

PAIRS = int(os.environ.get("PAIRS", "5"))
MEMORY_MIB = int(os.environ.get("MEMORY_MIB", "256"))
LIMIT_S = int(os.environ.get("LIMIT_S", "600"))
HELLO_PORT = 1024
APPEND = "test=hold"


def ours():
    run = subprocess.run(
        ["./vmm-driver", "--vmm", os.path.abspath("space-vmm"), "--kernel", "vmlinux", "--initramfs", "initramfs",
         "--memory", f"{MEMORY_MIB}m", "--until", "hello", "--append", APPEND, "--timeout", str(LIMIT_S)],
        capture_output=True, text=True, check=False)
    for line in run.stdout.splitlines():
        if line.startswith("hello "):
            return int(line.split()[1]) / 1000
    raise SystemExit(f"space-vmm gave no hello: {run.stdout} {run.stderr}")


def qemu():
    listener = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    listener.bind((socket.VMADDR_CID_ANY, HELLO_PORT))
    listener.listen(1)
    listener.settimeout(0.5)
    begun = time.monotonic()
    child = subprocess.Popen(
        ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=off,pic=off,rtc=off,isa-serial=off", "-enable-kvm",
         "-cpu", "host", "-global", "virtio-mmio.force-legacy=false", "-smp", "1", "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-nographic",
         "-kernel", "vmlinux", "-initrd", "initramfs", "-device", "vhost-vsock-device,guest-cid=3",
         "-device", "virtio-rng-device",
         "-append", f"panic=-1 reboot=t pci=off quiet 8250.nr_uarts=0 {APPEND}"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while time.monotonic() - begun < LIMIT_S:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                if child.poll() is not None:
                    raise SystemExit(f"QEMU ended: {child.stderr.read().decode()}") from None
                continue
            with peer:
                peer.settimeout(10)
                peer.recv(1)
                return (time.monotonic() - begun) * 1000
        raise SystemExit(f"QEMU gave no hello in {LIMIT_S} s")
    finally:
        child.kill()
        child.wait()
        listener.close()


def main():
    subprocess.run(["modprobe", "vhost_vsock"], check=False)
    print(f"host: {os.uname().release}, {os.cpu_count()} processors; kernel {pathlib.Path('release').read_text().strip()}, "
          f"{MEMORY_MIB} MiB, 1 vCPU; QEMU {subprocess.run(['qemu-system-x86_64', '--version'], capture_output=True, text=True).stdout.split()[3]}")
    times = {"space-vmm": [], "QEMU microvm": []}
    for pair in range(PAIRS):
        # The order within a pair alternates, so that neither always follows the other.
        for name, boot in (("space-vmm", ours), ("QEMU microvm", qemu))[::1 if pair % 2 == 0 else -1]:
            times[name].append(boot())
            print(f"pair {pair + 1} {name}: {times[name][-1]:.0f} ms")
    medians = {name: sorted(values)[len(values) // 2] for name, values in times.items()}
    ratio = medians["space-vmm"] / medians["QEMU microvm"]
    for name, values in times.items():
        print(f"{name}: median {medians[name]:.0f} ms, from {min(values):.0f} to {max(values):.0f}")
    print(f"ratio {ratio:.3f} (at most 1.05 passes)")
    return 1 if os.environ.get("CHECK") == "1" and ratio > 1.05 else 0


sys.exit(main())
