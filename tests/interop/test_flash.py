"""A flash in front of the store: warm reads, restarts, kill -9, and whatever may become of the flash (docs/papers/plc-cache.md). In a build that
can make the store slow."""

import json
import os
import random
import shutil
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, Pool, faulty, onefold, run

FAULTY = faulty()
MIB = 1 << 20
DATA = 96 * MIB
CONTAINERS = DATA // (4 * MIB)


class FlashPool(Pool):
    """A pool with a volume of random bytes, more than memory holds, and a flash that has space for all of them."""

    def __init__(self, size="256M"):
        super().__init__("256M")
        self.program = FAULTY
        self.flash = os.path.join(self.folder, "flash")
        self.plan_path = os.path.join(self.folder, "plan")
        self.environment = {**os.environ, "ONEFOLD_FAULTS": self.plan_path}
        onefold("create", self.path, "--capacity", "256M")
        onefold("volume", "create", self.path, "one", "--size", "192M")
        onefold("cache", "attach", self.path, self.flash, "--size", size)
        self.data = os.urandom(DATA)
        self.chance = random.Random(1)

    def plan(self, *rules):
        with open(self.plan_path + ".new", "w") as file:
            file.write("\n".join(rules))
        os.rename(self.plan_path + ".new", self.plan_path)

    def start(self, *arguments, flash=True):
        self.serve("--memory", "48M", *(["--flash", self.flash] if flash else []), *arguments, create=False)
        self.client = nbd.NBD()
        self.client.connect_uri(self.uri("one"))
        return self

    def fill(self):
        for at in range(0, DATA, MIB):
            self.client.pwrite(self.data[at:at + MIB], at)
        self.client.flush()
        self.settled()

    def figures(self):
        return json.loads(onefold("cache", "status", self.path, "--json").stdout)["flash"]

    def read_some(self, blocks):
        """Random blocks; each must be right. The seconds that it took."""
        began = time.time()
        for _ in range(blocks):
            at = self.chance.randrange(DATA // BLOCK) * BLOCK
            if self.client.pread(BLOCK, at) != self.data[at:at + BLOCK]:
                raise AssertionError(f"wrong bytes at {at}")
        return time.time() - began

    def read_all(self):
        got = os.path.join(self.folder, "copy")
        run("nbdcopy", self.uri("one"), got)
        with open(got, "rb") as file:
            if file.read(DATA) != self.data:
                raise AssertionError("wrong bytes")

    def warm_up(self, containers=CONTAINERS * 3 // 4):
        """Until so many containers are on flash."""
        deadline = time.time() + PATIENCE
        while self.figures()["filled_places"] < containers:
            if time.time() > deadline:
                raise AssertionError(f"it does not fill: {self.figures()} {self.said()}")
            self.read_some(200)

    def hits(self, blocks):
        """Of what was not in memory, the share that came from flash; and the seconds."""
        before = self.figures()
        took = self.read_some(blocks)
        after = self.figures()
        read, missed = (after[key] - before[key] for key in ("read_blocks", "missed_blocks"))
        return read / max(read + missed, 1), took


class Flash(unittest.TestCase):
    def test_warm_reads_come_from_flash_and_the_cache_outlives_a_restart(self):
        with FlashPool() as pool:
            pool.start().fill()
            pool.warm_up()
            found = pool.figures()["filled_places"]
            pool.plan("read slow=10")
            time.sleep(1.1)
            share, warm = pool.hits(400)
            self.assertGreater(share, 0.5)
            pool.plan("")
            pool.stop()
            pool.start()
            figures = pool.figures()
            self.assertEqual(figures["state"], "attached")
            self.assertGreaterEqual(figures["found_places"], found)
            pool.read_some(400)
            share, _ = pool.hits(400)
            self.assertGreater(share, 0.5)
            self.assertEqual(pool.figures()["bad_blocks"], 0)
            pool.read_all()
            pool.stop()
            pool.start(flash=False)
            pool.plan("read slow=10")
            time.sleep(1.1)
            cold = pool.read_some(400)
            print(f"400 random reads, store of 10 ms: {cold:.2f} s without, {warm:.2f} s with flash, "
                  f"{cold / warm:.0f} times as fast; {share:.0%} from flash")
            self.assertEqual(pool.figures()["state"], "none")
            pool.plan("")
            pool.stop()
            pool.check()

    def test_kill_9_while_containers_are_copied_and_evicted(self):
        with FlashPool("48M") as pool:
            pool.start().fill()
            for round in range(4):
                for _ in range(6):
                    pool.read_some(300)
                    at = pool.chance.randrange(DATA // MIB) * MIB
                    piece = os.urandom(MIB)
                    pool.client.pwrite(piece, at)
                    pool.client.flush()
                    pool.data = pool.data[:at] + piece + pool.data[at + MIB:]
                pool.kill()
                pool.start()
                pool.read_all()
                self.assertEqual(pool.figures()["bad_blocks"], 0)
            pool.stop()
            pool.check()

    def test_whatever_becomes_of_the_flash_bytes_are_right(self):
        with FlashPool() as pool, FlashPool() as other:
            pool.start().fill()
            pool.warm_up(8)
            older = pool.flash + ".older"
            pool.stop()
            shutil.copyfile(pool.flash, older)
            pool.start()
            pool.warm_up(12)
            pool.stop()
            good = pool.flash + ".good"
            shutil.copyfile(pool.flash, good)

            def judge(state, words, *said):
                pool.start()
                pool.read_some(300)
                pool.read_all()
                figures = pool.figures()
                self.assertEqual(figures["state"], state)
                self.assertIn(words, figures["reason"] or "")
                log = pool.said()
                for text in said:
                    self.assertIn(text, log)
                self.assertEqual(pool.status()["mode"], "normal")
                pool.stop()
                return figures

            # Garbage behind the label: its log cannot be read.
            with open(pool.flash, "r+b") as file:
                file.seek(MIB)
                file.write(os.urandom(60 * MIB))
            self.assertEqual(judge("attached", "")["found_places"], 0)
            # An older copy: the pool has been opened since.
            shutil.copyfile(older, pool.flash)
            self.assertEqual(judge("attached", "")["found_places"], 0)
            os.truncate(pool.flash, 20 * MIB)
            judge("away", "attach it anew", "is away")
            shutil.copyfile(other.flash, pool.flash)
            judge("away", "another pool", "is away")
            with open(pool.flash, "r+b") as file:
                file.write(os.urandom(20 * MIB))
            judge("away", "holds no cache", "is away")
            os.remove(pool.flash)
            judge("away", "does not exist", "is away")
            pool.check()

    def test_a_flash_that_rots_or_fails_while_it_is_served(self):
        with FlashPool() as pool:
            pool.start().fill()
            pool.warm_up(12)
            # All places and not the log, behind the server's back.
            with open(pool.flash, "r+b") as file:
                file.seek(8 * MIB)
                file.write(os.urandom(100 * MIB))
            pool.read_some(400)
            self.assertGreater(pool.figures()["bad_blocks"], 0)
            # The log says so a moment later.
            deadline = time.time() + PATIENCE
            while "differ from those written" not in pool.said() and time.time() < deadline:
                time.sleep(0.1)
            self.assertIn("differ from those written", pool.said())
            pool.plan("flash read error=EIO")
            pool.read_some(400)
            figures = pool.figures()
            self.assertEqual((figures["state"], figures["failed_reads"] >= 16), ("failed", True))
            self.assertIn("Input/output error", figures["reason"])
            pool.read_all()
            pool.plan("")
            # It comes back empty.
            onefold("cache", "detach", pool.path)
            self.assertEqual(pool.figures()["state"], "none")
            onefold("cache", "attach", pool.path, pool.flash)
            pool.warm_up(4)
            pool.plan("flash write error=ENOSPC")
            deadline = time.time() + PATIENCE
            while pool.figures()["state"] == "attached" and time.time() < deadline:
                pool.read_some(100)
            self.assertEqual(pool.figures()["state"], "failed")
            self.assertEqual(pool.status()["mode"], "normal")
            pool.plan("")
            pool.stop()
            pool.check()

    def test_a_flash_that_never_answers_does_not_keep_the_server(self):
        with FlashPool() as pool:
            pool.start("--stop-timeout", "1").fill()
            pool.plan("flash write stuck")
            pool.read_some(300)
            pool.stop()
            pool.start()
            pool.read_all()
            pool.stop()

    def test_reads_of_a_flash_that_hangs_go_to_the_store(self):
        with FlashPool() as pool:
            pool.start("--stop-timeout", "1").fill()
            pool.warm_up()
            pool.plan("flash read stuck")
            took = pool.read_some(400)
            self.assertTrue(3 <= took < 10, took)
            figures = pool.figures()
            self.assertEqual((figures["state"], figures["reason"]), ("failed", "it did not answer in time"))
            self.assertLess(pool.read_some(400), 3)
            deadline = time.time() + PATIENCE
            while "has not answered for 3 s" not in pool.said():
                self.assertLess(time.time(), deadline, pool.said())
                time.sleep(0.1)
            pool.plan()
            pool.read_all()
            onefold("cache", "detach", pool.path)
            onefold("cache", "attach", pool.path, pool.flash)
            pool.warm_up(4)
            pool.stop()
            pool.check()

    def test_attach_and_detach_while_it_is_served(self):
        with FlashPool() as pool:
            pool.start(flash=False).fill()
            other = os.path.join(pool.folder, "other")
            refused = lambda *arguments: onefold("cache", "attach", pool.path, *arguments, check=False).stderr
            self.assertIn("--size", refused(other))
            self.assertIn("too small", refused(other, "--size", "4M"))
            self.assertIn("directory", refused(pool.folder))
            self.assertIn("own store", refused(pool.path))
            with open(other, "wb") as file:
                file.write(b"a diary" * MIB)
            self.assertIn("--force", refused(other))
            onefold("cache", "attach", pool.path, other, "--size", "64M", "--write-budget", "1G/day", "--tbw", "10T", "--force")
            self.assertIn("detach it first", refused(pool.flash))
            pool.warm_up(8)
            figures = pool.figures()
            self.assertEqual((figures["size_bytes"], figures["budget_bytes_per_day"]), (64 * MIB, 1 << 30))
            self.assertEqual(figures["life_days_at_budget"], 10240.0)
            onefold("cache", "detach", pool.path)
            os.remove(other)
            pool.read_all()
            onefold("cache", "attach", pool.path, pool.flash)
            pool.warm_up(8)
            pool.kill()
            pool.start()
            pool.read_all()
            self.assertEqual(pool.figures()["bad_blocks"], 0)
            with FlashPool() as second:
                second.flash = pool.flash
                with self.assertRaisesRegex(AssertionError, "in use"):
                    second.serve("--flash", pool.flash, create=False)
                second.server = None
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
