"""space-agent serve, driven natively over a unix socket and TCP as the SDKs would drive it."""

import base64
import gzip
import hashlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

from envd_client import Envd, RpcError, agent_binary, envelope


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, limit=20):
    """Polls for a state of the system that has no event to wait for; fails after `limit` seconds."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("condition not reached")


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Agent:
    def __init__(self, *options, preexec_fn=None):
        self.folder = tempfile.mkdtemp(prefix="space-agent-test-")
        self.socket = os.path.join(self.folder, "envd.sock")
        self.port = free_port()
        self.process = subprocess.Popen(
            [agent_binary(), "serve", "--listen", "unix:" + self.socket,
             "--listen", f"tcp:127.0.0.1:{self.port}", *options],
            preexec_fn=preexec_fn)
        self.envd = Envd(unix_path=self.socket)
        wait_for(self.answers)

    def answers(self):
        assert self.process.poll() is None, "the agent has ended"
        try:
            return self.envd.request("GET", "/health")[0].status == 204
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        shutil.rmtree(self.folder)
        return code


class WithAgent(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.agent = Agent()
        cls.envd = cls.agent.envd

    @classmethod
    def tearDownClass(cls):
        assert cls.agent.stop() == 0

    def assert_rpc_fails(self, code, method, message, **options):
        with self.assertRaises(RpcError) as caught:
            self.envd.unary(method, message, **options)
        self.assertEqual(caught.exception.code, code)
        return caught.exception


class ProcessTest(WithAgent):
    def test_echo_streams_output_and_ends_as_envd_does(self):
        done = self.envd.shell("echo hi; echo no >&2")
        self.assertEqual((done.stdout, done.stderr), (b"hi\n", b"no\n"))
        self.assertTrue(done.end["exited"])
        self.assertEqual(done.end["status"], "exit status 0")
        self.assertEqual(done.end.get("exitCode", 0), 0)
        self.assertNotIn("error", done.end)
        self.assertIsNone(done.error)

    def test_exit_codes(self):
        for code in (1, 7, 255):
            done = self.envd.shell(f"exit {code}")
            self.assertEqual(done.end, {"exitCode": code, "exited": True,
                                        "status": f"exit status {code}",
                                        "error": f"exit status {code}"})

    def test_killed_by_its_own_signal(self):
        done = self.envd.shell("kill -9 $$")
        self.assertEqual(done.end, {"exitCode": -1, "status": "signal: killed",
                                    "error": "signal: killed"})
        self.assertEqual(self.envd.shell("kill -TERM $$").end["status"], "signal: terminated")

    def test_unknown_command_user_and_directory(self):
        for cmd, code in (("/no/such", "not_found"), ("no-such-name", "not_found"),
                          ("/etc/passwd", "permission_denied")):
            stream = self.envd.start(cmd)
            self.assertEqual(list(stream), [])
            self.assertEqual(stream.error["code"], code)
            self.assertIn(cmd, stream.error["message"])
        stream = self.envd.start("/bin/true", user="ghost")
        self.assertEqual(list(stream), [])
        self.assertEqual(stream.error, {"code": "unauthenticated",
                                        "message": "invalid username: 'ghost'"})
        stream = self.envd.start("/bin/true", cwd="/no/dir")
        self.assertEqual(list(stream), [])
        self.assertEqual(stream.error["code"], "invalid_argument")
        self.assertIn("/no/dir", stream.error["message"])

    def test_environment_and_directory(self):
        done = self.envd.shell("pwd; env", cwd="/usr/../tmp", envs={"A": "b c"})
        lines = done.stdout.decode().splitlines()
        self.assertEqual(lines[0], "/tmp")
        names = {line.split("=")[0] for line in lines[1:]}
        self.assertIn("A=b c", lines)
        self.assertIn("E2B_SANDBOX=true", lines)
        self.assertIn("HOME=" + pwd.getpwnam("root").pw_dir, lines)
        self.assertLessEqual(names, {"PATH", "HOME", "USER", "LOGNAME", "E2B_SANDBOX", "A", "PWD",
                                     "OLDPWD", "SHLVL", "_", "LANG", "TZ"})

    @unittest.skipUnless(os.getuid() == 0, "needs root to change users")
    def test_runs_as_the_selected_user(self):
        nobody = pwd.getpwnam("nobody")
        done = self.envd.shell("id -u; id -g; id -G; cat /proc/self/oom_score_adj", user="nobody",
                               cwd="/")
        uid, gid, groups, score = done.stdout.decode().splitlines()
        self.assertEqual((int(uid), int(gid)), (nobody.pw_uid, nobody.pw_gid))
        self.assertEqual(groups, str(nobody.pw_gid))
        self.assertEqual(score, "100")

    def test_child_inherits_nothing(self):
        done = self.envd.shell("ls /proc/self/fd; ps -o pid=,pgid=,sid= -p $$ 2>/dev/null;"
                               "grep -E 'Sig(Blk|Ign)' /proc/self/status")
        self.assertEqual(done.stdout.decode().split()[:4], ["0", "1", "2", "3"])  # 3 is ls's own
        ignored = [line.split()[1] for line in done.stdout.decode().splitlines() if "Sig" in line]
        self.assertEqual(ignored, ["0" * 16, "0" * 16])

    def test_stdin_open_closed_and_none(self):
        stream = self.envd.start("/bin/cat")
        events = iter(stream)
        pid = next(events)["start"]["pid"]
        self.envd.send_input(pid, b"abc\n")
        self.envd.send_input(pid, b"def")
        self.envd.unary("process.Process/CloseStdin", {"process": {"pid": pid}})
        rest = b"".join(base64.b64decode(event["data"]["stdout"])
                        for event in events if "data" in event)
        self.assertEqual(rest, b"abc\ndef")
        self.assertEqual(self.envd.run("/bin/cat", stdin=False).end["status"], "exit status 0")

    def test_closing_stdin_twice_and_writing_afterwards(self):
        stream = self.envd.start("/bin/sh", "-c", "cat; echo eof; exec sleep 1000")
        events = iter(stream)
        pid = next(events)["start"]["pid"]
        for _ in range(2):
            self.envd.unary("process.Process/CloseStdin", {"process": {"pid": pid}})
        self.assertIn("data", next(events))
        error = self.assert_rpc_fails("internal", "process.Process/SendInput",
                                      {"process": {"pid": pid}, "input": {"stdin": "YQ=="}})
        self.assertIn("stdin", error.message)
        self.envd.signal(pid, "SIGNAL_SIGKILL")

    def test_large_input_in_one_call(self):
        data = os.urandom(1 << 20)
        stream = self.envd.start("/usr/bin/sha256sum")
        pid = next(iter(stream))["start"]["pid"]
        self.envd.send_input(pid, data)
        self.envd.unary("process.Process/CloseStdin", {"process": {"pid": pid}})
        out = b"".join(base64.b64decode(event["data"]["stdout"])
                       for event in stream if "data" in event)
        self.assertEqual(out.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_stream_input(self):
        stream = self.envd.start("/bin/cat")
        pid = next(iter(stream))["start"]["pid"]
        body = envelope(json.dumps({"start": {"process": {"pid": pid}}}).encode())
        for part in (b"b25l", b"dHdv"):
            body += envelope(b'{"data":{"input":{"stdin":"' + part + b'"}}}')
        body += envelope(b'{"keepalive":{}}')
        response, data = self.envd.request(
            "POST", "/process.Process/StreamInput", body,
            self.envd.headers(extra={"Content-Type": "application/connect+json"}))
        self.assertEqual(response.status, 200)
        self.assertTrue(data.endswith(envelope(b"{}", 2)), data)
        self.envd.unary("process.Process/CloseStdin", {"process": {"pid": pid}})
        out = b"".join(base64.b64decode(event["data"]["stdout"])
                       for event in stream if "data" in event)
        self.assertEqual(out, b"onetwo")

    def test_signals_by_pid_and_unknown_ones(self):
        stream = self.envd.start("/bin/sleep", "1000")
        pid = next(iter(stream))["start"]["pid"]
        error = self.assert_rpc_fails("unimplemented", "process.Process/SendSignal",
                                      {"process": {"pid": pid}, "signal": 2})
        self.assertEqual(error.status, 501)
        self.envd.signal(pid, "SIGNAL_SIGTERM")
        self.assertEqual([event["end"]["status"] for event in stream if "end" in event],
                         ["signal: terminated"])
        self.assertFalse(is_alive(pid))
        self.assert_rpc_fails("not_found", "process.Process/SendSignal",
                              {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
        with self.assertRaises(ProcessLookupError):  # reaped, not a zombie
            os.kill(pid, 0)

    def test_killing_the_shell_ends_the_stream_although_a_child_holds_the_pipe(self):
        stream = self.envd.start("/bin/sh", "-c", "sleep 1000 & echo $!; wait", stdin=False)
        events = iter(stream)
        pid = next(events)["start"]["pid"]
        child = int(base64.b64decode(next(events)["data"]["stdout"]))
        self.envd.signal(pid, "SIGNAL_SIGKILL")
        self.assertEqual([event["end"]["status"] for event in events if "end" in event],
                         ["signal: killed"])
        os.kill(child, signal.SIGKILL)

    def test_end_waits_for_a_grandchild_that_writes(self):
        done = self.envd.shell("(sleep 0.3; echo late) & echo early")
        self.assertEqual(done.stdout, b"early\nlate\n")

    def test_deadline_kills_the_whole_group(self):
        started = time.monotonic()
        stream = self.envd.start("/bin/sh", "-c", "sleep 1000 & echo $!; wait", timeout_ms=500)
        events = list(stream)
        child = int(base64.b64decode(events[1]["data"]["stdout"]))
        self.assertEqual(stream.error["code"], "deadline_exceeded")
        self.assertLess(time.monotonic() - started, 10)
        wait_for(lambda: not is_alive(events[0]["start"]["pid"]) and not is_alive(child))

    def test_deadline_of_connect_ends_only_the_stream(self):
        stream = self.envd.start("/bin/sleep", "1000")
        pid = next(iter(stream))["start"]["pid"]
        second = self.envd.stream("process.Process/Connect", {"process": {"pid": pid}},
                                  extra={"Connect-Timeout-Ms": "200"})
        self.assertEqual(list(second), [{"start": {"pid": pid}}])
        self.assertEqual(second.error["code"], "deadline_exceeded")
        self.assertTrue(is_alive(pid))
        self.envd.signal(pid, "SIGNAL_SIGKILL")

    def test_survives_disconnect_and_is_found_by_tag(self):
        stream = self.envd.start("/bin/sh", "-c", "read line; echo got $line", tag="survivor")
        pid = next(iter(stream))["start"]["pid"]
        stream.close()
        listed = self.envd.unary("process.Process/List", {})["processes"]
        mine = [entry for entry in listed if entry["pid"] == pid]
        self.assertEqual(mine[0]["tag"], "survivor")
        self.assertEqual(mine[0]["config"]["cmd"], "/bin/sh")
        again = self.envd.stream("process.Process/Connect", {"process": {"tag": "survivor"}})
        events = iter(again)
        self.assertEqual(next(events), {"start": {"pid": pid}})
        self.envd.send_input(pid, b"it\n")
        rest = list(events)
        self.assertEqual(rest[0]["data"]["stdout"], "Z290IGl0Cg==")
        self.assertEqual(rest[-1]["end"]["status"], "exit status 0")
        late = self.envd.stream("process.Process/Connect", {"process": {"pid": pid}})
        self.assertEqual([list(event) for event in late], [["start"], ["end"]])

    def test_unknown_process_is_not_found(self):
        for method, extra in (("SendInput", {"input": {"stdin": ""}}), ("CloseStdin", {}),
                              ("SendSignal", {"signal": "SIGNAL_SIGKILL"}), ("Update", {})):
            self.assert_rpc_fails("not_found", "process.Process/" + method,
                                  {"process": {"pid": 4_000_000}, **extra})
        stream = self.envd.stream("process.Process/Connect", {"process": {"tag": "nobody"}})
        self.assertEqual(list(stream), [])
        self.assertEqual(stream.error["code"], "not_found")
        self.assert_rpc_fails("unimplemented", "process.Process/Nonsense", {})

    def test_terminal_size_resize_and_interrupt(self):
        stream = self.envd.start("/bin/sh", "-i", pty={"size": {"cols": 91, "rows": 33}},
                                 envs={"PS1": "prompt>", "TERM": "dumb"})
        events = iter(stream)
        pid = next(events)["start"]["pid"]
        text = b""

        def expect(what):
            nonlocal text
            while what not in text:
                text += base64.b64decode(next(events)["data"]["pty"])
            text = text.split(what, 1)[1]

        self.envd.send_input(pid, b"stty size; echo on''e\n", "pty")
        expect(b"33 91")
        expect(b"one")
        self.envd.unary("process.Process/Update",
                        {"process": {"pid": pid}, "pty": {"size": {"cols": 100, "rows": 40}}})
        self.envd.send_input(pid, b"stty size\n", "pty")
        expect(b"40 100")
        # One process says it is ready and sleeps: a shell between its echo and its fork can lose a Ctrl-C.
        self.envd.send_input(pid, b"sh -c 'echo rea\"\"dy; exec sleep 1000'\n", "pty")
        expect(b"ready")
        self.envd.send_input(pid, b"\x03", "pty")
        expect(b"prompt>")  # a shell drops what it had read before the interrupt
        self.envd.send_input(pid, b"echo aft''er; exit 5\n", "pty")
        expect(b"after")
        ends = [event["end"] for event in events if "end" in event]
        self.assertEqual(ends[0]["exitCode"], 5)

    def test_terminal_and_pipes_are_not_mixed_up(self):
        stream = self.envd.start("/bin/cat", pty={"size": {"cols": 80, "rows": 24}})
        pid = next(iter(stream))["start"]["pid"]
        self.assert_rpc_fails("invalid_argument", "process.Process/SendInput",
                              {"process": {"pid": pid}, "input": {"stdin": "YQ=="}})
        self.assert_rpc_fails("invalid_argument", "process.Process/CloseStdin",
                              {"process": {"pid": pid}})
        self.envd.signal(pid, "SIGNAL_SIGKILL")

    def test_keepalives_come_at_the_asked_interval(self):
        done = self.envd.shell("sleep 2.5", extra={"Keepalive-Ping-Interval": "1"})
        self.assertEqual(done.keepalives, 2)

    def test_50_mb_arrive_unharmed_with_bounded_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            script = f"head -c 50000000 /dev/urandom > {folder}/f; cat {folder}/f"
            done = self.envd.shell(script)
            with open(folder + "/f", "rb") as file:
                expected = hashlib.sha256(file.read()).hexdigest()
        self.assertEqual(hashlib.sha256(done.stdout).hexdigest(), expected)
        with open(f"/proc/{self.agent.process.pid}/status") as status:
            peak = [line for line in status if line.startswith("VmHWM")][0]
        self.assertLess(int(peak.split()[1]), 20 * 1024)

    def test_slow_reader_holds_the_process_back(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = folder + "/done"
            stream = self.envd.start("/bin/sh", "-c", f"head -c 30000000 /dev/zero; touch {mark}",
                                     stdin=False)
            next(iter(stream))
            # Not read for a while: a process that is not held back is done within this time.
            time.sleep(1)
            self.assertFalse(os.path.exists(mark))
            total = sum(len(event["data"]["stdout"]) for event in stream if "data" in event)
            self.assertGreaterEqual(total, 40_000_000)
            self.assertTrue(os.path.exists(mark))

    def test_many_at_once(self):
        results = {}

        def run(number):
            results[number] = self.envd.shell(f"echo {number}; exit {number}")

        threads = [threading.Thread(target=run, args=(n,)) for n in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, done in results.items():
            self.assertEqual(done.stdout, f"{number}\n".encode())
            self.assertEqual(done.end.get("exitCode", 0), number)
        self.assertEqual(len(results), 40)

    def test_binary_codec(self):
        # StartRequest{process{cmd:"/bin/sh", args:["-c","echo x; exit 3"]}, stdin:false}
        process = b"\x0a\x07/bin/sh" + b"\x12\x02-c" + b"\x12\x0eecho x; exit 3"
        body = b"\x0a" + bytes([len(process)]) + process + b"\x20\x00"
        response, data = self.envd.request(
            "POST", "/process.Process/Start", envelope(body),
            self.envd.headers(extra={"Content-Type": "application/connect+proto"}))
        self.assertEqual(response.getheader("Content-Type"), "application/connect+proto")
        self.assertIn(b"\x0a\x06\x12\x04\x0a\x02x\n", data)
        # EndEvent{exit_code: zig-zag 6, exited: true, status, error}
        self.assertIn(b"\x08\x06\x10\x01\x1a\x0dexit status 3\x22\x0dexit status 3", data)
        self.assertTrue(data.endswith(envelope(b"{}", 2)))

    def test_malformed_requests(self):
        response, _ = self.envd.request("GET", "/process.Process/List")
        self.assertEqual(response.status, 405)
        response, _ = self.envd.request("POST", "/process.Process/List", "x",
                                        {"Content-Type": "text/plain"})
        self.assertEqual(response.status, 415)
        self.assert_rpc_fails("invalid_argument", "process.Process/SendInput", [])
        self.assert_rpc_fails(404, "other.Service/Call", {})
        for body in (b"", b"\0\0", envelope(b"{"), envelope(b"{}") * 2,
                     b"\0\xff\xff\xff\xff", b"\x01\0\0\0\0"):
            response, data = self.envd.request(
                "POST", "/process.Process/Start", body,
                self.envd.headers(extra={"Content-Type": "application/connect+json"}))
            self.assertEqual(response.status, 200)
            self.assertIn(b'"error":{"code":', data)


class RestTest(WithAgent):
    def test_health_metrics_envs(self):
        response, body = self.envd.request("GET", "/health")
        self.assertEqual((response.status, body), (204, b""))
        metrics = json.loads(self.envd.request("GET", "/metrics")[1])
        self.assertEqual(metrics["cpu_count"], os.cpu_count())
        self.assertGreater(metrics["mem_total"], metrics["mem_used"])
        self.assertGreater(metrics["disk_total"], 0)
        self.assertEqual(self.envd.request("GET", "/envs")[1], b"{}")
        self.assertEqual(self.envd.request("GET", "/nothing")[0].status, 404)

    def test_preflight_needs_no_token_and_allows_all(self):
        response, _ = self.envd.request("OPTIONS", "/files", headers={
            "Origin": "https://x.test", "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-access-token"})
        self.assertEqual(response.status, 204)
        self.assertEqual(response.getheader("Access-Control-Allow-Origin"), "*")
        self.assertEqual(response.getheader("Access-Control-Allow-Headers"), "x-access-token")
        response, _ = self.envd.request("GET", "/metrics", headers={"Origin": "https://x.test"})
        self.assertEqual(response.getheader("Access-Control-Allow-Origin"), "*")

    def test_internal_paths_are_closed_to_tcp(self):
        outside = Envd(tcp=("127.0.0.1", self.agent.port))
        for path in ("/init", "/freeze", "/unfreeze", "/upgrade"):
            self.assertEqual(outside.request("POST", path, "{}")[0].status, 404)


class FilesTest(WithAgent):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="space-files-")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def upload(self, path, data, headers=None, user=None, encoding=None):
        all_headers = self.envd.headers(user, {"Content-Type": "application/octet-stream",
                                               **(headers or {})})
        pieces = iter([data[i:i + 100_000] for i in range(0, len(data), 100_000)])
        response, body = self.envd.request("POST", "/files?path=" + urllib.parse.quote(path, ""),
                                           pieces, all_headers, chunked=True)
        return response.status, json.loads(body)

    def download(self, path, headers=None, query=""):
        return self.envd.request("GET", "/files?path=" + urllib.parse.quote(path, "") + query,
                                 headers=headers or {})

    def test_up_and_down_with_parents_and_modes(self):
        data = os.urandom(3_000_000)
        path = self.folder + "/a/b c/ü.bin"
        status, answer = self.upload(path, data)
        self.assertEqual((status, answer), (200, [{"path": path, "name": "ü.bin", "type": "file"}]))
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o644)
        self.assertEqual(os.stat(self.folder + "/a").st_mode & 0o7777, 0o755)
        response, body = self.download(path)
        self.assertEqual(hashlib.sha256(body).digest(), hashlib.sha256(data).digest())
        self.assertEqual(response.getheader("Content-Length"), str(len(data)))
        self.assertTrue(response.getheader("Content-Disposition").startswith("inline"))
        status, _ = self.upload(path, b"short")
        self.assertEqual(self.download(path)[1], b"short")

    def test_empty_and_unsized_files(self):
        self.upload(self.folder + "/empty", b"")
        response, body = self.download(self.folder + "/empty")
        self.assertEqual((response.status, body), (200, b""))
        self.assertEqual(response.getheader("Content-Length"), "0")
        response, body = self.download(self.folder + "/empty", {"Accept-Encoding": "gzip"})
        self.assertEqual(gzip.decompress(body), b"")
        self.assertIn(b"Linux", self.download("/proc/version")[1])

    def test_gzip_both_ways(self):
        data = b"line of text\n" * 50_000
        status, _ = self.upload(self.folder + "/z", gzip.compress(data),
                                {"Content-Encoding": "gzip"})
        self.assertEqual(status, 200)
        response, body = self.download(self.folder + "/z", {"Accept-Encoding": "gzip"})
        self.assertEqual(response.getheader("Content-Encoding"), "gzip")
        self.assertEqual(gzip.decompress(body), data)
        response, body = self.download(self.folder + "/z", {"Accept-Encoding": "gzip, deflate"})
        self.assertIsNone(response.getheader("Content-Encoding"))
        self.assertEqual(body, data)
        self.assertEqual(self.download(self.folder + "/z",
                                       {"Accept-Encoding": "br, identity;q=0"})[0].status, 406)
        self.assertEqual(self.upload(self.folder + "/z", b"not gzip",
                                     {"Content-Encoding": "gzip"})[0], 400)

    def test_ranges(self):
        self.upload(self.folder + "/r", b"0123456789")
        response, body = self.download(self.folder + "/r", {"Range": "bytes=2-4"})
        self.assertEqual((response.status, body), (206, b"234"))
        self.assertEqual(response.getheader("Content-Range"), "bytes 2-4/10")
        response, _ = self.download(self.folder + "/r", {"Range": "bytes=10-"})
        self.assertEqual((response.status, response.getheader("Content-Range")),
                         (416, "bytes */10"))

    def test_errors_of_download_and_upload(self):
        response, body = self.download(self.folder + "/none")
        self.assertEqual(response.status, 404)
        self.assertEqual(json.loads(body), {"code": 404, "message":
                                            f"path '{self.folder}/none' does not exist"})
        response, body = self.download(self.folder)
        self.assertEqual(response.status, 400)
        self.assertEqual(json.loads(body)["message"], f"path '{self.folder}' is a directory")
        self.assertEqual(self.download("x", query="&username=ghost")[0].status, 401)
        self.assertEqual(self.upload(self.folder, b"x")[0], 400)
        self.upload(self.folder + "/file", b"x")
        self.assertEqual(self.upload(self.folder + "/file/below", b"x")[0], 400)
        response, _ = self.envd.request("POST", "/files?path=x", b"x",
                                        {"Content-Type": "text/plain"})
        self.assertEqual(response.status, 400)
        os.mkfifo(self.folder + "/pipe")
        self.assertEqual(self.download(self.folder + "/pipe")[0].status, 400)
        self.assertGreaterEqual(self.upload(self.folder + "/pipe", b"x")[0], 400)

    def multipart(self, query, *parts):
        body = b""
        for filename, data in parts:
            name = f'; filename="{filename}"' if filename is not None else ""
            body += (f'--XX\r\nContent-Disposition: form-data; name="file"{name}\r\n'
                     "Content-Type: application/octet-stream\r\n\r\n").encode() + data + b"\r\n"
        body += b"--XX--\r\n"
        pieces = iter([body[i:i + 777] for i in range(0, len(body), 777)])
        response, answer = self.envd.request(
            "POST", "/files" + query, pieces,
            {"Content-Type": "multipart/form-data; boundary=XX", "X-Metadata-Owner": "me"},
            chunked=True)
        return response.status, json.loads(answer)

    def test_multipart_keeps_folders_and_order(self):
        one, two = self.folder + "/x/one", self.folder + "/y/two"
        data = os.urandom(100_000) + b"\r\n--X"
        status, answer = self.multipart("", (one, data), (two, b""))
        self.assertEqual(status, 200)
        self.assertEqual([item["path"] for item in answer], [one, two])
        self.assertEqual(self.download(one)[1], data)
        self.assertEqual(self.download(two)[1], b"")
        three = self.folder + "/three"
        status, _ = self.multipart("?path=" + three, (None, b"nameless"))
        self.assertEqual((status, self.download(three)[1]), (200, b"nameless"))
        self.assertEqual(self.multipart("", (one, b"a"), (one, b"b"))[0], 400)
        self.assertEqual(self.multipart("?path=" + three, (one, b"a"), (two, b"b"))[0], 400)
        self.assertEqual(self.multipart("", (None, b"x"))[0], 400)

    def test_metadata_is_replaced_as_a_whole(self):
        path = self.folder + "/m"
        try:
            os.setxattr(self.folder, "user.probe", b"x")
        except OSError:
            self.skipTest("the file system has no user xattrs")
        _, answer = self.multipart("?path=" + path, (None, b"x"))
        self.assertEqual(answer[0]["metadata"], {"owner": "me"})
        entry = self.envd.unary("filesystem.Filesystem/Stat", {"path": path})["entry"]
        self.assertEqual(entry["metadata"], {"owner": "me"})
        self.upload(path, b"y", {"X-Metadata-Other": "z"})
        entry = self.envd.unary("filesystem.Filesystem/Stat", {"path": path})["entry"]
        self.assertEqual(entry["metadata"], {"other": "z"})

    @unittest.skipUnless(os.getuid() == 0, "needs root to change owners")
    def test_files_belong_to_the_selected_user(self):
        path = self.folder + "/new/owned"
        status, _ = self.upload(path, b"x", user="nobody")
        nobody = pwd.getpwnam("nobody")
        self.assertEqual(status, 200)
        for made in (path, self.folder + "/new"):
            self.assertEqual((os.stat(made).st_uid, os.stat(made).st_gid),
                             (nobody.pw_uid, nobody.pw_gid))

    def test_compose_joins_and_deletes(self):
        for name in ("1", "2"):
            self.upload(f"{self.folder}/{name}", name.encode() * 3)
        response, _ = self.envd.request(
            "POST", "/files/compose", json.dumps({
                "source_paths": [self.folder + "/1", self.folder + "/2"],
                "destination": self.folder + "/all"}), {"Content-Type": "application/json"})
        self.assertEqual(response.status, 200)
        self.assertEqual(self.download(self.folder + "/all")[1], b"111222")
        self.assertEqual(os.listdir(self.folder), ["all"])

    def test_concurrent_uploads(self):
        data = {n: os.urandom(400_000) for n in range(8)}
        threads = [threading.Thread(target=self.upload, args=(f"{self.folder}/{n}", d))
                   for n, d in data.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for n, expected in data.items():
            self.assertEqual(self.download(f"{self.folder}/{n}")[1], expected)


class FilesystemTest(WithAgent):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="space-tree-")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def call(self, method, **message):
        return self.envd.unary("filesystem.Filesystem/" + method, message)

    def test_stat_of_file_folder_and_links(self):
        path = self.folder + "/f"
        with open(path, "w") as file:
            file.write("12345")
        os.chmod(path, 0o640)
        entry = self.call("Stat", path=path)["entry"]
        self.assertEqual((entry["name"], entry["type"], entry["path"], entry["size"], entry["mode"],
                          entry["permissions"], entry["owner"]),
                         ("f", "FILE_TYPE_FILE", path, "5", 0o640, "-rw-r-----",
                          pwd.getpwuid(os.getuid()).pw_name))
        self.assertTrue(entry["modifiedTime"].endswith("Z"))
        os.symlink("f", self.folder + "/link")
        os.symlink("/nowhere", self.folder + "/broken")
        entry = self.call("Stat", path=self.folder + "/link")["entry"]
        self.assertEqual((entry["type"], entry["symlinkTarget"], entry["permissions"]),
                         ("FILE_TYPE_FILE", path, "Lrwxrwxrwx"))
        entry = self.call("Stat", path=self.folder + "/broken")["entry"]
        self.assertEqual(entry["symlinkTarget"], self.folder + "/broken")
        self.assertNotIn("type", entry)
        error = self.assert_rpc_fails("not_found", "filesystem.Filesystem/Stat", {"path": "/nope"})
        self.assertEqual(error.status, 404)

    def test_make_move_list_remove(self):
        deep = self.folder + "/a/b"
        self.assertEqual(self.call("MakeDir", path=deep)["entry"]["type"], "FILE_TYPE_DIRECTORY")
        self.assert_rpc_fails("already_exists", "filesystem.Filesystem/MakeDir", {"path": deep})
        open(self.folder + "/file", "w").close()
        self.assert_rpc_fails("invalid_argument", "filesystem.Filesystem/MakeDir",
                              {"path": self.folder + "/file"})
        moved = self.call("Move", source=self.folder + "/file", destination=deep + "/c/d")["entry"]
        self.assertEqual(moved["path"], deep + "/c/d")
        self.assert_rpc_fails("not_found", "filesystem.Filesystem/Move",
                              {"source": self.folder + "/file", "destination": deep + "/e"})
        names = [entry["path"] for entry in
                 self.call("ListDir", path=self.folder, depth=9)["entries"]]
        self.assertEqual(names, [self.folder + end for end in ("/a", "/a/b", "/a/b/c", "/a/b/c/d")])
        self.assertEqual(len(self.call("ListDir", path=self.folder)["entries"]), 1)
        self.assert_rpc_fails("invalid_argument", "filesystem.Filesystem/ListDir",
                              {"path": deep + "/c/d"})
        self.assert_rpc_fails("not_found", "filesystem.Filesystem/ListDir", {"path": "/nope"})
        for _ in range(2):  # removing what is not there succeeds
            self.assertEqual(self.call("Remove", path=self.folder + "/a"), {})
        self.assertEqual(os.listdir(self.folder), [])

    def test_names_that_are_no_utf8(self):
        open(os.fsencode(self.folder) + b"/bad\xff", "w").close()
        os.utime(os.fsencode(self.folder) + b"/bad\xff", (2**33, 2**33))
        entries = self.call("ListDir", path=self.folder)["entries"]
        self.assertEqual(entries[0]["name"], "bad\ufffd")


class AccessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".token")
        cls.file.write("top-secret\n")
        cls.file.flush()
        cls.agent = Agent("--token-file", cls.file.name)
        cls.envd = cls.agent.envd

    @classmethod
    def tearDownClass(cls):
        cls.agent.stop()
        cls.file.close()

    def test_token_is_needed_everywhere_but_health(self):
        self.assertEqual(self.envd.request("GET", "/health")[0].status, 204)
        for method, path in (("GET", "/metrics"), ("GET", "/envs"), ("GET", "/files?path=/x"),
                             ("POST", "/files?path=/x"), ("POST", "/process.Process/List"),
                             ("POST", "/filesystem.Filesystem/Stat")):
            response, body = self.envd.request(method, path)
            self.assertEqual(response.status, 401, path)
            self.assertEqual(json.loads(body)["code"], 401)
        secured = Envd(unix_path=self.agent.socket, token="top-secret")
        self.assertEqual(secured.shell("echo in").stdout, b"in\n")
        self.assertEqual(Envd(unix_path=self.agent.socket, token="top-secreT")
                         .request("GET", "/metrics", headers={"X-Access-Token": "top-secreT"})[0]
                         .status, 401)

    def test_init_sets_variables_user_and_token(self):
        agent = Agent()
        try:
            body = json.dumps({"envVars": {"GREETING": "hello"}, "accessToken": "fresh",
                               "defaultUser": "root", "defaultWorkdir": "/usr",
                               "timestamp": "2030-01-01T00:00:00Z", "lifecycleID": "x"})
            self.assertEqual(agent.envd.request("POST", "/init", body)[0].status, 204)
            self.assertEqual(agent.envd.request("GET", "/envs")[0].status, 401)
            secured = Envd(unix_path=agent.socket, token="fresh")
            self.assertEqual(secured.shell("echo $GREETING; pwd").stdout, b"hello\n/usr\n")
            self.assertLess(time.time(), 1_893_000_000 + 10**9)
            response, _ = agent.envd.request("POST", "/init", "{nonsense")
            self.assertEqual(response.status, 400)
        finally:
            agent.stop()

    def test_wrong_arguments_are_named(self):
        for arguments, what in ((["serve"], "--listen"), (["serve", "--nonsense"], "--nonsense"),
                                (["serve", "--listen", "ftp:x"], "ftp:x")):
            result = subprocess.run([agent_binary(), *arguments], capture_output=True, text=True)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(what, result.stderr)


@unittest.skipUnless(os.getuid() == 0, "needs root for chroot")
class BusyboxRootTest(unittest.TestCase):
    """The agent on a root file system that holds a static busybox and nothing else: no NSS, no libc."""

    def setUp(self):
        busybox = shutil.which("busybox")
        self.assertIsNotNone(busybox, "busybox-static is needed")
        self.root = tempfile.mkdtemp(prefix="space-root-")
        os.mkdir(self.root + "/bin")
        shutil.copy(busybox, self.root + "/bin/busybox")
        os.symlink("busybox", self.root + "/bin/sh")
        shutil.copy(agent_binary(), self.root + "/agent")
        self.process = subprocess.Popen(["/agent", "serve", "--listen", "unix:/envd.sock"],
                                        cwd="/", preexec_fn=lambda: os.chroot(self.root))
        self.envd = Envd(unix_path=self.root + "/envd.sock")
        wait_for(lambda: os.path.exists(self.root + "/envd.sock"))

    def tearDown(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)
        shutil.rmtree(self.root)

    def test_commands_and_files_work(self):
        done = self.envd.run("/bin/busybox", "id", "-u")
        self.assertEqual((done.stdout, done.end["status"]), (b"0\n", "exit status 0"))
        done = self.envd.shell("echo $HOME $USER; busybox pwd")
        self.assertEqual(done.stdout, b"/root root\n/\n")
        self.assertEqual(self.unknown_user(), "invalid username: 'user'")
        response, _ = self.envd.request("POST", "/files?path=/made/by/agent", b"text",
                                        {"Content-Type": "application/octet-stream"})
        self.assertEqual(response.status, 200)
        self.assertEqual(self.envd.request("GET", "/files?path=/made/by/agent")[1], b"text")
        entry = self.envd.unary("filesystem.Filesystem/Stat", {"path": "/made"})["entry"]
        self.assertEqual((entry["owner"], entry["group"]), ("root", "0"))

    def unknown_user(self):
        stream = self.envd.start("/bin/sh", user="user")
        self.assertEqual(list(stream), [])
        return stream.error["message"]


if __name__ == "__main__":
    unittest.main()
