"""The profile of device reads, and the plan that is made of it: two volumes that share blocks, read in different order. A plan that the server
runs by itself needs a build whose clock can be set (crates/onefold/src/operators/set_clock.rs): `./test build/onefold`."""

import json
import os
import socket
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, ROOT, Pool, faulty, onefold, run


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
        saved = self.saved(pool)
        onefold("relocate", "profile", "stop", pool.path)
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        for client in clients.values():
            client.shutdown()
        pool.stop()
        self.loaded(pool, *saved)

    def saved(self, pool):
        """A profile in a file, and what was shown and planned when it was saved."""
        file = os.path.join(pool.folder, "profile")
        shown, plan = asked(pool, "profile", "show"), asked(pool, "plan")
        said = onefold("relocate", "profile", "save", pool.path, file).stdout
        self.assertIn(f"{shown['runs']} runs, 2 parts of files", said)
        self.assertEqual(os.listdir(pool.folder).count("profile.new"), 0)
        refused = onefold("relocate", "profile", "save", pool.path, os.path.join(pool.folder, "none", "profile"), check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("cannot write", refused.stderr)
        return file, shown, plan

    def loaded(self, pool, file, shown, plan):
        """The next server of the pool takes it: the plan is the same, and the manifest. Of a bad file it takes nothing."""
        refused = onefold("relocate", "profile", "load", pool.path, file, check=False)
        self.assertIn("no server has", refused.stderr)
        pool.serve(create=False)
        refused = onefold("relocate", "profile", "save", pool.path, file, check=False)
        self.assertIn("no reads are noted", refused.stderr)
        with open(file, encoding="utf-8") as opened:
            lines = opened.read().splitlines(keepends=True)
        head, run = json.loads(lines[0]), json.loads(lines[-2])["run"]
        bad = os.path.join(pool.folder, "bad")

        def refuse(text, *wrong):
            with open(bad, "w", encoding="utf-8") as opened:
                opened.write(text)
            refused = onefold("relocate", "profile", "load", pool.path, bad, check=False)
            self.assertEqual(refused.returncode, 1)
            for part in (bad, "save", *wrong):
                self.assertIn(part, refused.stderr)

        def with_head(**others):
            return json.dumps({**head, **others}) + "\n" + "".join(lines[1:])

        def refuse_all():
            last = len(lines)
            refuse(with_head(pool="0" * 32), "line 1:", "0" * 32, head["pool"])
            refuse(with_head(**{"onefold-profile": 2}), "line 1:", "version 2")
            refuse("".join(lines[:-1]), f"line {last}:", "cut off")
            refuse("".join(lines)[:-3], f"line {last}:", "cut off")
            refuse("".join([*lines[:-2], lines[-1]]), f"line {last - 1}:", "rows were saved")
            refuse("".join([*lines[:-2], json.dumps({"run": [1 << 40, *run[1:]]}) + "\n", lines[-1]]),
                   f"line {last - 1}:", "and the pool has")
            refuse("\0" * 100, "line 1:", "cut off")

        refuse_all()
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        said = onefold("relocate", "profile", "load", pool.path, file).stdout
        self.assertIn(f"{shown['runs']} runs were loaded", said)
        self.assertEqual((asked(pool, "profile", "show"), asked(pool, "plan")), (shown, plan))
        refuse_all()
        self.assertEqual(asked(pool, "profile", "show"), shown)
        self.broken_off(pool)
        self.assertEqual(asked(pool, "profile", "show"), shown)
        # A file that was saved again is the same, and reads are noted on, for files of the manifest.
        # Nothing but a saved profile is replaced: not a file that is none, nor the pool.
        for other in (bad, pool.path):
            refused = onefold("relocate", "profile", "save", pool.path, other, check=False)
            self.assertIn("is no saved profile: name another file", refused.stderr)
        os.remove(bad)
        onefold("relocate", "profile", "save", pool.path, bad)
        with open(bad, encoding="utf-8") as opened:
            self.assertEqual(opened.read().splitlines(keepends=True), lines)
        client = nbd.NBD()
        client.connect_uri(pool.uri("one"))
        client.pread(64 * BLOCK, 0)
        client.shutdown()
        blocks = {one["name"]: one["blocks_read"] for one in asked(pool, "profile", "show")["objects"]}
        self.assertEqual(blocks["/usr/a"], 128)
        # Parts of a volume that is gone are left out.
        onefold("volume", "delete", pool.path, "one")
        self.assertIn("2 parts of files were left out", onefold("relocate", "profile", "load", pool.path, file).stdout)
        self.assertEqual(asked(pool, "plan")["reads_before"], plan["reads_before"])
        pool.stop()

    def broken_off(self, pool):
        """What a load that ends halfway, or one that another has ended, may ask of the server."""
        found = os.stat(pool.path)
        store = {"file": {"file_system": found.st_dev, "inode": found.st_ino}}
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(pool.path + ".ctl")
            answers = control.makefile(encoding="utf-8")

            def load(by, step):
                request = {"command": "relocate", "action": "load", "by": by, "step": step}
                control.sendall(json.dumps({"store": store, "request": request}).encode() + b"\n")
                return answers.readline()

            begin, rows = {"begin": {"reads": 1, "dropped": 0}}, {"rows": [{"run": [0, 1, 1]}]}
            for step in (rows, "end"):
                self.assertIn("another load has begun", load(1, step))
            for by in (1, 2):
                self.assertIn("loading", load(by, begin))
            self.assertIn("loading", load(2, rows))
            self.assertIn("another load has begun", load(1, rows))
            self.assertIn("another load has begun", load(1, "end"))
            self.assertIn("loading", load(2, rows))
            # Bad rows end it; one that is never ended counts for nothing.
            self.assertIn("and the pool has", load(2, {"rows": [{"run": [1 << 63, 1, 1]}]}))
            self.assertIn("another load has begun", load(2, "end"))
            self.assertIn("loading", load(3, begin))
            self.assertIn("loading", load(3, rows))

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
        self.assertRegex(onefold("status", pool.path, "--all").stdout, "relocate +finished: 2 MiB of 2 MiB moved")
        pool.stop()
        onefold("check", pool.path)

    def wait_for(self, pool, what, seconds=PATIENCE):
        """Until the figures of the run are such."""
        deadline = time.time() + seconds
        while not what(found := pool.status()["relocate"]):
            self.assertLess(time.time(), deadline, found)
            time.sleep(0.1)
        return found

    def look(self, pool, minutes):
        """The server looks once, at so many minutes past the time that it began with."""
        with open(pool.clock + ".new", "w") as file:
            file.write(str(pool.began + 60 * minutes))
        os.rename(pool.clock + ".new", pool.clock)
        seen = os.path.splitext(pool.clock)[0] + ".seen"
        deadline = time.time() + PATIENCE
        while not os.path.exists(seen) or open(seen).read() != str(pool.began + 60 * minutes):
            self.assertLess(time.time(), deadline, "the server does not look")
            time.sleep(0.01)

    def shuffled(self, pool, zone):
        """A pool that is served, with a volume, and another with the same blocks in another order that is read most. At noon in UTC the clock
        stands still, until `look` sets it."""
        onefold("create", pool.path, "--capacity", "64M")
        for name in ("image", "other"):
            onefold("volume", "create", pool.path, name, "--size", "4M", "--policy", "full")
        for key, value in (("cache-key", "off"), ("replicas", "off")):
            onefold("set", pool.path, key, value)
        pool.clock, pool.began = os.path.join(pool.folder, "now.clock"), 1_000_000_000 // 86400 * 86400 + 12 * 3600
        pool.program, pool.environment = faulty(), {**os.environ, "ONEFOLD_CLOCK": pool.clock, "TZ": zone}
        pool.serve(create=False)
        self.look(pool, 0)
        clients = {}
        blocks = [os.urandom(BLOCK) for _ in range(512)]
        for name in ("image", "other"):
            clients[name] = nbd.NBD()
            clients[name].connect_uri(pool.uri(name))
            order = [37 * number % 512 for number in range(512)] if name == "other" else range(512)
            for at, number in enumerate(order):
                clients[name].pwrite(blocks[number], at * BLOCK)
            clients[name].flush()
        return clients

    def read(self, clients, name):
        for at in range(0, 512, 32):
            clients[name].pread(32 * BLOCK, at * BLOCK)

    def test_a_plan_is_run_by_itself_when_nobody_asks_for_anything(self):
        pool = Pool()
        clients = self.shuffled(pool, "UTC")
        self.assertEqual(pool.status()["relocate"]["by_itself"], "off")
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        onefold("set", pool.path, "relocate", "auto")
        self.assertIn("by itself: auto", onefold("status", pool.path, "--all").stdout)
        self.look(pool, 1)
        self.assertTrue(asked(pool, "profile", "show")["profiling"])
        self.read(clients, "image")
        for _ in range(5):
            self.read(clients, "other")
        # An hour of reads is noted first, and then clients still ask for something.
        self.look(pool, 60)
        for minutes in (61, 62, 63):
            self.read(clients, "other")
            self.look(pool, minutes)
        self.assertEqual(pool.status()["relocate"]["state"], "never")
        self.look(pool, 64)
        done = self.wait_for(pool, lambda run: run["state"] == "finished")
        self.assertEqual(done["moved_blocks"], 512, done)
        self.assertIn("automatic relocation begins", pool.said())
        # Of what was noted before, nothing is known any more. What the pool does by itself is set with the pool.
        self.assertGreater(asked(pool, "profile", "show")["reads"], 0)
        self.look(pool, 65)
        self.assertEqual(asked(pool, "profile", "show")["reads"], 0)
        for client in clients.values():
            client.shutdown()
        pool.stop()
        shown = json.loads(onefold("get", pool.path, "relocate", "--json").stdout)
        self.assertIn(("auto", "pool"), [(one["value"], one["source"]) for one in shown["properties"]], shown)
        onefold("check", pool.path)

    def test_a_plan_is_run_in_its_hours_only(self):
        pool = Pool()
        # Here the hour is the one after that of UTC: it begins at 13.
        clients = self.shuffled(pool, "XXX-1")
        onefold("set", pool.path, "relocate", "15-17")
        self.look(pool, 1)
        self.read(clients, "image")
        for minutes in (61, 119):
            self.read(clients, "other")
            self.look(pool, minutes)
        self.assertEqual(pool.status()["relocate"]["state"], "never")
        self.look(pool, 120)
        self.wait_for(pool, lambda run: run["state"] == "finished")
        onefold("set", pool.path, "relocate", "off")
        self.look(pool, 121)
        self.assertFalse(asked(pool, "profile", "show")["profiling"])
        for client in clients.values():
            client.shutdown()
        pool.stop()
        onefold("check", pool.path)

    def test_files_of_clones_that_are_read_most_take_fewer_device_reads(self):
        """bench/relocate in small. The files that the clones of an updated image read most were the last ones in the plan, before clones were one object."""
        program = os.path.join(ROOT, "bench", "relocate")
        result = json.loads(run("/usr/bin/python3", program, "--quick", "--seek", "0", "--json").stdout)
        before, after = (result[when]["hot files"]["device_reads"] for when in ("before", "after"))
        self.assertGreater(before, 1.4 * after, result)
        self.assertEqual(result["more_blocks"], 0, result)


if __name__ == "__main__":
    unittest.main()
