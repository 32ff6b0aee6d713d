"""Damage to pools, as a disk does it: check names it, repair says what it would do, does it, and nothing else is lost."""

import hashlib
import json
import os
import random
import struct
import subprocess
import unittest

import nbd

from server import BLOCK, ONEFOLD, Pool, onefold

TREES = ("meta map", "space map", "containers", "counts", "summaries", "volumes", "discards")
PLACE_B = 1 << 20
SPAN = 6 << 20


def digest(path):
    """Of all but the block that says who had the pool last, which is block 2."""
    with open(path, "rb") as file:
        found = hashlib.sha256(file.read(2 * BLOCK))
        file.seek(3 * BLOCK)
        while piece := file.read(1 << 20):
            found.update(piece)
        return found.hexdigest()


def command(*arguments):
    done = subprocess.run([ONEFOLD, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert "panicked" not in done.stderr, done.stderr
    return done


class Store:
    """The structures of a closed pool, as docs/reference/disk-format.md says."""

    def __init__(self, path):
        self.path = path
        slots = [self.read(at, 512) for at in (0, BLOCK, PLACE_B, PLACE_B + BLOCK)]
        newest = max((s for s in slots if s[:8] == b"ONEFOLD\0"), key=lambda s: struct.unpack_from("<Q", s, 120)[0])
        journal, metadata = struct.unpack_from("<II", newest, 100)
        self.homes = 256 + 2 + journal
        self.metadata = self.homes + 2 * (257 + -(-metadata // 32768))
        self.roots = {name: (struct.unpack_from("<I", newest, 256 + 17 * i)[0], newest[256 + 17 * i + 16])
                      for i, name in enumerate(TREES)}

    def read(self, at, length=BLOCK):
        with open(self.path, "rb") as file:
            file.seek(at)
            return file.read(length)

    def damage(self, at, data=b"\xff" * BLOCK):
        with open(self.path, "r+b") as file:
            file.seek(at)
            file.write(data)

    def page(self, location, tree=""):
        return ((self.homes if tree == "meta map" else self.metadata) + location - 1) * BLOCK

    def root(self, tree):
        """Byte of the root page of a tree, `None` if it is empty."""
        location, _ = self.roots[tree]
        return self.page(location, tree) if location else None

    def first_leaf(self, location, height):
        for _ in range(height):
            page = self.read(self.page(location))
            location = next(struct.unpack_from("<I", page, 16 * i)[0] for i in range(256)
                            if struct.unpack_from("<I", page, 16 * i)[0])
        return self.page(location)

    def map_leaf(self):
        """Byte of the first leaf of the first volume's map."""
        volumes = self.read(self.first_leaf(*self.roots["volumes"]))
        return self.first_leaf(struct.unpack_from("<I", volumes, 24)[0], volumes[4])


class Repair(unittest.TestCase):
    def setUp(self):
        self.pool = Pool("64M").serve("--memory", "64M")
        self.data = random.Random(7).randbytes(SPAN)
        client = nbd.NBD()
        client.connect_uri(self.pool.uri())
        for base in (0, 16 << 20):
            for at in range(0, SPAN, 1 << 20):
                client.pwrite(self.data[at:at + (1 << 20)], base + at)
        client.shutdown()
        self.pool.stop()
        self.path = self.pool.path

    def tearDown(self):
        self.pool.__exit__()

    def read_back(self, lost=()):
        """Reads both copies; blocks that are said to be lost must fail, all others hold what they held."""
        self.pool.serve("--memory", "64M", create=False)
        client = nbd.NBD()
        client.connect_uri(self.pool.uri())
        for base in (0, 16 << 20):
            for at in range(0, SPAN, BLOCK):
                block = (base + at) // BLOCK
                if block in lost:
                    with self.assertRaises(nbd.Error):
                        client.pread(BLOCK, base + at)
                elif block % 8 == 0 or lost:
                    self.assertEqual(client.pread(BLOCK, base + at), self.data[at:at + BLOCK], block)
        for block in lost:
            client.pwrite(bytes([1]) * BLOCK, block * BLOCK)
            self.assertEqual(client.pread(BLOCK, block * BLOCK), bytes([1]) * BLOCK)
        client.shutdown()
        self.pool.stop()
        self.pool.check()

    def repaired(self, *options):
        """From damage to a sound pool; gives what the repair reports."""
        found = command("check", self.path)
        self.assertEqual(found.returncode, 1, found.stdout)
        self.assertIn(f"onefold repair {self.path} --dry-run", found.stdout)
        before = digest(self.path)
        dry = command("repair", self.path, "--dry-run", *options)
        self.assertEqual((dry.returncode, dry.stderr), (1, ""), dry.stdout)
        self.assertIn("nothing was written", dry.stdout)
        self.assertEqual(digest(self.path), before)
        planned = json.loads(command("repair", self.path, "--dry-run", "--json", *options).stdout)
        done = command("repair", self.path, "--yes", "--json", *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        report = json.loads(done.stdout)
        self.assertTrue(report["written"] and report["sound"])
        self.assertEqual((report["lost"], report["problems"]), (planned["lost"], planned["problems"]))
        onefold("check", self.path)
        self.assertIn("nothing to repair", onefold("repair", self.path, "--dry-run").stdout)
        return report

    def test_tables_that_can_be_made_anew(self):
        for tree in ("meta map", "space map", "containers", "counts", "summaries"):
            with self.subTest(tree):
                root = Store(self.path).root(tree)
                self.assertIsNotNone(root)
                Store(self.path).damage(root)
                self.assertEqual(self.repaired()["lost"], [])
        self.read_back()

    def test_a_page_of_a_map(self):
        Store(self.path).damage(Store(self.path).map_leaf(), bytes(BLOCK))
        self.assertIn("volume default: blocks 0 to 511 (2 MiB): cannot be read", command("check", self.path).stdout)
        report = self.repaired()
        self.assertEqual(report["lost"], [{"volume": "default", "first_block": 0, "blocks": 512}])
        self.assertIn("volume default: blocks 0 to 511 (2 MiB): lost", onefold("check", self.path).stdout)
        self.read_back(lost=range(512))

    def test_the_volume_table(self):
        store = Store(self.path)
        store.damage(store.first_leaf(*store.roots["volumes"]))
        self.assertTrue(any("volumes are lost" in problem for problem in self.repaired()["problems"]))
        self.assertEqual(self.pool.status()["volumes"], [])
        self.assertEqual(self.pool.settled()["data_blocks_used"], 0)

    def test_rotten_data(self):
        store = Store(self.path)
        entry = struct.unpack_from("<Q", store.read(store.map_leaf()), 8 * 100)[0]
        slot = entry >> 4 & (1 << 36) - 1
        start = next(at for at in range(0, os.path.getsize(self.path), BLOCK)
                     if store.read(at) == self.data[100 * BLOCK:101 * BLOCK])
        store.damage(start + 17, b"rot")
        found = command("check", self.path).stdout
        self.assertIn("volume default: block 100 (4 KiB): cannot be read", found)
        self.assertIn("volume default: block 4196 (4 KiB): cannot be read", found, slot)
        # The tables are sound: without reading the data there is nothing to do.
        self.assertEqual(onefold("repair", self.path, "--dry-run").returncode, 0)
        lost = self.repaired("--data")["lost"]
        self.assertEqual([(range["first_block"], range["blocks"]) for range in lost], [(100, 1), (4196, 1)])
        self.read_back(lost=(100, 4196))

    def test_superblocks(self):
        store = Store(self.path)
        newest = max((0, BLOCK), key=lambda at: struct.unpack_from("<Q", store.read(at), 120)[0])
        store.damage(newest + 200, b"torn")
        found = onefold("check", self.path).stdout
        self.assertIn("note: the superblock at byte", found)
        store.damage(store.root("containers"))
        self.repaired()
        self.assertNotIn("note:", onefold("check", self.path).stdout)
        self.read_back()
        for at in (0, BLOCK, PLACE_B, PLACE_B + BLOCK):
            store.damage(at + 200, b"torn")
        refused = command("repair", self.path, "--yes")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("cannot be opened", refused.stderr)

    def test_what_is_refused(self):
        neither = command("repair", self.path)
        self.assertEqual(neither.returncode, 2)
        self.assertIn("--dry-run", neither.stderr)
        self.assertEqual(command("repair", self.path, "--dry-run", "--yes").returncode, 2)
        before = digest(self.path)
        self.assertIn("nothing to repair", onefold("repair", self.path, "--yes").stdout)
        self.assertIn("nothing to repair", onefold("repair", self.path, "--yes", "--data").stdout)
        self.assertEqual(digest(self.path), before)
        self.pool.serve("--memory", "64M", create=False)
        served = command("repair", self.path, "--yes")
        self.assertEqual(served.returncode, 1)
        self.assertIn("is being served", served.stderr)
        self.pool.kill()
        # Not closed cleanly, and damaged: what was flushed is in the journal, and stays.
        Store(self.path).damage(Store(self.path).root("space map"))
        self.assertEqual(self.repaired()["lost"], [])
        self.read_back()


if __name__ == "__main__":
    unittest.main()
