"""Kept snapshots: whole while the guest is busy, templates of their own, deleted only when nobody needs them."""

import json
import subprocess
import time
import unittest

from harness import PATIENCE, SMALL, count, long_tier, next_line, wait_for
from test_branch import counter, start_counter


class Snapshot(unittest.TestCase):
    node = None

    def setUp(self):
        self.addCleanup(self.remove_all)

    def remove_all(self):
        self.node.space("kill", "--all")
        listed = self.node.space("snapshot", "ls", "-q").stdout.decode().split()
        if listed:
            self.node.space("snapshot", "rm", *listed)

    def snapshot(self, sandbox, *options):
        return self.node.ok("snapshot", "create", *options, sandbox, timeout=PATIENCE * 3).strip()

    @long_tier
    def test_snapshot_while_commands_stream_and_files_are_written(self):
        source = self.node.create()
        for name in ("ledger.py", "check_ledger.py"):
            self.node.put(source, name)
        self.node.background(source, "exec python3 /root/ledger.py")
        self.node.background(source, "while :; do dd if=/dev/urandom of=/big bs=1M count=100 status=none; done")
        self.assertTrue(wait_for(lambda: self.node.space("exec", source, "test", "-s", "/ledger.db-wal").returncode == 0))
        streams = [self.node.start("exec", source, "sh", "-c", "i=0; while [ $i -lt 40 ]; do echo $i; i=$((i+1)); sleep 0.2; done",
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
        for stream in streams:
            self.assertEqual(next_line(stream, PATIENCE), b"0\n")
        kept = json.loads(self.snapshot(source, "--json"))
        print(f"pause {kept['timings']['pauseUs'] / 1000:.1f} ms, {kept['timings']['dirtyPages'] // 256} MiB dirty")
        for stream in streams:
            out, err = stream.communicate(timeout=PATIENCE)
            self.assertEqual((stream.returncode, out.split()), (0, [b"%d" % n for n in range(1, 40)]), err)
        child = self.node.create("-T", kept["snapshotID"])
        for sandbox in (source, child):
            self.node.sh(sandbox, "pkill -f [l]edger.py; pkill -f [b]s=1M; sleep 0.5; sync")
            self.assertRegex(self.node.sh(sandbox, "python3 /root/check_ledger.py"), r"^ok \d+$")
            self.assertEqual(self.node.sh(sandbox, "dmesg | grep -ci 'EXT4-fs error\\|I/O error' || true"), "0")

    @long_tier
    def test_sandboxes_of_a_snapshot_go_on_from_memory_without_their_source(self):
        source = self.node.create(*SMALL, "-e", "COLOUR=green", "-e", "SHAPE=round")
        start_counter(self.node, source)
        kept = self.snapshot(source, "--name", "Warm:V1")
        self.assertTrue(kept.endswith("/warm:v1"), kept)
        number = counter(self.node, source)[0]
        self.node.ok("kill", source)
        child = self.node.create("-T", kept, "-e", "COLOUR=red")
        self.assertTrue(wait_for(lambda: counter(self.node, child)[0] > number, 60))
        # The new set on top of the old one.
        self.assertEqual(self.node.sh(child, "echo $COLOUR $SHAPE"), "red round")
        (grandchild,), _ = self.node.fork(child)
        again = self.snapshot(grandchild)
        self.assertEqual(self.node.ok("run", "-T", again, "sh", "-c", "head -c 12 /dev/shm/counter | wc -c",
                                      timeout=PATIENCE * 2).strip(), "12")

    def test_listing_and_names(self):
        source = self.node.create(*SMALL)
        status, _, unnamed = self.node.api("POST", f"/sandboxes/{source}/snapshots")
        self.assertEqual(status, 201, unnamed)
        self.assertRegex(unnamed["snapshotID"], r"^[a-z0-9]+:default$")
        status, _, named = self.node.api("POST", f"/sandboxes/{source}/snapshots", {"name": "thing:one"})
        self.assertEqual(status, 201, named)
        space, rest = named["snapshotID"].split("/")
        self.assertEqual((rest, named["names"]), ("thing:one", [f"{space}/thing"]))
        for query, wanted in ((f"sandboxID={source}", {unnamed["snapshotID"], named["snapshotID"]}),
                              ("name=thing", {named["snapshotID"]}), ("name=thing:one", {named["snapshotID"]}),
                              ("name=thing:default", set()), ("name=nothing", set()),
                              (f"name={space}%2Fthing%3Aone", {named["snapshotID"]}), ("sandboxID=inothere", set())):
            status, _, listed = self.node.api("GET", f"/snapshots?{query}")
            self.assertEqual({one["snapshotID"] for one in listed}, wanted, query)
        status, headers, page = self.node.api("GET", "/snapshots?limit=1")
        status, last, second = self.node.api("GET", f"/snapshots?limit=1&nextToken={headers['X-Next-Token']}")
        self.assertEqual({page[0]["snapshotID"], second[0]["snapshotID"]}, {unnamed["snapshotID"], named["snapshotID"]})
        self.assertIsNone(last["X-Next-Token"])
        self.assertEqual(self.node.api("POST", f"/sandboxes/{source}/snapshots", {"name": "foreign-team/thing"})[0], 400)
        self.assertEqual(self.node.api("POST", f"/sandboxes/{source}/snapshots", {"name": "b:"})[0], 400)
        quoted = named["snapshotID"].replace("/", "%2F").replace(":", "%3A")
        self.assertEqual(self.node.api("DELETE", f"/templates/{quoted}")[0], 204)
        self.assertEqual(self.node.api("DELETE", f"/templates/{quoted}")[0], 404)

    def test_a_snapshot_in_use_is_not_deleted_and_its_users_are_named(self):
        source = self.node.create(*SMALL)
        kept = self.snapshot(source)
        user = self.node.create("-T", kept)
        for _ in range(2):
            done = self.node.space("snapshot", "rm", kept)
            self.assertEqual(done.returncode, 125)
            self.assertIn(user, done.stderr.decode())
            if self.node.state(user) == "running":
                self.node.ok("pause", user, timeout=PATIENCE * 2)  # paused ones use it too
        self.node.ok("resume", user, timeout=PATIENCE * 2)
        self.assertEqual(self.node.sh(user, "echo whole"), "whole")
        self.node.ok("kill", user)
        self.node.ok("snapshot", "rm", kept)
        done = self.node.space("create", "-T", kept)
        self.assertEqual(done.returncode, 125)
        self.assertIn(kept.split(":")[0], done.stderr.decode())
        self.assertEqual(self.node.sh(source, "echo alive"), "alive")

    @long_tier
    def test_snapshots_pauses_and_kills_wait_for_each_other(self):
        source = self.node.create()
        self.node.sh(source, "head -c 60000000 /dev/urandom > /dev/shm/ballast")
        running = self.node.start("snapshot", "create", source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen = wait_for(lambda: json.loads(self.node.ok("inspect", "--json", source))["state"] == "snapshotting"
                        or running.poll() is not None, 30)
        self.assertTrue(seen)
        is_early = running.poll() is None
        self.assertEqual(self.node.state(source), "running")
        if is_early:
            status = self.node.api("POST", f"/sandboxes/{source}/snapshots")[0]
            self.assertIn(status, (409, 201))  # 201: the first ended in between
        self.assertEqual(self.node.api("POST", f"/sandboxes/{source}/pause")[0], 204)
        out, err = running.communicate(timeout=PATIENCE)
        self.assertEqual(running.returncode, 0, err)
        self.node.ok("kill", source)
        self.assertRegex(self.node.ok("run", "-T", out.decode().strip(), "sh", "-c", "wc -c < /dev/shm/ballast",
                                      timeout=PATIENCE * 2), r"^60000000$")


class Cycles(unittest.TestCase):
    node = None

    def settled(self):
        """Traces and the resident KiB of spaced."""
        self.assertEqual(self.node.settle(), [])
        _, run = self.node.host_data()
        return self.node.traces(), int(self.node.host(f"awk '/VmRSS/ {{print $2}}' /proc/$(cat {run}/spaced.pid)/status"))

    def test_create_kill_cycles_leave_nothing(self):
        def cycle(number):
            sandbox = self.node.create(*SMALL)
            if number % 5 == 1:
                self.node.fork(sandbox)
            if number % 5 == 2:
                self.node.ok("pause", sandbox, timeout=PATIENCE)
            self.node.ok("kill", "--all", timeout=PATIENCE)

        # What the daemon opens and fills once is no leak: the pool is full afterwards.
        for number in range(3):
            cycle(number)
        before, resident = self.settled()
        begun = time.monotonic()
        cycles = count(100, 1000)
        for number in range(cycles):
            cycle(number)
        print(f"{cycles} cycles in {time.monotonic() - begun:.0f} s")
        wait_for(lambda: self.settled()[0] == before, 20)
        after, grown = self.settled()
        print(f"spaced grew by {grown - resident} KiB: {after}")
        self.assertEqual(after, before)
        self.assertLess(grown - resident, 8 << 10)
