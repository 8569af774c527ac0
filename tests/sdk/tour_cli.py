"""What a person does with the unmodified command line of E2B (npm @e2b/cli): one case a method. Prints
"ok NAME" or "FAIL NAME: why" a line; the exit code is 1 when one failed. E2B_PACKAGE is the folder that
npm installed it to."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

PROGRAM = os.environ["E2B_PACKAGE"] + "/node_modules/@e2b/cli/dist/index.js"


def expect(condition, what="condition does not hold"):
    if not condition:
        raise AssertionError(what)


def run(*words, stdin=b"", code=0):
    """What it printed to both outputs; colours are taken out."""
    done = subprocess.run(["node", PROGRAM, *words], input=stdin, capture_output=True, timeout=180,
                          env={**os.environ, "HOME": Tour.home, "NO_UPDATE_NOTIFIER": "1"})
    text = re.sub(r"\x1b\[[0-9;]*m", "", (done.stdout + done.stderr).decode())
    expect(done.returncode == code, f"{words}: exit {done.returncode}: {text[-500:]}")
    return text


def api(method, path, body=None):
    request = urllib.request.Request(os.environ["E2B_API_URL"] + path, method=method,
                                     data=None if body is None else json.dumps(body).encode(),
                                     headers={"X-API-KEY": os.environ["E2B_API_KEY"],
                                              "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read() or "null")


class Tour:
    home = tempfile.mkdtemp(prefix="space-e2b-cli-")

    def setup(self):
        self.box = api("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600,
                                                 "metadata": {"suite": "cli"}})["sandboxID"]

    def teardown(self):
        if self.box:
            api("DELETE", f"/sandboxes/{self.box}")

    def case_list(self):
        expect(self.box in run("sandbox", "list"))
        listed = json.loads(run("sandbox", "list", "--format", "json"))
        expect([one["sandboxId"] for one in listed] == [self.box], listed)

    def case_info(self):
        info = json.loads(run("sandbox", "info", self.box, "--format", "json"))
        expect(info["sandboxId"] == self.box and info["metadata"] == {"suite": "cli"}, info)

    def case_exec(self):
        expect(run("sandbox", "exec", self.box, "echo", "two words") == "two words\n")
        expect(run("sandbox", "exec", "-u", "root", "-c", "/etc", self.box, "id -un; pwd") == "root\n/etc\n")
        run("sandbox", "exec", self.box, "exit 7", code=7)

    def case_exec_with_piped_stdin(self):
        expect(run("sandbox", "exec", self.box, "wc", "-c", stdin=b"x" * 100_000).strip() == "100000")

    def case_logs(self):
        text = run("sandbox", "logs", self.box, "--format", "json")
        expect("sandbox_running" in text, text[-500:])
        run("sandbox", "logs", self.box)

    def case_metrics(self):
        deadline = time.monotonic() + 60
        while "cpuCount" not in run("sandbox", "metrics", self.box, "--format", "json"):
            expect(time.monotonic() < deadline, "no metrics came")
            time.sleep(1)
        expect("Memory" in run("sandbox", "metrics", self.box))

    def case_pause_and_resume(self):
        run("sandbox", "pause", self.box)
        expect(api("GET", f"/sandboxes/{self.box}")["state"] == "paused")
        run("sandbox", "resume", self.box)
        expect(api("GET", f"/sandboxes/{self.box}")["state"] == "running")

    def case_templates(self):
        expect("base" in run("template", "list"))

    def case_zz_kill(self):
        run("sandbox", "kill", self.box)
        expect(self.box not in run("sandbox", "list"))
        self.box = None


def main():
    tour, failed = Tour(), 0
    wanted = sys.argv[1:]
    tour.setup()
    for name in sorted(name for name in dir(tour) if name.startswith("case_")):
        shown = name.removeprefix("case_").removeprefix("zz_")
        if wanted and shown not in wanted:
            continue
        begun = time.monotonic()
        try:
            getattr(tour, name)()
            print(f"ok {shown} ({time.monotonic() - begun:.1f} s)", flush=True)
        except Exception as error:  # one line; the log has the rest
            failed += 1
            print(f"FAIL {shown}: {type(error).__name__}: {' '.join(str(error).split())[:400]}", flush=True)
            traceback.print_exc()
    tour.teardown()
    return 1 if failed else 0


sys.exit(main())
