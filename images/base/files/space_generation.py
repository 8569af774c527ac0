"""Gives Python's random new seeds after a restore of the sandbox.

A sandbox may be the copy of a snapshot in which an interpreter was already running. Its generators
would then draw the same numbers in every copy. The agent counts restores in /run/space/generation,
which is mapped here; each draw compares that count with the one its generator was seeded at.

- Generators that were seeded by the system are seeded by it again. Those that the program gave a
  seed or a state stay as they are: it asked for that very sequence.
- It works by wrapping random, getrandbits, gauss, seed and setstate of random.Random once the
  module is imported: no thread, no signal, nothing at the start of an interpreter that never
  imports it. A draw takes some 0.1 us longer. Without the file, outside of a sandbox, nothing is changed.
- Other programs can do the same: the first 8 bytes of the file, little endian, change with each
  restore, the next 16 are random and new then. What cannot look there registers a hook: an
  executable in /etc/space/restore.d, run as root before the processes of the snapshot go on.

sitecustomize.py installs it, so `python -S` and `-I` go without. It must never fail a program.
"""

import sys

PATH = "/run/space/generation"


def _map_counter():
    import mmap
    import os

    file = os.open(PATH, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(file, 24, mmap.MAP_SHARED, mmap.PROT_READ)).cast("Q")
    finally:
        os.close(file)


def patch(module, counter):
    """Wraps the methods of `module`, which is random, so that draws look at counter[0]."""
    cls, shared = module.Random, module._inst
    base = cls.__mro__[1]
    next_random, next_bits, next_gauss, next_seed, next_state = (
        base.random, base.getrandbits, cls.gauss, cls.seed, cls.setstate)

    def renew(self):
        is_known = self._space_generation is not None
        self._space_generation = counter[0]
        if is_known and not self._space_is_fixed:
            next_seed(self)

    def random(self):
        if counter[0] != self._space_generation:
            renew(self)
        return next_random(self)

    def getrandbits(self, k, /):
        if counter[0] != self._space_generation:
            renew(self)
        return next_bits(self, k)

    def gauss(self, mu=0.0, sigma=1.0):
        if counter[0] != self._space_generation:
            renew(self)  # it draws two at a time and keeps the second
        return next_gauss(self, mu, sigma)

    def seed(self, a=None, version=2):
        next_seed(self, a, version)
        self._space_generation = counter[0]
        self._space_is_fixed = a is not None

    def setstate(self, state):
        next_state(self, state)
        self._space_generation = counter[0]
        self._space_is_fixed = True

    def set_free():
        shared._space_is_fixed = False  # random has just seeded it anew, in the child of a fork

    cls._space_generation = None  # of an instance that no seed has reached: learnt at its first draw
    cls._space_is_fixed = False
    shared._space_generation = counter[0]
    for method in (random, getrandbits, gauss, seed, setstate):
        old = getattr(cls, method.__name__)
        method.__doc__, method.__module__ = old.__doc__, "random"
        method.__qualname__ = "Random." + method.__name__
        setattr(cls, method.__name__, method)
        if getattr(getattr(module, method.__name__), "__self__", None) is shared:
            setattr(module, method.__name__, getattr(shared, method.__name__))
    sys.modules["os"].register_at_fork(after_in_child=set_free)


class Finder:
    """First on sys.meta_path until random is imported: lets the others find it, then patches it."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "random":
            return None
        sys.meta_path.remove(cls)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        else:
            return None
        try:
            counter = _map_counter()
            # Only Python's own: a program may have a random.py of its own.
            if spec.origin == sys.modules["os"].__file__.replace("os.py", "random.py"):
                cls._patch_when_loaded(spec.loader, counter)
        except (OSError, ValueError, AttributeError, ImportError):
            pass  # no sandbox, or a file cut short
        return spec

    @staticmethod
    def _patch_when_loaded(loader, counter):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            try:
                patch(module, counter)
            except (AttributeError, TypeError, KeyError, IndexError):
                pass  # a random of another shape: better unpatched than broken

        loader.exec_module = exec_module


def install():
    if "random" not in sys.modules:
        sys.meta_path.insert(0, Finder)
