"""A small client of the daemon, fast enough to measure it: one connection each, no libraries but Python's smallest set.
Times are of time.monotonic(), in milliseconds."""
import ast
import base64
import os
import re
import socket
import struct
import subprocess
import threading
import time

HOST = os.environ.get("BENCH_HOST", "127.0.0.1")
PORT = int(os.environ.get("BENCH_PORT", "3000"))
KEY = os.environ.get("BENCH_KEY", "")


def decode(text):
    """JSON of our own daemon as Python values; the emulated host's Python has no json module."""
    words = {"true": "True", "false": "False", "null": "None"}
    return ast.literal_eval(re.sub(r'"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b',
                                   lambda m: words.get(m[0], m[0].replace("\\/", "/")), text))


class Connection:
    def __init__(self):
        self.socket = socket.create_connection((HOST, PORT), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ahead = b""

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def more(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the daemon closed the connection")
        self.ahead += data

    def until(self, mark):
        while mark not in self.ahead:
            self.more()
        part, self.ahead = self.ahead.split(mark, 1)
        return part

    def exactly(self, size):
        while len(self.ahead) < size:
            self.more()
        part, self.ahead = self.ahead[:size], self.ahead[size:]
        return part

    def call(self, method, path, body=b"", headers=()):
        """Status and body."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}:{PORT}", f"Content-Length: {len(body)}",
                 *(f"{name}: {value}" for name, value in headers)]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = self.until(b"\r\n\r\n").decode()
        status = int(head.split(" ", 2)[1])
        length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
        if length:
            return status, self.exactly(int(length[1]))
        if not re.search(r"(?i)\r\ntransfer-encoding: *chunked", head):
            return status, b""
        data = b""
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            data += self.exactly(size)
            self.until(b"\r\n")
            if size == 0:
                return status, data


def api(method, path, body=None, connection=None):
    """Status and decoded answer of one API call. `body` is JSON text."""
    own = connection or Connection()
    try:
        status, data = own.call(method, path, (body or "").encode(),
                                [("X-API-KEY", KEY), ("Content-Type", "application/json")])
        return status, decode(data.decode()) if data[:1] in (b"{", b"[") else None
    finally:
        if connection is None:
            own.close()


def timed(method, path, body=""):
    """Status, milliseconds and decoded answer of a request by bench-request: an emulated host's Python alone takes longer
    than most of them."""
    done = subprocess.run(
        [os.path.join(os.environ["BENCH_PROGRAMS"], "bench-request"), HOST, str(PORT), method, path, f"X-API-KEY: {KEY}",
         "Content-Type: application/json"], input=body.encode(), check=True, capture_output=True)
    head, _, data = done.stdout.decode().partition("\n")
    status, micros = map(int, head.split())
    return status, micros / 1000, decode(data) if data[:1] in ("{", "[") else None


def must(method, path, body=None):
    status, answer = api(method, path, body)
    if status // 100 != 2:
        raise RuntimeError(f"{method} {path}: {status} {answer}")
    return answer


def command(sandbox, arguments=("/bin/true",), connection=None):
    """Runs a program in the sandbox (an answer of the API that has its id and token) to its end; its output."""
    quoted = ",".join('"' + a.replace("\\", "\\\\").replace('"', '\\"') + '"' for a in arguments[1:])
    text = f'{{"process":{{"cmd":"{arguments[0]}","args":[{quoted}]}},"stdin":false}}'.encode()
    own = connection or Connection()
    try:
        status, data = own.call(
            "POST", "/process.Process/Start", b"\0" + struct.pack(">I", len(text)) + text,
            [("E2b-Sandbox-Id", sandbox["sandboxID"]), ("E2b-Sandbox-Port", "49983"),
             ("X-Access-Token", sandbox.get("envdAccessToken", "")), ("Authorization", "Basic cm9vdDo="),
             ("Content-Type", "application/connect+json"), ("Connect-Protocol-Version", "1")])
    finally:
        if connection is None:
            own.close()
    if status != 200 or b'"exited":true' not in data or re.search(rb'"exitCode":[^0,}]', data):
        raise RuntimeError(f"command in {sandbox['sandboxID']}: {status} {data[-300:]}")
    return data


def output(sandbox, script):
    """What a shell script printed."""
    data = command(sandbox, ("/bin/sh", "-c", script))
    return b"".join(base64.b64decode(part) for part in re.findall(rb'"stdout":"([^"]*)"', data)).decode()


def elapsed(begun):
    return (time.monotonic() - begun) * 1000


def create(template, timeout=600, extra="", exact=False):
    """A sandbox and the milliseconds that it took, `exact` without those of this interpreter. RuntimeError when it was refused."""
    body = f'{{"templateID":"{template}","timeout":{timeout}{extra}}}'
    if exact:
        status, took, answer = timed("POST", "/v2/sandboxes", body)
    else:
        begun = time.monotonic()
        status, answer = api("POST", "/v2/sandboxes", body)
        took = elapsed(begun)
    if status != 201:
        raise RuntimeError(f"create: {status} {answer}")
    return answer, took


def kill(sandbox):
    must("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


def kill_all():
    for sandbox in must("GET", "/v2/sandboxes?limit=100"):
        api("DELETE", f"/sandboxes/{sandbox['sandboxID']}")


def pool_of(template):
    for entry in must("GET", "/space/v1/pool")["templates"]:
        if entry["templateID"].startswith(template):
            return entry
    return None


def wait_for_pool(template, limit_s=300):
    """Until the pool of this template is full and nothing is being made."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        entry = pool_of(template)
        if entry and entry["state"] == "ready" and entry["making"] == 0 and entry["ready"] >= entry["high"]:
            return entry
        time.sleep(0.1)
    raise RuntimeError(f"the pool of {template} did not fill: {pool_of(template)}")


def at_once(works):
    """Runs the functions in a thread each, all starting together; their results, exceptions among them."""
    results = [None] * len(works)
    gate = threading.Barrier(len(works))

    def one(at):
        gate.wait()
        try:
            results[at] = works[at]()
        except Exception as problem:  # the caller counts it
            results[at] = problem

    threads = [threading.Thread(target=one, args=(at,)) for at in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
