"""Writes every page of N MiB again and again, and finds out when one of them is not what it wrote.

/dev/shm/rounds: how often all have been written. /dev/shm/mismatch: there when a page was wrong."""
import os
import sys

memory = bytearray(int(sys.argv[1]) << 20)
rounds = 0
while True:
    mark = rounds % 251
    for at in range(0, len(memory), 4096):
        if rounds and memory[at] != (rounds - 1) % 251:
            with open("/dev/shm/mismatch", "w") as out:
                out.write(f"page {at // 4096}: {memory[at]} in round {rounds}")
            sys.exit(1)
        memory[at] = mark
    rounds += 1
    with open("/dev/shm/rounds.new", "w") as out:
        out.write(str(rounds))
    os.rename("/dev/shm/rounds.new", "/dev/shm/rounds")
