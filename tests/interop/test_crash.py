"""kill -9 at random moments: what was flushed is there, every block is one of the values that it may have."""

import json
import os
import random
import subprocess
import threading
import time
import unittest

import nbd

from model import Writer
from server import ONEFOLD, Pool, onefold

ROUNDS = int(os.environ.get("ONEFOLD_KILL_ROUNDS", "25"))
BLOCKS = 2048
MIB = 1 << 20


def judge(pool, volume, writer):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    known = writer.judge(client)
    client.shutdown()
    return known


class Operator(threading.Thread):
    """Makes, fills, resizes and deletes volumes, and makes the pool larger, until it is stopped; notes what was answered."""

    def __init__(self, pool, capacity, volumes, seed):
        super().__init__(daemon=True)
        self.pool, self.capacity, self.chance = pool, capacity, random.Random(seed)
        self.volumes = dict(volumes)
        # The command in progress: what it makes of a volume, or of the pool.
        self.pending = None
        self.stopped = False
        self.commands = 0

    def run(self):
        while not self.stopped:
            self.step()

    def step(self):
        choice, name = self.chance.random(), self.chance.choice(("a", "b", "c"))
        size = self.chance.randrange(4, 40)
        if choice < 0.03:
            capacity = self.capacity + 4
            if self.command("pool", capacity, "grow", self.pool.path, "--capacity", f"{capacity}M"):
                self.capacity = capacity
        elif name not in self.volumes:
            if self.command(name, size, "volume", "create", self.pool.path, name, "--size", f"{size}M"):
                self.volumes[name] = size
                self.fill(name, size)
        elif choice < 0.5:
            if self.command(name, size, "volume", "resize", self.pool.path, name, "--size", f"{size}M", "--force"):
                self.volumes[name] = size
        elif self.command(name, None, "volume", "delete", self.pool.path, name, "--force"):
            del self.volumes[name]

    def command(self, name, after, *arguments):
        self.pending = (name, after)
        if onefold(*arguments, check=False).returncode != 0:
            # Refused, or the server died: then it may be done or not.
            self.stopped = self.stopped or self.pool.server is None or self.pool.server.poll() is not None
            return False
        self.pending = None
        self.commands += 1
        return True

    def fill(self, name, size):
        """So that there is something to give back; it may be too much for the pool."""
        client = nbd.NBD()
        try:
            client.connect_uri(self.pool.uri(name))
            for at in range(min(size, 8)):
                client.pwrite(os.urandom(MIB), at * MIB)
        except nbd.Error:
            pass

    def judge(self, report):
        """The pool has what was answered; a command that was not answered may be done or not."""
        found = {volume["name"]: volume["size_bytes"] // MIB for volume in report["volumes"] if len(volume["name"]) == 1}
        capacity = report["capacity_bytes"] // MIB
        name, after = self.pending or (None, None)
        legal = [(self.capacity, self.volumes)]
        if name == "pool":
            legal.append((after, self.volumes))
        elif name is not None:
            others = {key: size for key, size in self.volumes.items() if key != name}
            legal.append((self.capacity, others if after is None else {**others, name: after}))
        if (capacity, found) not in legal:
            raise AssertionError(f"the pool has {capacity} MiB and {found}, and not one of {legal}")
        return capacity, found


class Crash(unittest.TestCase):
    def test_kill_nine(self):
        known = [{}, {}, {}]
        share = BLOCKS // len(known)
        with Pool("16M") as pool:
            for number in range(ROUNDS):
                pool.serve("--memory", "64M")
                writers = [Writer(pool.uri(), i * share, share, known[i], number * 10 + i) for i in range(len(known))]
                for writer in writers:
                    writer.start()
                time.sleep(random.Random(number).uniform(0.02, 0.8))
                pool.kill()
                for writer in writers:
                    writer.join()
                if number % 5 == 0:
                    pool.check()
                pool.serve(create=False)
                known = [judge(pool, "default", writer) for writer in writers]
                # Sometimes the next crash finds a pool that was closed, sometimes one that was killed twice.
                if number % 2:
                    pool.kill()
                else:
                    pool.stop()
            pool.check()

    def test_kill_nine_in_a_nearly_full_pool_whose_volumes_come_and_go(self):
        """While volumes are made, resized and deleted and the pool grows; also while it is opened."""
        names, blocks = ("first", "second", "third"), 6144
        known, capacity, volumes = [{}, {}, {}], 32, {}
        refused = commands = 0
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "32M")
            for name in names:
                onefold("volume", "create", pool.path, name, "--size", "24M")
            for number in range(ROUNDS // 2):
                chance = random.Random(number)
                pool.serve("--memory", "64M", create=False)
                operator = Operator(pool, capacity, volumes, number)
                writers = [Writer(pool.uri(name), 0, blocks, known[i], number * 10 + i, lengths=(1, 8, 64, 256))
                           for i, name in enumerate(names)]
                for thread in (operator, *writers):
                    thread.start()
                time.sleep(chance.uniform(0.1, 1.5))
                operator.stopped = True
                pool.kill()
                for thread in (operator, *writers):
                    thread.join()
                refused += sum(len(writer.refused) for writer in writers)
                commands += operator.commands
                for _ in range(chance.randrange(3)):
                    self.kill_while_it_opens(pool, chance)
                pool.check()
                pool.serve("--memory", "64M", create=False)
                known = [judge(pool, name, writer) for name, writer in zip(names, writers)]
                capacity, volumes = operator.judge(json.loads(onefold("status", pool.path, "--json").stdout))
                pool.kill()
            pool.check()
        self.assertGreater(refused, 0, "the pool has to be full now and then")
        self.assertGreater(commands, ROUNDS // 2)

    def kill_while_it_opens(self, pool, chance):
        with open(pool.log, "a") as log:
            pool.server = subprocess.Popen([ONEFOLD, "serve", pool.path, "--memory", "64M"], stdout=log, stderr=log)
        time.sleep(chance.uniform(0, 0.15))
        pool.kill()


if __name__ == "__main__":
    unittest.main()
