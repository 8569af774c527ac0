"""What a user does first: run a command, stream, exit codes, terminal."""

import hashlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

from harness import IMAGES, PATIENCE, SPACE, interrupt, wait_for


class Run(unittest.TestCase):
    node = None  # set by run_all

    def test_python_prints_42(self):
        done = self.node.space("run", "python3", "-c", "print(6*7)")
        self.assertEqual((done.returncode, done.stdout), (0, b"42\n"), done.stderr)

    def test_stdin_reaches_the_command_and_ends(self):
        done = self.node.space("run", "cat", stdin=b"abc\n")
        self.assertEqual((done.returncode, done.stdout), (0, b"abc\n"), done.stderr)

    def test_run_removes_its_sandbox_and_returns_the_code(self):
        before = {entry["sandboxID"] for entry in self.node.listing()}
        done = self.node.space("run", "sh", "-c", "exit 255")
        self.assertEqual(done.returncode, 255)
        after = {entry["sandboxID"] for entry in self.node.listing()}
        self.assertLessEqual(after, before)

    def test_interrupt_ends_the_command_and_removes_the_sandbox(self):
        before = {entry["sandboxID"] for entry in self.node.listing()}
        running = self.node.start("run", "sh", "-c", "echo started; sleep 1000",
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.assertEqual(running.stdout.readline(), b"started\n")
        interrupt(running)
        running.communicate(timeout=PATIENCE)
        self.assertEqual(running.returncode, 128 + signal.SIGINT)
        self.assertTrue(wait_for(
            lambda: {entry["sandboxID"] for entry in self.node.listing()} <= before))

    def test_terminal_is_usable(self):
        screen = self.type_into_terminal(["tput cols\r", "tty\r", "exit 3\r"])
        self.assertIn("100", screen[0])
        self.assertRegex(screen[0], r"/dev/pts/\d+")
        self.assertEqual(screen[1], 3)

    def type_into_terminal(self, lines):
        pid, master = pty.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(self.node.environment)
            os.execv(SPACE, [str(SPACE), "run", "-t", "bash"])
        subprocess.run(["stty", "cols", "100", "rows", "30"], stdin=master, check=True)
        screen = ""
        deadline = time.monotonic() + PATIENCE
        pending = list(lines)
        while time.monotonic() < deadline:
            if not select.select([master], [], [], 0.2)[0]:
                continue
            try:
                data = os.read(master, 4096)
            except OSError:
                break
            if not data:
                break
            screen += data.decode(errors="replace")
            # One line per prompt: a prompt is what ends in "# ".
            prompts = len(re.findall(r"# (?:\x1b\[[^a-zA-Z]*[a-zA-Z])*", screen))
            if pending and prompts > len(lines) - len(pending):
                os.write(master, pending.pop(0).encode())
        _, status = os.waitpid(pid, 0)
        os.close(master)
        return screen, os.waitstatus_to_exitcode(status)


class InOneSandbox(unittest.TestCase):
    """Cases that share one sandbox: booting is what costs time on the emulated host."""
    node = None
    sandbox = None

    @classmethod
    def setUpClass(cls):
        cls.sandbox = cls.node.ok("create").strip()

    @classmethod
    def tearDownClass(cls):
        cls.node.ok("kill", cls.sandbox)

    def exec(self, *command, options=(), **keywords):
        return self.node.space("exec", *options, self.sandbox, *command, **keywords)

    def out(self, *command, **keywords):
        done = self.exec(*command, **keywords)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode().strip()

    def test_create_prints_the_id_alone(self):
        self.assertRegex(self.sandbox, r"^i[a-z0-9]{20}$")

    def test_guest_is_the_debian_cloud_kernel_with_our_agent_as_init(self):
        self.assertEqual(self.out("uname", "-r"), (IMAGES / "kernel/release").read_text().strip())
        self.assertEqual(self.out("id", "-u"), "0")
        self.assertIn("init", self.out("cat", "/proc/1/comm") + self.out("cat", "/proc/1/cmdline"))
        self.assertEqual(self.out("sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline").split()[0], "/init")

    def test_output_of_50_mb_arrives_unchanged(self):
        script = "import sys,random; r=random.Random(7); sys.stdout.buffer.write(r.randbytes(50_000_000))"
        import random
        expected = hashlib.sha256(random.Random(7).randbytes(50_000_000)).hexdigest()
        done = self.exec("python3", "-c", script, timeout=PATIENCE * 3)
        self.assertEqual(done.returncode, 0, done.stderr[-400:])
        self.assertEqual(len(done.stdout), 50_000_000)
        self.assertEqual(hashlib.sha256(done.stdout).hexdigest(), expected)

    def test_stderr_stays_apart(self):
        done = self.exec("sh", "-c", "echo out; echo err >&2")
        self.assertEqual((done.stdout, done.stderr), (b"out\n", b"err\n"))

    def test_exit_codes(self):
        for code in (0, 1, 255):
            self.assertEqual(self.exec("sh", "-c", f"exit {code}").returncode, code)
        self.assertEqual(self.exec("bash", "-c", "kill -9 $$").returncode, 137)
        self.assertEqual(self.exec("bash", "-c", "kill -15 $$").returncode, 143)

    def test_unknown_command_user_and_directory_are_named(self):
        for options, command, code, word in (
                ((), "no-such-command", 127, "no-such-command"),
                (("-u", "nobody-here"), "true", 125, "nobody-here"),
                (("-w", "/no/such/dir"), "true", 125, "/no/such/dir")):
            done = self.exec(command, options=options)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr.decode())

    def test_environment_user_and_directory(self):
        done = self.exec("sh", "-c", "echo $A; id -un; pwd",
                         options=("-e", "A=b c", "-u", "user", "-w", "/tmp"))
        self.assertEqual(done.stdout, b"b c\nuser\n/tmp\n", done.stderr)

    def test_sudo_is_silent_and_needs_no_password(self):
        done = self.exec("sudo", "id", "-u", options=("-u", "user"))
        self.assertEqual((done.stdout, done.stderr), (b"0\n", b""))

    def test_login_shell_finds_the_tools_for_both_users(self):
        tools = "git curl python python3 pip node npm gcc make jq unzip less sudo ssh ip ps tput"
        for user in ("root", "user"):
            done = self.exec("bash", "-lc", f"for t in {tools}; do command -v $t >/dev/null || echo $t; done",
                             options=("-u", user))
            self.assertEqual(done.stdout, b"", f"missing for {user}")
        self.assertEqual(self.out("bash", "-lc", "echo $LANG; date +%Z; python3 -m venv --without-pip /tmp/v && echo v"),
                         "C.UTF-8\nUTC\nv")

    def test_modules_of_the_kernel_package_load(self):
        self.assertEqual(self.out("sh", "-c", "modprobe -a fuse overlay veth nf_tables && echo ok"), "ok")
        self.assertIn("crw-rw-rw-", self.out("ls", "-l", "/dev/fuse"))

    def test_clock_is_right(self):
        self.assertLess(abs(int(self.out("date", "+%s")) - time.time()), 5)

    def test_copy_both_ways(self):
        payload = os.urandom(3_000_000)
        source = self.node.home / "payload"
        source.write_bytes(payload)
        self.node.ok("cp", source, f"{self.sandbox}:/root/deep/er/payload")
        self.assertEqual(self.out("sha256sum", "/root/deep/er/payload").split()[0],
                         hashlib.sha256(payload).hexdigest())
        back = self.node.home / "back"
        self.node.ok("cp", f"{self.sandbox}:/root/deep/er/payload", back)
        self.assertEqual(back.read_bytes(), payload)
        missing = self.node.space("cp", f"{self.sandbox}:/no/such/file", back)
        self.assertNotEqual(missing.returncode, 0)
        self.assertIn("/no/such/file", missing.stderr.decode())

    def test_copied_folders_are_harmless_and_leave_nothing(self):
        self.out("sh", "-c", "mkdir -p /root/f/sub && cd /root/f && echo hi >sub/a && cp /bin/true set"
                 " && chmod 4755 set && mkfifo pipe && ln -s /etc/passwd link")
        into = self.node.home / "folder"
        before = set(os.listdir("/tmp"))
        self.node.ok("cp", f"{self.sandbox}:/root/f", into)
        self.assertEqual((into / "sub/a").read_text(), "hi\n")
        self.assertEqual(sorted(p.name for p in into.iterdir()), ["link", "set", "sub"])
        self.assertEqual((into / "set").stat().st_mode & 0o6000, 0)
        self.node.ok("cp", into, f"{self.sandbox}:/root/g")
        self.assertEqual(self.out("sh", "-c", "cat /root/g/sub/a; ls /tmp"), "hi")
        self.assertEqual([n for n in set(os.listdir("/tmp")) - before if n.startswith("space-cp")], [])
        self.assertEqual([p.name for p in self.node.home.iterdir() if ".space-" in p.name], [])

    def test_a_copy_can_be_interrupted(self):
        copy = self.node.start("cp", "-", f"{self.sandbox}:/root/never", stdin=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        copy.stdin.write(b"half")
        time.sleep(0.5)  # until it waits for more
        os.kill(copy.pid, signal.SIGINT)
        self.assertEqual(copy.wait(20), 130)
        copy.stdin.close()
        copy.stderr.close()

    def test_inspect_ls_and_logs(self):
        info = json.loads(self.node.ok("inspect", self.sandbox, "--json"))
        self.assertEqual(info["sandboxID"], self.sandbox)
        self.assertEqual(info["state"], "running")
        self.assertIn(self.sandbox, self.node.ok("ls"))
        self.node.ok("logs", self.sandbox)

    def test_zombies_are_reaped(self):
        self.out("sh", "-c", "(sleep 0.1 & exit 0) & wait; sleep 0.5")
        self.assertEqual(self.out("sh", "-c", "ps -eo stat= | grep -c ^Z || true"), "0")

    def test_disk_is_the_sandbox_own(self):
        self.out("sh", "-c", "dd if=/dev/urandom of=/big bs=1M count=64 status=none && sync && rm /big")
        size_kib = int(self.out("sh", "-c", "df --output=size / | tail -1"))
        self.assertGreater(size_kib, 6 << 20)
