"""Images of real file systems go in and come out byte for byte, and the figures are exact."""

import os
import unittest

from server import BLOCK, Pool, distinct_blocks, onefold, run, system_tree


def ext4_image(path, size="160M"):
    """An ext4 image of a real tree, part of it twice."""
    folder = path + ".tree"
    run("mkdir", "-p", folder)
    tree = system_tree()
    run("cp", "-rL", tree, os.path.join(folder, "one"), check=False)
    run("cp", "-rL", tree, os.path.join(folder, "two"), check=False)
    run("truncate", "-s", size, path)
    run("mkfs.ext4", "-q", "-F", "-d", folder, path)
    run("rm", "-rf", folder)


def blocks_of_data(status):
    """What was read scattered may have been put in order since: without these replicas."""
    return status["data_blocks_used"] - status["replicas"]["blocks"]


class Images(unittest.TestCase):
    def test_an_image_comes_out_as_it_went_in_and_costs_its_distinct_blocks(self):
        with Pool("512M") as pool:
            image, out = os.path.join(pool.folder, "in.raw"), os.path.join(pool.folder, "out.raw")
            ext4_image(image)
            size = os.path.getsize(image)
            distinct, used = distinct_blocks(image)
            self.assertGreater(used, distinct)

            pool.serve("--memory", "128M", "--policy", "full")
            onefold("volume", "create", pool.path, "first", "--size", size)
            onefold("volume", "create", pool.path, "second", "--size", size)
            run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image, pool.uri("first"))
            run("qemu-img", "convert", "-f", "raw", "-O", "raw", pool.uri("first"), out)
            run("cmp", image, out)
            status = pool.settled()
            self.assertEqual((blocks_of_data(status), status["logical_blocks_used"]), (distinct, used))
            self.assertEqual((status["pending_blocks"], status["unmerged_entries"]), (0, 0))

            run("nbdcopy", image, pool.uri("second"))
            status = pool.settled()
            self.assertEqual(blocks_of_data(status), distinct, "a second copy costs no data block")
            self.assertEqual(status["logical_blocks_used"], 2 * used)

            # Overwriting with the same, in another order, stays exact.
            run("qemu-img", "convert", "-n", "-W", "-m", "16", "-f", "raw", "-O", "raw", image, pool.uri("first"))
            self.assertEqual(blocks_of_data(pool.settled()), distinct)
            saving = 100 * (2 * used - distinct) / (2 * used)
            self.assertAlmostEqual(pool.status()["saving_percent"], saving, delta=0.1)

            pool.stop()
            pool.check()
            pool.serve(create=False)
            run("qemu-img", "compare", "-f", "raw", "-F", "raw", image, pool.uri("second"))
            pool.stop()

    def test_overwriting_gives_the_old_blocks_back(self):
        import nbd

        with Pool("64M") as pool:
            pool.serve("--memory", "64M")
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            rounds, span = 4, 32 << 20
            for number in range(rounds):
                for offset in range(0, span, 1 << 20):
                    block = bytes([number + 1]) + os.urandom(BLOCK - 1)
                    client.pwrite(block + os.urandom((1 << 20) - BLOCK), offset)
            self.assertEqual(pool.settled()["data_blocks_used"], span // BLOCK)
            client.trim(span, 0)
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["logical_blocks_used"]), (0, 0))
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_disk_full_of_distinct_data_can_be_overwritten_again_and_again(self):
        import nbd

        with Pool("64M") as pool:
            pool.serve("--memory", "64M")
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            for _ in range(4):
                for offset in range(0, 64 << 20, 1 << 20):
                    client.pwrite(os.urandom(1 << 20), offset)
            last = os.urandom(64 << 20)
            for offset in range(0, 64 << 20, 4 << 20):
                client.pwrite(last[offset : offset + (4 << 20)], offset)
            client.flush()
            self.assertEqual(pool.settled()["data_blocks_used"], (64 << 20) // BLOCK)
            self.assertEqual(b"".join(client.pread(1 << 20, at) for at in range(0, 64 << 20, 1 << 20)), last)
            client.shutdown()
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
