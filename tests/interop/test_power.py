"""Power cuts: the disk below the server has a volatile write cache, and loses or tears it right after the reply to a flush."""

import errno
import os
import random
import subprocess
import time
import unittest

import nbd

from model import Writer, content
from server import BLOCK, ONEFOLD, PATIENCE, Pool, onefold
from volatile import CAN_PRESENT, REASON, Disk, File

ROUNDS = int(os.environ.get("ONEFOLD_POWER_ROUNDS", "30"))
SEED = int(os.environ.get("ONEFOLD_POWER_SEED", random.randrange(1 << 32)))
VOLUMES = ("one", "two", "three")
BLOCKS = 512


class Loss(AssertionError):
    """What was flushed is not there."""


class Machine:
    """A pool on a disk with a volatile cache, three volumes, and what is known about their blocks."""

    def __init__(self, pool, seed, lies=False):
        self.pool, self.lies = pool, lies
        self.chance = random.Random(seed)
        self.image = os.path.join(pool.folder, "image")
        onefold("create", self.image, "--capacity", "64M")
        for name in VOLUMES:
            onefold("volume", "create", self.image, name, "--size", "16M")
        self.writers = [Writer(pool.uri(name), 0, BLOCKS, {}, 0) for name in VOLUMES]
        self.disk = self.file = None
        # Blocks that the power cuts found unflushed.
        self.unflushed = 0

    def power_on(self):
        address = os.path.join(self.pool.folder, "disk.sock")
        self.disk = Disk(self.image, address, self.chance, self.lies)
        self.file = File(self.disk, self.pool.path)

    def power_off(self, way=None):
        """The disk first: a server that lives a little longer changes nothing. With nothing to lose it is just the end."""
        self.disk.cut(way)
        self.unflushed += sum(len(data) for _, data in self.disk.unflushed) // BLOCK
        if self.pool.server is not None:
            self.pool.kill()
        self.file.take_away()

    def serve(self):
        self.pool.serve("--memory", "64M", create=False)

    def judge(self):
        """All volumes hold what they have to; what they hold is the truth from now on."""
        known = []
        for name, writer in zip(VOLUMES, self.writers):
            client = nbd.NBD()
            client.connect_uri(self.pool.uri(name))
            try:
                known.append(writer.judge(client))
            except (AssertionError, nbd.Error) as error:
                raise Loss(f"volume {name}: {error}") from error
            client.shutdown()
        return known

    def write_until_a_cut(self, known):
        """The cut comes right after one of the first writer's flushes, or at any request to the disk; maybe in a checkpoint."""
        flushes = self.chance.randrange(1, 12)
        if self.chance.random() < 0.5:
            flushes, self.disk.countdown = -1, self.chance.randrange(10, 400)

        def after_flush():
            nonlocal flushes
            flushes -= 1
            if flushes == 0:
                self.disk.cut()
            return flushes == 0

        cutters = [after_flush, None, None]
        self.writers = [Writer(self.pool.uri(name), 0, BLOCKS, known[at], self.chance.random(), cutters[at], flushes=share)
                        for at, (name, share) in enumerate(zip(VOLUMES, (0.05, 0.01, 0.03)))]
        for writer in self.writers:
            writer.start()
        settling = None
        if self.chance.random() < 0.4:
            settling = subprocess.Popen([ONEFOLD, "status", self.pool.path, "--settle"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        self.disk.off.wait(timeout=PATIENCE)
        self.power_off()
        for writer in self.writers:
            writer.join(timeout=PATIENCE)
        if settling is not None:
            settling.wait(timeout=PATIENCE)

    def cut_while_it_opens(self):
        """Recovery is interrupted at any point, and more than once in a row."""
        while self.chance.random() < 0.4:
            self.power_on()
            with open(self.pool.log, "a") as log:
                self.pool.server = subprocess.Popen([ONEFOLD, "serve", self.pool.path, "--memory", "64M"], stdout=log, stderr=log)
            time.sleep(self.chance.uniform(0, 0.1))
            self.power_off()

    def run(self, rounds):
        for _ in range(rounds):
            self.cut_while_it_opens()
            self.power_on()
            try:
                self.serve()
                self.write_until_a_cut(self.judge())
            except AssertionError as error:
                raise error if isinstance(error, Loss) else Loss(str(error)) from error
            finally:
                self.power_off()
            found = onefold("check", self.image, check=False)
            if found.returncode != 0:
                raise Loss(f"check: {found.stdout}{found.stderr}")


@unittest.skipUnless(CAN_PRESENT, REASON)
class Power(unittest.TestCase):
    def test_what_was_flushed_survives_power_cuts(self):
        with Pool("64M") as pool:
            machine = Machine(pool, SEED)
            try:
                machine.run(ROUNDS)
                self.assertGreater(machine.unflushed, 3 * ROUNDS, "the cuts have to hit something")
            except AssertionError as error:
                raise AssertionError(f"ONEFOLD_POWER_SEED={SEED}: {error}\n{pool.said()[-3000:]}") from error

    def test_a_flush_that_fails_may_lose_what_it_had_and_the_pool_is_read_only(self):
        """The flushes after it succeed again, as they do after a failed fsync: nothing may be believed of them."""
        for number in range(5):
            with self.subTest(seed=SEED + number), Pool("64M") as pool:
                machine = Machine(pool, SEED + number)
                machine.power_on()
                try:
                    self.fail_a_flush(machine)
                finally:
                    machine.power_off()
                found = onefold("check", machine.image, check=False)
                self.assertEqual(found.returncode, 1)
                self.assertIn("nothing but that is wrong", found.stdout + found.stderr)
                machine.power_on()
                try:
                    machine.serve()
                    machine.judge()
                    # The sync of a durable write counts as the write.
                    self.assertIn(pool.status()["failure"], ("a sync of the store failed", "a write to the store failed"))
                finally:
                    machine.power_off()

    def fail_a_flush(self, machine):
        machine.serve()
        machine.writers = [Writer(writer.uri, 0, BLOCKS, {}, number) for number, writer in enumerate(machine.writers)]
        for writer in machine.writers:
            writer.start()
        time.sleep(machine.chance.uniform(0.1, 0.5))
        machine.disk.fails = True
        for writer in machine.writers:
            writer.join(timeout=PATIENCE)
            self.assertIn(writer.failure.errnum, (errno.EIO, errno.EPERM))
        for writer in machine.writers:
            client = nbd.NBD()
            client.connect_uri(writer.uri)
            for _ in range(3):
                with self.assertRaises(nbd.Error) as failure:
                    client.flush()
                self.assertEqual(failure.exception.errnum, errno.EIO)
            # What was not flushed may be gone from under the server: then there is an error. The rest is there.
            for block in set(writer.flushed) - set(writer.since):
                self.assertEqual(bytes(client.pread(BLOCK, block * BLOCK)), content(block, writer.flushed[block]))
            client.shutdown()
        self.assertEqual(machine.pool.status()["mode"], "read-only")

    def test_a_disk_that_lies_about_flushes_is_found_out(self):
        """The test above can fail: with such a disk no pool keeps what was flushed."""
        with Pool("64M") as pool, self.assertRaises(Loss):
            Machine(pool, SEED, lies=True).run(10)


if __name__ == "__main__":
    unittest.main()
