"""Runs a job of these benchmarks beside a daemon of its own: here where KVM can run Linux, else in an emulated host that
is made for it and removed. A bench is a file of three lines: `on_node.run(__doc__, "create_job.py", ...)`."""
import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARED = ("report.py", "client.py", "qemu_peer.py", "floor_peer.py")
PROGRAMS = ("bench-floor", "bench-branch-floor", "bench-request")


def arguments(description, options):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="fail when a mark is missed")
    parser.add_argument("--memory", default=os.environ.get("BENCH_MACHINE_MEMORY", "8GiB"),
                        help="of the emulated host (default: %(default)s)")
    parser.add_argument("images", nargs="?", default=str(ROOT / "build/images"), help="what images/build made")
    for name, default, text in options:
        parser.add_argument(f"--{name}", type=type(default), default=default, help=f"{text} (default: %(default)s)")
    return parser.parse_args()


def job(node, script, environment, programs):
    """Runs the script where the daemon runs; its exit code."""
    emulated = node.is_emulated()
    data, _ = node.host_data()
    own = "/opt/space/extra" if emulated else None
    variables = {
        # The daemon of the machine has its network card's address.
        "BENCH_KEY": node.key(), "BENCH_HOST": "10.0.2.15" if emulated else "127.0.0.1", "BENCH_PORT": "3000" if emulated else str(node.port),
        "BENCH_IMAGES": "/opt/space-images" if emulated else os.environ["SPACE_IMAGES"],
        "BENCH_PROGRAMS": own or str(programs), "BENCH_DATA": data, "PYTHONUNBUFFERED": "1", **environment}
    words = ["env", *(f"{name}={value}" for name, value in variables.items()), "python3",
             f"{own or ROOT / 'bench'}/{script}"]
    if emulated:
        words = [str(node.program), "machine", "exec", "--", *words]
    return subprocess.run(words, env={**os.environ, **node.environment}, check=False).returncode


def run(description, script, options=(), configurations=({},)):
    """`configurations`: one daemon after another, each with lines for its configuration and variables for the job."""
    chosen = arguments(description, options)
    programs = pathlib.Path(os.environ.get("SPACE_BUILD", ROOT / "build/release")) / "bin"
    os.environ["SPACE_IMAGES"] = str(pathlib.Path(chosen.images).resolve())
    os.environ.setdefault("SPACE_BIN", str(programs))
    sys.path.insert(0, str(ROOT / "tests/e2e"))
    import harness  # after its settings
    files = [str(ROOT / "bench" / name) for name in (*SHARED, script)] + [str(programs / name) for name in PROGRAMS]
    machine = f'\n[machine]\nmemory = "{chosen.memory}"\nextra_files = [{", ".join(f"{chr(34)}{f}{chr(34)}" for f in files)}]\n'
    code = 0
    for configuration in configurations:
        environment = {"BENCH_COMMAND": " ".join(["bench/" + os.path.basename(sys.argv[0]), *sys.argv[1:]]).strip(),
                       "BENCH_CHECK": str(int(chosen.check)),
                       **{f"BENCH_{name.upper()}": str(getattr(chosen, name)) for name, _, _ in options},
                       **configuration.get("environment", {})}
        with harness.Node(configuration.get("config", "") + machine) as node:
            node.program = harness.SPACE
            code = job(node, script, environment, programs) or code
    return code
