"""Watching folders through space-agent: streams as the JavaScript SDK has them, watchers as Python's."""

import http.client
import os
import shutil
import socket
import tempfile
import threading

from envd_client import RpcError
from envd_test import WithAgent, wait_for

SERVICE = "filesystem.Filesystem/"


class WatchTest(WithAgent):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="space-watch-")
        self.streams = []

    def tearDown(self):
        self.leave()
        shutil.rmtree(self.folder, ignore_errors=True)

    def leave(self):
        """All clients of streams go; their threads still read."""
        for stream in self.streams:
            stream.connection.sock.shutdown(socket.SHUT_RDWR)
        self.streams = []

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, *names, text="x"):
        with open(self.path(*names), "w") as file:
            file.write(text)

    def watch(self, **options):
        """The events so far, as a list that grows, after the stream's start."""
        stream = self.envd.stream(SERVICE + "WatchDir", {"path": self.folder, **options})
        self.streams.append(stream)
        messages = iter(stream)
        self.assertEqual(next(messages), {"start": {}})
        events = []

        def follow():
            try:
                for message in messages:
                    events.append(message)
            except (OSError, EOFError, http.client.HTTPException):
                pass  # closed by the test
        threading.Thread(target=follow, daemon=True).start()
        return events

    @staticmethod
    def seen(events):
        return [(event["filesystem"]["name"], event["filesystem"]["type"].removeprefix("EVENT_TYPE_"))
                for event in list(events) if "filesystem" in event]

    def assert_comes(self, events, *wanted):
        try:
            wait_for(lambda: all(one in self.seen(events) for one in wanted), 10)
        except AssertionError:
            self.fail(f"{wanted} not in {self.seen(events)}")

    def watcher(self, **options):
        return self.envd.unary(SERVICE + "CreateWatcher", {"path": self.folder, **options})["watcherId"]

    def taken(self, watcher):
        answer = self.envd.unary(SERVICE + "GetWatcherEvents", {"watcherId": watcher})
        return [(event["name"], event["type"].removeprefix("EVENT_TYPE_")) for event in answer.get("events", [])]

    def test_each_kind_of_change_is_told(self):
        self.write("old")
        events = self.watch()
        self.write("new")
        os.chmod(self.path("new"), 0o600)
        os.rename(self.path("old"), self.path("renamed"))
        os.remove(self.path("new"))
        self.assert_comes(events, ("new", "REMOVE"))
        self.assertEqual(self.seen(events), [
            ("new", "CREATE"), ("new", "WRITE"), ("new", "CHMOD"), ("old", "RENAME"), ("renamed", "CREATE"),
            ("new", "REMOVE")])

    def test_folders_below_are_watched_only_if_asked(self):
        os.mkdir(self.path("sub"))
        flat, deep = self.watch(), self.watch(recursive=True)
        self.write("sub", "file")
        self.write("last")
        self.assert_comes(flat, ("last", "WRITE"))
        self.assert_comes(deep, ("sub/file", "CREATE"), ("sub/file", "WRITE"), ("last", "WRITE"))
        self.assertEqual(self.seen(flat), [("last", "CREATE"), ("last", "WRITE")])

    def test_folders_made_later_are_watched_with_what_is_in_them_already(self):
        events = self.watch(recursive=True)
        for number in range(20):
            os.makedirs(self.path(f"a{number}", "b", "c"))
            self.write(f"a{number}", "b", "c", "file")
        self.assert_comes(events, *[(f"a{number}/b/c/file", kind) for number in range(20)
                                    for kind in ("CREATE", "WRITE")])
        created = [name for name, kind in self.seen(events) if kind == "CREATE"]
        self.assertEqual(len(created), len(set(created)), "told twice")

    def test_a_folder_that_is_moved_is_watched_where_it_is(self):
        outside = tempfile.mkdtemp(prefix="space-outside-")
        self.addCleanup(shutil.rmtree, outside, True)
        os.makedirs(self.path("from", "deep"))
        events = self.watch(recursive=True)
        os.rename(self.path("from"), self.path("to"))
        self.assert_comes(events, ("from", "RENAME"), ("to", "CREATE"), ("to/deep", "CREATE"))
        self.write("to", "deep", "file")
        self.assert_comes(events, ("to/deep/file", "CREATE"))
        os.rename(self.path("to"), outside + "/gone")
        self.assert_comes(events, ("to", "RENAME"))
        with open(outside + "/gone/deep/silent", "w"):
            pass
        self.write("last")
        self.assert_comes(events, ("last", "CREATE"))
        self.assertFalse([name for name, _ in self.seen(events) if "silent" in name])

    def test_entries_come_if_asked_but_not_for_what_is_gone(self):
        events = self.watch(includeEntry=True)
        self.write("file", text="12345")
        os.remove(self.path("file"))
        self.write("stays", text="123")
        self.assert_comes(events, ("stays", "WRITE"))
        entries = {(event["filesystem"]["name"], event["filesystem"]["type"]): event["filesystem"].get("entry")
                   for event in events}
        self.assertEqual(entries["stays", "EVENT_TYPE_WRITE"]["size"], "3")
        self.assertEqual(entries["stays", "EVENT_TYPE_WRITE"]["path"], self.path("stays"))
        self.assertIsNone(entries["file", "EVENT_TYPE_REMOVE"])

    def test_the_folder_itself_goes(self):
        events = self.watch()
        os.rmdir(self.folder)
        self.assert_comes(events, (".", "REMOVE"))

    def test_keepalives_and_deadline(self):
        stream = self.envd.stream(SERVICE + "WatchDir", {"path": self.folder},
                                  extra={"Keepalive-Ping-Interval": "1", "Connect-Timeout-Ms": "2500"})
        messages = list(stream)
        self.assertEqual(messages[0], {"start": {}})
        self.assertGreaterEqual(messages.count({"keepalive": {}}), 1)
        self.assertEqual(stream.error["code"], "deadline_exceeded")

    def test_what_cannot_be_watched_is_refused(self):
        self.write("file")
        for path, code in ((self.path("none"), "not_found"), (self.path("file"), "invalid_argument"),
                           (self.path("file", "below"), "not_found"), ("~nobody/x", "invalid_argument")):
            self.assert_rpc_fails(code, SERVICE + "CreateWatcher", {"path": path})
            stream = self.envd.stream(SERVICE + "WatchDir", {"path": path})
            self.assertEqual(list(stream), [])
            self.assertEqual(stream.error["code"], code)

    def test_watchers_keep_events_until_they_are_asked(self):
        watcher = self.watcher()
        self.assertEqual(self.taken(watcher), [])
        self.write("file")
        self.assertEqual(self.taken(watcher), [("file", "CREATE"), ("file", "WRITE")])
        self.assertEqual(self.taken(watcher), [])
        self.envd.unary(SERVICE + "RemoveWatcher", {"watcherId": watcher})
        for method in ("GetWatcherEvents", "RemoveWatcher"):
            self.assert_rpc_fails("not_found", SERVICE + method, {"watcherId": watcher})

    def test_lost_changes_are_told_after_those_that_are_not(self):
        watcher = self.watcher()
        self.addCleanup(self.envd.unary, SERVICE + "RemoveWatcher", {"watcherId": watcher})
        for number in range(30_000):  # more than we and the kernel keep
            os.mkdir(self.path(str(number)))
        names = []
        with self.assertRaises(RpcError) as caught:
            while len(names) < 30_000:
                names += [name for name, _ in self.taken(watcher)]
        self.assertEqual(caught.exception.code, "resource_exhausted")
        self.assertGreater(len(names), 8_000)
        self.assertEqual(names, [str(number) for number in range(len(names))])

    def test_nothing_is_left_of_watchers_and_streams(self):
        def inotifies():
            folder = f"/proc/{self.agent.process.pid}/fd"
            return sum(os.readlink(os.path.join(folder, one)) == "anon_inode:inotify" for one in os.listdir(folder))
        wait_for(lambda: inotifies() == 0)
        watchers = [self.watcher(recursive=True) for _ in range(5)]
        for _ in range(5):
            self.watch()
        self.assertEqual(inotifies(), 10)
        for watcher in watchers:
            self.envd.unary(SERVICE + "RemoveWatcher", {"watcherId": watcher})
        self.leave()
        wait_for(lambda: inotifies() == 0)

    def test_too_many_watchers_are_refused(self):
        watchers = []
        try:
            with self.assertRaises(RpcError) as caught:
                for _ in range(300):
                    watchers.append(self.watcher())
            self.assertEqual(caught.exception.code, "resource_exhausted")
        finally:
            for watcher in watchers:
                self.envd.unary(SERVICE + "RemoveWatcher", {"watcherId": watcher})
