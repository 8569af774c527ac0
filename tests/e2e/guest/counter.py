"""Counts in memory, in a tmpfs file and past the page cache on the disk, and never lets them differ: a copy of the
machine whose memory and disk are not of one instant is found out by its first step.

/dev/shm/counter: "<n> <longest step in us> <longest step of the wall clock in us, backwards negative>"
/dev/shm/mismatch: there when the three did not agree."""
import mmap
import os
import sys
import time
import zlib

page = mmap.mmap(-1, 4096)  # aligned, as O_DIRECT needs it
disk = os.open("/counter", os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_DSYNC, 0o600)
shown = os.open("/dev/shm/counter", os.O_RDWR | os.O_CREAT, 0o600)
held = os.urandom(4 << 20)  # memory of this program, looked at now and then
held_sum = zlib.crc32(held)


def write_disk(number):
    page.seek(0)
    page.write(b"%020d\n" % number)
    os.pwritev(disk, [page], 0)


def read_disk():
    os.preadv(disk, [page], 0)
    return int(page[:20])


def write_shown(number, longest, jump):
    os.pwrite(shown, b"%012d %012d %012d\n" % (number, longest, jump), 0)


def read_shown():
    return int(os.pread(shown, 12, 0))


def fail(text):
    with open("/dev/shm/mismatch", "w") as out:
        out.write(text)
    sys.exit(1)


number, longest, jump = 0, 0, 0
write_disk(0)
write_shown(0, 0, 0)
steady, wall = time.monotonic(), time.time()
while True:
    on_disk, in_tmpfs = read_disk(), read_shown()
    if not on_disk == in_tmpfs == number:
        fail(f"memory {number}, tmpfs {in_tmpfs}, disk {on_disk}")
    if number % 50 == 0 and zlib.crc32(held) != held_sum:
        fail("memory changed")
    number += 1
    last_steady, last_wall = steady, wall
    steady, wall = time.monotonic(), time.time()
    longest = max(longest, int((steady - last_steady) * 1e6))
    moved = int((wall - last_wall) * 1e6)
    jump = moved if abs(moved) > abs(jump) else jump
    write_shown(number, longest, jump)
    write_disk(number)
    time.sleep(0.01)
