#!/usr/bin/env python3
"""Inside bench/boot: boots the same kernel, initramfs with the real agent, disks and memory to the agent's hello on
vsock, by space-vmm and by QEMU's microvm machine in turn. The clock runs from the start of the monitor's process (for
space-vmm: of the driver that starts it) to the arrival of the hello at the host. Run in the folder with the files."""
import os
import pathlib
import socket
import subprocess
import sys
import time

from report import Report, median

PAIRS = int(os.environ.get("PAIRS", "5"))
MEMORY_MIB = int(os.environ.get("MEMORY_MIB", "256"))
LIMIT_S = int(os.environ.get("LIMIT_S", "600"))
HELLO_PORT = 1024


def ours():
    pathlib.Path("top").unlink(missing_ok=True)
    run = subprocess.run(
        ["./vmm-driver", "--vmm", os.path.abspath("space-vmm"), "--kernel", "vmlinux", "--initramfs", "initramfs.img",
         "--memory", f"{MEMORY_MIB}m", "--disk", "root=base.img,top", "--disk", "modules=modules.img:ro",
         "--until", "hello", "--timeout", str(LIMIT_S)],
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
         "-kernel", "vmlinux", "-initrd", "initramfs.img", "-device", "vhost-vsock-device,guest-cid=3",
         "-device", "virtio-rng-device",
         # Writes go to a temporary file, as ours go to a top layer.
         "-drive", "file=base.img,if=none,id=root,format=raw,snapshot=on",
         "-device", "virtio-blk-device,drive=root,serial=root",
         "-drive", "file=modules.img,if=none,id=modules,format=raw,readonly=on",
         "-device", "virtio-blk-device,drive=modules,serial=modules",
         "-append", "panic=-1 reboot=t pci=off quiet 8250.nr_uarts=0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": os.getcwd()})
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
    report = Report(os.environ.get("BENCH_COMMAND", "bench/boot"), os.environ.get("CHECK") == "1")
    version = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout.split()[3]
    report.note(f"guest: kernel {pathlib.Path('release').read_text().strip()}, {MEMORY_MIB} MiB, 1 vCPU; QEMU {version}")
    times = {"space-vmm": [], "QEMU microvm": []}
    for pair in range(PAIRS):
        # The order within a pair alternates, so that neither always follows the other.
        for name, boot in (("space-vmm", ours), ("QEMU microvm", qemu))[::1 if pair % 2 == 0 else -1]:
            times[name].append(boot())
            report.note(f"pair {pair + 1} {name}: {times[name][-1]:.0f} ms")
    for name, values in times.items():
        report.row(f"{name}, start to the agent's hello", values, PAIRS)
    report.check("our median, times QEMU's", median(times["space-vmm"]) / median(times["QEMU microvm"]), 1.05)
    return report.exit_code()


sys.exit(main())
