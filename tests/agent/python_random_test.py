"""Python's random in the base image: an interpreter that runs already notices a restore."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from envd_test import Agent

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../images/base/files")
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable

# Answers each line of its input with the value of that expression.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import space_generation
space_generation.PATH = sys.argv[2]
space_generation.install()
import random
from random import random as early
expected = random.Random()
own = random.Random()
fixed, control = random.Random(7), random.Random(7)
def follow(generator=random):
    expected.setstate(generator.getstate())
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(repr(error), flush=True)
"""


class PythonRandomTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="space-guest-")
        self.agent = Agent("--guest-root", self.root)
        self.path = self.root + "/run/space/generation"
        self.python = subprocess.Popen([PYTHON, "-c", PROGRAM, FILES, self.path], text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tearDown(self):
        self.python.communicate()
        self.agent.stop()
        shutil.rmtree(self.root)

    def ask(self, expression):
        self.python.stdin.write(expression + "\n")
        self.python.stdin.flush()
        return self.python.stdout.readline().strip()

    def restore(self):
        body = {"timestamp": "2030-01-01T00:00:00Z",
                "restore": {"entropy": base64.b64encode(os.urandom(64)).decode()}}
        self.assertEqual(self.agent.envd.request("POST", "/init", json.dumps(body))[0].status, 204)

    def test_every_way_to_draw_is_new_after_a_restore(self):
        for draw in ("random.random()", "random.randint(0, 10**9)", "random.getrandbits(64)",
                     "random.choice(range(10**9))", "random.uniform(0, 1)", "random.randbytes(8)",
                     "random.sample(range(10**9), 2)", "random.gauss(0, 1)", "early()"):
            same = draw.replace("random.", "expected.", 1).replace("early", "expected.random")
            self.ask("follow()")
            self.assertEqual(self.ask(draw), self.ask(same), draw)  # nothing happened yet
            self.ask("follow()")
            self.restore()
            self.assertNotEqual(self.ask(draw), self.ask(same), draw)

    def test_generators_of_programs_are_new_too_unless_they_gave_the_seed(self):
        self.ask("follow(own)")
        self.assertEqual(self.ask("own.random()"), self.ask("expected.random()"))
        self.restore()
        self.assertNotEqual(self.ask("own.random()"), self.ask("expected.random()"))
        self.assertEqual(self.ask("fixed.random()"), self.ask("control.random()"))
        self.ask("random.seed(5)")
        self.ask("expected.seed(5)")
        self.restore()
        self.assertEqual(self.ask("random.random()"), self.ask("expected.random()"))
        self.ask("random.seed()")
        self.ask("follow()")
        self.restore()
        self.assertNotEqual(self.ask("random.random()"), self.ask("expected.random()"))

    def test_forks_are_told_apart(self):
        child = ("(lambda ends: (os.fork() or (os.write(ends[1], repr(random.random()).encode()),"
                 " os._exit(0))) and os.read(ends[0], 99).decode())"
                 "((os := __import__('os')).pipe())")
        self.ask("random.seed(5)")
        first, second = self.ask(child), self.ask(child)
        self.assertNotEqual(first, second)
        self.assertEqual(float(first), float(first))

    def test_it_looks_as_before(self):
        self.assertEqual(self.ask("__import__('pickle').loads(__import__('pickle').dumps(own))"
                                  ".random() == own.random()"), "True")
        self.assertEqual(self.ask("random.Random.random.__qualname__"), "Random.random")
        self.assertEqual(self.ask("0 <= random.SystemRandom().random() < 1"), "True")
        self.assertEqual(self.ask("[f for f in sys.meta_path if 'space' in repr(f)]"), "[]")

    def run_python(self, code, path):
        return subprocess.run([PYTHON, "-c", "import sys; sys.path.insert(0, sys.argv[1])\n"
                               "import space_generation\nspace_generation.PATH = sys.argv[2]\n"
                               "space_generation.install()\n" + code, FILES, path],
                              capture_output=True, text=True)

    def test_without_the_file_nothing_changes(self):
        for path in ("/nonexistent/generation", "/dev/null", "/"):
            done = self.run_python("import random; print(random.random)", path)
            self.assertIn("built-in method random", done.stdout, done.stderr)

    def test_a_program_may_have_a_random_of_its_own(self):
        with open(self.root + "/random.py", "w") as file:
            file.write("mine = 1\n")
        done = self.run_python(f"sys.path.insert(0, {self.root!r})\nimport random\n"
                               "print(random.mine, hasattr(random, 'Random'))", self.path)
        self.assertEqual(done.stdout, "1 False\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
