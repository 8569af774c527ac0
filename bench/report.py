"""What every benchmark prints: who measured what where, percentiles, and which marks hold. Runs on this host and in the
emulated one, whose Python has neither json nor statistics."""
import os
import re
import sys
import time


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def median(values):
    return percentile(values, 50)


def host_model():
    with open("/proc/cpuinfo") as info:
        found = re.search(r"model name\s*: (.*)", info.read())
    return found[1] if found else "unknown processor"


class Report:
    """Rows of times in milliseconds, then the checks. `exit_code()` is 1 when --check was given and a mark is missed."""

    def __init__(self, command, is_checking):
        self.is_checking = is_checking
        self.missed = []
        release = os.uname()
        print(f"command: {command}\nhost: {host_model()}, {os.cpu_count()} processors, {release.nodename}\n"
              f"kernel: {release.release} {release.version}\ndate: {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}")
        self.has_head = False

    def row(self, name, values, tries=None):
        """`values` of what succeeded, of `tries` in all."""
        if not self.has_head:
            self.has_head = True
            print(f"\n{'ms':44} {'p50':>9} {'p95':>9} {'p99':>9} {'worst':>9}   success")
        tries = len(values) if tries is None else tries
        shown = [f"{percentile(values, p):9.1f}" if values else f"{'-':>9}" for p in (50, 95, 99)]
        worst = f"{max(values):9.1f}" if values else f"{'-':>9}"
        print(f"{name:44} {' '.join(shown)} {worst}   {len(values)}/{tries}", flush=True)

    def note(self, text):
        print(text, flush=True)

    def check(self, name, value, at_most):
        """A ratio or a size that may be `at_most`; None when it could not be measured."""
        holds = value is not None and value <= at_most
        shown = "not measured" if value is None else f"{value:.3f}"
        print(f"{'holds ' if holds else 'MISSED'} {name}: {shown} (at most {at_most:g})", flush=True)
        if not holds:
            self.missed.append(name)

    def exit_code(self):
        return 1 if self.is_checking and self.missed else 0


def fail(text):
    print(text, file=sys.stderr)
    sys.exit(1)
