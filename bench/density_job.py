"""Inside bench/density: copies of one warmed sandbox, each after its first command. The cost of one is what it takes beyond
the guest pages that it wrote: memory of its space-vmm outside the guest's, page tables, and the kernel's for KVM; the
last is only in the sum over all, MemAvailable before and after."""
import os
import re
import sys
import time

import client
from report import Report, median

MIB = int(os.environ["BENCH_MIB"])
COPIES = int(os.environ["BENCH_COPIES"])


def available_kib():
    with open("/proc/meminfo") as info:
        return int(re.search(r"MemAvailable:\s+(\d+)", info.read())[1])


def pids():
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/exe").endswith("/space-vmm"):
                found.add(int(name))
        except OSError:
            continue
    return found


def mappings(pid):
    """(start, end, private KiB, anonymous KiB) of every mapping."""
    current = None
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if head:
                if current:
                    yield tuple(current)
                current = [int(head[1], 16), int(head[2], 16), 0, 0]
            elif line.startswith("Private_"):
                current[2] += int(line.split()[1])
            elif line.startswith("Anonymous:"):
                current[3] += int(line.split()[1])
    if current:
        yield tuple(current)


def cost(pid):
    """KiB: the VMM's own private memory, pages that the guest wrote, page tables."""
    pieces = list(mappings(pid))
    # Guest memory is the run of mappings without a gap that is as large as it.
    runs, begin = [], 0
    for at in range(1, len(pieces) + 1):
        if at == len(pieces) or pieces[at][0] != pieces[at - 1][1]:
            runs.append(pieces[begin:at])
            begin = at
    guest = [run for run in runs if run[-1][1] - run[0][0] >= MIB << 20]
    written = sum(piece[3] for run in guest for piece in run)
    own = sum(piece[2] for run in runs if run not in guest for piece in run)
    with open(f"/proc/{pid}/status") as status:
        tables = int(re.search(r"VmPTE:\s+(\d+)", status.read())[1])
    return own, written, tables


def main():
    report = Report(os.environ["BENCH_COMMAND"], os.environ["BENCH_CHECK"] == "1")
    parent, _ = client.create(f"base@2c-{MIB}m", 3600)
    client.output(parent, "nohup python3 -c 'import json, re, sqlite3, decimal, http.client, time; time.sleep(1e6)' "
                          "</dev/null >/dev/null 2>&1 & sleep 5")
    before_pids, before = pids(), available_kib()
    answer = client.must("POST", f"/sandboxes/{parent['sandboxID']}/fork", f'{{"count":{COPIES},"timeout":3600}}')
    children = [entry["sandbox"] for entry in answer if "sandbox" in entry]
    good = sum(isinstance(result, bytes) for result in client.at_once([lambda one=one: client.command(one) for one in children]))
    time.sleep(5)  # they are idle copies; nothing is decided by this
    fresh = pids() - before_pids
    used = before - available_kib()
    costs = [cost(pid) for pid in fresh]
    client.kill_all()
    own, written, tables = (median([one[at] for one in costs]) for at in range(3))
    rest = used / max(1, len(fresh)) - median([one[1] for one in costs])
    report.note(f"{good} of {COPIES} copies of {MIB} MiB answer, {len(fresh)} processes")
    report.note(f"per copy, median: own memory {own} KiB, page tables {tables} KiB, guest pages written {written} KiB")
    report.note(f"per copy, by MemAvailable of the host: {used / max(1, len(fresh)):.0f} KiB, {rest:.0f} KiB beyond pages written")
    report.note("")
    report.check("copies that did not answer", COPIES - good, 0)
    report.check("MiB per copy beyond the pages that it wrote", rest / 1024, 3)
    return report.exit_code()


sys.exit(main())
