"""The clients that people use, and what the protocol promises them."""

import json
import os
import random
import signal
import socket
import struct
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, Pool, onefold, run


def connect(pool, volume="default", contexts=()):
    client = nbd.NBD()
    for context in contexts:
        client.add_meta_context(context)
    client.connect_uri(pool.uri(volume))
    return client


def raw_connection(pool):
    """A connection that receives only what it is told to, in transmission, with simple replies."""
    client = socket.socket(socket.AF_UNIX)
    client.connect(pool.path + ".sock")
    client.recv(18, socket.MSG_WAITALL)
    client.sendall(struct.pack(">I8sII7s", 3, b"IHAVEOPT", 1, 7, b"default"))
    client.recv(10, socket.MSG_WAITALL)
    return client


def request(command, offset, length):
    return struct.pack(">IHHQQI", 0x25609513, 0, command, offset, offset, length)


def check_that_it_is_served(case, client, seconds):
    cookies = [client.aio_pwrite(b"y" * BLOCK, 0), client.aio_pread(nbd.Buffer(BLOCK), BLOCK)]
    deadline = time.time() + seconds
    while client.aio_in_flight():
        client.poll(1000)
        case.assertLess(time.time(), deadline, "a client is not served")
    case.assertTrue(all(client.aio_command_completed(cookie) for cookie in cookies))


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = Pool("256M").serve("--memory", "96M")

    @classmethod
    def tearDownClass(cls):
        cls.pool.stop()
        cls.pool.check()
        cls.pool.__exit__()

    def test_nbdinfo_sees_every_feature(self):
        info = json.loads(run("nbdinfo", "--json", self.pool.uri()).stdout)
        export = info["exports"][0]
        for feature in ("can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn", "can_df"):
            self.assertTrue(export[feature], feature)
        sizes = (export["block_size_minimum"], export["block_size_preferred"], export["block_size_maximum"])
        self.assertEqual(sizes, (1, 4096, 32 << 20))
        self.assertIn("base:allocation", export["contexts"])

    def test_every_volume_is_an_export_and_the_empty_name_is_the_default(self):
        onefold("volume", "create", self.pool.path, "other", "--size", "8M", "--policy", "native")
        listed = json.loads(run("nbdinfo", "--list", "--json", self.pool.uri("")).stdout)
        names = {export["export-name"] for export in listed["exports"]}
        self.assertLessEqual({"default", "other"}, names)
        self.assertEqual(run("nbdinfo", "--size", self.pool.uri("")).stdout.strip(), str(256 << 20))
        self.assertNotEqual(run("nbdinfo", self.pool.uri("nosuch"), check=False).returncode, 0)

    def test_any_offset_and_length_reads_back(self):
        """Requests of any alignment against a plain bytearray, up to 3 MiB, checked through a second connection."""
        span = 16 << 20
        writer, reader = connect(self.pool), connect(self.pool)
        writer.zero(span, 0)
        model, chance = bytearray(span), random.Random(1)
        for _ in range(300):
            length = chance.choice((1, 511, 512, 4095, 4096, 4097, 70000, 1 << 20, 3 << 20))
            offset = chance.randrange(span - length)
            kind = chance.random()
            if kind < 0.6:
                data = chance.randbytes(min(length, 4096)) * (length // 4096 + 1)
                writer.pwrite(data[:length], offset, nbd.CMD_FLAG_FUA if kind < 0.1 else 0)
                model[offset : offset + length] = data[:length]
            elif kind < 0.7:
                writer.trim(length, offset)
                model[offset : offset + length] = bytes(length)
            elif kind < 0.8:
                writer.zero(length, offset, chance.choice((0, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FAST_ZERO)))
                model[offset : offset + length] = bytes(length)
            else:
                self.assertEqual(reader.pread(length, offset), model[offset : offset + length])
        self.assertEqual(reader.pread(span, 0), model)
        chunks = []
        keep = lambda data, offset, _status, _error: chunks.append((offset, bytes(data)))
        reader.pread_structured(span, 0, keep, nbd.CMD_FLAG_DF)
        self.assertEqual(chunks, [(0, bytes(model))], "not fragmented")

    def test_without_structured_replies_too(self):
        client = nbd.NBD()
        client.set_request_structured_replies(False)
        client.connect_uri(self.pool.uri())
        data = os.urandom(5 << 20)
        client.pwrite(data, 40 << 20)
        self.assertEqual(client.pread(len(data), 40 << 20), data)

    def test_the_greatest_request_is_32_mib(self):
        client = connect(self.pool)
        data = os.urandom(1 << 20) * 32
        client.pwrite(data, 64 << 20)
        self.assertEqual(client.pread(32 << 20, 64 << 20), data)

    def test_allocation_says_where_data_is(self):
        client = connect(self.pool, contexts=["base:allocation"])
        client.trim(1 << 20, 128 << 20)
        client.pwrite(os.urandom(BLOCK), (128 << 20) + 2 * BLOCK)
        extents = []
        client.block_status(1 << 20, 128 << 20, lambda _context, _offset, entries, _error: extents.extend(entries))
        self.assertEqual(extents[:6], [2 * BLOCK, 3, BLOCK, 0, (1 << 20) - 3 * BLOCK, 3])

    def test_beyond_the_end_is_an_error_and_nothing_else(self):
        client = connect(self.pool)
        client.set_strict_mode(0)
        size = client.get_size()
        for request in (
            lambda: client.pread(BLOCK, size),
            lambda: client.pread(2 * BLOCK, size - BLOCK),
            lambda: client.pwrite(bytes(2 * BLOCK), size - BLOCK),
            lambda: client.trim(2 * BLOCK, size - BLOCK),
            lambda: client.zero(BLOCK, (1 << 63) - BLOCK),
            lambda: client.pread(BLOCK, (1 << 64) - BLOCK),
        ):
            with self.assertRaises(nbd.Error) as failure:
                request()
            self.assertIn(failure.exception.errnum, (22, 28))
        client.pwrite(b"x" * BLOCK, size - BLOCK)
        self.assertEqual(client.pread(BLOCK, size - BLOCK), b"x" * BLOCK)

    def test_qemu_io_and_nbdcopy(self):
        uri = self.pool.uri()
        patterns = ["write -P 7 1000 5000", "read -P 7 1000 5000", "write -z 0 1M", "read -P 0 0 1M", "flush", "discard 0 4M"]
        out = run("qemu-io", "-f", "raw", *[a for p in patterns for a in ("-c", p)], uri).stdout
        self.assertNotIn("failed", out)
        copy = os.path.join(self.pool.folder, "copy.raw")
        run("nbdcopy", uri, copy)
        run("nbdcopy", copy, uri)
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", copy, uri)

    def test_fio_verifies_over_several_connections(self):
        if "nbd" not in run("fio", "--enghelp").stdout:
            self.skipTest("this fio has no nbd engine")
        jobs = ["--ioengine=nbd", f"--uri={self.pool.uri()}", "--rw=randwrite", "--bsrange=512-64k", "--iodepth=16",
                "--numjobs=4", "--size=24m", "--offset_increment=24m", "--verify=crc32c", "--verify_fatal=1",
                "--fsync=64", "--verify_state_save=0", "--group_reporting", "--name=verify"]
        run("fio", *jobs)

    def test_a_client_that_takes_no_replies_leaves_space_for_others(self):
        other = connect(self.pool)
        other.pwrite(os.urandom(8 << 20), 0)
        with raw_connection(self.pool) as deaf:
            deaf.sendall(b"".join(request(0, at * BLOCK, BLOCK) for at in range(1500)))
            time.sleep(0.5)
            check_that_it_is_served(self, other, 10)

    def test_memory_stays_under_its_number(self):
        status = self.pool.status()
        self.assertEqual(status["memory_cap_bytes"], 96 << 20)
        self.assertLessEqual(self.pool.resident_bytes(), (96 << 20) + (32 << 20))


class LittleMemory(unittest.TestCase):
    """What clients do to each other, and to themselves, where buffers are few."""

    def setUp(self):
        self.pool = Pool("256M").serve("--memory", "44M")
        self.addCleanup(self.pool.__exit__)

    def test_a_long_simple_reply_does_not_wait_for_what_waits_for_it(self):
        length, long, hole = 48 << 20, 24 << 20, (16 << 20) - BLOCK
        data = bytearray(os.urandom(length))
        data[hole : hole + BLOCK] = bytes(BLOCK)
        writer = connect(self.pool)
        for offset in range(0, length, 1 << 20):
            writer.pwrite(data[offset : offset + (1 << 20)], offset)
        writer.shutdown()
        for early in (2, 3, 4, 5, 9):
            # Nothing is cached after a start: what is read first takes a while, and the first piece of the long read, a
            # hole, does not.
            self.pool.stop()
            self.pool.serve("--memory", "44M", create=False)
            client = nbd.NBD()
            client.set_request_structured_replies(False)
            client.connect_uri(self.pool.uri())
            ranges = [(at * (1 << 20) + BLOCK, 900 << 10) for at in range(early)]
            ranges += [(hole + 100, long), (BLOCK, 900 << 10)]
            buffers = [nbd.Buffer(size) for _, size in ranges]
            # All requests arrive at once.
            self.pool.server.send_signal(signal.SIGSTOP)
            cookies = [client.aio_pread(buffer, offset) for buffer, (offset, _) in zip(buffers, ranges)]
            self.pool.server.send_signal(signal.SIGCONT)
            deadline = time.time() + PATIENCE
            while client.aio_in_flight():
                client.poll(1000)
                self.assertLess(time.time(), deadline, "the server hangs")
            self.assertTrue(all(client.aio_command_completed(cookie) for cookie in cookies))
            for buffer, (offset, size) in zip(buffers, ranges):
                self.assertEqual(buffer.to_bytearray(), data[offset : offset + size])
            # The others are served too.
            self.assertEqual(connect(self.pool).pread(BLOCK, 0), data[:BLOCK])

    def test_who_sends_or_takes_next_to_nothing_makes_space(self):
        """Writes that trickle in hold all buffers, and a reader takes its reply slowly; only the writers are ended."""
        client, slow = connect(self.pool), raw_connection(self.pool)
        client.pwrite(os.urandom(4 << 20), 0)
        writers = [raw_connection(self.pool) for _ in range(12)]
        for connection in (slow, *writers):
            self.addCleanup(connection.close)
        for writer in writers:
            writer.sendall(request(1, 0, 1 << 20))
        slow.sendall(request(0, 0, 4 << 20))
        left, started = 16 + (4 << 20), time.time()

        def trickle():
            nonlocal left
            for writer in writers:
                try:
                    writer.sendall(b"x")
                except OSError:
                    pass
            left -= len(slow.recv(min(left, 50_000), socket.MSG_WAITALL))

        cookie = client.aio_pwrite(b"y" * BLOCK, 8 << 20)
        while not client.aio_command_completed(cookie):
            client.poll(500)
            trickle()
            self.assertLess(time.time() - started, PATIENCE, "writers that send nothing keep all buffers")
        while left > 0 and time.time() - started < PATIENCE:
            trickle()
        self.assertEqual(left, 0)


if __name__ == "__main__":
    unittest.main()
