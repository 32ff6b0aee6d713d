"""kill -9 at random moments: what was flushed is there, every block is one of the values that it may have."""

import os
import random
import struct
import threading
import time
import unittest

import nbd

from server import BLOCK, Pool

ROUNDS = int(os.environ.get("ONEFOLD_KILL_ROUNDS", "25"))
BLOCKS = 2048


def content(block, version):
    """The bytes of a version of a block: every eighth version repeats, so that there is something to share."""
    seed = version % 8 if version % 3 == 0 else block << 32 | version
    return struct.pack("<QQ", seed, 0x5EED).ljust(64, b"v") * (BLOCK // 64) if version else bytes(BLOCK)


class Writer(threading.Thread):
    """Writes ever newer versions into blocks of its own until the server dies; notes what was answered and flushed."""

    def __init__(self, pool, first, count, known, seed):
        super().__init__()
        self.pool, self.first, self.count = pool, first, count
        self.flushed = dict(known)
        self.since = {}
        self.chance = random.Random(seed)
        self.next = max(known.values(), default=0) + 1

    def run(self):
        client = nbd.NBD()
        try:
            client.connect_uri(self.pool.uri())
            while True:
                self.step(client)
        except nbd.Error:
            pass

    def step(self, client):
        choice = self.chance.random()
        if choice < 0.1:
            # What is written while the flush runs is not covered: this thread writes nothing meanwhile.
            client.flush()
            for block, versions in self.since.items():
                self.flushed[block] = versions[-1]
            self.since.clear()
            return
        block = self.first + self.chance.randrange(self.count)
        length = self.chance.choice((1, 1, 2, 8))
        blocks = range(block, min(block + length, self.first + self.count))
        version, self.next = self.next, self.next + 1
        if choice < 0.15:
            version = 0
        for b in blocks:
            self.since.setdefault(b, []).append(version)
        if version == 0:
            client.trim(len(blocks) * BLOCK, block * BLOCK)
        else:
            fua = nbd.CMD_FLAG_FUA if choice < 0.25 else 0
            client.pwrite(b"".join(content(b, version) for b in blocks), block * BLOCK, fua)
            if fua:
                for b in blocks:
                    self.flushed[b] = version
                    del self.since[b]


class Crash(unittest.TestCase):
    def test_kill_nine(self):
        known = [{}, {}, {}]
        share = BLOCKS // len(known)
        with Pool("16M") as pool:
            for number in range(ROUNDS):
                pool.serve("--memory", "64M")
                writers = [Writer(pool, i * share, share, known[i], number * 10 + i) for i in range(len(known))]
                for writer in writers:
                    writer.start()
                time.sleep(random.Random(number).uniform(0.02, 0.8))
                pool.kill()
                for writer in writers:
                    writer.join()
                if number % 5 == 0:
                    pool.check()
                pool.serve(create=False)
                client = nbd.NBD()
                client.connect_uri(pool.uri())
                known = [self.judge(client, writer, number) for writer in writers]
                client.shutdown()
                # Sometimes the next crash finds a pool that was closed, sometimes one that was killed twice.
                if number % 2:
                    pool.kill()
                else:
                    pool.stop()
            pool.check()

    def judge(self, client, writer, number):
        """Every block holds its flushed version or a later one; what it holds is the truth from now on."""
        now = {}
        for block in range(writer.first, writer.first + writer.count):
            flushed = writer.flushed.get(block, 0)
            legal = [flushed] + writer.since.get(block, [])
            data = client.pread(BLOCK, block * BLOCK)
            version = next((v for v in legal if content(block, v) == data), None)
            self.assertIsNotNone(version, f"round {number}: block {block} holds none of the versions {legal}")
            now[block] = version
        return now


if __name__ == "__main__":
    unittest.main()
