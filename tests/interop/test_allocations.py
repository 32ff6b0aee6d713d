"""A server that has warmed up allocates nothing for the requests that it serves: counted in the program as it is shipped, by a
library that is loaded before it (allocations.c)."""

import collections
import mmap
import os
import random
import re
import struct
import time
import unittest

import nbd

from server import Pool, run

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "allocations.c")
MIB = 1 << 20
DEPTH = 32
# At most so many for a request: lists of I/Os grow until each has carried its longest run. So many for a checkpoint, which makes its
# own, more the more pages it frees; how many of these fall into a measurement depends on the time that background jobs have had. So
# many for each second: it looks at its own status.
FOR_EACH, FOR_A_CHECKPOINT, FOR_A_SECOND = 0.005, 250, 20


class Allocations(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = Pool("1G")
        library, counts = (os.path.join(cls.pool.folder, name) for name in ("allocations.so", "allocations"))
        run("cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, SOURCE)
        with open(counts, "wb") as file:
            file.write(bytes(16))
        cls.file = open(counts, "r+b")
        cls.counts = mmap.mmap(cls.file.fileno(), 16)
        cls.pool.environment = {**os.environ, "LD_PRELOAD": library, "ALLOCATIONS": counts}
        cls.pool.serve("--memory", "128M")
        cls.client = nbd.NBD()
        cls.client.connect_uri(cls.pool.uri())
        cls.random = random.Random(6)
        cls.contents = cls.random.randbytes(4 * MIB)

    @classmethod
    def tearDownClass(cls):
        cls.client.shutdown()
        cls.pool.stop()
        cls.counts.close()
        cls.file.close()
        cls.pool.__exit__()

    def count(self):
        return struct.unpack_from("<Q", self.counts)[0]

    def requests(self, number, begin):
        """So many of them, DEPTH at a time; `begin` sends one and says its cookie."""
        in_flight = set()
        while number or in_flight:
            while number and len(in_flight) < DEPTH:
                in_flight.add(begin())
                number -= 1
            self.client.poll(-1)
            in_flight -= {cookie for cookie in in_flight if self.client.aio_command_completed(cookie)}

    def write(self, length, first, end):
        """Writes something new somewhere: bytes from anywhere in a few MiB, and a number."""
        def begin():
            at = self.random.randrange(len(self.contents) - length)
            content = bytearray(self.contents[at:at + length])
            for block in range(0, length, 4096):
                struct.pack_into("<Q", content, block, self.random.getrandbits(64))
            offset = self.random.randrange(first, end) // length * length
            return self.client.aio_pwrite(nbd.Buffer.from_bytearray(content), offset)
        return begin

    def read(self, length, first, end):
        def begin():
            return self.client.aio_pread(nbd.Buffer(length), self.random.randrange(first, end) // length * length)
        return begin

    def checkpoints(self):
        return self.pool.status()["metadata"]["checkpoints"]

    def held(self, number, begin, warm_up):
        # What was written before has its checkpoint now, and not among reads.
        self.pool.settled()
        self.requests(warm_up, begin)
        checkpoints, began = self.checkpoints(), time.monotonic()
        before = self.count()
        self.requests(number, begin)
        allocations, beside = self.count() - before, FOR_A_SECOND * (2 + time.monotonic() - began)
        checkpoints = self.checkpoints() - checkpoints
        print(f"{self.id().rsplit('.', 1)[1]}: {allocations} for {number} requests and {checkpoints} checkpoints")
        if allocations > FOR_EACH * number + FOR_A_CHECKPOINT * checkpoints + beside:
            self.fail(f"{allocations} allocations for {number} requests and {checkpoints} checkpoints; these are some of them:\n{self.some(begin)}")

    def some(self, begin):
        """Where some of them come from: the most frequent stacks, innermost function first."""
        said = len(self.pool.said())
        struct.pack_into("<Q", self.counts, 8, 1)
        self.requests(500, begin)
        struct.pack_into("<Q", self.counts, 8, 0)
        frames = [re.findall(r"/onefold\(\+(0x[0-9a-f]+)\)", stack) for stack in self.pool.said()[said:].split("\n\n")]
        stacks = collections.Counter(tuple(stack[:8]) for stack in frames if stack).most_common(6)
        return "\n".join(f"{count} of 500 requests: {self.names(stack)}" for stack, count in stacks)

    def names(self, stack):
        lines = run("addr2line", "-C", "-f", "-e", self.pool.program, *stack).stdout.splitlines()[::2]
        known = [name for name in lines if name.lstrip("<").startswith(("engine::", "nbd::", "onefold::"))]
        return " < ".join(known) or "no symbols: build without `strip` in Cargo.toml"

    def test_what_is_allocated_is_counted(self):
        before = self.count()
        self.assertGreater(before, 100)
        self.pool.status()
        self.assertGreater(self.count(), before)

    def test_writes_of_4_kib(self):
        self.held(10_000, self.write(4096, 0, 64 * MIB), 20_000)

    def test_writes_of_128_kib(self):
        self.held(4000, self.write(128 * 1024, 64 * MIB, 320 * MIB), 6000)

    def test_reads_of_4_kib(self):
        """From the cache and from the store: four times as many blocks as the cache has."""
        self.requests(2000, self.write(128 * 1024, 320 * MIB, 520 * MIB))
        self.held(10_000, self.read(4096, 320 * MIB, 520 * MIB), 20_000)

    def test_reads_of_128_kib(self):
        self.requests(2000, self.write(128 * 1024, 320 * MIB, 520 * MIB))
        self.held(4000, self.read(128 * 1024, 320 * MIB, 520 * MIB), 2000)

    def test_flushes_after_writes_of_4_kib(self):
        write, flush = self.write(4096, 0, 64 * MIB), self.client.aio_flush
        turn = [0]

        def begin():
            turn[0] += 1
            return flush() if turn[0] % 2 == 0 else write()
        self.held(10_000, begin, 10_000)


if __name__ == "__main__":
    unittest.main()
