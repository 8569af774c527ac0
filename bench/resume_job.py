"""Inside bench/resume."""
import os
import sys
import time

import client
import floor_peer
import qemu_peer
from report import Report, median

MIB = int(os.environ["BENCH_MIB"])
HELD = int(os.environ["BENCH_HELD"])
RUNS = int(os.environ["BENCH_RUNS"])


def main():
    report = Report(os.environ["BENCH_COMMAND"], os.environ["BENCH_CHECK"] == "1")
    sandbox, _ = client.create(f"base@1c-{MIB}m", 3600)
    path = f"/sandboxes/{sandbox['sandboxID']}"
    wanted = client.output(sandbox, f"head -c {HELD << 20} /dev/urandom > /dev/shm/held; cksum < /dev/shm/held")
    pauses, resumes, commands, reads, floors, good = [], [], [], [], [], 0
    for run in range(RUNS):
        if run % 5 == 0:
            floors.append(floor_peer.kvm_floor(10))
        begun = time.monotonic()
        client.must("POST", f"{path}/pause", "{}")
        pauses.append(client.elapsed(begun))
        begun = time.monotonic()
        status, answer = client.api("POST", f"/v2{path}/connect", '{"timeout":3600}')
        if status != 201:
            report.note(f"resume: {status} {answer}")
            continue
        resumes.append(client.elapsed(begun))
        client.command(sandbox)
        commands.append(client.elapsed(begun))
        begun = time.monotonic()
        good += client.output(sandbox, "cksum < /dev/shm/held") == wanted
        reads.append(client.elapsed(begun))
    client.kill_all()
    report.row("pause, to durable", pauses, RUNS)
    report.row("resume, request to answer", resumes, RUNS)
    report.row("resume, request to the first command", commands, RUNS)
    report.row(f"then reading {HELD} MiB of its memory", reads, RUNS)
    report.row("bare KVM floor", floors)
    restores = qemu_peer.measure(report, os.environ["BENCH_IMAGES"], os.environ["BENCH_DATA"] + "/bench", MIB, 1,
                                 int(os.environ["BENCH_RESTORES"]))
    report.note("")
    report.check("cycles that failed or lost memory", RUNS - good, 0)
    report.check("resume, times QEMU's restore", median(resumes) / median(restores) if restores and resumes else None, 1)
    return report.exit_code()


sys.exit(main())
