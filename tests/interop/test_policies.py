"""Policies over NBD: what they share and what they leave, the counters, and changing them while clients write."""

import os
import random
import sys
import threading
import unittest

import nbd

sys.path.insert(0, os.path.dirname(__file__))
from server import BLOCK, PATIENCE, Pool, onefold, run
from test_images import ext4_image
from test_hostile import FUA, WRITE, Raw, command

MIB = 1 << 20


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


def blocks_of(contents):
    """A block for each number: the same number, the same bytes; 0 is zeroes."""
    return b"".join(number.to_bytes(8, "little") * (BLOCK // 8) for number in contents)


def stored(pool):
    """Blocks of data, without replicas of what was read scattered."""
    status = pool.settled()
    return status["data_blocks_used"] - status["replicas"]["blocks"]


class Store:
    """What the policies do, computed with lists: every block that is written goes behind the last one."""

    def __init__(self, policy):
        self.policy, _, parameters = policy.partition(":")
        threshold, _, counts = parameters.partition(",")
        self.threshold = int(threshold or {"idedup": 4}.get(self.policy, 3))
        self.by_request = counts == "request"
        self.map, self.content, self.users, self.known = {}, [], [], {}
        self.counts = dict.fromkeys(
            ["requests", "unknown", "sequential", "scattered", "partial", "written_blocks", "zero_blocks", "removed_blocks",
             "removed_requests", "unchanged_blocks"], 0)

    def find(self, at, content):
        """Where a content is: here already, elsewhere, or nowhere."""
        here = self.map.get(at)
        if here is not None and self.content[here] == content:
            return here, True
        place = self.known.get(content)
        return (place, False) if place is not None and self.users[place] else (None, False)

    @staticmethod
    def runs(places, repeats=False):
        """The length of the run that each block is in; a run may stay at a place if it `repeats`."""
        lengths = [0] * len(places)
        for start, last in enumerate(places):
            end = start
            while last is not None and end < len(places) and places[end] is not None and (
                    end == start or places[end] == last + 1 or repeats and places[end] == last):
                last, end = places[end], end + 1
            for i in range(start, end):
                lengths[i] = max(lengths[i], end - start)
        return lengths

    def repeats(self, contents, places):
        """New blocks that are the same as the one before them, in a row of at least as many as the threshold says."""
        repeated, start = set(), 0
        while start < len(contents):
            end = start + 1
            while end < len(contents) and contents[end] == contents[start] and contents[start] and places[end] is None and places[start] is None:
                end += 1
            if self.policy == "select" and end - start >= max(self.threshold, 2):
                repeated.update(range(start + 1, end))
            start = end
        return repeated

    def write(self, first, contents):
        found = [(None, False) if number == 0 else self.find(first + i, number) for i, number in enumerate(contents)]
        places = [place for place, _ in found]
        runs, repeats = self.runs(places, self.policy != "idedup"), self.repeats(contents, places)
        redundant = sum(place is not None for place in places)
        select = self.policy == "select"
        counted = redundant if select and self.by_request else max(runs)
        category = ("unknown" if redundant == 0 else "sequential" if max(runs) == len(contents)
                    else "scattered" if counted < (self.threshold if select else 3) else "partial")

        def shares(i):
            place, here = found[i]
            if place is None or self.policy in ("native", "observe"):
                return False
            if here or self.policy == "full" or select and category == "sequential":
                return True
            long = runs[i] >= self.threshold
            return long if self.policy == "idedup" else category == "partial" and (self.by_request or long)

        seen, after, written = {}, [], []
        for i, number in enumerate(contents):
            again = seen.get(number) if number and places[i] is None else None
            if number == 0:
                after.append(None)
                self.counts["zero_blocks"] += 1
            elif shares(i):
                after.append(places[i])
                self.counts["unchanged_blocks"] += found[i][1]
                if found[i][1]:
                    self.known.setdefault(number, places[i])
            elif again is not None and self.policy == "full":
                after.append(after[again])
            elif i in repeats:
                after.append(after[i - 1])
            else:
                self.content.append(number)
                self.users.append(0)
                after.append(len(self.content) - 1)
                written.append(i)
            if number and places[i] is None:
                seen.setdefault(number, i)
        removed = sum(number != 0 for number in contents) - len(written)
        before = [self.map.pop(first + i, None) for i in range(len(contents))]
        for i, place in enumerate(after):
            if place is not None:
                self.map[first + i] = place
                self.users[place] += 1
        for place in before:
            if place is not None:
                self.users[place] -= 1

        longer = [new > old for new, old in zip(self.runs(after), self.runs(places))]
        for i in written:
            number, (old, here) = contents[i], found[i]
            if old is None:
                if seen[number] == i:
                    self.known[number] = after[i]
            elif here or not self.users[old] or longer[i]:
                self.known[number] = after[i]
        for name, count in (("requests", 1), (category, 1), ("written_blocks", len(written)), ("removed_blocks", removed),
                            ("removed_requests", removed > 0 and not written)):
            self.counts[name] += count


def flat(writes):
    """The counters of a status, as `Store` has them."""
    names = ["requests", "written_blocks", "zero_blocks", "removed_blocks", "removed_requests", "unchanged_blocks"]
    return {**{name: writes[name] for name in names}, **writes["categories"]}


class Policies(unittest.TestCase):
    def test_select_leaves_scattered_duplicates_and_shares_runs_and_whole_requests(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            known = list(range(1, 65))

            def grows_by(first, contents):
                before = stored(pool)
                client.pwrite(blocks_of(contents), first * BLOCK)
                self.assertEqual(client.pread(len(contents) * BLOCK, first * BLOCK), blocks_of(contents))
                return stored(pool) - before

            self.assertEqual(grows_by(0, known), 64)
            self.assertEqual(grows_by(100, known), 0, "known as a whole, in one run")
            self.assertEqual(grows_by(200, [known[9]]), 0, "a single block is a run")
            self.assertEqual(grows_by(300, [1001, known[5], 1002, known[20]]), 4, "scattered: written as a whole")
            self.assertEqual(grows_by(400, [1003, *known[40:43], 1004]), 2, "a run of three")
            onefold("volume", "set", pool.path, "default", "policy=full")
            self.assertEqual(grows_by(500, [1005, known[50], 1006, known[30]]), 2)
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_second_copy_of_an_image_costs_next_to_nothing(self):
        with Pool("256M") as pool:
            image, out = os.path.join(pool.folder, "in.raw"), os.path.join(pool.folder, "out.raw")
            size = 32 * MIB
            with open(image, "wb") as file:
                file.write(os.urandom(size))
            pool.serve("--memory", "128M")
            for name in ("first", "second"):
                onefold("volume", "create", pool.path, name, "--size", size)
                run("nbdcopy", image, pool.uri(name))
            data = stored(pool)
            self.assertLess(data, size // BLOCK * 1.01)
            run("nbdcopy", pool.uri("second"), out)
            run("cmp", image, out)
            writes = pool.status()["writes"]
            self.assertGreaterEqual(writes["removed_blocks"], 0.99 * size // BLOCK)
            self.assertGreater(writes["removed_requests"], 0)
            pool.stop()
            pool.check()

    def test_a_real_disk_image_is_decided_as_computed(self):
        """A file system with a tree of files twice, written in requests of many sizes, some of it again."""
        with Pool("512M") as pool:
            image = os.path.join(pool.folder, "image")
            ext4_image(image)
            with open(image, "rb") as file:
                data = file.read()
        blocks, numbers = [], {bytes(BLOCK): 0}
        for at in range(0, len(data), BLOCK):
            blocks.append(numbers.setdefault(data[at:at + BLOCK], len(numbers)))
        for policy in ("select", "select:3,request", "idedup", "full"):
            with self.subTest(policy=policy), Pool("512M").serve("--memory", "256M", "--policy", policy) as pool:
                store, client, chance = Store(policy), connect(pool), random.Random(policy)
                first = 0
                while first < len(blocks):
                    length = min(chance.choice([1, 2, 3, 5, 8, 16, 32, 64]), len(blocks) - first)
                    starts = [first]
                    if first > length and chance.random() < 0.05:
                        starts.append(chance.randrange(first - length))
                    for start in starts:
                        store.write(start, blocks[start:start + length])
                        client.pwrite(data[start * BLOCK:(start + length) * BLOCK], start * BLOCK)
                    first += length
                writes = pool.status()["writes"]
                self.assertEqual(flat(writes), store.counts)
                self.assertGreater(writes["removed_blocks"], len(blocks) // 20)
                client.shutdown()
                pool.stop()
                pool.check()

    def test_the_counters_are_what_an_independent_computation_says(self):
        for policy in ("select", "select:2", "select:4,request", "idedup:2", "full", "observe"):
            with self.subTest(policy=policy), Pool("64M").serve("--memory", "64M", "--policy", policy) as pool:
                store, client, chance = Store(policy), connect(pool), random.Random(policy)
                fresh = 1000
                # No more than one container has space for.
                while len(store.content) < 900:
                    length, first = chance.choice([1, 1, 2, 3, 5, 8]), chance.randrange(60)
                    start = chance.randrange(1, 40)
                    contents = []
                    for i in range(length):
                        kind = chance.randrange(10)
                        fresh += 1
                        contents.append(0 if kind == 0 else fresh if kind < 3 else chance.randrange(1, 40) if kind == 3
                                        else start + i)
                    store.write(first, contents)
                    client.pwrite(blocks_of(contents), first * BLOCK)
                    if store.counts["requests"] == 400:
                        break
                status = pool.status()
                self.assertEqual(flat(status["volumes"][0]["writes"]), store.counts)
                self.assertEqual(flat(status["writes"]), store.counts)
                for at, place in store.map.items():
                    self.assertEqual(client.pread(BLOCK, at * BLOCK), blocks_of([store.content[place]]))
                client.shutdown()
                pool.stop()
                pool.check()

    def test_what_a_rewrite_with_the_same_content_costs(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client, data = connect(pool), os.urandom(MIB)
            client.pwrite(data, 0)
            client.flush()
            before = pool.status()
            client.pwrite(data, 0, nbd.CMD_FLAG_FUA)
            client.pwrite(data[:8192], 0)
            client.flush()
            after = pool.status()
            self.assertEqual(after["writes"]["unchanged_blocks"], 258)
            self.assertEqual(after["writes"]["removed_requests"], 2)
            self.assertEqual(after["writes"]["written_blocks"], before["writes"]["written_blocks"])
            self.assertLessEqual(after["unmerged_entries"], before["unmerged_entries"])
            # After a checkpoint and a restart nothing of the map is in memory: what is rewritten is shared, and dropped by the merge.
            pool.stop()
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            client.pwrite(data, 0)
            self.assertEqual(pool.settled()["data_blocks_used"], 256)
            self.assertEqual(client.pread(MIB, 0), data)
            client.shutdown()
            pool.kill()
            pool.check()

    def test_the_policy_of_a_volume_is_changed_while_clients_write(self):
        policies = ["native", "observe", "full", "select", "select:1", "select:2,request", "idedup", "idedup:1", "inherit"]
        with Pool("64M").serve("--memory", "64M") as pool:
            ends, failures = threading.Event(), []

            def write(number):
                try:
                    client, chance, held = connect(pool), random.Random(number), {}
                    base = number * 4096
                    while not ends.is_set():
                        first, start = base + chance.randrange(200), chance.randrange(1, 50)
                        contents = [start + i for i in range(chance.choice([1, 2, 4, 16]))]
                        client.pwrite(blocks_of(contents), first * BLOCK)
                        held.update({first + i: content for i, content in enumerate(contents)})
                    for at, content in held.items():
                        self.assertEqual(client.pread(BLOCK, at * BLOCK), blocks_of([content]))
                    client.flush()
                    client.shutdown()
                except Exception as error:
                    failures.append(error)

            writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
            for writer in writers:
                writer.start()
            for policy in policies * 2:
                onefold("volume", "set", pool.path, "default", f"policy={policy}")
                shown = pool.status()["volumes"][0]["policy"]
                self.assertEqual(shown, "select" if policy == "inherit" else policy)
            ends.set()
            for writer in writers:
                writer.join(timeout=PATIENCE)
                self.assertFalse(writer.is_alive())
            self.assertEqual(failures, [])
            pool.stop()
            pool.check()

    def test_what_if_shows_the_others_in_order(self):
        with Pool("64M").serve("--memory", "64M", "--policy", "observe") as pool:
            for name, size in (("small", "4k"), ("large", "64k")):
                run("fio", f"--name={name}", "--thread", "--ioengine=nbd", f"--uri={pool.uri()}", "--rw=randwrite", f"--bs={size}",
                    "--size=8M", "--dedupe_percentage=60", "--iodepth=8", "--output=/dev/null")
            writes = pool.status()["writes"]
            what_if = writes["what_if"]
            self.assertEqual(writes["requests"] + writes["coalesced_requests"], 2048 + 128)
            self.assertEqual(writes["written_blocks"], 4096)
            self.assertEqual(sum(writes["sizes"].values()), writes["requests"])
            self.assertEqual((writes["removed_blocks"], what_if["native"]), (0, {"blocks": 0, "requests": 0}))
            for what in ("blocks", "requests"):
                self.assertGreaterEqual(what_if["full"][what], what_if["select"][what])
                self.assertGreaterEqual(what_if["select"][what], what_if["idedup"][what])
            self.assertGreater(what_if["select"]["requests"], 100, "single blocks that are known")
            text = onefold("status", pool.path, "--all").stdout
            for word in ("what if", "full", "select", "idedup", "category"):
                self.assertIn(word, text)
            pool.stop()

    def test_native_is_not_looked_up(self):
        with Pool("64M").serve("--memory", "64M", "--policy", "native") as pool:
            client = connect(pool)
            for first in (0, 0, 10):
                client.pwrite(blocks_of([7] * 4), first * BLOCK)
            client.shutdown()
            writes = pool.status()["writes"]
            self.assertEqual((writes["requests"], writes["written_blocks"], writes["removed_blocks"]), (3, 12, 0))
            self.assertEqual(set(writes["categories"].values()), {0})
            pool.stop()

    def test_writes_that_arrive_together_are_decided_as_one(self):
        def together(pool, first, contents, flags=0):
            """A write for each block, all in one segment; how the counters grew."""
            def counts():
                writes = pool.status()["writes"]
                return [writes[name] for name in ("requests", "coalesced_requests", "removed_blocks", "written_blocks")] + [
                    writes["categories"]["sequential"], writes["sizes"]["to_16k"]]

            before = counts()
            with Raw(pool) as client:
                client.greet().go()
                client.sendall(b"".join(command(WRITE, (first + i) * BLOCK, BLOCK, flags) + blocks_of([content])
                                        for i, content in enumerate(contents)))
                for _ in contents:
                    self.assertEqual(client.result(), 0)
            return [after - count for after, count in zip(counts(), before)]

        with Pool("64M").serve("--memory", "64M") as pool:
            # Nothing is known: 16 KiB in one request.
            self.assertEqual(together(pool, 0, [1, 2, 3, 4]), [1, 3, 0, 4, 0, 1])
            # A run of four, known as a whole.
            self.assertEqual(together(pool, 100, [1, 2, 3, 4]), [1, 3, 4, 0, 1, 1])
            self.assertEqual(together(pool, 200, [1, 2, 3, 4], FUA), [1, 3, 4, 0, 1, 1])
            # Scattered: each block for itself would have been shared.
            self.assertEqual(together(pool, 300, [1, 9, 3, 10]), [1, 3, 0, 4, 0, 1])
            client = connect(pool)
            for first, contents in ((0, [1, 2, 3, 4]), (100, [1, 2, 3, 4]), (200, [1, 2, 3, 4]), (300, [1, 9, 3, 10])):
                self.assertEqual(client.pread(4 * BLOCK, first * BLOCK), blocks_of(contents))
            client.shutdown()
            pool.stop()
            pool.check()

    def test_which_copy_the_index_names_is_kept_with_the_pool(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            self.assertEqual(pool.status()["index_copy"], "sequential")
            done = onefold("set", pool.path, "index-copy", "both", check=False)
            self.assertIn(done.returncode, (1, 2))
            self.assertIn("sequential, oldest or newest", done.stderr)
            onefold("set", pool.path, "index-copy", "oldest")
            self.assertIn("oldest", onefold("get", pool.path, "index-copy").stdout)
            client = connect(pool)
            # A block of the first run comes with something new, twice: it stays where it was.
            for first, contents in ((0, [1, 2, 3, 4]), (10, [50, 2]), (20, [50, 2]), (30, [1, 2, 3, 4])):
                client.pwrite(blocks_of(contents), first * BLOCK)
            client.shutdown()
            writes = pool.status()["writes"]
            self.assertEqual((writes["removed_blocks"], writes["written_blocks"]), (4, 8))
            self.assertEqual(writes["removed_percent"], 33)
            self.assertEqual((writes["index_hits"], writes["index_misses"]), (7, 5))
            self.assertEqual(pool.settled()["redirected_blocks"], 4)
            pool.stop()
            pool.serve("--memory", "64M", create=False)
            status = pool.status()
            self.assertEqual(status["index_copy"], "oldest")
            client = connect(pool)
            self.assertEqual(client.pread(2 * BLOCK, 20 * BLOCK), blocks_of([50, 2]))
            self.assertEqual(client.pread(4 * BLOCK, 30 * BLOCK), blocks_of([1, 2, 3, 4]))
            client.shutdown()
            reads = pool.status()["reads"]
            ahead = {"ahead_blocks": 0, "ahead_used": 0, "ahead_gaps": 0}
            self.assertEqual(reads, {"requests": 2, "from_device": 2, "device_reads": 2, "split": 0, **ahead})
            self.assertIn("2 from the store", onefold("status", pool.path, "--all").stdout)
            pool.stop()
            pool.check()

    def test_what_is_no_policy_is_refused_with_what_is_allowed(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "db", "--size", "1M", "--policy", "select:4,request")
            for spelling, hint in (("some", "native, observe, full, select or idedup"), ("select:0", "1 to 255"),
                                   ("idedup:256", "1 to 255"), ("select:3,blocks", "run or request"), ("full:2", "threshold"),
                                   ("", "native"), ("SELECT", "select or idedup")):
                for arguments in (["volume", "set", pool.path, "db", f"policy={spelling}"],
                                  ["set", pool.path, "policy", spelling],
                                  ["volume", "create", pool.path, "other", "--size", "1M", f"--policy={spelling}"],
                                  ["serve", pool.path, f"--policy={spelling}"]):
                    done = onefold(*arguments, check=False)
                    self.assertIn(done.returncode, (1, 2), arguments)
                    self.assertIn(hint, done.stderr, arguments)
            volumes = pool.status()["volumes"]
            self.assertEqual([(volume["name"], volume["policy"]) for volume in volumes], [("db", "select:4,request")])

    def test_what_the_disk_is_can_be_said_and_stays(self):
        with Pool("64M") as pool:
            done = onefold("create", pool.path, "--capacity", "64M", "--force", "--device", "tape", check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("auto, hdd or ssd", done.stderr)
            onefold("create", pool.path, "--capacity", "64M", "--force", "--device", "hdd")
            self.assertRegex(onefold("status", pool.path, "--all").stdout, "device +hdd +as was set")
            self.assertRegex(onefold("get", pool.path, "device").stdout, "device +hdd +pool")
            onefold("volume", "create", pool.path, "default", "--size", "16M")
            pool.serve(create=False)
            self.assertEqual([pool.status()["device"][name] for name in ("set", "is_rotational")], ["hdd", True])
            done = onefold("set", pool.path, "device", "tape", check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("device=tape is not possible: it is auto, hdd or ssd", done.stderr)
            onefold("set", pool.path, "device", "ssd")
            self.assertEqual([pool.status()["device"][name] for name in ("kind", "window_blocks")], ["ssd", 512])
            onefold("set", pool.path, "device", "auto")
            self.assertRegex(onefold("status", pool.path, "--all").stdout, "device +(hdd|ssd) +as the system says")
            onefold("set", pool.path, "device", "hdd")
            pool.stop()
            pool.serve(create=False)
            self.assertEqual(pool.status()["device"]["kind"], "hdd")

    def test_the_read_cache_keeps_what_two_images_hold_once(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            self.assertEqual(pool.status()["cache"]["key"], "sector")
            done = onefold("set", pool.path, "cache-key", "digest", check=False)
            self.assertIn(done.returncode, (1, 2))
            self.assertIn("content, sector or off", done.stderr)
            onefold("set", pool.path, "policy", "native")
            onefold("set", pool.path, "cache-key", "content")
            self.assertIn("content", onefold("get", pool.path, "cache-key").stdout)
            client = connect(pool)
            image = blocks_of(range(1, 65))
            for first in (0, 1000):
                client.pwrite(image, first * BLOCK)
            client.flush()
            pool.settled()
            # What is cached goes.
            onefold("set", pool.path, "cache-key", "off")
            onefold("set", pool.path, "cache-key", "content")
            before = pool.status()["cache"]
            for first in (0, 1000, 1000):
                self.assertEqual(client.pread(64 * BLOCK, first * BLOCK), image)
            after = pool.status()["cache"]
            gained = {name: after[name] - before[name] for name in ("read_misses", "content_hits", "slot_hits")}
            self.assertEqual(gained, {"read_misses": 64, "content_hits": 64, "slot_hits": 64})
            self.assertEqual(after["shared_blocks"], 64)
            self.assertIn("64 by content", onefold("status", pool.path, "--all").stdout)
            client.shutdown()
            pool.stop()
            pool.serve("--memory", "64M", create=False)
            self.assertEqual(pool.status()["cache"]["key"], "content")
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
