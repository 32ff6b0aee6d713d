"""Damage in the pool's file: what reads, the scrub and the status make of it, and what is repaired."""

import json
import os
import subprocess
import time
import unittest

import nbd

from server import BLOCK, ONEFOLD, Pool, onefold

MIB = 1 << 20


def places(pool, block):
    """Where the file holds a block."""
    found, at = [], 0
    with open(pool.path, "rb") as file:
        while chunk := file.read(MIB):
            start = chunk.find(block)
            while start >= 0:
                if start % BLOCK == 0:
                    found.append(at + start)
                start = chunk.find(block, start + 1)
            at += len(chunk)
    return found


def slots(pool, block, count):
    """The slots among these: the journal, which may have carried the block, lies before them."""
    return places(pool, block)[-count:]


def flip(pool, offset):
    with open(pool.path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x10]))
        os.fsync(file.fileno())


def connect(pool):
    client = nbd.NBD()
    client.connect_uri(pool.uri())
    return client


def data_of(client, block):
    return client.pread(BLOCK, block * BLOCK)


class Scrub(unittest.TestCase):
    def filled(self, pool, twice):
        """Block 0 to 1023, all different; block 2000 equal to block 7 and, with `twice`, in a slot of its own."""
        onefold("create", pool.path, "--capacity", "64M")
        onefold("volume", "create", pool.path, "default", "--size", "64M")
        pool.serve("--memory", "64M", create=False)
        blocks = [os.urandom(BLOCK) for _ in range(1024)]
        client = connect(pool)
        for first in range(0, 1024, 256):
            client.pwrite(b"".join(blocks[first:first + 256]), first * BLOCK)
        if twice:
            onefold("volume", "set", pool.path, "default", "policy=native")
            client.pwrite(blocks[7], 2000 * BLOCK)
            onefold("volume", "set", pool.path, "default", "policy=full")
        client.flush()
        client.shutdown()
        pool.settled()
        return blocks

    def test_a_healthy_pool_offline_and_online(self):
        with Pool() as pool:
            blocks = self.filled(pool, twice=False)
            done = onefold("scrub", pool.path, "--wait")
            self.assertIn("no damage", done.stdout)
            scrub = pool.status()["scrub"]
            self.assertEqual((scrub["state"], scrub["damages_found"]), ("finished", 0))
            self.assertGreaterEqual(scrub["blocks_done"], 1024)
            self.assertLess(abs(scrub["finished"] - time.time()), 60)
            pool.stop()
            self.assertIn("the scrub is finished", pool.said())
            done = onefold("scrub", pool.path)
            self.assertIn("finished", done.stdout)
            self.assertIn("no damage", onefold("status", pool.path).stdout)
            for refused in ("--pause", "--stop"):
                done = onefold("scrub", pool.path, refused, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn("no scrub is in progress", done.stderr)
            pool.check()
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            self.assertEqual(data_of(client, 7), blocks[7])
            client.shutdown()
            pool.stop()

    def test_a_block_without_another_copy_is_named_and_left(self):
        with Pool() as pool:
            blocks = self.filled(pool, twice=False)
            pool.stop()
            (place,) = places(pool, blocks[5])
            flip(pool, place + 100)
            done = onefold("scrub", pool.path, check=False)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"a block of data at byte {place} of the store (volume 'default', block 5)", done.stdout)
            self.assertIn("1 damages found, 0 repaired, 1 left", done.stdout)
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            with self.assertRaises(nbd.Error) as failed:
                data_of(client, 5)
            self.assertEqual(failed.exception.errnum, 5)
            for block in (4, 6):
                self.assertEqual(data_of(client, block), blocks[block])
            self.assertEqual(pool.status()["damaged_blocks_found"], 1)
            done = onefold("scrub", pool.path, "--wait", "--json", check=False)
            self.assertEqual(done.returncode, 1)
            report = json.loads(done.stdout)
            self.assertEqual(report["scrub"]["damages_left"], 1)
            self.assertEqual((report["damages"][-1]["volume"], report["damages"][-1]["block"]), ("default", 5))
            # Writing the content again, anywhere, brings it back.
            client.pwrite(blocks[5], 3000 * BLOCK)
            client.flush()
            pool.settled()
            self.assertEqual(onefold("scrub", pool.path, "--wait").returncode, 0)
            self.assertEqual(data_of(client, 5), blocks[5])
            client.shutdown()
            pool.stop()
            self.assertIn("NOT repaired", pool.said())
            pool.check()

    def test_a_block_with_a_duplicate_is_repaired_online_and_offline(self):
        for online in (False, True):
            for which in (0, 1):
                with self.subTest(online=online, which=which), Pool() as pool:
                    blocks = self.filled(pool, twice=True)
                    pool.stop()
                    found = slots(pool, blocks[7], 2)
                    self.assertEqual(len(found), 2)
                    flip(pool, found[which] + 4000)
                    if online:
                        pool.serve("--memory", "64M", create=False)
                    done = onefold("scrub", pool.path, "--wait")
                    self.assertIn(f"at byte {found[which]} of the store", done.stdout)
                    self.assertIn("repaired", done.stdout)
                    if online:
                        pool.stop()
                    self.assertEqual(slots(pool, blocks[7], 2), found)
                    pool.check()

    def test_a_block_with_many_references_is_repaired_from_its_second_copy(self):
        with Pool() as pool:
            blocks = self.filled(pool, twice=False)
            client = connect(pool)
            for block in range(2000, 2016):
                client.pwrite(blocks[7], block * BLOCK)
            client.flush()
            pool.settled()
            for wrong in ("0", "many"):
                done = onefold("set", pool.path, "second-copies", wrong, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("number of references", done.stderr)
            onefold("set", pool.path, "second-copies", "16")
            self.assertIn("16", onefold("get", pool.path, "second-copies").stdout)
            onefold("scrub", pool.path, "--wait")
            status = pool.settled()
            self.assertEqual((status["second_copies"], status["data_blocks_used"]), (1, 1025))
            self.assertEqual(len(status["volumes"]), 1)
            client.shutdown()
            pool.stop()
            pool.check()
            first, second = slots(pool, blocks[7], 2)
            flip(pool, first + 1)
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            self.assertEqual(data_of(client, 2015), blocks[7])
            onefold("scrub", pool.path, "--wait")
            self.assertEqual(slots(pool, blocks[7], 2), [first, second])
            onefold("set", pool.path, "second-copies", "off")
            self.assertEqual(pool.settled()["second_copies"], 0)
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_server_that_is_killed_goes_on_with_the_scrub(self):
        with Pool() as pool:
            blocks = self.filled(pool, twice=True)
            found = slots(pool, blocks[7], 2)
            for round in range(6):
                flip(pool, found[round % 2] + 17)
                onefold("scrub", pool.path)
                time.sleep(0.003 * round)
                pool.kill()
                pool.serve("--memory", "64M", create=False)
                done = onefold("scrub", pool.path, "--wait", check=False)
                # It may have been past the block.
                done = onefold("scrub", pool.path, "--wait")
                self.assertEqual(slots(pool, blocks[7], 2), found, done.stdout)
            client = connect(pool)
            self.assertEqual(data_of(client, 2000), blocks[7])
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_scrub_that_is_interrupted_rests_and_goes_on(self):
        with Pool() as pool:
            self.filled(pool, twice=False)
            pool.stop()
            scrub = subprocess.Popen([ONEFOLD, "scrub", pool.path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            scrub.send_signal(2)
            scrub.communicate(timeout=60)
            self.assertIn(pool.status()["scrub"]["state"], ("never", "paused", "finished"))
            done = onefold("scrub", pool.path)
            self.assertIn("no damage", done.stdout)
            pool.check()


if __name__ == "__main__":
    unittest.main()
