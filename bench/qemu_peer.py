"""QEMU's microvm as the peer: boots the same kernel, initramfs, disks and memory once to the agent's hello, saves it to a
file, and restores it by -incoming to the agent's answer on vsock, as often as wanted."""
import os
import socket
import subprocess
import time

HELLO_PORT, AGENT_PORT, GUEST_CID = 1024, 49983, 3


class QemuPeer:
    def __init__(self, images, folder, memory_mib, vcpus):
        self.images, self.folder, self.memory_mib, self.vcpus = images, folder, memory_mib, vcpus
        self.state = os.path.join(folder, "qemu.state")
        self.root = os.path.join(folder, "qemu-root.img")
        subprocess.run(["modprobe", "vhost_vsock"], check=False)

    def arguments(self, extra, is_throwaway):
        snapshot = ",snapshot=on" if is_throwaway else ""
        return ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=off,pic=off,rtc=off,isa-serial=off", "-enable-kvm", "-cpu",
                "host", "-global", "virtio-mmio.force-legacy=false", "-smp", str(self.vcpus), "-m", str(self.memory_mib),
                "-nodefaults", "-no-user-config", "-nographic", "-kernel", f"{self.images}/kernel/vmlinux", "-initrd",
                f"{self.images}/initramfs.img", "-append", "panic=-1 reboot=t pci=off quiet 8250.nr_uarts=0",
                "-device", f"vhost-vsock-device,guest-cid={GUEST_CID}", "-device", "virtio-rng-device",
                "-drive", f"file={self.root},if=none,id=root,format=raw{snapshot}",
                "-device", "virtio-blk-device,drive=root,serial=root",
                "-drive", f"file={self.images}/kernel/modules.img,if=none,id=modules,format=raw,readonly=on",
                "-device", "virtio-blk-device,drive=modules,serial=modules", *extra]

    def start(self, extra, is_throwaway, inherited=()):
        environment = {**os.environ, "TMPDIR": self.folder}
        return subprocess.Popen(self.arguments(extra, is_throwaway), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, env=environment, pass_fds=inherited)

    def save(self, limit_s=300):
        """Boots and saves; the milliseconds from start to hello."""
        # A disk of its own: what the guest wrote before it was saved must be there in each restore.
        subprocess.run(["cp", "--sparse=always", f"{self.images}/base.img", self.root], check=True)
        with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as listener:
            listener.bind((socket.VMADDR_CID_ANY, HELLO_PORT))
            listener.listen(1)
            listener.settimeout(0.5)
            monitor = os.path.join(self.folder, "qemu.monitor")
            begun = time.monotonic()
            child = self.start(["-qmp", f"unix:{monitor},server=on,wait=off"], False)
            try:
                self.await_hello(listener, child, begun + limit_s)
                booted = (time.monotonic() - begun) * 1000
                self.await_answer(child, begun + limit_s)
                self.migrate(monitor)
                return booted
            finally:
                child.kill()
                child.wait()

    def await_hello(self, listener, child, deadline):
        while time.monotonic() < deadline:
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                self.must_run(child)
                continue
            with peer:
                peer.settimeout(10)
                peer.recv(1)
                return
        raise RuntimeError("QEMU's guest said no hello")

    def must_run(self, child):
        if child.poll() is not None:
            raise RuntimeError(f"QEMU ended: {child.stderr.read().decode()[-500:]}")

    def await_answer(self, child, deadline):
        """The agent answers GET /health."""
        while time.monotonic() < deadline:
            self.must_run(child)
            try:
                with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as stream:
                    # A call that the guest is not up to yet must not cost QEMU the 2 s that are usual.
                    stream.settimeout(0.1)
                    stream.connect((GUEST_CID, AGENT_PORT))
                    stream.settimeout(5)
                    stream.sendall(b"GET /health HTTP/1.1\r\nHost: envd\r\n\r\n")
                    if stream.recv(64).startswith(b"HTTP/1.1 204"):
                        return
            except OSError:
                time.sleep(0.001)
        raise RuntimeError("the agent of QEMU's guest does not answer")

    def migrate(self, monitor):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as control:
            control.connect(monitor)
            control.settimeout(300)
            lines = control.makefile("rwb", buffering=0)

            def ask(text):
                lines.write(text.encode() + b"\n")
                while True:
                    line = lines.readline()
                    if b'"return"' in line or b'"error"' in line:
                        return line

            lines.readline()
            ask('{"execute":"qmp_capabilities"}')
            # Not stopped before: what was stopped when it was saved is stopped when it is restored.
            # Unlimited: the default throttles to 128 MiB/s.
            ask('{"execute":"migrate-set-parameters","arguments":{"max-bandwidth":1099511627776}}')
            ask(f'{{"execute":"migrate","arguments":{{"uri":"exec:cat > {self.state}"}}}}')
            while True:
                answer = ask('{"execute":"query-migrate"}')
                if b'"completed"' in answer:
                    return
                if b'"failed"' in answer or b'"error"' in answer:
                    raise RuntimeError(f"QEMU could not save: {answer.decode()}")
                time.sleep(0.05)

    def restore(self, limit_s=120):
        """Milliseconds from the start of QEMU to the agent's answer."""
        file = os.open(self.state, os.O_RDONLY)
        begun = time.monotonic()
        child = self.start(["-incoming", f"fd:{file}"], True, (file,))
        os.close(file)
        try:
            self.await_answer(child, begun + limit_s)
            return (time.monotonic() - begun) * 1000
        finally:
            child.kill()
            child.wait()


def measure(report, images, folder, memory_mib, vcpus, runs):
    """Prints and returns the restore times; empty when QEMU cannot do it here."""
    try:
        os.makedirs(folder, exist_ok=True)
        peer = QemuPeer(images, folder, memory_mib, vcpus)
        report.note(f"QEMU microvm booted to the hello in {peer.save():.0f} ms")
        times = [peer.restore() for _ in range(runs)]
    except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
        report.note(f"QEMU microvm: {problem}")
        times = []
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)  # the emulated host's Python has no shutil
    report.row(f"QEMU microvm -incoming, {memory_mib} MiB, to agent", times, runs)
    return times
