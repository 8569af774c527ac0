"""A raw client of envd: HTTP and Connect by hand, so that tests see the bytes that SDKs see."""

import base64
import http.client
import json
import os
import socket
import struct


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=60):
        super().__init__("localhost", timeout=timeout)
        self.unix_path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.unix_path)


class RpcError(Exception):
    def __init__(self, status, code, message):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message = status, code, message


def envelope(payload, flags=0):
    return struct.pack(">BI", flags, len(payload)) + payload


class Stream:
    """A Connect server stream with JSON messages."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response
        self.error = None

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            chunk = self.response.read(size - len(data))
            if not chunk:
                raise EOFError(f"stream cut after {len(data)} of {size} bytes")
            data += chunk
        return data

    def __iter__(self):
        while True:
            flags, size = struct.unpack(">BI", self._exactly(5))
            payload = self._exactly(size)
            if flags & 2:
                self.error = json.loads(payload).get("error")
                assert self.response.read() == b"", "bytes after the end of the stream"
                self.connection.close()
                return
            message = json.loads(payload)
            yield message.get("event", message)

    def close(self):
        self.response.close()
        self.connection.close()


class Finished:
    def __init__(self):
        self.pid = 0
        self.stdout = self.stderr = self.pty = b""
        self.end = None
        self.error = None
        self.keepalives = 0


class Envd:
    def __init__(self, unix_path=None, tcp=None, token=None):
        self.unix_path, self.tcp, self.token = unix_path, tcp, token

    def connect(self, timeout=60):
        if self.unix_path:
            return UnixConnection(self.unix_path, timeout)
        return http.client.HTTPConnection(*self.tcp, timeout=timeout)

    def headers(self, user=None, extra=None):
        headers = {"Connect-Protocol-Version": "1"}
        if self.token:
            headers["X-Access-Token"] = self.token
        if user is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        headers.update(extra or {})
        return headers

    def request(self, method, target, body=None, headers=None, chunked=False):
        connection = self.connect()
        connection.request(method, target, body, headers or {}, encode_chunked=chunked)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response, data

    def unary(self, method, message, user=None, extra=None):
        headers = self.headers(user, extra)
        headers.setdefault("Content-Type", "application/json")
        response, data = self.request("POST", "/" + method, json.dumps(message), headers)
        if response.status != 200:
            error = json.loads(data or b"{}")
            raise RpcError(response.status, error.get("code"), error.get("message"))
        return json.loads(data)

    def stream(self, method, message, user=None, extra=None, timeout=60):
        headers = self.headers(user, {"Content-Type": "application/connect+json", **(extra or {})})
        connection = self.connect(timeout)
        connection.request("POST", "/" + method, envelope(json.dumps(message).encode()), headers)
        response = connection.getresponse()
        assert response.status == 200, (response.status, response.read())
        assert response.getheader("Content-Type") == "application/connect+json"
        return Stream(connection, response)

    def start(self, cmd, *args, user=None, timeout_ms=None, extra=None, **options):
        process = {"cmd": cmd, "args": list(args)}
        message = {"process": process}
        for name, value in options.items():
            (process if name in ("cwd", "envs") else message)[name] = value
        extra = dict(extra or {})
        if timeout_ms is not None:
            extra["Connect-Timeout-Ms"] = str(timeout_ms)
        return self.stream("process.Process/Start", message, user, extra)

    def collect(self, stream, done=None):
        done = done or Finished()
        pieces = {"stdout": [], "stderr": [], "pty": []}
        first = True
        for event in stream:
            if first and "start" not in event:
                raise AssertionError(f"first event is {event}")
            first = False
            if "start" in event:
                done.pid = event["start"]["pid"]
            for kind, text in event.get("data", {}).items():
                pieces[kind].append(base64.b64decode(text))
            if "end" in event:
                done.end = event["end"]
            if "keepalive" in event:
                done.keepalives += 1
        for kind, parts in pieces.items():
            setattr(done, kind, b"".join(parts))
        done.error = stream.error
        return done

    def run(self, cmd, *args, **options):
        return self.collect(self.start(cmd, *args, **options))

    def shell(self, script, **options):
        options.setdefault("stdin", False)
        return self.run("/bin/sh", "-c", script, **options)

    def send_input(self, pid, data, kind="stdin"):
        return self.unary("process.Process/SendInput",
                          {"process": {"pid": pid}, "input": {kind: base64.b64encode(data).decode()}})

    def signal(self, pid, name):
        return self.unary("process.Process/SendSignal", {"process": {"pid": pid}, "signal": name})


def agent_binary():
    return os.environ["SPACE_AGENT"]
