"""The bare floors, by our small programs: what KVM itself takes, and what a bare scan and fork take."""
import os
import re
import subprocess


def program(name):
    return os.path.join(os.environ["BENCH_PROGRAMS"], name)


def kvm_floor(runs):
    """Milliseconds (median) of VM, memory, chip, vCPU and first exit, the right way round."""
    text = subprocess.run([program("bench-floor"), str(runs)], check=True, capture_output=True, text=True).stdout
    ours = text.split("order: ")[1]
    return float(re.search(r"^all up to it\s+([\d.]+)", ours, re.M)[1]) / 1000


def branch_floor(memory_mib, mapped_mib, dirty_pages, runs):
    """Milliseconds (medians) of pagemap scan and fork() of a process with so much mapped and so many pages written, a
    KVM slot attached."""
    text = subprocess.run([program("bench-branch-floor"), str(memory_mib), str(mapped_mib), str(dirty_pages), str(runs)],
                          check=True, capture_output=True, text=True).stdout
    found = {name: float(value) / 1000 for name, value in re.findall(r"^(scan|fork)\s+([\d.]+)", text, re.M)}
    return found["scan"], found["fork"]
