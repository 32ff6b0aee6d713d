"""serve --record: what a server did runs again in the simulator, and takes the same course."""

import os
import re
import shutil
import signal
import subprocess
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, ROOT, Pool, onefold, run

SIM = os.environ.get("SIM", os.path.join(ROOT, "target", "release", "sim"))
KEY_BYTES = 32
MIB = 1 << 20


def rerun(path, *arguments):
    """Runs a recording again: exit status, all that was said, the counts of the last line."""
    done = run(SIM, "rerun", path, *arguments, check=False)
    last = done.stdout.splitlines()[-1] if done.stdout else ""
    counts = {name: int(count) for count, name in re.findall(r"(\d+) (calls|requests|I/Os|divergences|violations)", last)}
    counts.update({"checked": int(found.group(1)) for found in re.finditer(r"(\d+) blocks read and checked", last)})
    return done.returncode, done.stdout + done.stderr, counts


def fio(pool, seconds, *arguments):
    """Random reads, writes and discards, half of them of known blocks, some that are no whole blocks."""
    common = ["--ioengine=nbd", f"--uri={pool.uri()}", "--time_based", f"--runtime={seconds}", "--thread", "--norandommap", "--minimal"]
    load = ["--name=all", "--rw=randrw", "--bsrange=4k-256k", "--iodepth=16", "--numjobs=2", "--refill_buffers",
            "--dedupe_percentage=50", "--rate_iops=300,300", "--fsync=50"]
    odd = ["--name=odd", "--rw=randrw", "--bs=1536", "--blockalign=512", "--iodepth=8", "--rate_iops=200,200"]
    discards = ["--name=discard", "--rw=randtrim", "--bs=1m", "--iodepth=2", "--rate_iops=5,5,5"]
    return subprocess.Popen(["fio", *common, *load, *odd, *discards, *arguments], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True)


def recorded(path, requests):
    """Waits until the file has so many requests: how soon a load gets going, and how late a file is written, is the machine's."""
    deadline = time.time() + PATIENCE
    while rerun(path)[2]["requests"] < requests:
        if time.time() > deadline:
            raise AssertionError(f"{requests} requests are not recorded: {rerun(path)[1]}")
        time.sleep(0.2)


def end(clients):
    """A job of fio whose server is gone may wait for ever."""
    os.killpg(clients.pid, signal.SIGKILL)
    clients.wait()


class Record(unittest.TestCase):
    def assert_same(self, path, ending, requests=1):
        status, said, counts = rerun(path)
        self.assertEqual(status, 0, said)
        self.assertIn(ending, said)
        self.assertEqual((counts["divergences"], counts["violations"]), (0, 0), said)
        self.assertGreaterEqual(counts["requests"], requests, said)
        return counts

    def test_a_day_in_the_life_of_a_server_runs_again(self):
        with Pool("1G") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve("--memory", "96M", "--record", record)
            clients = fio(pool, 10)
            time.sleep(2)
            onefold("volume", "create", pool.path, "second", "--size", "64M")
            onefold("set", pool.path, "memory", "64M")
            run("qemu-io", "-f", "raw", pool.uri("second"), "-c", "write -P 7 1000 70000", "-c", "read -P 7 1000 70000",
                "-c", "write -z 4096 8192", "-c", "discard 0 1M", "-c", "read -P 0 0 1M", "-c", "flush")
            onefold("volume", "resize", pool.path, "second", "32M", "--force")
            onefold("volume", "resize", pool.path, "second", "96M")
            onefold("volume", "set", pool.path, "second", "policy=native")
            run("qemu-io", "-f", "raw", pool.uri("second"), "-c", "write -P 9 30M 8M", "-c", "read -P 9 30M 8M",
                "-c", "read -P 0 40M 8M")
            onefold("set", pool.path, "memory", "128M")
            onefold("volume", "delete", pool.path, "second")
            onefold("volume", "create", pool.path, "third", "--size", "16M")
            self.assertEqual(clients.wait(), 0)
            pool.status("--settle")
            pool.stop()
            counts = self.assert_same(record, "the server stopped", 3000)
            self.assertGreater(counts["checked"], 1000)
            self.assertEqual(os.stat(record).st_mode & 0o777, 0o600)
            self.secrets(pool, record)

    def secrets(self, pool, record):
        """No block of data and not the key is in a recording."""
        with open(pool.path, "rb") as file:
            key = file.read(BLOCK)[56:88]
        with open(record, "rb") as file:
            recorded = file.read()
        self.assertGreater(len(set(key)), 8)
        for at in range(0, KEY_BYTES, 8):
            self.assertNotIn(key[at:at + 8], recorded)

    def test_what_a_killed_server_did_and_how_it_recovered_runs_again(self):
        with Pool("1G") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve("--memory", "64M", "--record", record)
            for _ in range(3):
                clients = fio(pool, 60)
                recorded(record, 1500)
                pool.kill()
                end(clients)
                self.assert_same(record, "the server was killed", 500)
                pool.serve("--memory", "64M", "--record", record, create=False)
            # Recovery alone, and the recordings of before.
            pool.kill()
            self.assert_same(record, "the server was killed", 0)
            for number in (1, 2, 3):
                self.assert_same(f"{record}.{number}", "the server was killed", 500)
            pool.serve("--memory", "64M", "--record", record, create=False)
            pool.stop()
            self.assertFalse(os.path.exists(f"{record}.4"))

    def test_payload_of_the_journal_is_left_out(self):
        with Pool("64M") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve()
            secret = (b"attack at dawn. " * 256)[:BLOCK]
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            for number in range(64):
                block = number.to_bytes(8, "big") + secret[8:]
                client.pwrite(block, number * BLOCK * 2, nbd.CMD_FLAG_FUA)
            pool.kill()
            with open(pool.path, "rb") as file:
                file.seek(MIB)
                self.assertIn(b"attack at dawn", file.read(2 * MIB), "the journal carries blocks")
            pool.serve("--record", record, create=False)
            again = nbd.NBD()
            again.connect_uri(pool.uri())
            self.assertEqual(bytes(again.pread(BLOCK, 6 * BLOCK))[8:], secret[8:])
            again.shutdown()
            pool.stop()
            self.assert_same(record, "the server stopped")
            with open(record, "rb") as file:
                self.assertNotIn(b"attack at dawn", file.read())

    def test_a_changed_byte_is_noticed(self):
        with Pool("256M") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve("--record", record)
            clients = fio(pool, 4)
            self.assertEqual(clients.wait(), 0)
            pool.stop()
            self.assert_same(record, "the server stopped")
            with open(record, "r+b") as file:
                file.seek(os.path.getsize(record) // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 1]))
            status, said, _ = rerun(record)
            self.assertEqual(status, 1, said)
            self.assertIn("damaged", said)

    def test_the_size_is_a_bound_and_the_server_goes_on(self):
        with Pool("256M") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve("--record", record, "--record-size", "1M")
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            for at in range(0, 200 * MIB, MIB):
                client.pwrite(os.urandom(MIB), at)
                client.pread(MIB, at)
            client.shutdown()
            self.assertIn("ends here: it has its greatest size", pool.said())
            pool.stop()
            self.assertLessEqual(os.path.getsize(record), MIB)
            self.assertGreater(os.path.getsize(record), MIB - (64 << 10))
            self.assert_same(record, "greatest size", 100)
            self.assertEqual(onefold("check", pool.path, check=False).returncode, 0)

    def test_no_other_file_is_overwritten(self):
        with Pool("64M") as pool:
            pool.serve()
            pool.stop()
            for path in (pool.path, __file__, pool.folder, "/dev/full"):
                refused = onefold("serve", pool.path, "--record", path, check=False)
                self.assertEqual(refused.returncode, 1, path)
                self.assertIn("--record", refused.stderr)
            self.assertEqual(onefold("check", pool.path, check=False).returncode, 0)
            record = os.path.join(pool.folder, "calls")
            # Made before the pool is served again: a copy of a served pool has its owner.
            copy = os.path.join(pool.folder, "copy.onefold")
            shutil.copy(pool.path, copy)
            pool.serve("--record", record, create=False)
            other = onefold("serve", copy, "--record", record, check=False)
            self.assertIn("another server is recording to it", other.stderr)
            pool.stop()

    def test_what_is_no_recording_is_refused(self):
        for path in (__file__, "/dev/null", "/nonexistent"):
            status, said, _ = rerun(path)
            self.assertEqual(status, 1)
            self.assertIn(path, said)
            self.assertNotIn("panicked", said)

    def test_the_calls_can_be_looked_at(self):
        with Pool("64M") as pool:
            record = os.path.join(pool.folder, "calls")
            pool.serve("--record", record)
            run("qemu-io", "-f", "raw", pool.uri(), "-c", "write 0 64k", "-c", "flush")
            pool.stop()
            _, said, counts = rerun(record, "--trace")
            self.assertIn("operation: Flush", said)
            self.assertIn("Opened(Ok(", said)
            half = counts["calls"] // 2
            _, said, until = rerun(record, "--trace", "--from", str(half), "--until", str(half + 5))
            self.assertEqual(until["calls"], half + 5)
            self.assertNotIn("Opened(Ok(", said)


if __name__ == "__main__":
    unittest.main()
