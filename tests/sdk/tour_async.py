"""What a program does with the unmodified Python SDK of E2B, asynchronous: as tour.py, of what differs there."""

import asyncio
import sys
import time
import traceback

import e2b
from e2b import AsyncSandbox
from tour import expect


async def raises(kind, action):
    try:
        await action
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


async def case_commands(box):
    done = await box.commands.run("echo out; echo err >&2; echo $GREETING")
    expect(done.stdout == "out\nhi\n" and done.stderr == "err\n", done)
    error = await raises(e2b.CommandExitException, box.commands.run("exit 3"))
    expect(error.exit_code == 3)
    await raises(e2b.TimeoutException, box.commands.run("sleep 30", timeout=2))


async def case_background(box):
    seen = []
    cat = await box.commands.run("cat", background=True, stdin=True, on_stdout=seen.append)
    await box.commands.send_stdin(cat.pid, "typed\n")
    for _ in range(50):
        if seen:
            break
        await asyncio.sleep(0.1)
    expect("".join(seen) == "typed\n", seen)
    expect(await box.commands.kill(cat.pid))
    await raises(e2b.CommandExitException, cat.wait())


async def case_files(box):
    await box.files.write("a.txt", "text")
    expect(await box.files.read("a.txt") == "text")
    expect([one.name for one in await box.files.list("/home/user")].count("a.txt") == 1)
    expect(await box.files.exists("a.txt") and not await box.files.exists("nothing"))
    await box.files.remove("a.txt")
    await raises(e2b.NotFoundException, box.files.read("a.txt"))


async def case_watch(box):
    await box.files.make_dir("/tmp/watched")
    events = []
    watch = await box.files.watch_dir("/tmp/watched", on_event=events.append)
    await box.files.write("/tmp/watched/new.txt", "x")
    for _ in range(50):
        if events:
            break
        await asyncio.sleep(0.2)
    expect(events and events[0].name == "new.txt", events)
    await watch.stop()


async def case_terminal(box):
    seen = bytearray()
    pty = await box.pty.create(size=e2b.PtySize(rows=20, cols=100), on_data=seen.extend)
    await box.pty.send_stdin(pty.pid, b"stty size; exit 5\n")
    error = await raises(e2b.CommandExitException, pty.wait())
    expect(error.exit_code == 5 and b"20 100" in seen, bytes(seen))


async def case_parallel(box):
    outs = await asyncio.gather(*(box.commands.run(f"echo {n}") for n in range(10)))
    expect([out.stdout for out in outs] == [f"{n}\n" for n in range(10)])
    many = await asyncio.gather(*(AsyncSandbox.create("base", timeout=600) for _ in range(3)))
    outs = await asyncio.gather(*(one.commands.run("echo here") for one in many))
    expect(all(out.stdout == "here\n" for out in outs))
    expect(all(await asyncio.gather(*(one.kill() for one in many))))


async def case_info_metrics_and_lists(box):
    expect((await box.get_info()).metadata == {"suite": "tour-async"})
    for _ in range(60):
        points = await box.get_metrics()
        if points:
            break
        await asyncio.sleep(1)
    expect(points and points[0].mem_total > 0, points)
    pages = AsyncSandbox.list(query=e2b.SandboxQuery(metadata={"suite": "tour-async"}))
    expect([one.sandbox_id for one in await pages.next_items()] == [box.sandbox_id])


async def case_pause_and_connect(box):
    other = await AsyncSandbox.create("base", timeout=300)
    try:
        await other.commands.run("echo kept > /dev/shm/kept")
        await (getattr(other, "pause", None) or other.beta_pause)()
        back = await AsyncSandbox.connect(other.sandbox_id, timeout=300)
        expect((await back.commands.run("cat /dev/shm/kept")).stdout == "kept\n")
    finally:
        await AsyncSandbox.kill(other.sandbox_id)


async def main():
    failed = 0
    box = await AsyncSandbox.create("base", timeout=600, metadata={"suite": "tour-async"}, envs={"GREETING": "hi"})
    try:
        for name, case in sorted(globals().items()):
            if not name.startswith("case_") or (sys.argv[1:] and name[5:] not in sys.argv[1:]):
                continue
            begun = time.monotonic()
            try:
                await case(box)
                print(f"ok {name[5:]} ({time.monotonic() - begun:.1f} s)", flush=True)
            except Exception as error:  # the next cases are of interest too
                failed += 1
                print(f"FAIL {name[5:]}: {type(error).__name__}: {error}", flush=True)
                traceback.print_exc()
    finally:
        await box.kill()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
