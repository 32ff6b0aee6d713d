"""Space that clients trim goes back to the file or device under the pool."""

import os
import time
import unittest

import nbd

from server import PATIENCE, Pool, onefold, served_on_device

MIB = 1 << 20
WRITTEN = 512 * MIB
# Of what was trimmed, this may stay in the file beyond what the empty pool took.
MAY_STAY = WRITTEN // 10


def connect(pool):
    client = nbd.NBD()
    client.connect_uri(pool.uri())
    return client


def write(client):
    for offset in range(0, WRITTEN, MIB):
        client.pwrite(os.urandom(MIB), offset)
    client.flush()


def trim(client):
    for offset in range(0, WRITTEN, 16 * MIB):
        client.trim(16 * MIB, offset)
    client.flush()


def held(path):
    return os.stat(path).st_blocks * 512


class Discard(unittest.TestCase):
    def awaited(self, pool):
        """Waits until nothing more is to be discarded; the status of discards then."""
        pool.settled()
        end = time.monotonic() + PATIENCE
        while (discard := pool.status()["discard"])["is_due"]:
            self.assertLess(time.monotonic(), end, discard)
            time.sleep(0.1)
        return discard

    def fill_and_trim(self, pool, path):
        """Fills the pool and trims all of it, and checks what the file at the path takes."""
        empty, client = held(path), connect(pool)
        write(client)
        self.assertGreaterEqual(held(path), WRITTEN)
        trim(client)
        discard = self.awaited(pool)
        self.assertLess(held(path), empty + MAY_STAY, discard)
        self.assertGreaterEqual(discard["discarded_bytes"], WRITTEN - MAY_STAY)
        return discard

    def test_a_file_falls_to_what_the_empty_pool_took(self):
        with Pool("2G") as pool:
            pool.serve("--memory", "128M")
            discard = self.fill_and_trim(pool, pool.path)
            self.assertEqual(discard["held_bytes"], held(pool.path))
            self.assertIn("given back", onefold("status", pool.path).stdout)
            # Once more, over the holes; then killed, and opened again.
            client = connect(pool)
            write(client)
            first = client.pread(MIB, 0)
            pool.kill()
            pool.serve("--memory", "128M", create=False)
            client = connect(pool)
            self.assertEqual(client.pread(MIB, 0), first)
            trim(client)
            self.awaited(pool)
            pool.stop()
            pool.check()

    def test_without_discards_a_file_keeps_its_space_until_they_are_on(self):
        with Pool("2G") as pool:
            pool.serve("--memory", "128M")
            onefold("set", pool.path, "discard=off")
            empty, client = held(pool.path), connect(pool)
            write(client)
            trim(client)
            self.assertEqual(self.awaited(pool)["discards"], 0)
            self.assertGreaterEqual(held(pool.path), WRITTEN)
            self.assertIn("discards are off", onefold("status", pool.path).stdout)
            onefold("set", pool.path, "discard=64M")
            self.awaited(pool)
            self.assertLess(held(pool.path), empty + MAY_STAY + 128 * MIB)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/loop-control"), "loop devices need root")
    def test_a_device_passes_discards_on(self):
        with Pool("1G") as pool, served_on_device(pool, "3G", "2G", "128M") as (_, file):
            discard = self.fill_and_trim(pool, file)
            self.assertEqual((discard["held_bytes"], discard["has_failed"]), (None, False))
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
