"""What a program does with the unmodified Python SDK of E2B, synchronous: one case a method. Prints
"ok NAME" or "FAIL NAME: why" a line; the exit code is 1 when one failed. E2B_API_KEY, E2B_API_URL and
E2B_SANDBOX_URL are what `space env` prints."""

import sys
import time
import traceback
import urllib.error
import urllib.request

import e2b
from e2b import Sandbox


def expect(condition, what="condition does not hold"):
    if not condition:
        raise AssertionError(what)


def raises(kind, action):
    try:
        action()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


class Tour:
    """`self.box` is there for every case; what a case makes besides, it kills."""

    def setup(self):
        self.box = Sandbox.create("base", timeout=600, metadata={"suite": "tour"}, envs={"GREETING": "hi"})

    def teardown(self):
        self.box.kill()

    def case_create_and_info(self):
        info = self.box.get_info()
        expect(info.sandbox_id == self.box.sandbox_id)
        expect(info.template_id == "base")
        expect(info.metadata == {"suite": "tour"}, info.metadata)
        expect(info.end_at > info.started_at)
        expect(self.box.is_running())

    def case_commands(self):
        done = self.box.commands.run("echo out; echo err >&2; echo $GREETING $ONE; pwd; id -un", envs={"ONE": "1"})
        expect(done.stdout == "out\nhi 1\n/home/user\nuser\n", done.stdout)
        expect(done.stderr == "err\n", done.stderr)
        expect(self.box.commands.run("id -un", user="root", cwd="/").stdout == "root\n")
        error = raises(e2b.CommandExitException, lambda: self.box.commands.run("echo no >&2; exit 3"))
        expect(error.exit_code == 3 and error.stderr == "no\n", error)
        seen = []
        self.box.commands.run("for n in 1 2 3; do echo $n; done", on_stdout=seen.append)
        expect("".join(seen) == "1\n2\n3\n", seen)

    def case_command_errors(self):
        raises(e2b.TimeoutException, lambda: self.box.commands.run("sleep 30", timeout=2))
        raises(e2b.AuthenticationException, lambda: self.box.commands.run("true", user="nobody-here"))
        raises(e2b.InvalidArgumentException, lambda: self.box.commands.run("true", cwd="/not/there"))

    def case_background_stdin_and_kill(self):
        cat = self.box.commands.run("cat", background=True, stdin=True)
        expect(cat.pid in [one.pid for one in self.box.commands.list()])
        self.box.commands.send_stdin(cat.pid, "typed\n")
        other = self.box.commands.connect(cat.pid)
        self.box.commands.send_stdin(cat.pid, "more\n")
        if hasattr(self.box.commands, "close_stdin"):
            self.box.commands.close_stdin(cat.pid)
            expect(cat.wait().stdout == "typed\nmore\n")
            expect(other.wait().stdout.endswith("more\n"))
        sleeper = self.box.commands.run("sleep 600", background=True)
        expect(self.box.commands.kill(sleeper.pid))
        raises(e2b.CommandExitException, sleeper.wait)
        expect(not self.box.commands.kill(sleeper.pid), "killed twice")

    def case_files(self):
        files = self.box.files
        written = files.write("notes/a.txt", "text ä\n")
        expect(written.path == "/home/user/notes/a.txt", written.path)
        expect(files.read("notes/a.txt") == "text ä\n")
        expect(bytes(files.read("notes/a.txt", format="bytes")) == "text ä\n".encode())
        files.write_files([{"path": "/tmp/one", "data": "1"}, {"path": "/tmp/two", "data": b"\x00\xff"}])
        expect(bytes(files.read("/tmp/two", format="bytes")) == b"\x00\xff")
        expect([entry.name for entry in files.list("notes")] == ["a.txt"])
        info = files.get_info("notes/a.txt")
        expect(info.size == 8 and info.owner == "user" and info.permissions == "-rw-r--r--", info)
        expect(files.exists("notes") and not files.exists("nothing"))
        expect(files.make_dir("notes/deep/er") and not files.make_dir("notes/deep/er"))
        expect(files.rename("notes/a.txt", "notes/deep/b.txt").path == "/home/user/notes/deep/b.txt")
        files.remove("notes")
        expect(not files.exists("notes"))
        raises(e2b.NotFoundException, lambda: files.read("notes/a.txt"))
        big = b"0123456789abcdef" * (1 << 18)
        files.write("/tmp/big", big)
        expect(self.box.commands.run("sha256sum < /tmp/big").stdout.split()[0] ==
               __import__("hashlib").sha256(big).hexdigest())
        expect(bytes(files.read("/tmp/big", format="bytes")) == big)

    def case_watch(self):
        self.box.files.make_dir("/tmp/watched")
        watch = self.box.files.watch_dir("/tmp/watched")
        self.box.files.write("/tmp/watched/new.txt", "x")
        events = []
        for _ in range(50):
            events += watch.get_new_events()
            if events:
                break
            time.sleep(0.2)
        expect(events and events[0].name == "new.txt", events)
        watch.stop()

    def case_terminal(self):
        pty = self.box.pty.create(size=e2b.PtySize(rows=20, cols=100))
        self.box.pty.send_stdin(pty.pid, b"stty size; exit 5\n")
        seen = bytearray()
        try:
            pty.wait(on_pty=seen.extend)
        except e2b.CommandExitException as error:
            expect(error.exit_code == 5, error)
        expect(b"20 100" in seen, bytes(seen))

    def case_signed_urls(self):
        self.box.files.write("/tmp/shared", "shared")
        url = self.box.download_url("/tmp/shared")
        with urllib.request.urlopen(url, timeout=60) as answer:
            expect(answer.read() == b"shared")
        soon = self.box.download_url("/tmp/shared", use_signature_expiration=300)
        with urllib.request.urlopen(soon, timeout=60) as answer:
            expect(answer.read() == b"shared")
        try:
            urllib.request.urlopen(url.replace("signature=v1_", "signature=v1_x"), timeout=60)
            raise AssertionError("a wrong signature was taken")
        except urllib.error.HTTPError as error:
            expect(error.code == 401, error.code)

    def case_metrics(self):
        for _ in range(60):
            points = self.box.get_metrics()
            if points:
                break
            time.sleep(1)
        expect(points, "no point after a minute")
        expect(points[0].mem_total > points[0].mem_used > 0 and points[0].cpu_count > 0, points[0])
        expect(points[0].disk_total > points[0].disk_used > 0, points[0])

    def case_lists(self):
        pages = Sandbox.list(query=e2b.SandboxQuery(metadata={"suite": "tour"}))
        found = []
        while pages.has_next:
            found += pages.next_items()
        expect(self.box.sandbox_id in [one.sandbox_id for one in found])
        none = Sandbox.list(query=e2b.SandboxQuery(metadata={"suite": "other & more=%"}))
        expect(none.next_items() == [])

    def case_timeouts_and_kill(self):
        box = Sandbox.create("base", timeout=60)
        before = box.get_info().end_at
        box.set_timeout(300)
        expect(box.get_info().end_at > before)
        again = Sandbox.connect(box.sandbox_id)
        expect(again.commands.run("echo connected").stdout == "connected\n")
        expect(box.kill())
        expect(not Sandbox.kill(box.sandbox_id), "killed twice")
        expect(not box.is_running())
        raises(e2b.NotFoundException, box.get_info)
        raises((e2b.TimeoutException, e2b.NotFoundException, e2b.SandboxException),
               lambda: box.commands.run("true"))

    def case_git(self):
        self.box.commands.run("git init -q /tmp/repo && cd /tmp/repo && git config user.email a@b.c && "
                              "git config user.name me && touch f && git add f && git commit -qm first")
        expect(self.box.commands.run("git -C /tmp/repo log --oneline").stdout.endswith("first\n"))
        if hasattr(self.box, "git"):
            expect(self.box.git.status("/tmp/repo").is_clean)

    def case_pause_and_connect(self):
        box = Sandbox.create("base", timeout=300)
        try:
            box.commands.run("echo kept > /dev/shm/kept; sleep 600 >/dev/null 2>&1 &")
            pause = getattr(box, "pause", None) or box.beta_pause
            pause()
            expect(not box.is_running())
            back = Sandbox.connect(box.sandbox_id, timeout=300)
            expect(back.commands.run("cat /dev/shm/kept; pgrep -c sleep").stdout == "kept\n1\n")
        finally:
            Sandbox.kill(box.sandbox_id)

    def case_fork_and_snapshot(self):
        if not hasattr(self.box, "create_snapshot"):
            return
        self.box.commands.run("echo branch > /dev/shm/branch")
        snapshot = self.box.create_snapshot()
        copy = Sandbox.create(snapshot.snapshot_id, timeout=120)
        try:
            expect(copy.commands.run("cat /dev/shm/branch").stdout == "branch\n")
        finally:
            copy.kill()
        expect(Sandbox.delete_snapshot(snapshot.snapshot_id))
        expect(not Sandbox.delete_snapshot(snapshot.snapshot_id), "deleted twice")
        if hasattr(self.box, "fork"):
            for child in self.box.fork(count=2):
                expect(isinstance(child, Sandbox), child)
                expect(child.commands.run("cat /dev/shm/branch").stdout == "branch\n")
                child.kill()

    def case_templates(self):
        if hasattr(e2b, "Template") and hasattr(e2b.Template, "exists"):
            expect(e2b.Template.exists("base"))
            expect(not e2b.Template.exists("there-is-none"))

    def case_wrong_key_and_template(self):
        raises(e2b.AuthenticationException, lambda: Sandbox.create("base", api_key="e2b_" + "0" * 40))
        raises(e2b.SandboxException, lambda: Sandbox.create("no-such-template"))


def main():
    tour = Tour()
    wanted = sys.argv[1:]
    failed = 0
    tour.setup()
    try:
        for name in [n for n in dir(Tour) if n.startswith("case_")]:
            if wanted and name[5:] not in wanted:
                continue
            begun = time.monotonic()
            try:
                getattr(tour, name)()
                print(f"ok {name[5:]} ({time.monotonic() - begun:.1f} s)", flush=True)
            except Exception as error:  # the next cases are of interest too
                failed += 1
                print(f"FAIL {name[5:]}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
    finally:
        tour.teardown()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
