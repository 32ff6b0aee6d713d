"""What cannot be opened, created or served is refused with a message that names it, and nothing is lost."""

import hashlib
import json
import os
import shutil
import subprocess
import unittest

from server import ONEFOLD, Pool, onefold, run

PLACE_B = 1 << 20


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


class Refusals(unittest.TestCase):
    def refused(self, *arguments, says, status=1):
        done = subprocess.run([ONEFOLD, *map(str, arguments)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stderr)
        for word in says:
            self.assertIn(word, done.stderr)
        self.assertNotIn("panicked", done.stderr)
        return done.stderr

    def pool(self):
        """A closed pool with a volume and some data."""
        pool = Pool("64M").serve("--memory", "64M")
        run("qemu-io", "-f", "raw", "-c", "write -P 3 0 4M", pool.uri())
        pool.stop()
        return pool

    def test_files_that_are_no_pools(self):
        with Pool() as pool:
            self.refused("serve", pool.path, says=[pool.path])
            with open(pool.path, "wb") as file:
                file.write(b"my only thesis" * 1000)
            before = digest(pool.path)
            for command in (["serve", pool.path], ["serve", pool.path, "--create", "--size", "1G"],
                            ["create", pool.path, "--capacity", "1G"], ["check", pool.path],
                            ["volume", "list", pool.path]):
                self.refused(*command, says=[pool.path])
            self.assertEqual(digest(pool.path), before)
            run("truncate", "-s", "64M", pool.path)
            run("mkfs.ext4", "-q", "-F", pool.path)
            self.assertIn("ext4", self.refused("create", pool.path, "--capacity", "1G", says=[pool.path]))
            onefold("create", pool.path, "--capacity", "64M", "--force")
            onefold("check", pool.path)

    def test_a_file_with_data_in_its_middle(self):
        with Pool() as pool:
            run("truncate", "-s", "1G", pool.path)
            patch(pool.path, 500 << 20, b"my only thesis")
            before = digest(pool.path)
            self.refused("create", pool.path, "--capacity", "1G", says=[pool.path, "--force"])
            self.refused("serve", pool.path, "--create", "--size", "1G", says=[pool.path])
            self.assertEqual(digest(pool.path), before)

    def test_a_pool_is_not_created_over(self):
        with self.pool() as pool:
            before = digest(pool.path)
            self.refused("create", pool.path, "--capacity", "1G", says=[pool.path])
            self.assertEqual(digest(pool.path), before)

    def test_a_truncated_pool(self):
        with self.pool() as pool:
            size = os.path.getsize(pool.path)
            os.truncate(pool.path, size - 4096)
            self.refused("serve", pool.path, says=[pool.path, str(size)])
            os.truncate(pool.path, 100)
            self.refused("serve", pool.path, says=[pool.path])

    def test_unknown_versions_and_features(self):
        with self.pool() as pool:
            copy = pool.path + ".copy"
            shutil.copy(pool.path, copy)
            for slot in (0, 4096, PLACE_B, PLACE_B + 4096):
                patch(copy, slot + 8, b"\x09\x00")
            before = digest(copy)
            self.assertIn("version 9", self.refused("serve", copy, says=[copy]))
            self.assertEqual(digest(copy), before)

    def test_one_place_of_the_superblock_is_enough(self):
        with self.pool() as pool:
            patch(pool.path, 0, os.urandom(8192))
            pool.serve(create=False)
            self.assertNotIn("failed", run("qemu-io", "-f", "raw", "-c", "read -P 3 0 4M", pool.uri()).stdout)
            pool.stop()
            # Opening has repaired the place that was lost.
            patch(pool.path, PLACE_B, os.urandom(8192))
            pool.serve(create=False)
            pool.stop()
            pool.check()

    def test_both_places_lost(self):
        with self.pool() as pool:
            for place in (0, PLACE_B):
                patch(pool.path, place, os.urandom(8192))
            self.refused("serve", pool.path, says=[pool.path])

    def test_two_servers(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            self.refused("serve", pool.path, "--listen", f"unix:{pool.folder}/other", says=[pool.path])
            self.refused("check", pool.path, says=[pool.path])
            self.refused("create", pool.path, "--capacity", "64M", "--force", says=[pool.path])
            run("nbdinfo", pool.uri())

    def test_several_creators(self):
        """One of them makes the pool, and what it said stays true."""
        with Pool() as pool:
            begin = [ONEFOLD, "create", pool.path, "--json", "--capacity"]
            creators = [subprocess.Popen([*begin, f"{64 + number}M"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                        for number in range(6)]
            said = [json.loads(text) for text in (creator.communicate()[0] for creator in creators) if text]
            self.assertEqual(len(said), 1)
            self.assertEqual(pool.status()["capacity_bytes"], said[0]["capacity_bytes"])

    def test_another_size_is_refused_naming_both(self):
        with self.pool() as pool:
            text = self.refused("serve", pool.path, "--create", "--size", "128M", says=[pool.path])
            self.assertIn("64", text)
            self.assertIn("128", text)

    def test_addresses_beyond_this_machine(self):
        with self.pool() as pool:
            self.refused("serve", pool.path, "--listen", "tcp:0.0.0.0:10809", says=["--allow-remote"])

    def test_bad_command_lines(self):
        with self.pool() as pool:
            self.refused("serve", says=[], status=2)
            self.refused("create", pool.path, "--capacity", "many", says=["many"], status=2)
            self.refused("volume", "create", pool.path, "a/b", "--size", "1M", says=["a/b"])
            self.refused("volume", "create", pool.path, "default", "--size", "1M", says=["default"])
            self.refused("volume", "create", pool.path, "odd", "--size", "1000", says=["4096"], status=2)
            self.refused("serve", pool.path, "--memory", "1M", says=["memory"])
            self.refused("serve", pool.path, "--memory", "4P", says=["--memory", "4 PiB", "this machine has"])

    def test_damaged_metadata_is_named_and_data_elsewhere_is_read(self):
        """Every page of the pool's metadata is overwritten in turn in a copy: an error or the truth, never wrong data."""
        with self.pool() as pool:
            with open(pool.path, "rb") as file:
                data = file.read(32 << 20)
            used = [at for at in range(0, len(data), 4096) if any(data[at : at + 4096])]
            journal_and_metadata = [at for at in used if PLACE_B + 8192 <= at < (32 << 20)][:40]
            copy = pool.path + ".copy"
            for at in journal_and_metadata:
                shutil.copy(pool.path, copy)
                patch(copy, at, b"\xa5" * 4096)
                done = subprocess.run([ONEFOLD, "check", copy], capture_output=True, text=True, timeout=60)
                self.assertNotIn("panicked", done.stderr)
                self.assertIn(done.returncode, (0, 1))


if __name__ == "__main__":
    unittest.main()
