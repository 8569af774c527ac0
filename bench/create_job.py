"""Inside bench/create: the phase `pooled` and the phase `demand`, each with a daemon of its own; in `demand` no pool is kept.
A create is timed from the request to the answer, which comes when the agent has answered; the first command apart."""
import os
import sys
import time

import client
import floor_peer
import qemu_peer
from report import Report, median

PHASE = os.environ["BENCH_PHASE"]
MIB = int(os.environ["BENCH_MIB"])
TEMPLATE = f"base@1c-{MIB}m"


def one_by_one(report, runs):
    """Creates with their first commands; floors are measured in between."""
    creates, commands, both, floors = [], [], [], []
    for run in range(runs):
        if PHASE == "pooled":
            client.wait_for_pool(TEMPLATE)
        if run % 5 == 0:
            floors.append(floor_peer.kvm_floor(10))
        try:
            sandbox, took = client.create(TEMPLATE, exact=True)
        except RuntimeError as problem:
            report.note(str(problem))
            continue
        creates.append(took)
        begun = time.monotonic()
        client.command(sandbox)
        commands.append(client.elapsed(begun))
        both.append(took + commands[-1])
        client.kill(sandbox)
    report.row(f"create, {'pooled' if PHASE == 'pooled' else 'on demand'}", creates, runs)
    report.row("first command after it", commands, runs)
    report.row("create and first command", both, runs)
    report.row("bare KVM floor", floors)
    report.row("a request that does nothing (404)", [nothing() for _ in range(runs)])
    return creates, median(floors)


def nothing():
    """What client, connection and the daemon's HTTP take by themselves here."""
    return client.timed("GET", "/nothing-here")[1]


def burst(size):
    results = client.at_once([lambda: client.create(TEMPLATE)] * size)
    made = [result for result in results if isinstance(result, tuple)]
    # Each must serve a command before it counts.
    commands = client.at_once([lambda one=one: client.command(one) for one, _ in made])
    good = [took for (_, took), answer in zip(made, commands) if isinstance(answer, bytes)]
    for problem in [*results, *commands]:
        if isinstance(problem, Exception):
            print(f"burst of {size}: {problem}")
    client.kill_all()
    return good


def bursts(report, size, number):
    if size == 0 or number == 0:
        return None
    times = []
    for _ in range(number):
        if PHASE == "pooled":
            client.wait_for_pool(TEMPLATE)
        times += burst(size)
    report.row(f"create in bursts of {size}", times, size * number)
    return times if len(times) == size * number else None


def sustained(report, seconds):
    """Two clients create and kill without a break."""
    deadline = time.monotonic() + seconds
    begun = time.monotonic()

    def work():
        times = []
        while time.monotonic() < deadline:
            sandbox, took = client.create(TEMPLATE)
            times.append(took)
            client.kill(sandbox)
        return times

    results = client.at_once([work, work])
    times = [took for result in results if isinstance(result, list) for took in result]
    failed = [result for result in results if not isinstance(result, list)]
    report.row(f"create without a break, {seconds} s", times, len(times) + len(failed))
    report.note(f"sustained: {len(times) / (time.monotonic() - begun):.2f} creates and kills a second, 2 clients"
                + "".join(f"; {problem}" for problem in failed))


def main():
    report = Report(f"{os.environ['BENCH_COMMAND']} ({PHASE})", os.environ["BENCH_CHECK"] == "1")
    begun = time.monotonic()
    sandbox, took = client.create(TEMPLATE)
    client.kill(sandbox)
    report.note(f"first create of {TEMPLATE}, with its template built: {took / 1000:.1f} s")
    if PHASE == "pooled":
        client.wait_for_pool(TEMPLATE)
        report.note(f"pool full after {time.monotonic() - begun:.1f} s")
    creates, floor = one_by_one(report, int(os.environ["BENCH_RUNS"]))
    in_bursts = bursts(report, 20, int(os.environ["BENCH_BURSTS"]))
    bursts(report, int(os.environ["BENCH_LARGE"]), 1)
    sustained(report, int(os.environ["BENCH_SECONDS"]))
    client.kill_all()
    tries = int(os.environ["BENCH_RUNS"])
    report.note("")
    report.check("creates that failed", tries - len(creates), 0)
    ratio = median(creates) / floor if creates else None
    if PHASE == "pooled":
        report.check("pooled create, times the floor", ratio, 0.5)
        restores = qemu_peer.measure(report, os.environ["BENCH_IMAGES"], os.environ["BENCH_DATA"] + "/bench", MIB, 1,
                                     int(os.environ["BENCH_RESTORES"]))
        report.check("pooled create, times QEMU's restore", median(creates) / median(restores) if restores and creates
                     else None, 0.1)
    else:
        report.check("create on demand, times the floor", ratio, 3)
    report.check("bursts of 20: worst, times their median",
                 max(in_bursts) / median(in_bursts) if in_bursts else None, 5)
    return report.exit_code()


sys.exit(main())
