"""A long-running interpreter with its imports done, as a code interpreter's kernel is: runs each line of /tmp/ask and
writes what it prints to /tmp/answer, then renames that to /tmp/answer.N for the Nth line."""
import contextlib
import io
import os
import random  # noqa: F401  what the lines use
import uuid  # noqa: F401

os.mkfifo("/tmp/ask")
random.random()
open("/tmp/warm", "w").close()
number = 0
# Opened for writing too, so that it never ends.
for line in os.fdopen(os.open("/tmp/ask", os.O_RDWR)):
    number += 1
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(line)
    with open("/tmp/answer", "w") as out:
        out.write(output.getvalue())
    os.rename("/tmp/answer", f"/tmp/answer.{number}")
