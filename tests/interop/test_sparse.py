"""Volumes far larger than their pool: a client who writes far and wide is refused in time, and nobody else notices."""

import collections
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
            # After a crash all of it is there, and what he gives back makes space again.
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

    def test_maps_that_are_full_are_told_and_grow_with_the_pool(self):
        """The advice, to grow, was refused, or brought no metadata; and nobody was told before or after."""
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "huge", "--size", "512P")
            pool.serve("--memory", "64M", create=False)
            client = nbd.NBD()
            client.connect_uri(pool.uri("huge"))
            step = client.get_size() // 8000 // BLOCK * BLOCK

            def fill(first, most):
                for number in range(first, first + most):
                    try:
                        client.pwrite(os.urandom(BLOCK), number * step)
                    except nbd.Error as error:
                        self.assertEqual(error.errno, "ENOSPC")
                        return number
                return first + most

            refused = fill(0, 6000)
            self.assertLess(refused, 6000, "what is written far and wide does not make the pool grow by itself")
            status = pool.settled()
            self.assertEqual((status["refuses_new"], status["mode"]), ("metadata", "normal"))
            self.assertLess(status["data_percent"], 80)
            self.assertIn("the pool's maps and tables are full", onefold("status", pool.path).stdout)
            self.assertIn("failed: the pool's maps and tables are full", pool.said())
            onefold("grow", pool.path, "--capacity", "68M")
            grown = pool.status()
            self.assertEqual(grown["metadata_bytes"], 2 * status["metadata_bytes"])
            self.assertEqual((grown["capacity_bytes"], grown["refuses_new"]), (68 << 20, ""))
            self.assertEqual(fill(refused, 500), refused + 500)
            said = onefold("grow", pool.path, "--metadata", "200M").stdout
            self.assertIn("68 MiB now, and 200 MiB for maps", said)
            client.flush()
            pool.kill()
            pool.check()
            self.assertEqual(pool.status("--recover")["metadata_bytes"], 200 << 20)

    def test_a_pool_of_many_clones_gets_metadata_by_itself(self):
        """The same 256 KiB in each 2 MiB of a volume: all that is new are leaves of its map, until there were no more. A fast client met
        that before the server looked at its maps again."""
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "clones", "--size", "1T", "--policy", "full")
            pool.serve("--memory", "64M", create=False)
            before = pool.status()
            client, data = nbd.NBD(), os.urandom(256 << 10)
            client.connect_uri(pool.uri("clones"))
            content, in_flight = nbd.Buffer.from_bytearray(bytearray(data)), collections.deque()
            for number in range(before["metadata_bytes"] // BLOCK + 500):
                in_flight.append(client.aio_pwrite(content, number << 21))
                while len(in_flight) >= 32:
                    client.poll(-1)
                    while in_flight and client.aio_command_completed(in_flight[0]):
                        in_flight.popleft()
            while client.aio_in_flight() > 0:
                client.poll(-1)
            for cookie in in_flight:
                client.aio_command_completed(cookie)
            client.flush()
            after = pool.settled()
            self.assertGreater(after["metadata_bytes"], before["metadata_bytes"])
            self.assertEqual((after["capacity_bytes"], after["refuses_new"]), (before["capacity_bytes"], ""))
            self.assertLess(after["data_percent"], 5)
            self.assertIn("it gets more space for them", pool.said())
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_pool_is_made_with_a_share_of_metadata(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "512M", "--metadata", "25%")
            self.assertEqual(pool.status()["metadata_bytes"], 128 << 20)
            done = onefold("create", pool.path, "--force", "--capacity", "512M", "--metadata", "0", check=False)
            self.assertIn("no share", done.stderr)
            done = onefold("grow", pool.path, check=False)
            self.assertEqual(done.returncode, 2, "neither --capacity nor --metadata")

    def overwrite(self, client):
        for number in range(200):
            client.pwrite(os.urandom(BLOCK), 7 * number * BLOCK)
        client.flush()


if __name__ == "__main__":
    unittest.main()
