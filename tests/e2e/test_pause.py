"""Pause and resume: nothing is lost, nothing hangs, no state lies (FC-01, 02, 03, 10, 11)."""

import concurrent.futures
import hashlib
import json
import subprocess
import threading
import time
import unittest

from harness import PATIENCE, SMALL, count, long_tier, next_line, wait_for
from test_branch import counter, start_counter


class Pause(unittest.TestCase):
    node = None

    def setUp(self):
        self.addCleanup(self.node.space, "kill", "--all")

    def pause(self, sandbox, *options):
        self.node.ok("pause", *options, sandbox, timeout=PATIENCE * 2)

    def resume(self, sandbox, *options):
        self.node.ok("resume", *options, sandbox, timeout=PATIENCE * 3)

    @long_tier
    def test_every_change_of_every_cycle_is_there(self):
        sandbox = self.node.create()
        start_counter(self.node, sandbox)
        boot = self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id; pgrep -f [c]ounter.py")
        expected, last = {}, 0
        for cycle in range(5):
            self.node.sh(sandbox, f"echo {cycle} > /new.{cycle}; echo {cycle} >> /grown; rm -f /new.{cycle - 2}")
            expected[f"new.{cycle}"] = f"{cycle}"
            expected.pop(f"new.{cycle - 2}", None)
            self.pause(sandbox)
            self.assertEqual(self.node.state(sandbox), "paused")
            self.resume(sandbox)
            found = dict(line.split(":", 1) for line in self.node.sh(
                sandbox, "cd /; for f in new.*; do echo $f:$(cat $f); done").splitlines())
            self.assertEqual(found, expected)
            self.assertEqual(self.node.sh(sandbox, "cat /grown").split(), [str(n) for n in range(cycle + 1)])
            number = counter(self.node, sandbox)[0]
            self.assertGreaterEqual(number, last)
            last = number
        self.assertTrue(wait_for(lambda: counter(self.node, sandbox)[0] > last, 30))
        self.assertEqual(self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id; pgrep -f [c]ounter.py"), boot)

    @long_tier
    def test_resume_straight_after_pause(self):
        sandbox = self.node.create(*SMALL)
        for _ in range(count(8, 50)):
            self.assertEqual(self.node.api("POST", f"/sandboxes/{sandbox}/pause")[0], 204)
            status, _, body = self.node.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300})
            self.assertEqual(status, 201, body)
            self.node.sh(sandbox, "true")
        self.assertEqual(self.node.api("DELETE", f"/sandboxes/{sandbox}")[0], 204)
        self.assertEqual(self.node.api("DELETE", f"/sandboxes/{sandbox}")[0], 404)

    def test_many_sandboxes_at_once_pause_and_resume(self):
        ids = [self.node.create(*SMALL) for _ in range(count(3, 20))]

        def cycle(sandbox):
            for _ in range(2):
                self.assertEqual(self.node.api("POST", f"/sandboxes/{sandbox}/pause")[0], 204)
                self.assertEqual(self.node.api("POST", f"/v2/sandboxes/{sandbox}/connect", {})[0], 201)
                self.node.sh(sandbox, "true")
            return self.node.api("DELETE", f"/sandboxes/{sandbox}")[0]

        with concurrent.futures.ThreadPoolExecutor(len(ids)) as pool:
            self.assertEqual(list(pool.map(cycle, ids)), [204] * len(ids))

    def test_connect_while_pausing_never_lies(self):
        sandbox = self.node.create(*SMALL)
        paused = []
        thread = threading.Thread(
            target=lambda: paused.append(self.node.api("POST", f"/sandboxes/{sandbox}/pause")[0]))
        thread.start()
        seen = set()
        deadline = time.monotonic() + PATIENCE
        while thread.is_alive() and time.monotonic() < deadline:
            status, _, body = self.node.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300})
            seen.add(status)
            self.assertIn(status, (200, 201, 409), body)
            self.assertIn(self.node.state(sandbox), ("running", "paused"))
            time.sleep(0.02)
        thread.join()
        print(f"connect during pause: {sorted(seen)}, pause {paused}")
        self.assertIn(paused[0], (204, 409))
        # The answer holds: the very next command works without a retry.
        self.assertIn(self.node.api("POST", f"/sandboxes/{sandbox}/connect", {"timeout": 300})[0], (200, 201))
        self.assertEqual(self.node.sh(sandbox, "echo ok"), "ok")
        for identifier, status in (("ixxxxxxxxxxxxxxxxxx0", 404), ("a-b-c", 400), ("IABC", 400)):
            self.assertEqual(self.node.api("POST", f"/sandboxes/{identifier}/connect", {})[0], status)
        self.node.ok("kill", sandbox)
        self.assertEqual(self.node.api("POST", f"/sandboxes/{sandbox}/connect", {})[0], 404)

    def test_answers_are_those_of_the_table(self):
        sandbox = self.node.create(*SMALL)
        path = f"/sandboxes/{sandbox}"
        token = self.node.api("GET", path)[2]["envdAccessToken"]
        self.assertEqual(self.node.api("POST", f"{path}/resume", {})[0], 409)
        # Five at once join one pause; who comes when it is over is told so.
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda _: self.node.api("POST", f"{path}/pause", {"memory": True})[0], range(5)))
        self.assertIn(204, answers)
        self.assertLessEqual(set(answers), {204, 409})
        status, _, body = self.node.api("POST", f"{path}/pause")
        self.assertEqual((status, body["code"]), (409, 409))
        self.assertEqual(self.node.api("POST", f"{path}/timeout", {"timeout": 60})[0], 404)
        self.assertEqual(self.node.api("POST", f"{path}/refreshes", {"duration": 60})[0], 404)
        detail = self.node.api("GET", path)[2]
        self.assertEqual((detail["state"], detail["envdAccessToken"]), ("paused", token))
        listed = {state: [one["sandboxID"] for one in self.node.api("GET", f"/v2/sandboxes?state={state}")[2]]
                  for state in ("running", "paused", "running,paused")}
        self.assertEqual(listed, {"running": [], "paused": [sandbox], "running,paused": [sandbox]})
        self.assertEqual(self.node.api("GET", "/sandboxes")[2], [])
        health = {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983", "X-Access-Token": token}
        self.assertEqual(self.node.api("GET", "/health", headers=health)[0], 502)
        # All who connect at once succeed, and none before the agent answers.
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: self.node.api("POST", f"{path}/connect", {"timeout": 500}), range(4)))
        self.assertTrue(all(status in (200, 201) for status, _, _ in answers), answers)
        self.assertIn(201, [status for status, _, _ in answers])
        self.assertEqual({body["envdAccessToken"] for _, _, body in answers}, {token})
        self.assertEqual(self.node.api("GET", "/health", headers=health)[0], 204)
        end = self.node.api("GET", path)[2]["endAt"]
        self.assertEqual(self.node.api("POST", f"{path}/connect", {"timeout": 10})[0], 200)
        self.assertEqual(self.node.api("GET", path)[2]["endAt"], end)  # never shortened
        # Killed while it is paused: its snapshot goes with it.
        self.pause(sandbox)
        self.assertEqual(self.node.api("DELETE", path)[0], 204)
        self.assertEqual(self.node.api("DELETE", path)[0], 404)
        self.assertEqual(self.node.api("GET", path)[0], 404)

    def test_without_memory_it_boots_anew_with_its_files(self):
        sandbox = self.node.create(*SMALL, "-e", "COLOUR=green")
        self.node.sh(sandbox, "echo kept > /kept; echo gone > /dev/shm/gone")
        boot = self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id")
        self.pause(sandbox, "--disk-only")
        self.resume(sandbox)
        self.assertEqual(self.node.sh(sandbox, "cat /kept; ls /dev/shm; echo $COLOUR"), "kept\ngreen")
        second = self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id")
        self.assertNotEqual(second, boot)
        # And on request of who resumes, though the memory was kept.
        self.pause(sandbox)
        self.resume(sandbox, "--reboot")
        self.assertNotEqual(self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id"), second)
        self.assertEqual(self.node.sh(sandbox, "cat /kept"), "kept")

    def test_kill_during_pause_waits_and_leaves_nothing(self):
        sandbox = self.node.create()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            pausing = pool.submit(self.node.api, "POST", f"/sandboxes/{sandbox}/pause")
            time.sleep(0.05)
            killing = pool.submit(self.node.api, "DELETE", f"/sandboxes/{sandbox}")
            self.assertEqual(killing.result()[0], 204)
            self.assertIn(pausing.result()[0], (204, 404, 409))
        self.assertIsNone(self.node.state(sandbox))
        self.assertEqual(self.node.listing(), [])
        data, run = self.node.host_data()
        self.assertEqual(self.node.host(f"find {data} {run} -name '*{sandbox}*'"), "")

    def test_at_its_end_it_is_paused_when_asked_for_and_traffic_wakes_it(self):
        status, _, made = self.node.api("POST", "/v2/sandboxes", {
            "templateID": "base@1c-192m", "timeout": 3, "autoPause": True, "autoResume": {"enabled": True}})
        self.assertEqual(status, 201, made)
        sandbox, token = made["sandboxID"], made["envdAccessToken"]
        self.assertTrue(wait_for(lambda: self.node.state(sandbox) == "paused", 3 + 30))
        self.assertTrue(wait_for(lambda: json.loads(
            self.node.ok("inspect", "--json", sandbox))["state"] == "paused"))
        lifecycle = self.node.api("GET", f"/sandboxes/{sandbox}")[2]["lifecycle"]
        self.assertEqual(lifecycle, {"onTimeout": "pause", "autoResume": True})
        address = {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": "49983"}
        self.assertEqual(self.node.api("GET", "/health", headers=address)[0], 403)  # checked before it is woken
        self.assertEqual(self.node.state(sandbox), "paused")
        begun = time.monotonic()
        self.assertEqual(self.node.api("GET", "/health", headers={**address, "X-Access-Token": token})[0], 204)
        print(f"woken by traffic in {time.monotonic() - begun:.2f} s")
        self.assertEqual(self.node.state(sandbox), "running")
        self.assertEqual(self.node.sh(sandbox, "echo ok"), "ok")

    def test_clock_is_right_after_a_pause_and_monotonic_time_goes_on(self):
        sandbox = self.node.create(*SMALL)
        start_counter(self.node, sandbox)
        slept = count(15, 120)
        up_before = float(self.node.sh(sandbox, "cut -d' ' -f1 /proc/uptime"))
        self.pause(sandbox)
        time.sleep(slept)
        self.resume(sandbox)
        self.check_clock(sandbox)
        up_after = float(self.node.sh(sandbox, "cut -d' ' -f1 /proc/uptime"))
        number, longest, jump = counter(self.node, sandbox)
        print(f"paused {slept} s: uptime {up_before} -> {up_after}, longest step {longest} s, wall clock moved {jump} s")
        self.assertGreaterEqual(up_after, up_before)
        self.assertLess(longest, slept, "monotonic time jumped over the pause")
        self.assertGreater(jump, slept - 1, "the wall clock did not follow, or stepped back")

    def check_clock(self, sandbox):
        """Reads the guest's clock between two readings of the host's: the bounds are exact."""
        before = self.host_time()
        guest = float(self.node.sh(sandbox, "date +%s.%N"))
        after = self.host_time()
        self.assertGreater(guest, before - 1, f"{before - guest:.3f} s behind")
        self.assertLess(guest, after + 0.1, f"{guest - after:.3f} s ahead")

    def host_time(self):
        return float(self.node.host("date +%s.%N"))

    def test_open_streams_end_or_go_on_and_new_commands_work(self):
        sandbox = self.node.create()
        self.node.sh(sandbox, "head -c 10000000 /dev/urandom > /big; sha256sum /big | cut -d' ' -f1 > /sum")
        wanted = self.node.sh(sandbox, "cat /sum")
        streams = []
        for round_number in range(count(2, 30)):
            while len(streams) < 4:
                streams.append(self.node.start("exec", sandbox, "sh", "-c", "while :; do date +%s.%N; sleep 0.2; done",
                                               stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                self.assertTrue(next_line(streams[-1], PATIENCE))
            self.pause(sandbox)
            self.resume(sandbox)
            # A stream that went on still prints; the others have ended by now, with a reason.
            wait_for(lambda: all(stream.poll() is not None for stream in streams), 5)
            ended = [stream for stream in streams if stream.poll() is not None]
            for stream in ended:
                self.assertNotEqual(stream.returncode, 0)
                self.assertTrue(stream.stderr.read())
            streams = [stream for stream in streams if stream.poll() is None]
            for stream in streams:
                self.assertTrue(next_line(stream, 10), "a stream hangs")
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                self.assertEqual(list(pool.map(lambda n: self.node.sh(sandbox, f"echo {n}"), range(count(4, 10)))),
                                 [str(n) for n in range(count(4, 10))])
            back = self.node.home / "big"
            self.node.ok("cp", f"{sandbox}:/big", back)
            self.assertEqual(hashlib.sha256(back.read_bytes()).hexdigest(), wanted)
            if round_number == 0:
                print(f"after resume: {len(ended)} streams ended, {len(streams)} went on")
        for stream in streams:
            stream.kill()
            stream.communicate()
