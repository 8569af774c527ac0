"""Copies do not share what must be their own, and know what time it is (FC-09, FC-10)."""

import concurrent.futures
import json
import unittest

from harness import PATIENCE, SMALL, count, long_tier, wait_for
from test_pause import Pause

FIELDS = ("urandom", "uuid", "machine_id", "generation", "warmed", "boot_id")


class Unique(unittest.TestCase):
    node = None
    host_time = Pause.host_time
    check_clock = Pause.check_clock

    def setUp(self):
        self.addCleanup(self.remove_all)

    def remove_all(self):
        self.node.space("kill", "--all")
        listed = self.node.space("snapshot", "ls", "-q").stdout.decode().split()
        if listed:
            self.node.space("snapshot", "rm", *listed)

    def start_warm(self, sandbox):
        self.node.put(sandbox, "warm.py")
        self.node.background(sandbox, "exec python3 /root/warm.py")
        self.assertTrue(wait_for(lambda: self.node.space("exec", sandbox, "test", "-e", "/tmp/warm").returncode == 0))

    def ask(self, sandbox, number, line):
        return self.node.sh(sandbox, f"echo '{line}' > /tmp/ask; "
                                     f"until [ -e /tmp/answer.{number} ]; do sleep 0.05; done; cat /tmp/answer.{number}")

    def draw(self, sandbox):
        """What must differ between copies; `warmed` is of the interpreter that ran before the copy."""
        text = self.node.sh(sandbox, "head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n'; echo;"
                                     "cat /proc/sys/kernel/random/uuid /etc/machine-id;"
                                     "tail -c 16 /run/space/generation | od -An -tx1 | tr -d ' \\n'; echo")
        warmed = self.ask(sandbox, 1, "print(random.random(), uuid.uuid4())")
        boot = self.node.sh(sandbox, "cat /proc/sys/kernel/random/boot_id")
        drawn = dict(zip(FIELDS, [*text.split("\n"), warmed, boot]))
        self.assertTrue(all(drawn.values()), drawn)
        return drawn

    def check_all_differ(self, sandboxes):
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            drawn = list(pool.map(self.draw, sandboxes))
        for field in FIELDS[:-1]:
            values = [one[field] for one in drawn]
            self.assertEqual(len(set(values)), len(values), f"{field}: {values}")
        # No cold boot took place: they are one boot.
        self.assertEqual(len({one["boot_id"] for one in drawn}), 1)

    @long_tier
    def test_copies_by_snapshot_and_by_fork_draw_different_numbers(self):
        source = self.node.create(*SMALL)
        self.start_warm(source)
        kept = self.node.ok("snapshot", "create", source, timeout=PATIENCE * 2).strip()
        children = [self.node.create("-T", kept) for _ in range(5)]
        forks, _ = self.node.fork(source, 4)
        for sandbox in (children[0], forks[0]):
            self.check_clock(sandbox)
        # The source counts as well: 10 in all.
        self.check_all_differ([source, *children, *forks])
        # A user who seeds it himself gets what he asked for.
        values = {self.ask(sandbox, 2, "random.seed(1); print(random.random())") for sandbox in (children[0], forks[0])}
        self.assertEqual(values, {"0.13436424411240122"})

    def test_sandboxes_of_one_template_are_strangers(self):
        sandboxes = [self.node.create(*SMALL) for _ in range(count(3, 10))]
        drawn = []
        for sandbox in sandboxes:
            self.check_clock(sandbox)
            drawn.append(self.node.sh(sandbox, "head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id").split("\n"))
        for values in zip(*drawn):
            self.assertEqual(len(set(values)), len(sandboxes), values)
        # Nothing that all would share is in a template: host keys and seeds are made at first use.
        self.assertEqual(self.node.sh(sandboxes[0], "ls /etc/ssh/ssh_host_* /var/lib/systemd/random-seed "
                                                    "/var/lib/urandom/random-seed 2>/dev/null || true"), "")
        keys = [self.node.sh(sandbox, "ssh-keygen -q -t ed25519 -N '' -f /tmp/key && cut -d' ' -f2 /tmp/key.pub")
                for sandbox in sandboxes[:2]]
        self.assertEqual(len(set(keys)), 2)

    def test_a_copy_that_cannot_be_made_unique_is_not_served(self):
        source = self.node.create(*SMALL)
        self.node.sh(source, "mkdir -p /etc/space/restore.d; printf '#!/bin/sh\\necho no luck >&2; exit 3\\n' "
                             "> /etc/space/restore.d/50-broken; chmod 755 /etc/space/restore.d/50-broken")
        before = {entry["sandboxID"] for entry in self.node.listing()}
        done = self.node.space("fork", source, timeout=PATIENCE * 2)
        self.assertEqual(done.returncode, 125)
        self.assertIn("50-broken", done.stderr.decode())
        self.assertEqual({entry["sandboxID"] for entry in json.loads(self.node.ok("ls", "--json"))}, before)
        self.assertEqual(self.node.sh(source, "echo alive"), "alive")
