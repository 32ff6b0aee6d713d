"""Surroundings in which commands meet what they do not expect: outputs that take nothing, inputs that never come, a clock before 1970, a kernel that forbids io_uring,
and their own end by a signal."""

import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from authority import Authority
from server import ONEFOLD, PATIENCE, ROOT, Pool, onefold, run
from test_transfer import make_image

FULL = "cannot be written to the standard output: No space left on device"
# io_uring_setup(2), and what a filter of seccomp(2) is made of: load the number of the call, compare, answer.
IO_URING_SETUP, LOAD, EQUAL, ANSWER = 425, 0x20, 0x15, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("true", ctypes.c_ubyte), ("false", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction))]


def without_io_uring(number):
    """What a child does before it becomes the program: a filter answers io_uring_setup with this error."""
    def forbid():
        rows = (Instruction * 4)(Instruction(LOAD, 0, 0, 0), Instruction(EQUAL, 0, 1, IO_URING_SETUP),
                                 Instruction(ANSWER, 0, 0, ERRNO | number), Instruction(ANSWER, 0, 0, ALLOW))
        program = Program(len(rows), rows)
        library = ctypes.CDLL(None, use_errno=True)
        assert library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        assert library.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0
    return forbid


def commands():
    """Every command, by docs/reference/commands.md, and the names of its arguments."""
    with open(os.path.join(ROOT, "docs/reference/commands.md"), encoding="utf-8") as file:
        text = file.read()
    return {name: usage for name, usage in re.findall(r"^Usage: onefold ([a-z -]*[a-z]) ?(.*)$", text, re.M)}


class Surroundings(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="onefold-surroundings-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def pool(self, name="disk.onefold"):
        onefold("create", self.path(name), "--capacity", "64M")
        onefold("volume", "create", self.path(name), "default", "--size", "32M")
        return self.path(name)

    def printing(self, pool, image):
        """Command lines that print a result and need no server."""
        new = [0]

        def fresh(suffix=""):
            new[0] += 1
            return self.path(f"new{new[0]}{suffix}")

        yield "create", ["create", fresh(), "--capacity", "64M"]
        yield "create", ["create", fresh(), "--capacity", "64M", "--json"]
        yield "grow", ["grow", pool, "--capacity", "128M"]
        yield "volume create", ["volume", "create", pool, f"v{new[0]}", "--size", "1M"]
        yield "volume resize", ["volume", "resize", pool, f"v{new[0]}", "2M"]
        yield "volume delete", ["volume", "delete", pool, f"v{new[0]}", "--yes"]
        yield "snapshot create", ["snapshot", "create", pool, "default@a"]
        yield "snapshot create", ["snapshot", "create", pool, "default@b", "--json"]
        yield "snapshot rollback", ["snapshot", "rollback", pool, "default@a"]
        yield "snapshot rollback", ["snapshot", "rollback", pool, "default@b", "--json"]
        yield "clone", ["clone", pool, "default@a", "clone"]
        yield "clone", ["clone", pool, "default@a", "clone", "--count", "2", "--json"]
        yield "snapshot hold", ["snapshot", "hold", pool, "default@a"]
        yield "snapshot release", ["snapshot", "release", pool, "default@a"]
        yield "volume rename", ["volume", "rename", pool, "default@a", "default@c"]
        yield "snapshot delete", ["snapshot", "delete", pool, "default@c"]
        for command in ["volume list", "snapshot list", "get", "status", "check", "scrub", "dedup"]:
            yield command, [*command.split(), pool]
            yield command, [*command.split(), pool, "--json"]
        yield "status", ["status", pool, "--prometheus"]
        yield "volume get", ["volume", "get", pool, "default"]
        yield "repair", ["repair", pool, "--dry-run"]
        yield "import", ["import", pool, "image", image, "--overwrite"]
        yield "import", ["import", pool, "image", image, "--overwrite", "--json"]
        yield "export", ["export", pool, "image", fresh(".raw")]
        yield "estimate", ["estimate", image]
        yield "estimate", ["estimate", image, "--json"]
        yield "completions", ["completions", "bash"]
        yield "help", ["--help"]
        yield "help", ["help", "serve"]
        yield "version", ["--version"]

    def serving(self, pool, image):
        """Command lines that print a result and need a server."""
        yield "top", ["top", pool, "--once"]
        yield "connect", ["connect", pool, "default"]
        yield "cache status", ["cache", "status", pool]
        yield "relocate profile start", ["relocate", "profile", "start", pool]
        yield "objects import", ["objects", "import", pool, "default", self.path("manifest")]
        yield "relocate profile show", ["relocate", "profile", "show", pool]
        yield "relocate profile save", ["relocate", "profile", "save", pool, self.path("profile")]
        yield "relocate profile load", ["relocate", "profile", "load", pool, self.path("profile")]
        yield "relocate plan", ["relocate", "plan", pool]
        yield "relocate profile stop", ["relocate", "profile", "stop", pool]
        yield "cache attach", ["cache", "attach", pool, self.path("cache"), "--size", "16M"]
        yield "cache detach", ["cache", "detach", pool]

    def fails_on_a_full_disk(self, lines):
        seen = set()
        for command, line in lines:
            seen.add(command)
            with open("/dev/full", "w") as full:
                done = subprocess.run([ONEFOLD, *line], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 1, f"{line}: {done.stderr}")
            self.assertEqual(done.stderr.count(FULL), 1, f"{line}: {done.stderr}")
        return seen

    def test_a_result_that_a_full_disk_does_not_take_is_a_failure(self):
        image = make_image(self.path("image"))
        seen = self.fails_on_a_full_disk(self.printing(self.pool(), image))
        with open(self.path("manifest"), "w", encoding="utf-8") as file:
            file.write("0 4096 /boot/kernel\n")
        with Pool("64M").serve("--memory", "256M") as pool:
            seen |= self.fails_on_a_full_disk(self.serving(pool.path, image))
            pool.stop()
        # Commands that print nothing, go on serving, or need shared blocks that lie scattered.
        silent = {"serve", "set", "volume set", "man", "relocate run"}
        self.assertEqual(set(commands()) - seen - silent, set())

    def test_a_reader_that_is_gone_is_no_failure(self):
        pool = self.pool()
        for line in [["status", pool], ["status", pool, "--json"], ["volume", "list", pool], ["--help"]]:
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run([ONEFOLD, *line], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
            os.close(writer)
            self.assertEqual((done.returncode, done.stderr), (0, ""), line)

    def test_a_pipe_that_nobody_writes_holds_up_no_command(self):
        pipe, pool = self.path("pipe"), self.pool()
        os.mkfifo(pipe)
        for name in ["file", "image"]:
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write("0 4096 /boot/kernel\n")
        made = {"VOLUME": "v", "NAME": "v", "SIZE": "1M", "DEVICE": self.path("device"), "KEY=VALUE": "policy=full", "KEY": "policy", "VALUE": "full",
                "IMAGE": self.path("image"), "FILE": self.path("file")}
        more = {"create": ["--capacity", "64M"], "grow": ["--capacity", "128M"], "volume create": ["--size", "1M"], "volume delete": ["--yes"],
                "repair": ["--yes"], "top": ["--once"], "export": ["--overwrite"]}
        seen = 0
        for command, usage in commands().items():
            if "<POOL>" not in usage:
                continue
            words = [made.get(word, word) for word in re.findall(r"<([^>]+)>", usage.replace("--capacity <CAPACITY>", "").replace("--size <SIZE>", ""))]
            words = [pipe if word == "POOL" else word for word in words]
            done = run(ONEFOLD, *command.split(), *words, *more.get(command, []), check=False)
            self.assertNotEqual(done.returncode, 0, command)
            self.assertIn("pipe", done.stderr, command)
            seen += 1
        self.assertGreater(seen, 25)
        for line in [["import", pool, "v", pipe], ["import", pool, "v", pipe, "--format", "raw"], ["import", pool, "v", self.folder],
                     ["import", pool, "v", "/dev/zero"], ["export", pool, "default", pipe, "--overwrite"], ["estimate", pipe]]:
            done = onefold(*line, check=False)
            self.assertNotEqual(done.returncode, 0, line)
            self.assertIn(line[3] if line[0] != "estimate" else pipe, done.stderr)
            self.assertNotIn("resize", done.stderr)

    def test_a_command_that_reads_a_pipe_can_be_interrupted(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("relocate", "profile", "start", pool.path)
            pipe = self.path("pipe")
            os.mkfifo(pipe)
            for command in [["objects", "import", pool.path, "default", pipe], ["relocate", "profile", "load", pool.path, pipe]]:
                for number in [signal.SIGINT, signal.SIGTERM]:
                    for writes in [False, True]:
                        reading = subprocess.Popen([ONEFOLD, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                        # Opening a pipe to write waits for its reader.
                        writer = open(pipe, "w") if writes else None
                        reading.send_signal(number)
                        reading.communicate(timeout=PATIENCE)
                        self.assertEqual(reading.returncode, -number)
                        if writer:
                            writer.close()
            pool.stop()

    def test_a_clock_before_1970_panics_nothing(self):
        library = self.path("before1970.so")
        run("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, os.path.join(ROOT, "tests/interop/before1970.c"))
        environment = {**os.environ, "LD_PRELOAD": library}
        authority = Authority(self.path("pki")).sign("server").sign("client")
        ports = []
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as taken:
                ports.append(taken.getsockname()[1])
        pool = Pool("64M")
        self.addCleanup(pool.__exit__)
        pool.environment = environment
        pool.serve("--memory", "64M", "--http", f"127.0.0.1:{ports[0]}", "--listen", f"unix:{pool.path}.sock", "--listen", f"tcp:127.0.0.1:{ports[1]}",
                   "--tls", "require", "--tls-verify-peer", "--tls-certificates", authority.folder)
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", ports[0]), timeout=PATIENCE) as page:
                page.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                said = b""
                while part := page.recv(65536):
                    said += part
            self.assertIn(b" 503 ", said)
            self.assertIn(b"the clock of this host is before 1970", said)
        done = run("timeout", "20", "nbdinfo", f"nbds://localhost:{ports[1]}/default?tls-certificates={authority.folder}", check=False)
        self.assertNotEqual(done.returncode, 0)
        for line in [["status", pool.path], ["scrub", pool.path, "--wait"], ["top", pool.path, "--once"], ["set", pool.path, "relocate=auto"]]:
            done = run(ONEFOLD, *line, env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("panicked", done.stderr)
        pool.stop()
        said = pool.said()
        self.assertNotIn("panicked", said)
        self.assertIn("valid only from", said, "the server's own certificate")
        self.assertIn("is the clock of this host right?", said, "a client's")
        for line in [["check", pool.path], ["scrub", pool.path], ["status", pool.path, "--recover"], ["create", self.path("new"), "--capacity", "64M"]]:
            done = run(ONEFOLD, *line, env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("panicked", done.stderr)

    def test_a_filter_that_forbids_io_uring_is_named_with_the_remedy(self):
        pool = self.pool()
        for number in [1, 38]:
            done = run(ONEFOLD, "scrub", pool, check=False, preexec_fn=without_io_uring(number))
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, "a seccomp filter of this container or service forbids io_uring|kernel.io_uring_disabled")
            self.assertRegex(done.stderr, "--security-opt seccomp=|sysctl kernel.io_uring_disabled=0")

    def test_the_folder_of_a_killed_command_goes_with_the_next_one(self):
        pool, image, temporary = self.pool(), make_image(self.path("image")), self.path("temporary")
        os.mkdir(temporary)
        environment = {**os.environ, "TMPDIR": temporary}
        killed = subprocess.Popen([ONEFOLD, "import", pool, "v", image], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + PATIENCE
        while not os.listdir(temporary) and killed.poll() is None:
            self.assertLess(time.time(), deadline)
        killed.kill()
        killed.wait()
        self.assertEqual(len(os.listdir(temporary)), 1, "a killed command cannot remove it")
        run(ONEFOLD, "export", pool, "default", self.path("out"), env=environment)
        self.assertEqual(os.listdir(temporary), [])
        run(ONEFOLD, "man", self.path("man"), env=environment)
        self.assertEqual(os.listdir(temporary), [])

    def test_a_pool_that_may_need_more_than_the_host_has_is_made_with_a_note(self):
        free = os.statvfs(self.folder)
        too_much = 2 * free.f_bavail * free.f_frsize
        done = onefold("create", self.path("large"), "--capacity", f"{too_much >> 30}G")
        self.assertRegex(done.stderr, r"may need .* more, and its file system has .* free: when that runs out, writes fail with ENOSPC")
        self.assertEqual(onefold("create", self.path("small"), "--capacity", "64M").stderr, "")
        self.assertIn("may need", onefold("grow", self.path("small"), "--capacity", f"{too_much >> 30}G").stderr)

    def test_a_small_number_without_a_unit_is_no_capacity_and_roundings_are_said(self):
        for line in [["create", self.path("new"), "--capacity", "10"], ["serve", self.path("new"), "--create", "--size", "10"],
                     ["create", self.path("new"), "--size", "10"]]:
            done = onefold(*line, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("add a unit, such as 10G", done.stderr)
            self.assertFalse(os.path.exists(self.path("new")))
        self.assertIn("rounded:   5 MiB (5242880 bytes) were asked for; the capacity is 16 MiB",
                      onefold("create", self.path("five"), "--capacity", "5M").stdout)
        self.assertNotIn("rounded", onefold("create", self.path("even"), "--size", "64M").stdout)
        done = onefold("volume", "create", self.path("even"), "v", "--size", "10", check=False)
        self.assertIn("10G are 10 GiB", done.stderr)

    def test_both_spellings_do_the_same(self):
        pool = self.pool()
        onefold("set", pool, "policy", "full")
        onefold("set", pool, "policy=full", "memory=256M")
        onefold("volume", "set", pool, "default", "timing", "offline", "read-only=on")
        values = {one["property"]: one["value"] for one in json.loads(onefold("get", pool, "--json").stdout)["properties"]}
        self.assertEqual((values["policy"], values["memory"]), ("full", "256M"))
        values = {one["property"]: one["value"] for one in json.loads(onefold("volume", "get", pool, "default", "--json").stdout)["properties"]}
        self.assertEqual((values["timing"], values["read-only"]), ("offline", "on"))
        onefold("volume", "resize", pool, "default", "--size", "64M")
        onefold("volume", "create", pool, "other", "--capacity", "1M")


if __name__ == "__main__":
    unittest.main()
