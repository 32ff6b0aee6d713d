"""Reads, writes, syncs and reservations of the store fail, are short, slow or stuck, in a build that can do that on purpose
(crates/onefold/src/io/faults.rs)."""

import errno
import hashlib
import json
import os
import subprocess
import tempfile
import time
import unittest

import nbd

from model import Writer
from server import BLOCK, PATIENCE, Pool, faulty, onefold

FAULTY = faulty()
MIB = 1 << 20
# Where things are in a pool of 64 MiB (docs/reference/disk-format.md), in bytes.
OWNER, JOURNAL, META_MAP, DATA, END = (block * BLOCK for block in (2, 258, 4354, 14336, 14336 + 24576))
SUPERBLOCKS = f"to={JOURNAL}"
IN_JOURNAL = f"from={JOURNAL} to={META_MAP}"
IN_METADATA = f"from={META_MAP} to={DATA}"
IN_DATA = f"from={DATA}"
ONCE = "every=1000000000"
BLOCKS = 1024


class FaultyPool(Pool):
    """A pool with two volumes, served by the build that can fail. In memory, I/O may be of any number of bytes."""

    def __init__(self, where="/dev/shm"):
        super().__init__("64M", tempfile.mkdtemp(prefix="onefold-test-", dir=where))
        self.program = FAULTY
        self.plan_path = os.path.join(self.folder, "plan")
        self.environment = {**os.environ, "ONEFOLD_FAULTS": self.plan_path}
        onefold("create", self.path, "--capacity", "64M")
        assert os.path.getsize(self.path) == END, "the places above are those of such a pool"
        for name in ("one", "two"):
            onefold("volume", "create", self.path, name, "--size", "32M")
        self.writers = []

    def plan(self, *rules):
        """What fails from now on."""
        with open(self.plan_path + ".new", "w") as file:
            file.write("\n".join(rules))
        os.rename(self.plan_path + ".new", self.plan_path)

    def start(self, *arguments):
        return self.serve("--memory", "64M", *arguments, create=False)

    def connect(self, volume="one"):
        client = nbd.NBD()
        client.connect_uri(self.uri(volume))
        return client

    def write_for(self, seconds):
        """Both volumes are written for so long."""
        before = self.writers or [None, None]
        self.writers = []
        for number, name in enumerate(("one", "two")):
            known = before[number].flushed if before[number] else {}
            self.writers.append(Writer(self.uri(name), 0, BLOCKS, known, number))
        for writer in self.writers:
            writer.start()
        time.sleep(seconds)
        for writer in self.writers:
            writer.stop()

    def digest(self):
        with open(self.path, "rb") as file:
            return hashlib.file_digest(file, "sha256").digest()

    def judge(self):
        for writer, name in zip(self.writers, ("one", "two")):
            client = self.connect(name)
            writer.flushed, writer.since = writer.judge(client), {}
            client.shutdown()


class Faults(unittest.TestCase):
    def fails(self, code, call, *arguments):
        with self.assertRaises(nbd.Error) as failure:
            call(*arguments)
        self.assertEqual(errno.errorcode.get(failure.exception.errnum), errno.errorcode[code])

    def test_short_reads_and_writes_are_continued(self):
        """Of any number of bytes where the page cache is used, of sectors where it is not."""
        for where, unit in (("/dev/shm", 1), (None, 512)):
            for every in (1, 3):
                with self.subTest(unit=unit, every=every), FaultyPool(where) as pool:
                    pool.plan(f"read short={unit} every={every}", f"write short={unit} every={every}")
                    pool.start()
                    pool.write_for(1)
                    pool.settled()
                    pool.judge()
                    pool.write_for(0.5)
                    pool.kill()
                    pool.start()
                    pool.judge()
                    self.assertEqual(pool.status()["mode"], "normal")
                    self.assertIn("2 rules for faults of the store", pool.said())
                    pool.stop()
                    pool.check()

    def test_a_read_that_fails_is_read_again_and_is_the_only_one(self):
        with FaultyPool() as pool:
            pool.start()
            client = pool.connect()
            data = os.urandom(4 * MIB)
            client.pwrite(data, 0)
            client.flush()
            pool.stop()
            pool.start()
            client, other = pool.connect(), pool.connect("two")
            pool.plan(f"read {IN_DATA} {ONCE} error=EIO")
            # Once: it is read a second time before anyone is told.
            self.assertEqual(client.pread(MIB, 0), data[:MIB])
            self.assertIn("Input/output error", pool.said())
            # For ever: what is in memory, what is new, and all else goes on.
            pool.plan(f"read {IN_DATA} error=EIO")
            self.fails(errno.EIO, client.pread, MIB, 3 * MIB)
            self.assertEqual(client.pread(MIB, 0), data[:MIB])
            new = os.urandom(MIB)
            other.pwrite(new, 0)
            other.flush()
            self.assertEqual(other.pread(MIB, 0), new)
            self.assertEqual(pool.status()["mode"], "normal")
            pool.plan()
            self.assertEqual(client.pread(4 * MIB, 0), data)
            pool.stop()
            pool.check()

    def test_a_map_page_that_cannot_be_read_fails_the_reads_that_need_it(self):
        with FaultyPool() as pool:
            pool.start()
            client = pool.connect()
            data = os.urandom(4 * MIB)
            client.pwrite(data, 0)
            pool.stop()
            pool.start()
            client, other = pool.connect(), pool.connect("two")
            pool.plan(f"read {IN_METADATA} error=EIO")
            self.fails(errno.EIO, client.pread, MIB, 0)
            self.assertEqual(other.pread(MIB, 0), bytes(MIB))
            pool.plan()
            self.assertEqual(client.pread(4 * MIB, 0), data)
            self.assertEqual(pool.end(), 0)
            pool.check()

    def test_a_write_or_sync_that_fails_makes_the_pool_read_only(self):
        """Once is enough: the page cache may have dropped what it could not write, and a second sync would not say so."""
        for place in (f"write {IN_DATA}", f"write {IN_JOURNAL}", f"write {IN_METADATA}", f"write {SUPERBLOCKS}", "sync"):
            for how in (ONCE, ""):
                with self.subTest(place=place, how=how), FaultyPool() as pool:
                    self.fails_for_good(pool, f"{place} {how} error=EIO")

    def test_a_write_that_finds_no_space_is_made_again(self):
        """As on a full copy-on-write file system: the pool was read-only for good. The first bytes of each write get through."""
        every, superblocks = f"write from={JOURNAL}", f"write {SUPERBLOCKS}"
        for rules in ((f"{every} every=2 short=512", f"{every} error=ENOSPC"), (f"{superblocks} error=EDQUOT",)):
            with self.subTest(rules=rules), FaultyPool(None) as pool:
                pool.start()
                if "O_DIRECT" in pool.said():
                    self.skipTest("through the page cache nobody knows what such a write has lost")
                self.finds_no_space(pool, rules)

    def finds_no_space(self, pool, rules):
        pool.write_for(0.3)
        client, other = pool.connect(), pool.connect("two")
        new = os.urandom(MIB)
        other.pwrite(new, 16 * MIB)
        pool.plan(*rules)
        # A checkpoint that waits is noticed by who writes.
        settling = subprocess.Popen([pool.program, "status", pool.path, "--settle"], stdout=subprocess.DEVNULL)
        with self.assertRaises(nbd.Error) as failure:
            for number in range(10000):
                client.pwrite(new[:BLOCK], 16 * MIB)
                client.flush()
                time.sleep(0.01)
        self.assertEqual(failure.exception.errnum, errno.ENOSPC)
        self.fails(errno.ENOSPC, client.pwrite, new, 16 * MIB)
        self.fails(errno.ENOSPC, client.trim, MIB, 16 * MIB)
        self.assertEqual(other.pread(MIB, 16 * MIB), new)
        self.assertEqual((pool.status()["mode"], pool.status()["failure"]), ("normal", None))
        pool.plan()
        self.assertEqual(settling.wait(timeout=PATIENCE), 0)
        other.flush()
        client.pwrite(new, 17 * MIB)
        client.flush()
        pool.kill()
        pool.check()
        pool.start()
        self.assertEqual(pool.connect("two").pread(MIB, 16 * MIB), new)
        self.assertEqual(pool.connect().pread(MIB, 17 * MIB), new)
        pool.judge()
        pool.stop()
        pool.check()

    def fails_for_good(self, pool, rule):
        pool.start()
        pool.write_for(0.3)
        client, other = pool.connect(), pool.connect("two")
        client.flush()
        other.flush()
        for writer in pool.writers:
            writer.all_flushed()
        pool.judge()
        # Settled, since a write that only moves a block may fail without harm, and once took the plan's one failure.
        pool.settled()
        pool.plan(rule)
        new = os.urandom(MIB)
        # A failed checkpoint is noticed by settling, all else by the flush.
        try:
            other.pwrite(new, 16 * MIB)
            other.flush()
            onefold("status", pool.path, "--settle", check=False)
        except nbd.Error as error:
            self.assertIn(error.errnum, (errno.EIO, errno.EPERM))
        pool.plan()
        for _ in range(3):
            self.fails(errno.EIO, client.flush)
            self.fails(errno.EIO, other.flush)
        self.fails(errno.EPERM, client.pwrite, new, 0)
        self.assertEqual(pool.status()["mode"], "read-only")
        pool.judge()
        deadline = time.time() + PATIENCE
        while "read-only from here on" not in pool.said():
            self.assertLess(time.time(), deadline, pool.said())
            time.sleep(0.05)
        client.shutdown()
        other.shutdown()
        failure = pool.status()["failure"]
        self.assertIn(failure, ("a write to the store failed", "a sync of the store failed"))
        self.assertEqual(pool.end(), 1)
        self.assertIn("repair", pool.said().splitlines()[-1])
        # The disk works again. Where it could keep the failure, the pool is only read from now on; where it could not, it is
        # recovered as after a crash.
        before = pool.digest()
        pool.start()
        pool.judge()
        if ONCE not in rule:
            self.assertIn(pool.status()["mode"], ("read-only", "normal"))
            pool.kill()
            return
        self.assertEqual(pool.status()["failure"], failure)
        # One line says so, until the last one.
        said = pool.said().rpartition("opening the pool")[2]
        self.assertEqual([line for line in said.splitlines() if "ERROR" in line and "the pool has failed before" not in line], [])
        self.assertEqual(said.count("the pool has failed"), 1)
        client = pool.connect()
        self.fails(errno.EPERM, client.pwrite, new, 0)
        client.shutdown()
        refused = onefold("volume", "create", pool.path, "new", "--size", "1M", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertEqual(pool.end(), 1)
        self.assertEqual(pool.digest(), before, "nothing is written")
        self.assertIn(failure, onefold("status", pool.path).stdout)

    def test_a_pool_that_failed_under_load_is_repaired_and_has_all_that_was_flushed(self):
        """Everything is clean but the failure: check says so, a repair lifts it, exit statuses say what there is to do."""
        for rule in (f"write {IN_DATA} {ONCE}", f"write {IN_JOURNAL} {ONCE}", f"write {SUPERBLOCKS} {ONCE}", f"sync {ONCE}"):
            with self.subTest(rule=rule), FaultyPool() as pool:
                pool.start()
                pool.writers = [Writer(pool.uri(name), 0, BLOCKS, {}, seed) for seed, name in enumerate(("one", "two"))]
                for writer in pool.writers:
                    writer.start()
                time.sleep(0.5)
                pool.plan(f"{rule} error=EIO")
                # A checkpoint has to come to its superblock.
                onefold("status", pool.path, "--settle", check=False)
                for writer in pool.writers:
                    writer.join(timeout=PATIENCE)
                    self.assertIn(writer.failure.errnum, (errno.EIO, errno.EPERM))
                self.assertEqual(pool.status()["mode"], "read-only")
                failure = pool.status()["failure"]
                # What was answered is still in memory; only what was flushed outlives the server.
                for writer, name in zip(pool.writers, ("one", "two")):
                    writer.judge(pool.connect(name))
                self.assertEqual(pool.end(), 1)
                self.is_repaired(pool, failure)

    def is_repaired(self, pool, failure):
        before = pool.digest()
        found = onefold("check", pool.path, check=False)
        self.assertEqual((found.returncode, found.stderr), (1, ""))
        self.assertIn(f"the pool has failed: {failure}, in epoch", found.stdout)
        self.assertIn("nothing but that is wrong", found.stdout)
        self.assertIn(f"onefold repair {pool.path} --dry-run", found.stdout)
        found = json.loads(onefold("check", pool.path, "--json", check=False).stdout)
        self.assertEqual((found["clean"], found["failure"], found["problem_count"]), (False, failure, 1))
        dry = onefold("repair", pool.path, "--dry-run", check=False)
        self.assertEqual((dry.returncode, dry.stderr), (1, ""))
        for said in (f"the pool has failed: {failure}", "no block would be lost", "the pool could be written again",
                     "nothing was written", f"onefold repair {pool.path} --yes"):
            self.assertIn(said, dry.stdout)
        self.assertEqual(pool.digest(), before, "neither writes anything")
        done = onefold("repair", pool.path, "--yes")
        self.assertIn("it can be written again", done.stdout)
        self.assertIn("clean", onefold("check", pool.path).stdout)
        self.assertIn("nothing to repair", onefold("repair", pool.path, "--dry-run").stdout)
        pool.plan()
        pool.start()
        self.assertEqual((pool.status()["mode"], pool.status()["failure"]), ("normal", None))
        pool.judge()
        pool.write_for(0.5)
        pool.judge()
        pool.stop()
        pool.check()

    def test_a_host_that_was_fenced_is_not_told_to_repair(self):
        """Once its access to the store is revoked, nothing can be written or read. The pool may be another host's by then. A client's write meets the fence
        first; at rest it is the checkpoint, which reads the owner record before it writes."""
        for is_at_rest in (False, True):
            with self.subTest(is_at_rest=is_at_rest), FaultyPool() as pool:
                pool.start()
                client, data = pool.connect(), os.urandom(MIB)
                onefold("status", pool.path, "--settle")
                client.pwrite(data, 0)
                client.flush()
                pool.plan("write error=EIO", "read error=EIO", "sync error=EIO")
                if is_at_rest:
                    onefold("status", pool.path, "--settle", check=False)
                else:
                    with self.assertRaises(nbd.Error):
                        client.pwrite(os.urandom(MIB), 0)
                        client.flush()
                deadline = time.time() + PATIENCE
                while "another host" not in (pool.status()["failure"] or ""):
                    self.assertLess(time.time(), deadline, pool.status())
                    time.sleep(0.05)
                self.assertNotIn("repair", onefold("status", pool.path, check=False).stdout)
                client.shutdown()
                self.assertEqual(pool.end(), 1)
                failed = [line for line in pool.said().splitlines() if "of the store failed" in line]
                self.assertIs(f"read of {BLOCK} bytes at byte {OWNER} of the store failed" in failed[0], is_at_rest, failed)
                last = pool.said().splitlines()[-1]
                self.assertIn("another host", last)
                self.assertNotIn("repair", last)
                # It has the store again, and nobody else had it.
                pool.plan()
                pool.start()
                client = pool.connect()
                self.assertEqual(client.pread(MIB, 0), data)
                client.shutdown()
                pool.stop()
                pool.check()

    def test_space_that_cannot_be_reserved(self):
        """For want of space, be it the disk, the quota or the limit on the size of files, new blocks are refused; another error is a failed write."""
        for error, full in (("EDQUOT", True), ("ENOSPC", True), ("EFBIG", True), ("EIO", False)):
            with self.subTest(error=error), FaultyPool() as pool:
                pool.plan(f"reserve error={error}")
                pool.start()
                client = pool.connect()
                with self.assertRaises(nbd.Error) as failure:
                    for number in range(400):
                        client.pwrite(os.urandom(MIB), number % 30 * MIB)
                client.pread(MIB, 0)
                pool.plan()
                if full:
                    self.assertEqual(failure.exception.errnum, errno.ENOSPC)
                    self.assertEqual(pool.status()["mode"], "normal")
                    client.flush()
                    client.shutdown()
                    pool.stop()
                    pool.check()
                    continue
                self.assertEqual(failure.exception.errnum, errno.EPERM)
                self.assertEqual(pool.status()["failure"], "a write to the store failed")
                self.fails(errno.EIO, client.flush)
                client.shutdown()
                self.assertEqual(pool.end(), 1)
                self.assertRegex(pool.said(), "from here on: .*reserving space of .* bytes at byte .* of the store failed")

    def test_a_full_host_refuses_new_blocks_and_nothing_else(self):
        with FaultyPool() as pool:
            pool.start()
            client = pool.connect()
            known, written = os.urandom(MIB), 0
            client.pwrite(known, 0)
            client.flush()
            pool.plan("reserve error=ENOSPC")
            with self.assertRaises(nbd.Error) as failure:
                for written in range(1, 400):
                    client.pwrite(os.urandom(MIB), written % 30 * MIB + MIB)
            self.assertEqual(failure.exception.errnum, errno.ENOSPC)
            client.pwrite(known, 31 * MIB)
            client.flush()
            self.assertEqual(client.pread(MIB, 31 * MIB), known)
            self.assertEqual(client.pread(MIB, 0), known)
            self.assertEqual(pool.status()["mode"], "normal")
            pool.plan()
            deadline = time.time() + PATIENCE
            while True:
                try:
                    client.pwrite(os.urandom(MIB), 20 * MIB)
                    break
                except nbd.Error:
                    self.assertLess(time.time(), deadline, "no space came back")
                    time.sleep(0.1)
            # The log is written when the server next looks at what an operator has to know.
            while "the file system under the pool is full" not in pool.said():
                self.assertLess(time.time(), deadline, pool.said())
                client.flush()
                time.sleep(0.1)
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_slow_disk_is_only_slow(self):
        with FaultyPool() as pool:
            pool.plan("read slow=20", "write slow=50", "sync slow=100 every=2", "sync slow=300")
            pool.start()
            pool.write_for(2)
            pool.judge()
            pool.kill()
            pool.start()
            pool.judge()
            pool.stop()
            pool.check()

    def test_what_is_stuck_holds_up_nobody_else_and_no_stop(self):
        with FaultyPool() as pool:
            pool.start("--stop-timeout", "2")
            client, other = pool.connect(), pool.connect("two")
            data = os.urandom(4 * MIB)
            client.pwrite(data, 0)
            client.flush()
            # A read that is stuck: others are answered; it goes on when the disk does.
            pool.stop()
            pool.start("--stop-timeout", "2")
            client, other = pool.connect(), pool.connect("two")
            pool.plan(f"read {IN_DATA} {ONCE} stuck")
            buffer = nbd.Buffer(MIB)
            cookie = client.aio_pread(buffer, 0)
            client.poll(0)
            time.sleep(0.2)
            new = os.urandom(MIB)
            other.pwrite(new, 0)
            other.flush()
            self.assertEqual(other.pread(MIB, 0), new)
            self.assertEqual(pool.status()["mode"], "normal")
            self.assertFalse(client.aio_command_completed(cookie))
            pool.plan()
            while not client.aio_command_completed(cookie):
                client.poll(1000)
            self.assertEqual(bytes(buffer.to_bytearray()), data[:MIB])
            # A write that is stuck for ever: reads go on; a stop gives up.
            pool.plan("write stuck", "sync stuck")
            stuck = other.aio_flush()
            new = nbd.Buffer.from_bytearray(bytearray(os.urandom(MIB)))
            client.aio_pwrite(new, 8 * MIB)
            client.aio_flush()
            client.poll(0)
            other.poll(0)
            third = pool.connect()
            self.assertEqual(third.pread(4 * MIB, 0), data)
            third.shutdown()
            self.assertEqual(pool.status()["mode"], "normal")
            del stuck
            began = time.time()
            self.assertNotEqual(pool.end(), 0)
            self.assertLess(time.time() - began, 30)
            self.assertIn("the store does not answer", pool.said())
            pool.plan()
            pool.start()
            self.assertEqual(pool.connect().pread(4 * MIB, 0), data)
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
