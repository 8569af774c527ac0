"""Inside bench/fork."""
import os
import sys
import time

import client
import floor_peer
from report import Report, median

MIB = int(os.environ["BENCH_MIB"])
DIRTY_MIB = int(os.environ["BENCH_DIRTY"])
RUNS = int(os.environ["BENCH_RUNS"])
COPIES = int(os.environ["BENCH_COPIES"])
PARTS = ("parkUs", "scanUs", "markUs", "forkUs", "resumeUs")

# A warmed interpreter. It writes its longest gap between two looks at the clock, and on demand one byte of each of many
# pages in random order.
WARM = f"""
import mmap, os, random, time
import decimal, email, http.client, json, re, sqlite3, unittest  # what a warm interpreter has loaded
pages = {DIRTY_MIB} * 256
memory = mmap.mmap(-1, max(1, pages) * 4096)
order = list(range(pages))
random.shuffle(order)
last, longest = time.monotonic(), 0.0
open('/tmp/warm', 'w').close()
while True:
    now = time.monotonic()
    longest = max(longest, now - last)
    last = now
    if os.path.exists('/tmp/reset'):
        os.unlink('/tmp/reset')
        for page in order:
            memory[page * 4096] = (memory[page * 4096] + 1) & 255
        last, longest = time.monotonic(), 0.0
        open('/tmp/ready', 'w').close()
    if os.path.exists('/tmp/tell'):
        open('/tmp/gap', 'w').write(str(longest))
        os.rename('/tmp/tell', '/tmp/told')
"""


def source():
    sandbox, _ = client.create(f"base@2c-{MIB}m", 3600)
    script = WARM.replace("'", "'\\''")
    client.output(sandbox, f"printf '%s' '{script}' > /tmp/warm.py; nohup python3 /tmp/warm.py >/tmp/log 2>&1 </dev/null & "
                           "for i in $(seq 600); do [ -e /tmp/warm ] && exit; sleep 0.1; done; cat /tmp/log; exit 1")
    return sandbox


def fork(sandbox, number):
    begun = time.monotonic()
    report = client.must("POST", f"/space/v1/sandboxes/{sandbox['sandboxID']}/fork", f'{{"count":{number},"timeout":3600}}')
    children = [entry["sandbox"] for entry in report["results"] if "sandbox" in entry]
    for entry in report["results"]:
        if "error" in entry:
            print(f"fork: {entry['error']}")
    return children, report["timings"], begun


def main():
    report = Report(os.environ["BENCH_COMMAND"], os.environ["BENCH_CHECK"] == "1")
    parent = source()
    pauses, gaps, answers, commands, parent_commands = [], [], [], [], []
    parts = {name: [] for name in PARTS}
    timings = {}
    for _ in range(RUNS):
        client.output(parent, "rm -f /tmp/ready /tmp/told; touch /tmp/reset; "
                              "until [ -e /tmp/ready ]; do sleep 0.05; done; sleep 0.2")
        children, timings, begun = fork(parent, 1)
        answers.append(client.elapsed(begun))
        for child in children:
            client.command(child)
            commands.append(client.elapsed(begun))
        asked = time.monotonic()
        client.command(parent)
        parent_commands.append(client.elapsed(asked))
        gaps.append(1000 * float(client.output(parent, "touch /tmp/tell; until [ -e /tmp/told ]; do sleep 0.02; done; "
                                                       "rm /tmp/told; cat /tmp/gap")))
        pauses.append(timings["pauseUs"] / 1000)
        for name in PARTS:
            parts[name].append(timings.get(name, 0) / 1000)
        for child in children:
            client.kill(child)
    mapped = min(MIB, 256 if MIB > 256 else MIB)
    dirty = min(timings["dirtyPages"], MIB * 256)
    scan, bare_fork = floor_peer.branch_floor(MIB, mapped, dirty, 11)
    report.row("pause of the source, in the VMM", pauses, RUNS)
    for name in PARTS:
        report.row(f"  of it {name[:-2]}", parts[name])
    report.row("longest gap of a loop in the guest", gaps)
    report.row("fork, request to answer", answers)
    report.row("fork, request to the copy's first command", commands, RUNS)
    report.row("a command in the source right after", parent_commands)
    report.note(f"last fork: {dirty} pages written since the layer below, {timings.get('writtenPages')} stored in "
                f"{timings.get('writeUs', 0) / 1000:.1f} ms, {timings.get('mappings')} mappings")
    report.note(f"bare scan {scan:.1f} ms and fork {bare_fork:.1f} ms with {MIB} MiB, {mapped} MiB mapped, {dirty} pages written")

    children, _, begun = fork(parent, COPIES)
    told = client.elapsed(begun)
    results = client.at_once([lambda one=one: client.command(one, ("/usr/bin/pgrep", "-f", "warm.py")) for one in children])
    good = sum(isinstance(result, bytes) for result in results)
    for problem in results:
        if isinstance(problem, Exception):
            print(problem)
    report.note(f"{COPIES} copies of a warmed Python, {MIB} MiB each: request to answer {told:.0f} ms "
                f"({told / COPIES:.1f} ms each), all {good} have run a command after {client.elapsed(begun):.0f} ms")
    client.kill_all()
    report.note("")
    report.check("pause of the source, times bare scan and fork", median(pauses) / (scan + bare_fork), 2)
    report.check("copies that did not answer", COPIES - good, 0)
    return report.exit_code()


sys.exit(main())
