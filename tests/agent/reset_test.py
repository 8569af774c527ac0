"""All connections of the host are reset at once, as after a restore: processes live, handlers end."""

import os
import socket
import struct
import tempfile
import threading
import unittest

from envd_client import Envd
from envd_test import WithAgent, is_alive, wait_for


def reset(stream):
    """Closes so that the peer sees a reset: what the vsock device sends for streams of before."""
    sock = stream.connection.sock
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.connection.sock = None
    stream.response.close()
    sock.close()


def descriptors_of(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class ResetTest(WithAgent):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Those of an idle agent: the connections of its first health check end in their own time.
        pid, counts = cls.agent.process.pid, []
        wait_for(lambda: counts.append(descriptors_of(pid)) or
                 len(counts) > 10 and len(set(counts[-10:])) == 1)
        cls.idle = counts[-1]

    def setUp(self):
        wait_for(lambda: self.descriptors() <= self.idle)
        self.tcp = Envd(tcp=("127.0.0.1", self.agent.port))

    def descriptors(self):
        return descriptors_of(self.agent.process.pid)

    def start(self, *arguments, **options):
        stream = self.tcp.start(*arguments, **options)
        return stream, next(iter(stream))["start"]["pid"]

    def test_processes_live_and_handlers_end(self):
        folder = tempfile.mkdtemp(prefix="space-reset-")
        scripts = [  # quiet; busy, with a full queue; a terminal; one that ends after the reset
            ("sleep 1000", {}), ("while :; do echo " + "x" * 1000 + "; done", {}),
            ("sleep 1000", {"pty": {"size": {"cols": 80, "rows": 24}}}),
            (f"while [ ! -e {folder}/go ]; do sleep 0.01; done; exit 7", {})]
        started = [self.start("/bin/sh", "-c", script, **options) for script, options in scripts]
        for stream, _ in started:
            reset(stream)
        pids = [pid for _, pid in started]
        # Four pipes or terminals stay; the four connections go.
        own = sum(1 if "pty" in options else 3 for _, options in scripts)
        wait_for(lambda: self.descriptors() <= self.idle + own, 5)
        for pid in pids:
            self.assertTrue(is_alive(pid))
        listed = {item["pid"] for item in self.envd.unary("process.Process/List", {})["processes"]}
        self.assertLessEqual(set(pids), listed)
        follow = self.envd.stream("process.Process/Connect", {"process": {"pid": pids[3]}})
        self.assertIn("start", next(iter(follow)))
        open(folder + "/go", "w").close()
        self.assertEqual([event["end"]["exitCode"] for event in follow if "end" in event], [7])
        for pid in pids[:3]:
            self.envd.signal(pid, "SIGNAL_SIGKILL")
        wait_for(lambda: self.descriptors() <= self.idle, 5)
        os.remove(folder + "/go")
        os.rmdir(folder)

    def test_new_connections_are_served_at_once(self):
        for _ in range(30):
            streams = [self.start("/bin/sleep", "1000") for _ in range(4)]
            for stream, _ in streams:
                reset(stream)
            outputs = [None] * 5
            def run(i):
                outputs[i] = self.tcp.shell("echo on").stdout
            threads = [threading.Thread(target=run, args=(i,)) for i in range(len(outputs))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(5)
            self.assertEqual(outputs, [b"on\n"] * len(outputs))
            for _, pid in streams:
                self.envd.signal(pid, "SIGNAL_SIGKILL")

    def test_uploads_and_downloads_cut_half_way_leave_nothing(self):
        with tempfile.NamedTemporaryFile() as big:
            big.truncate(50 << 20)
            for head in (f"GET /files?path={big.name} HTTP/1.1\r\nHost: x\r\n\r\n",
                         f"POST /files?path={big.name}.up HTTP/1.1\r\nHost: x\r\n"
                         "Content-Type: application/octet-stream\r\nContent-Length: 1000000\r\n\r\n" +
                         "x" * 1000):
                sock = socket.create_connection(("127.0.0.1", self.agent.port))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.sendall(head.encode())
                if head.startswith("GET"):
                    sock.recv(1000)
                wait_for(lambda: self.descriptors() > self.idle)
                sock.close()
                wait_for(lambda: self.descriptors() <= self.idle, 5)
            if os.path.exists(big.name + ".up"):
                os.remove(big.name + ".up")


if __name__ == "__main__":
    unittest.main()
