"""The profile of device reads, and the plan that is made of it: two volumes that share blocks, read in different order."""

import json
import os
import unittest

import nbd

from server import BLOCK, Pool, onefold


def asked(pool, *words):
    return json.loads(onefold("relocate", *words, pool.path, "--json").stdout)


class Relocate(unittest.TestCase):
    def test_what_is_read_is_noted_and_planned(self):
        pool = Pool()
        onefold("create", pool.path, "--capacity", "64M")
        for name in ("one", "two"):
            onefold("volume", "create", pool.path, name, "--size", "16M", "--policy", "full")
        onefold("set", pool.path, "cache-key", "off")
        refused = onefold("relocate", "profile", "start", pool.path, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("no server has", refused.stderr)
        pool.serve(create=False)
        clients = {}
        for name in ("one", "two"):
            clients[name] = nbd.NBD()
            clients[name].connect_uri(pool.uri(name))
        blocks = [os.urandom(BLOCK) for _ in range(256)]
        for number, block in enumerate(blocks):
            clients["one"].pwrite(block, number * BLOCK)
        # The other has the same blocks, the second half first, each with one of its own behind it.
        for place, number in enumerate([*range(128, 256), *range(128)]):
            clients["two"].pwrite(blocks[number] + os.urandom(BLOCK), 2 * place * BLOCK)
        clients["two"].flush()
        onefold("status", pool.path, "--settle")
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        refused = onefold("relocate", "plan", pool.path, check=False)
        self.assertIn("no reads are noted", refused.stderr)
        onefold("relocate", "profile", "start", pool.path)
        for number in range(256):
            clients["one"].pread(BLOCK, number * BLOCK)
        for _ in range(3):
            for number in range(256):
                clients["two"].pread(2 * BLOCK, 2 * number * BLOCK)
        shown = asked(pool, "profile", "show")
        self.assertTrue(shown["profiling"])
        self.assertEqual({one["name"] for one in shown["objects"]}, {"one", "two"})
        plan = asked(pool, "plan")
        self.assertEqual((plan["objects"], plan["candidates"]), (2, 2))
        self.assertEqual(plan["moves"][0]["name"], "two")
        self.assertLess(plan["reads_after"], plan["reads_before"])
        self.assertIn("relocate run", onefold("relocate", "plan", pool.path).stdout)
        self.imported(pool, clients["one"])
        onefold("relocate", "profile", "stop", pool.path)
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        pool.stop()

    def imported(self, pool, client):
        """Files of a manifest have runs of their own."""
        manifest = os.path.join(pool.folder, "files.txt")
        for text, wrong in (("0 4096 /a\n1 x /b\n", "line 2"), ("", "names no blocks"), ("x" * 20000, "longer than")):
            with open(manifest, "w", encoding="utf-8") as file:
                file.write(text)
            refused = onefold("objects", "import", pool.path, "one", manifest, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(wrong, refused.stderr)
        with open(manifest, "w", encoding="utf-8") as file:
            file.write("File size of /usr/a is 262144 (64 blocks of 4096 bytes)\n"
                       " ext:     logical_offset:        physical_offset: length:   expected: flags:\n"
                       "   0:        0..      63:          0..        63:     64:             last,eof\n"
                       "/usr/a: 1 extent found\n"
                       "File size of /usr/b is 4096 (1 block of 4096 bytes)\n"
                       "   0:        0..       0:         63..        63:      1:             last,eof\n"
                       "   1:        0..       0:         64..        64:      1:             last,eof\n")
        said = onefold("objects", "import", pool.path, "one", manifest).stdout
        self.assertIn("2 parts of 'one' belong to files now; 1 were left out", said)
        refused = onefold("objects", "import", pool.path, "three", manifest, check=False)
        self.assertIn("no volume 'three'", refused.stderr)
        onefold("set", pool.path, "cache-key", "off")
        for number in range(66):
            client.pread(BLOCK, number * BLOCK)
        found = {one["name"]: one["blocks_read"] for one in asked(pool, "profile", "show")["objects"]}
        self.assertEqual((found["/usr/a"], found["/usr/b"]), (64, 1))

    def test_a_plan_is_run(self):
        """Two clones of an image, and a volume with the same blocks in another order that is read most: its reads become long ones."""
        pool = Pool()
        onefold("create", pool.path, "--capacity", "64M")
        # Blocks that have replicas stay where they are.
        onefold("set", pool.path, "replicas", "off")
        refused = onefold("relocate", "run", pool.path, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("no server has", refused.stderr)
        names = ("image", "clone", "other")
        for name in names:
            onefold("volume", "create", pool.path, name, "--size", "4M", "--policy", "full")
        onefold("set", pool.path, "cache-key", "off")
        pool.serve(create=False)
        clients, contents = {}, {}
        blocks = [os.urandom(BLOCK) for _ in range(512)]
        for name in names:
            clients[name] = nbd.NBD()
            clients[name].connect_uri(pool.uri(name))
            order = [37 * number % 512 for number in range(512)] if name == "other" else range(512)
            contents[name] = b"".join(blocks[number] for number in order)
            for at in range(0, len(contents[name]), 64 * BLOCK):
                clients[name].pwrite(contents[name][at:at + 64 * BLOCK], at)
            clients[name].flush()
        for words, wrong in ((("run",), "no reads are noted"), (("run", "--pause"), "there is no plan"),
                             (("run", "--stop"), "there is no plan")):
            refused = onefold("relocate", *words, pool.path, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(wrong, refused.stderr)
        onefold("relocate", "profile", "start", pool.path)
        refused = onefold("relocate", "run", pool.path, check=False)
        self.assertIn("nothing to move", refused.stderr)
        manifest = os.path.join(pool.folder, "files.txt")
        with open(manifest, "w", encoding="utf-8") as file:
            file.write("".join(f"{at << 20} {1 << 20} /file{at}\n" for at in range(2)))
        onefold("objects", "import", pool.path, "other", manifest)

        def device_reads(name):
            before = pool.status()["reads"]["device_reads"]
            for at in range(0, len(contents[name]), 32 * BLOCK):
                self.assertEqual(clients[name].pread(32 * BLOCK, at), contents[name][at:at + 32 * BLOCK])
            return pool.status()["reads"]["device_reads"] - before

        device_reads("image")
        before = device_reads("other")
        refused = onefold("relocate", "run", pool.path, "--budget", "64K", check=False)
        self.assertIn("larger than --budget", refused.stderr)
        stored = pool.settled()["data_blocks_used"]
        done = json.loads(onefold("relocate", "run", pool.path, "--wait", "--json").stdout)["relocate"]
        self.assertEqual((done["state"], done["moved_blocks"], done["doubled_blocks"]), ("finished", 512, 0), done)
        self.assertGreaterEqual(done["referrers"], 1024)
        settled = pool.settled()
        self.assertEqual(settled["data_blocks_used"] - settled["replicas"]["blocks"], stored)
        after = device_reads("other")
        self.assertLess(4 * after, before)
        for name in names:
            device_reads(name)
        self.assertRegex(onefold("status", pool.path).stdout, "relocate +finished: 2 MiB of 2 MiB moved")
        pool.stop()
        onefold("check", pool.path)


if __name__ == "__main__":
    unittest.main()
