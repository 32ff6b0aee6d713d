"""A pool in a folder of its own and a server on it, for the interop tests."""

import atexit
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHIPPED = os.path.join(ROOT, "target", "release", "onefold")
BLOCK = 4096
# Seconds after which what does not come counts as hung: far more than a busy machine takes.
PATIENCE = 120
# What a script begins in its background ignores SIGINT, and so would the programs begun here.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def built(path):
    if not os.path.exists(path):
        raise SystemExit(f"{path} is missing: ./test build/onefold makes it")
    return path


ONEFOLD = built(os.environ.get("ONEFOLD", SHIPPED))


def faulty():
    """The program with faults of the store (crates/onefold/src/io/faults.rs) and a clock that can be set."""
    return built(os.environ.get("ONEFOLD_FAULTY", os.path.join(ROOT, "target", "faults", "onefold")))


def promtool():
    """Prometheus' own judge of metrics and rules, installed or fetched by tests/tools; `None` where there is none."""
    fetched = os.path.join(ROOT, "target", "tools", "promtool")
    return shutil.which("promtool") or (fetched if os.path.exists(fetched) else None)


def run(*arguments, check=True, timeout=600, **options):
    """Runs a command, its output captured as text; shows it when the command fails. One that hangs is ended after `timeout` seconds."""
    if "input" not in options:
        # A terminal would be asked questions.
        options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=timeout, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{arguments} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def onefold(*arguments, check=True):
    return run(ONEFOLD, *arguments, check=check)


class Pool:
    """A pool file; `serve` starts a server on it, `stop` and `kill` end it."""

    def __init__(self, size="256M", folder=None):
        self.folder = folder or tempfile.mkdtemp(prefix="onefold-test-")
        # Also where a test has not closed it.
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.path = os.path.join(self.folder, "disk.onefold")
        self.size = size
        self.server = None
        self.program, self.environment = ONEFOLD, None
        self.log = os.path.join(self.folder, "server.log")

    def uri(self, volume="default"):
        return f"nbd+unix:///{volume}?socket={self.path}.sock"

    def serve(self, *arguments, create=True):
        begin = ["--create", "--size", self.size] if create else []
        with open(self.log, "a") as log:
            self.server = subprocess.Popen(
                [self.program, "serve", self.path, *begin, *arguments], stdout=log, stderr=subprocess.STDOUT,
                env=self.environment
            )
        deadline = time.time() + PATIENCE
        while time.time() < deadline:
            if self.server.poll() is not None:
                raise AssertionError(f"the server ended: {self.said()}")
            if run("nbdinfo", "--size", self.uri(""), check=False).returncode == 0:
                return self
            time.sleep(0.05)
        raise AssertionError(f"the server does not answer: {self.said()}")

    def said(self):
        """What the server has printed so far."""
        with open(self.log) as log:
            return log.read()

    def end(self):
        """Asks for a stop; the exit status."""
        self.server.send_signal(signal.SIGTERM)
        status = self.server.wait(timeout=PATIENCE)
        self.server = None
        return status

    def stop(self):
        """Stops the server cleanly; it must say so with exit status 0."""
        status = self.end()
        if status != 0:
            raise AssertionError(f"the server exited with {status}: {self.said()}")

    def kill(self):
        self.server.kill()
        self.server.wait()
        self.server = None

    def status(self, *arguments):
        return json.loads(onefold("status", self.path, "--json", *arguments).stdout)

    def settled(self):
        return self.status("--settle")

    def check(self):
        onefold("check", self.path)

    def resident_bytes(self, peak=True):
        with open(f"/proc/{self.server.pid}/status") as file:
            return int(re.search(r"VmHWM:\s+(\d+)" if peak else r"VmRSS:\s+(\d+)", file.read()).group(1)) * 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.server is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def served_on_device(pool, size, capacity, memory):
    """Creates the pool on a new loop device of this size, and serves a volume of 1 GiB from it. Yields the device and the file beneath."""
    file = os.path.join(pool.folder, "store.raw")
    run("truncate", "-s", size, file)
    device = run("losetup", "--show", "-f", file).stdout.strip()
    try:
        onefold("create", device, "--capacity", capacity)
        pool.path = device
        socket = os.path.join(pool.folder, "sock")
        pool.uri = lambda volume="default": f"nbd+unix:///{volume}?socket={socket}"
        onefold("volume", "create", device, "default", "--size", "1G")
        pool.serve("--listen", f"unix:{socket}", "--memory", memory, create=False)
        yield device, file
    finally:
        if pool.server is not None:
            pool.kill()
        run("losetup", "-d", device, check=False)


class CommandTest(unittest.TestCase):
    """Checks of commands, with a server and without."""

    def refused(self, *arguments, status=1):
        done = onefold(*arguments, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr

    def each_way(self, check):
        """Runs a check on a pool that is served and on one that is not."""
        for served in (True, False):
            with self.subTest(served=served), Pool("64M").serve("--memory", "64M") as pool:
                if not served:
                    pool.stop()
                check(pool)
                if served:
                    pool.stop()
                pool.check()


def distinct_blocks(*paths):
    """How many different non-zero blocks the files hold together, and how many non-zero ones."""
    seen, used, zero = set(), 0, bytes(BLOCK)
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(BLOCK):
                block = block.ljust(BLOCK, b"\0")
                if block != zero:
                    used += 1
                    seen.add(block)
    return len(seen), used


def system_tree():
    """A folder of real files, a few dozen MiB, that every Debian system has."""
    for path in ("/usr/share/perl", "/usr/lib/python3", "/usr/share/doc"):
        if os.path.isdir(path):
            return path
    raise AssertionError("no system tree found")
