"""The pool, or the file system under it, is full: ENOSPC for new blocks, everything else goes on, and space comes back."""

import contextlib
import errno
import hashlib
import os
import subprocess
import time
import unittest

import nbd

from server import BLOCK, ONEFOLD, PATIENCE, Pool, onefold, run
from test_filesystems import CAN_MOUNT, Mounted

MIB = 1 << 20


def overcommitted(size):
    """A pool with a volume that is larger than itself."""
    pool = Pool(size)
    onefold("create", pool.path, "--capacity", size)
    onefold("volume", "create", pool.path, "default", "--size", "4G")
    return pool


class FullPool(unittest.TestCase):
    def test_new_blocks_are_refused_and_everything_else_goes_on(self):
        with overcommitted("128M") as pool:
            pool.serve("--memory", "64M", create=False)
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            written = self.fill(client)
            self.assertGreater(len(written), 120)
            client.flush()
            # What is known takes no space, zeroes do not either.
            first = written[0]
            client.pwrite(first, 3000 * MIB)
            client.pwrite(bytes(MIB), 3001 * MIB)
            self.verify(client, written)
            # Log and status say so; new blocks stop at the capacity, and what is there can still be overwritten.
            status = pool.status()
            self.assertGreaterEqual(status["data_percent"], 95)
            self.assertLessEqual(status["data_percent"], 100)
            self.assertIn("writes of new blocks are refused: the pool's capacity is used up", onefold("status", pool.path).stdout)
            deadline = time.time() + PATIENCE
            while "nearly full" not in pool.said() and time.time() < deadline:
                time.sleep(0.1)
            self.assertRegex(pool.said(), r"\d+ % of the pool's capacity are in use .* nearly full")
            for number in range(0, len(written), 3):
                written[number] = os.urandom(MIB)
                client.pwrite(written[number], number * MIB)
            client.flush()
            self.verify(client, written)
            # Space comes back, on discard and on deletion, and the same again after a crash.
            client.trim(32 * MIB, 0)
            self.assertEqual(client.pread(MIB, 0), bytes(MIB))
            again = self.fill(client, first=2000, most=24)
            self.assertEqual(len(again), 24)
            client.flush()
            pool.kill()
            pool.serve("--memory", "64M", create=False)
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            self.verify(client, written[32:], first=32)
            self.verify(client, again, first=2000)
            self.assertEqual(client.pread(MIB, 3000 * MIB), first)
            client.shutdown()
            onefold("volume", "delete", pool.path, "default", "--force")
            onefold("volume", "create", pool.path, "other", "--size", "4G")
            client = nbd.NBD()
            client.connect_uri(pool.uri("other"))
            self.assertGreater(len(self.fill(client)), 120)
            client.shutdown()
            pool.stop()
            pool.check()

    def fill(self, client, first=0, most=400):
        written = []
        while len(written) < most:
            data = os.urandom(MIB)
            try:
                client.pwrite(data, (first + len(written)) * MIB)
            except nbd.Error as error:
                self.assertEqual(error.errnum, errno.ENOSPC)
                break
            written.append(data)
        return written

    def verify(self, client, written, first=0):
        for number, data in enumerate(written, first):
            self.assertEqual(client.pread(MIB, number * MIB), data, number)

    def test_fio_sees_enospc_and_never_wrong_data(self):
        with overcommitted("96M") as pool:
            pool.serve("--memory", "64M", create=False)
            job = ["fio", "--name=full", "--ioengine=nbd", f"--uri={pool.uri()}", "--size=512M", "--bs=64k", "--iodepth=8",
                   "--verify=crc32c", "--refill_buffers", "--verify_fatal=1"]
            filled = run(*job, "--rw=write", "--do_verify=0", check=False)
            self.assertIn("No space left", filled.stdout + filled.stderr)
            # What was written before the error reads back: fio checks each block's header and sum.
            kept = run(*job, "--rw=read", "--verify_only", "--io_size=80M", check=False)
            self.assertNotIn("verify:", kept.stdout + kept.stderr)
            pool.stop()
            pool.check()

    @unittest.skipUnless(CAN_MOUNT, "mounting needs root, FUSE and loop devices")
    def test_ext4_sees_errors_and_what_was_synced_is_there(self):
        with overcommitted("128M") as pool:
            pool.serve("--memory", "64M", create=False)
            mount = os.path.join(pool.folder, "mount")
            os.mkdir(mount)
            volume = Mounted(pool)
            run("mkfs.ext4", "-q", "-F", "-O", "^has_journal", volume.device)
            run("mount", volume.device, mount)
            sums = {}
            for number in range(200):
                data, path = os.urandom(MIB), os.path.join(mount, f"file-{number}")
                try:
                    with open(path, "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                except OSError as error:
                    self.assertIn(error.errno, (errno.ENOSPC, errno.EIO))
                    break
                sums[path] = hashlib.sha256(data).digest()
            self.assertGreater(len(sums), 60)
            self.assertLess(len(sums), 200)
            run("umount", mount)
            volume.close()
            pool.stop()
            pool.check()
            pool.serve("--memory", "64M", create=False)
            volume = Mounted(pool)
            run("fsck.ext4", "-f", "-y", volume.device, check=False)
            run("mount", volume.device, mount)
            for path, expected in sums.items():
                with open(path, "rb") as file:
                    self.assertEqual(hashlib.sha256(file.read()).digest(), expected, path)
            for path in list(sums)[:40]:
                os.remove(path)
            run("fstrim", mount)
            for number in range(20):
                with open(os.path.join(mount, f"again-{number}"), "wb") as file:
                    file.write(os.urandom(MIB))
                    file.flush()
                    os.fsync(file.fileno())
            run("umount", mount)
            volume.close()
            pool.stop()
            pool.check()


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

    @unittest.skipUnless(os.path.exists("/dev/loop-control"), "loop devices need root")
    def test_another_file_fills_the_host(self):
        """On ext4, which promises space only as it writes it, unlike the memory above."""
        with Pool("200M") as pool:
            image, folder = os.path.join(pool.folder, "host.raw"), os.path.join(pool.folder, "small")
            os.mkdir(folder)
            run("truncate", "-s", "220M", image)
            run("mkfs.ext4", "-q", "-F", image)
            run("mount", "-o", "loop", image, folder)
            try:
                pool.path = os.path.join(folder, "disk.onefold")
                pool.serve("--memory", "64M")
                client, written = nbd.NBD(), []
                client.connect_uri(pool.uri())
                for number in range(10):
                    written.append(os.urandom(MIB))
                    client.pwrite(written[-1], number * MIB)
                client.flush()
                ballast = os.path.join(folder, "ballast")
                run("dd", "if=/dev/zero", f"of={ballast}", "bs=1M", check=False)
                with self.assertRaises(nbd.Error) as failure:
                    for number in range(10, 200):
                        data = os.urandom(MIB)
                        client.pwrite(data, number * MIB)
                        written.append(data)
                self.assertEqual(failure.exception.errnum, errno.ENOSPC)
                client.flush()
                self.assertEqual(pool.status()["mode"], "normal")
                for way in (pool.kill, pool.stop):
                    way()
                    pool.serve("--memory", "64M", create=False)
                    client = nbd.NBD()
                    client.connect_uri(pool.uri())
                    for number, data in enumerate(written):
                        self.assertEqual(client.pread(MIB, number * MIB), data)
                os.remove(ballast)
                deadline = time.time() + PATIENCE
                while len(written) < 60:
                    data = os.urandom(MIB)
                    try:
                        client.pwrite(data, len(written) * MIB)
                        written.append(data)
                    except nbd.Error:
                        self.assertLess(time.time(), deadline, "no space came back")
                        time.sleep(0.5)
                client.flush()
                pool.kill()
                pool.check()
                pool.serve("--memory", "64M", create=False)
                client = nbd.NBD()
                client.connect_uri(pool.uri())
                for number, data in enumerate(written):
                    self.assertEqual(client.pread(MIB, number * MIB), data)
                client.shutdown()
                pool.stop()
                pool.check()
            finally:
                if pool.server is not None:
                    pool.kill()
                run("umount", folder)

    def fill_and_go_on(self, pool):
        client = nbd.NBD()
        client.connect_uri(pool.uri())
        written = []
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
        deadline = time.time() + PATIENCE
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


@unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/loop-control"), "loop devices need root")
class CopyOnWrite(unittest.TestCase):
    """Where what is overwritten goes to another place, a full file system has no space for the journal either.

    The pool was read-only from there on, for good."""

    @contextlib.contextmanager
    def host(self, pool, size, make):
        """A small file system in a file; the pool will be in it."""
        image, self.folder = os.path.join(pool.folder, "host.raw"), os.path.join(pool.folder, "small")
        os.mkdir(self.folder)
        run("truncate", "-s", size, image)
        run(*make, image)
        run("mount", "-o", "loop", image, self.folder)
        pool.path = os.path.join(self.folder, "disk.onefold")
        try:
            yield
        finally:
            if pool.server is not None:
                pool.kill()
            # The kernel closes the files of a process that was killed when its last I/O has ended.
            deadline = time.time() + PATIENCE
            while run("umount", self.folder, check=time.time() > deadline).returncode != 0:
                time.sleep(0.1)

    def fill(self, name="ballast"):
        """Takes all the space that there is."""
        with open(os.path.join(self.folder, name), "w") as file:
            size = 64 * MIB
            while size >= BLOCK:
                try:
                    os.posix_fallocate(file.fileno(), os.path.getsize(file.name), size)
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENOSPC)
                    size //= 4
        os.sync()

    def connect(self, pool):
        client = nbd.NBD()
        client.connect_uri(pool.uri())
        return client

    def overwrite(self, client):
        """One block after the other, each flushed; ends with the first error."""
        for number in range(20000):
            self.wrote = (number % 100, os.urandom(BLOCK))
            client.pwrite(self.wrote[1], self.wrote[0] * BLOCK)
            self.contents[self.wrote[0]] = self.wrote[1]
            client.flush()
            self.flushed = dict(self.contents)
        self.fail("the host never became full")

    def verify(self, pool, contents, maybe=()):
        """Blocks hold this; those of `maybe` may also hold what they say."""
        client = self.connect(pool)
        for number, data in contents.items():
            self.assertIn(client.pread(BLOCK, number * BLOCK), [data, *(new for at, new in maybe if at == number)], number)
        client.shutdown()

    def lives_through_a_full_host(self, pool):
        client = self.connect(pool)
        self.contents = {number: os.urandom(BLOCK) for number in range(100)}
        for number, data in self.contents.items():
            client.pwrite(data, number * BLOCK)
        client.flush()
        self.flushed = dict(self.contents)
        run("cp", "--reflink=always", pool.path, pool.path + ".copy")
        self.fill()
        with self.assertRaises(nbd.Error) as failure:
            self.overwrite(client)
        self.assertEqual(failure.exception.errnum, errno.ENOSPC)
        for call in (client.flush, lambda: client.pwrite(bytes(BLOCK), 0), lambda: client.trim(BLOCK, 0), client.flush):
            with self.assertRaises(nbd.Error) as failure:
                call()
            self.assertEqual(failure.exception.errnum, errno.ENOSPC)
        self.assertEqual(pool.status()["mode"], "normal")
        self.verify(pool, self.contents)
        self.assertIn("also for what overwrites something", pool.said())
        return client

    def space_comes_back(self, client):
        os.remove(os.path.join(self.folder, "ballast"))
        os.sync()
        deadline = time.time() + PATIENCE
        while True:
            try:
                return client.flush()
            except nbd.Error as error:
                self.assertEqual(error.errnum, errno.ENOSPC)
                self.assertLess(time.time(), deadline, "no space came back")

    def goes_on_by_itself(self, pool):
        client = self.lives_through_a_full_host(pool)
        # It goes on by itself; the flush covers what those before it could not.
        self.space_comes_back(client)
        pool.kill()
        pool.check()
        pool.serve("--memory", "64M", create=False)
        self.verify(pool, self.contents)
        # Once more, and stopped while there is no space: what was flushed is there.
        client = self.lives_through_a_full_host_again(pool)
        self.assertEqual(pool.end(), 1)
        self.assertIn("unflushed writes may be lost", pool.said())
        os.remove(os.path.join(self.folder, "ballast"))
        os.sync()
        pool.check()
        pool.serve("--memory", "64M", create=False)
        self.verify(pool, self.flushed, maybe=[self.wrote])
        client = self.connect(pool)
        client.pwrite(os.urandom(MIB), 0)
        client.flush()
        client.shutdown()
        pool.stop()
        pool.check()

    def lives_through_a_full_host_again(self, pool):
        os.remove(pool.path + ".copy")
        os.sync()
        return self.lives_through_a_full_host(pool)

    def test_a_full_btrfs_fails_flushes_and_no_more(self):
        with Pool("32M") as pool:
            made = os.path.join(pool.folder, "made")
            onefold("create", made, "--capacity", "32M")
            onefold("volume", "create", made, "default", "--size", "32M")
            with self.host(pool, "256M", ("mkfs.btrfs", "-q", "--mixed")):
                run("cp", "--sparse=always", made, pool.path)
                pool.serve("--memory", "64M", create=False)
                self.assertIn("is on Btrfs, which copies on write", pool.said())
                self.goes_on_by_itself(pool)

    def test_commands_on_a_full_host_are_answered(self):
        """They hung without a word, and sixteen of them made status refused."""
        with Pool("32M") as pool:
            made = os.path.join(pool.folder, "made")
            onefold("create", made, "--capacity", "32M")
            for name in ("default", "other"):
                onefold("volume", "create", made, name, "--size", "32M")
            with self.host(pool, "256M", ("mkfs.btrfs", "-q", "--mixed")):
                run("cp", "--sparse=always", made, pool.path)
                pool.serve("--memory", "64M", create=False)
                client = self.lives_through_a_full_host(pool)
                commands = [["volume", "create", pool.path, f"v{number}", "--size", "4M"] for number in range(16)]
                commands += [["volume", "set", pool.path, "default", "exclusive=on"], ["volume", "delete", pool.path, "other", "--force"]]
                waiting = [subprocess.Popen([ONEFOLD, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                            text=True) for command in commands]
                self.assertEqual(pool.status()["mode"], "normal")
                self.assertTrue(any(command.poll() is None for command in waiting), "status came first")
                for command in waiting:
                    said = command.communicate(timeout=PATIENCE)[1]
                    self.assertIn("host file system is full", said)
                    self.assertEqual(command.returncode, 0 if "in force, and durable when there is space" in said else 1, said)
                done = onefold("status", pool.path, "--settle", check=False)
                self.assertEqual(done.returncode, 1)
                self.assertIn("waits for space", done.stderr)
                os.remove(os.path.join(self.folder, "ballast"))
                os.sync()
                # What was said to be in force is durable with the next command that is answered in the usual way.
                deadline = time.time() + PATIENCE
                while onefold("volume", "create", pool.path, f"last-{time.time()}", "--size", "4M").stderr:
                    self.assertLess(time.time(), deadline, "no space came back")
                del client
                pool.kill()
                pool.serve("--memory", "64M", create=False)
                names = {volume["name"] for volume in pool.status()["volumes"]}
                self.assertLessEqual({f"v{number}" for number in range(16)}, names)
                self.assertNotIn("other", names)
                pool.stop()
                pool.check()

    def test_a_host_that_is_full_from_the_start_takes_commands_and_overwrites(self):
        """Space for metadata is reserved when a pool is made and when it grows; the first checkpoint found none."""
        with Pool("32M") as pool, self.host(pool, "320M", ("mkfs.ext4", "-q", "-F")):
            onefold("create", pool.path, "--capacity", "32M")
            onefold("grow", pool.path, "--capacity", "64M")
            self.fill()
            for command in (["create", pool.path, "default", "--size", "32M"], ["set", pool.path, "default", "policy=full"],
                            ["create", pool.path, "x", "--size", "4M"], ["delete", pool.path, "x"]):
                done = run("timeout", 30, ONEFOLD, "volume", *command)
                self.assertEqual(done.stderr, "")
            pool.serve("--memory", "64M", create=False)
            onefold("volume", "resize", pool.path, "default", "64M")
            self.assertEqual(onefold("set", pool.path, "policy", "full").stderr, "")
            pool.stop()
            pool.check()

    def test_a_full_xfs_fails_flushes_where_the_pool_is_shared_with_a_copy(self):
        with Pool("32M") as pool, self.host(pool, "320M", ("mkfs.xfs", "-q", "-m", "reflink=1")):
            pool.serve("--memory", "64M")
            self.goes_on_by_itself(pool)

    def test_a_pool_that_is_made_on_btrfs_is_written_in_place(self):
        with Pool("32M") as pool, self.host(pool, "256M", ("mkfs.btrfs", "-q", "--mixed")):
            made = onefold("create", pool.path, "--capacity", "32M").stdout
            self.assertIn("written in place (NOCOW)", made)
            self.assertIn("C", run("lsattr", pool.path).stdout.split()[0])
            onefold("volume", "create", pool.path, "default", "--size", "32M")
            pool.serve("--memory", "64M", create=False)
            self.assertNotIn("Btrfs", pool.said())
            client = self.connect(pool)
            data = os.urandom(MIB)
            client.pwrite(data, 0)
            client.flush()
            self.fill()
            for number in range(200):
                client.pwrite(data[number * BLOCK:(number + 1) * BLOCK], (number + 1) % 256 * BLOCK)
                client.flush()
            client.shutdown()
            pool.stop()
            pool.check()


class LimitOnTheSizeOfFiles(unittest.TestCase):
    """RLIMIT_FSIZE: a server was killed by SIGXFSZ, or its pool was read-only for good."""

    def limited(self, pool, limit):
        """A server that is started with a limit, as `prlimit` takes it."""
        pool.program = pool.path + ".sh"
        with open(pool.program, "w") as file:
            file.write(f'#!/bin/sh\nexec prlimit --fsize={limit} {ONEFOLD} "$@"\n')
        os.chmod(pool.program, 0o755)
        return pool

    def test_it_is_looked_at_when_a_pool_is_opened_made_and_grown(self):
        with Pool("128M") as pool:
            self.limited(pool, f"{64 * MIB}:{64 * MIB}")
            onefold("create", pool.path, "--capacity", "128M")
            for command in (["serve", pool.path], ["create", pool.path + ".other", "--capacity", "128M"], ["volume", "create", pool.path, "v", "--size", "1M"]):
                done = run(pool.program, *command, check=False)
                self.assertEqual(done.returncode, 1, done)
                self.assertIn("may write files of 64 MiB only", done.stderr)
            self.assertFalse(os.path.exists(pool.path + ".other"))
            size = os.path.getsize(pool.path)
            done = run(self.limited(pool, f"{size}:{size}").program, "grow", pool.path, "--capacity", "4G", check=False)
            self.assertEqual((done.returncode, os.path.getsize(pool.path)), (1, size))
            self.assertIn("raise the limit on the size of files", done.stderr)

    def test_what_can_be_raised_is_raised_and_what_comes_later_is_a_lack_of_space(self):
        with Pool("128M") as pool:
            self.limited(pool, f"{64 * MIB}:unlimited").serve("--memory", "64M")
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            client.pwrite(os.urandom(MIB), 0)
            client.flush()
            prlimit = lambda soft: run("prlimit", "--pid", pool.server.pid, f"--fsize={soft}:unlimited")
            prlimit(MIB)
            with self.assertRaises(nbd.Error) as refused:
                for number in range(1, 128):
                    client.pwrite(os.urandom(MIB), number * MIB)
                    client.flush()
            self.assertEqual(refused.exception.errnum, errno.ENOSPC)
            self.assertEqual((pool.status()["mode"], pool.status()["failure"]), ("normal", None))
            prlimit("unlimited")
            deadline = time.time() + PATIENCE
            while True:
                try:
                    client.pwrite(os.urandom(MIB), 64 * MIB)
                    client.flush()
                    break
                except nbd.Error:
                    self.assertLess(time.time(), deadline)
                    time.sleep(0.1)
            client.shutdown()
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
