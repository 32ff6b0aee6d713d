"""Pools that are made larger: while they are full and serve, while the server is killed, and where that is not possible."""

import hashlib
import os
import re
import subprocess
import time
import unittest

import nbd

from server import ONEFOLD, PATIENCE, Pool, onefold, run, served_on_device

MIB = 1 << 20


def connect(pool):
    client = nbd.NBD()
    client.connect_uri(pool.uri())
    return client


def fill(client, written, most):
    """Writes blocks of a MiB, all different, until there is no space or `most` of them; their digests go to `written`."""
    while len(written) < most:
        data = os.urandom(MIB)
        try:
            client.pwrite(data, len(written) * MIB)
        except nbd.Error as error:
            if error.errnum != 28:
                raise
            return
        written.append(hashlib.sha256(data).digest())


def verify(test, client, written):
    for number, digest in enumerate(written):
        test.assertEqual(hashlib.sha256(client.pread(MIB, number * MIB)).digest(), digest, f"MiB {number}")


class Grow(unittest.TestCase):
    def test_a_full_pool_grows_while_it_serves(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "400M")
            pool.serve("--memory", "64M", create=False)
            client, written = connect(pool), []
            fill(client, written, 400)
            first = len(written)
            self.assertGreaterEqual(first, 64)
            self.assertLess(first, 110)
            onefold("grow", pool.path, "--capacity", "200M")
            self.assertEqual(pool.status()["capacity_bytes"], 200 * MIB)
            fill(client, written, first + 60)
            self.assertEqual(len(written), first + 60)
            # In small steps, with requests in flight.
            for capacity in range(204, 245, 4):
                before = len(written)
                growth = subprocess.Popen([ONEFOLD, "grow", pool.path, "--capacity", f"{capacity}M"], stdout=subprocess.PIPE)
                fill(client, written, before + 4)
                growth.communicate()
                self.assertEqual(growth.returncode, 0)
            self.assertEqual(pool.status()["capacity_bytes"], 244 * MIB)
            client.flush()
            verify(self, client, written)
            client.shutdown()
            pool.stop()
            pool.check()
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            verify(self, client, written)
            client.shutdown()
            pool.kill()
            pool.check()

    def test_a_growth_that_brings_metadata(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "400M")
            before = os.path.getsize(pool.path)
            # Offline, far beyond what the first tables are for; again, and to what it has: nothing changes.
            onefold("grow", pool.path, "--capacity", "100G")
            grown = os.path.getsize(pool.path)
            self.assertGreater(grown, before + 100 * 1024 * MIB)
            onefold("grow", pool.path, "--capacity", "100G")
            self.assertEqual(os.path.getsize(pool.path), grown)
            self.assertEqual(pool.status()["capacity_bytes"], 100 * 1024 * MIB)
            pool.check()
            pool.serve("--memory", "192M", create=False)
            onefold("grow", pool.path, "--capacity", "300G")
            client, written = connect(pool), []
            fill(client, written, 200)
            self.assertEqual(len(written), 200)
            client.flush()
            pool.kill()
            pool.serve("--memory", "256M", create=False)
            client = connect(pool)
            verify(self, client, written)
            client.shutdown()
            pool.stop()
            self.assertEqual(pool.status()["capacity_bytes"], 300 * 1024 * MIB)

    def test_a_server_that_is_killed_while_the_pool_grows(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "400M")
            written, capacity, answered = [], 64, 0
            for round in range(12):
                pool.serve("--memory", "64M", create=False)
                found = pool.status()["capacity_bytes"] // MIB
                self.assertIn(found, (answered or 64, capacity))
                client = connect(pool)
                verify(self, client, written)
                # Without more space than 64 MiB these would not fit in the end.
                fill(client, written, min(len(written) + 8, found))
                client.flush()
                answered, capacity = found, found + (4 if round % 3 else 3000 * (round + 1))
                if capacity > 12000:
                    capacity = found + 4
                growth = subprocess.Popen(
                    [ONEFOLD, "grow", pool.path, "--capacity", f"{capacity}M"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                time.sleep(0.002 * (round % 6))
                pool.kill()
                if growth.wait(timeout=PATIENCE) == 0:
                    answered = capacity
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            verify(self, client, written)
            client.shutdown()
            pool.stop()
            pool.check()

    def test_sizes_that_are_not_possible(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            length = os.path.getsize(pool.path)

            def refused(capacity, *words):
                done = onefold("grow", pool.path, "--capacity", capacity, check=False)
                self.assertIn(done.returncode, (1, 2), done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertEqual(os.path.getsize(pool.path), length)

            def all_refused():
                refused("32M", "smaller")
                refused("0", "smaller")
                refused("1000000T")
                refused("16000P", "at most")
                refused("nonsense")

            all_refused()
            onefold("volume", "create", pool.path, "default", "--size", "64M")
            pool.serve("--memory", "64M", create=False)
            all_refused()
            refused("64T", "--memory")
            self.assertEqual(pool.status()["capacity_bytes"], 64 * MIB)
            pool.stop()
            pool.check()

    def test_what_a_profile_takes_of_the_memory_is_not_there_for_a_larger_pool(self):
        """A growth was judged by all of the server's memory: it passed, and the memory could not be divided afterwards."""
        with Pool() as pool:
            pool.serve("--memory", "64M")

            def needed():
                done = onefold("grow", pool.path, "--capacity", "64T", check=False)
                self.assertEqual(done.returncode, 1)
                return int(re.search(r"(\d+)M would do", done.stderr)[1])

            before = needed()
            onefold("relocate", "profile", "start", pool.path)
            self.assertIn(needed() - before, (12, 13))

    @unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
    def test_a_full_host_has_no_space_for_the_tables(self):
        with Pool() as pool:
            folder = os.path.join(pool.folder, "small")
            os.mkdir(folder)
            run("mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", folder)
            try:
                pool.path = os.path.join(folder, "disk.onefold")
                onefold("create", pool.path, "--capacity", "64M")
                onefold("volume", "create", pool.path, "default", "--size", "400M")
                pool.serve("--memory", "128M", create=False)
                ballast = os.path.join(folder, "ballast")
                run("dd", "if=/dev/zero", f"of={ballast}", "bs=4k", check=False)
                done = onefold("grow", pool.path, "--capacity", "100G", check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn("no space", done.stderr)
                self.assertEqual(pool.status()["capacity_bytes"], 64 * MIB)
                os.remove(ballast)
                onefold("grow", pool.path, "--capacity", "100G")
                self.assertEqual(pool.status()["capacity_bytes"], 100 * 1024 * MIB)
                pool.stop()
                pool.check()
            finally:
                if pool.server is not None:
                    pool.kill()
                run("umount", folder)

    @unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/loop-control"), "loop devices need root")
    def test_a_device_has_to_be_large_enough(self):
        with Pool() as pool, served_on_device(pool, "512M", "64M", "64M") as (device, file):
            done = onefold("grow", device, "--capacity", "700M", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(str(512 * MIB), done.stderr)
            self.assertEqual(pool.status()["capacity_bytes"], 64 * MIB)
            run("truncate", "-s", "1G", file)
            run("losetup", "-c", device)
            onefold("grow", device, "--capacity", "700M")
            client, written = connect(pool), []
            fill(client, written, 300)
            self.assertEqual(len(written), 300)
            verify(self, client, written)
            client.shutdown()
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
