"""The file system under the pool is full: ENOSPC for new blocks, everything else goes on, and space comes back."""

import os
import time
import unittest

import nbd

from server import Pool, run

MIB = 1 << 20


@unittest.skipUnless(os.geteuid() == 0, "mounting a small file system needs root")
class Full(unittest.TestCase):
    def test_a_full_host(self):
        with Pool("200M") as pool:
            folder = os.path.join(pool.folder, "small")
            os.mkdir(folder)
            run("mount", "-t", "tmpfs", "-o", "size=120m", "tmpfs", folder)
            try:
                pool.path = os.path.join(folder, "disk.onefold")
                pool.serve("--memory", "64M")
                self.fill_and_go_on(pool)
                pool.stop()
                pool.check()
            finally:
                if pool.server is not None:
                    pool.kill()
                run("umount", folder)

    def fill_and_go_on(self, pool):
        client = nbd.NBD()
        client.connect_uri(pool.uri())
        written, began = [], time.time()
        with self.assertRaises(nbd.Error) as failure:
            while len(written) < 200:
                data = os.urandom(MIB)
                client.pwrite(data, len(written) * MIB)
                written.append(data)
                if len(written) % 8 == 0:
                    client.flush()
        self.assertEqual(failure.exception.errnum, 28)
        self.assertGreater(len(written), 40)
        client.flush()
        for number, data in enumerate(written):
            self.assertEqual(client.pread(MIB, number * MIB), data)
        # Trimming works on a full host, and what it frees can be written again.
        client.trim(20 * MIB, 0)
        deadline = time.time() + 60
        while True:
            try:
                client.pwrite(os.urandom(4 * MIB), 180 * MIB)
                break
            except nbd.Error:
                self.assertLess(time.time(), deadline, "no space came back")
                time.sleep(0.5)
        client.flush()
        self.assertEqual(client.pread(MIB, 0), bytes(MIB))
        client.shutdown()
        self.assertLess(time.time() - began, 120)


if __name__ == "__main__":
    unittest.main()
