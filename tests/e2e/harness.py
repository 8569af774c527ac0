"""A node of its own for the end-to-end tests: own data directory, port, key and, where KVM cannot run
Linux, own emulated host. Nothing of a running installation is touched."""

import http.client
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPACE = pathlib.Path(os.environ.get("SPACE_BIN", ROOT / "build/release/bin")) / "space"
IMAGES = pathlib.Path(os.environ.get("SPACE_IMAGES", ROOT / "build/images"))
# A guest boots in 10 s on the emulated host and several share two cores there.
PATIENCE = float(os.environ.get("SPACE_TEST_PATIENCE", "180"))
IS_LONG = os.environ.get("SPACE_TEST_TIER", "quick") == "all"
# More of the daemon's configuration: for developers, e.g. [machine] memory = "3GiB".
EXTRA_CONFIG = os.environ.get("SPACE_TEST_CONFIG", "")
# Most cases need no more, and each further size is a template that has to be built first.
SMALL = ("--memory", "192m", "--cpus", "1")
GUEST = pathlib.Path(__file__).resolve().parent / "guest"


def count(quick, long):
    """How often: the long tier runs the same code more times."""
    return long if IS_LONG else quick


def long_tier(case):
    """Marks a case that takes minutes on the emulated host: ./test.sh --all runs it, or its name."""
    case.is_long = True
    return case


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Node:
    """Use as a context manager; `space()` is the command line with this node's configuration."""

    def __init__(self, extra_config=""):
        # Short: unix socket paths end at 107 bytes.
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="space-e2e-"))
        self.port = free_port()
        self.config = self.home / "config.toml"
        self.config.write_text(
            f'data_dir = "{self.home}/data"\n'
            f'run_dir = "{self.home}/run"\n'
            f'images_dir = "{IMAGES}"\n'
            f'listen = "127.0.0.1:{self.port}"\n' + extra_config + EXTRA_CONFIG)
        self._key = None
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "SPACE_CONFIG": str(self.config),
            "TERM": "xterm-256color", "LANG": "C.UTF-8"}

    def __enter__(self):
        up = self.space("up", timeout=600)
        if up.returncode != 0:
            self.close()
            raise RuntimeError(f"space up failed:\n{up.stderr.decode(errors='replace')}")
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.space("down", "--purge", "--keep-build", "--yes", timeout=120)
        shutil.rmtree(self.home, ignore_errors=True)

    def space(self, *arguments, stdin=b"", timeout=None):
        return subprocess.run([str(SPACE), *map(str, arguments)], input=stdin, capture_output=True,
                              env=self.environment, timeout=timeout or PATIENCE)

    def start(self, *arguments, **options):
        """The command line running in the background, in its own process group. Pipes are not buffered here."""
        return subprocess.Popen([str(SPACE), *map(str, arguments)], env=self.environment,
                                start_new_session=True, bufsize=0, **options)

    def ok(self, *arguments, **options):
        done = self.space(*arguments, **options)
        assert done.returncode == 0, (
            f"space {' '.join(map(str, arguments))}: exit {done.returncode}\n"
            f"stdout: {done.stdout[-600:]!r}\nstderr: {done.stderr[-600:]!r}")
        return done.stdout.decode()

    def key(self):
        if self._key is None:
            self._key = next(line.split("=", 1)[1] for line in self.ok("env").splitlines()
                             if line.startswith("export E2B_API_KEY="))
        return self._key

    def api(self, method, path, body=None, timeout=None, headers=()):
        """One call of the HTTP API: its status, headers and JSON (None when it has no body)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or PATIENCE)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, body=text, headers={"X-API-KEY": self.key(), **dict(headers)})
            answer = connection.getresponse()
            data = answer.read()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, answer.headers, json.loads(data) if data and is_json else data or None
        finally:
            connection.close()

    def sh(self, sandbox, script, **options):
        """A shell script in the sandbox; its output without the last line end."""
        return self.ok("exec", sandbox, "sh", "-c", script, **options).rstrip("\n")

    def put(self, sandbox, name):
        """Copies tests/e2e/guest/NAME to /root/NAME."""
        self.ok("cp", GUEST / name, f"{sandbox}:/root/{name}")

    def background(self, sandbox, script):
        """Starts a shell script that outlives the call."""
        self.sh(sandbox, f"nohup sh -c '{script}' >/dev/null 2>&1 </dev/null &")

    def create(self, *options):
        return self.ok("create", *options, timeout=PATIENCE * 3).strip()

    def fork(self, sandbox, number=1):
        report = json.loads(self.ok("fork", "--json", "-n", number, sandbox, timeout=PATIENCE * 3))
        return [entry["sandbox"]["sandboxID"] for entry in report["results"]], report["timings"]

    def state(self, sandbox):
        """As E2B's clients see it; None when they do not."""
        status, _, body = self.api("GET", f"/sandboxes/{sandbox}")
        return body["state"] if status == 200 else None

    def keep_logs(self, name):
        """Ends of the daemon's and the machine's logs, kept as build/test-logs/e2e-NAME.log; its path, or what went wrong."""
        text = ""
        try:
            _, run = self.host_data()
            log = "/var/log/space/spaced.log" if self._emulated else f"{run}/spaced.log"
            text = self.host(f"tail -c 60000 {log}")
        except (AssertionError, subprocess.SubprocessError) as problem:
            text = f"the daemon's log cannot be read: {problem}\n"
        console = self.home / "run/machine/console.log"
        if console.exists():
            text += "--- console of the emulated host\n" + console.read_text(errors="replace")[-20000:]
        path = ROOT / "build/test-logs" / f"e2e-{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def traces(self):
        """What sandboxes may leave on their host; equal before and after. Take it when `settle` says so."""
        data, run = self.host_data()
        return dict(line.split() for line in self.host(
            f"echo vmm $(ls -l /proc/[0-9]*/exe 2>/dev/null | grep -c space-vmm);"
            f"echo sockets $(ls {run}/vm 2>/dev/null | wc -l);"
            f"echo directories $(ls {data}/sandboxes 2>/dev/null | wc -l);"
            f"echo layers $(ls {data}/layers 2>/dev/null | wc -l);"
            f"echo snapshots $(ls {data}/snapshots 2>/dev/null | wc -l);"
            f"echo mounts $(wc -l < /proc/mounts);"
            f"echo cgroups $(find /sys/fs/cgroup -type d | wc -l);"
            f"echo descriptors $(ls /proc/$(cat {run}/spaced.pid)/fd | wc -l)").splitlines())

    def settle(self):
        """Until no sandbox is left and the pools are full: what waits in them is no leftover. What is not so at
        the limit; empty when all is."""
        def is_quiet(one):
            return one["state"] in ("idle", "draining") or (
                one["state"] == "ready" and one["making"] == 0 and one["ready"] >= one["low"])

        def restless():
            pools = json.loads(self.ok("pool", "--json"))["templates"]
            return self.listing() + [one for one in pools if not is_quiet(one)]

        wait_for(lambda: not restless())
        return restless()

    def listing(self):
        return json.loads(self.ok("ls", "--json"))

    def is_emulated(self):
        return self.space("machine", "status", "--json").returncode == 0 and bool(
            json.loads(self.ok("machine", "status", "--json")).get("running"))

    def host(self, script):
        """Runs a shell script where the daemons run and returns its output."""
        if not hasattr(self, "_emulated"):
            self._emulated = self.is_emulated()
        if self._emulated:
            return self.ok("machine", "exec", "--", "sh", "-c", script)
        return subprocess.run(["sh", "-c", script], check=True, capture_output=True,
                              text=True).stdout

    def host_data(self):
        """Data and run directory as the daemon sees them."""
        self.host("true")
        return ("/var/lib/space", "/run/space") if self._emulated else (
            f"{self.home}/data", f"{self.home}/run")


def wait_for(condition, seconds=PATIENCE):
    """The first true value of `condition`, polled; None when time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    return None


def next_line(process, seconds):
    """The next line of its output; empty at its end, None when none comes in time."""
    line = b""
    deadline = time.monotonic() + seconds
    while not line.endswith(b"\n"):
        if not select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
            return None
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            break
        line += byte
    return line


def interrupt(process):
    """Ctrl-C as a terminal sends it: to the whole group."""
    os.killpg(process.pid, signal.SIGINT)
