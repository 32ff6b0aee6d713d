"""Volumes far larger than their pool: a client who writes far and wide is refused in time, and nobody else notices."""

import os
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, Pool, onefold


class SparseVolume(unittest.TestCase):
    def test_who_needs_a_page_at_each_level_is_refused_and_others_are_served(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "huge", "--size", "512P")
            onefold("volume", "create", pool.path, "other", "--size", "32M")
            pool.serve("--memory", "64M", create=False)
            huge, other = nbd.NBD(), nbd.NBD()
            huge.connect_uri(pool.uri("huge"))
            other.connect_uri(pool.uri("other"))
            step = huge.get_size() // 6000 // BLOCK * BLOCK
            self.overwrite(other)
            written = {}
            with self.assertRaises(nbd.Error) as refused:
                for number in range(6000):
                    data = os.urandom(BLOCK)
                    huge.pwrite(data, number * step)
                    written[number * step] = data
                    if number % 50 == 0:
                        huge.flush()
            self.assertEqual(refused.exception.errno, "ENOSPC")
            self.assertGreater(len(written), 1500)
            huge.flush()
            # Others overwrite what they have, and so does he.
            self.overwrite(other)
            for offset in list(written)[:50]:
                written[offset] = os.urandom(BLOCK)
                huge.pwrite(written[offset], offset)
            self.assertEqual(pool.status()["mode"], "normal")
            # After a crash all of it is there, and what he gives back makes room again.
            huge.flush()
            pool.kill()
            pool.serve("--memory", "64M", create=False)
            huge = nbd.NBD()
            huge.connect_uri(pool.uri("huge"))
            for offset, data in written.items():
                self.assertEqual(huge.pread(BLOCK, offset), data, offset)
            for offset in list(written)[:500]:
                huge.trim(BLOCK, offset)
            deadline = time.time() + PATIENCE
            while time.time() < deadline:
                try:
                    huge.pwrite(os.urandom(BLOCK), 5999 * step)
                    break
                except nbd.Error:
                    time.sleep(0.2)
            else:
                self.fail("what was trimmed never came back")
            huge.shutdown()
            pool.stop()
            self.assertIn("nothing to repair", onefold("repair", pool.path, "--dry-run").stdout)
            self.assertIn("clean", onefold("check", pool.path).stdout)

    def overwrite(self, client):
        for number in range(200):
            client.pwrite(os.urandom(BLOCK), 7 * number * BLOCK)
        client.flush()


if __name__ == "__main__":
    unittest.main()
