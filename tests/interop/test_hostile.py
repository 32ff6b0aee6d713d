"""Clients that lie, stall, vanish or flood: their own connection ends or waits, nobody else notices, memory does not grow.

In every test a well-behaved client writes and reads on another connection all the time. Where a test stands for a
vulnerability of another server, its number is in the name or the docstring; docs/internals/client-limits.md has the whole list."""

import contextlib
import os
import random
import re
import resource
import select
import socket
import struct
import subprocess
import threading
import time
import unittest

import nbd

from server import BLOCK, ONEFOLD, Pool, onefold

MIB = 1 << 20
MEMORY = 128 * MIB
# What the resident memory may grow by in one test, after the warm-up has used every buffer.
GROWTH_MAX = 24 * MIB
PATIENCE = 40

EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, EXTENDED = 1, 2, 3, 5, 6, 7, 8, 9, 10, 11
REP_ACK, REP_SERVER, REP_INFO, REP_META = 1, 2, 3, 4
REP_ERR_UNSUP, REP_ERR_INVALID, REP_ERR_UNKNOWN, REP_ERR_TOO_BIG = 0x80000001, 0x80000003, 0x80000006, 0x80000009
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO = 1, 2, 4, 8, 16
EINVAL, ENOSPC = 22, 28


def option(number, data=b"", length=None):
    """An option; `length` is what its header claims."""
    return struct.pack(">8sII", b"IHAVEOPT", number, len(data) if length is None else length) + data


def named(name, length=None):
    """The data of INFO and GO: a name, and no information requests."""
    return struct.pack(">I", len(name) if length is None else length) + name + b"\0\0"


def meta(name, *queries):
    packed = b"".join(struct.pack(">I", len(query)) + query for query in queries)
    return struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries)) + packed


def command(number, offset, length, flags=0, cookie=7, magic=0x25609513):
    return struct.pack(">IHHQQI", magic, flags, number, cookie, offset, length)


class Raw(socket.socket):
    """A connection byte by byte."""

    def __init__(self, pool):
        super().__init__(socket.AF_UNIX)
        self.settimeout(PATIENCE)
        try:
            self.connect(pool.path + ".sock")
        except OSError:
            self.close()
            raise

    def take(self, count):
        data = b""
        while len(data) < count:
            more = self.recv(count - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def greet(self, flags=3):
        self.take(18)
        self.sendall(struct.pack(">I", flags))
        return self

    def reply(self):
        """The next reply to an option: its number, kind and data."""
        magic, number, kind, length = struct.unpack(">QIII", self.take(20))
        assert magic == 0x3E889045565A9 and length <= 8192, (magic, length)
        return number, kind, self.take(length)

    def answer(self, number):
        """Replies to an option up to the last one; the kind of that."""
        while True:
            replied, kind, _ = self.reply()
            assert replied == number, (replied, number)
            if kind == REP_ACK or kind >> 31:
                return kind

    def ask(self, number, data=b""):
        self.sendall(option(number, data))
        return self.answer(number)

    def go(self, name=b"default"):
        assert self.ask(GO, named(name)) == REP_ACK
        return self

    def result(self):
        """The error of the next simple reply."""
        magic, error, cookie = struct.unpack(">IIQ", self.take(16))
        assert magic == 0x67446698 and cookie == 7, (magic, cookie)
        return error

    def is_closed(self):
        """Whether the server ends the connection (before anyone's patience does)."""
        try:
            while self.recv(1 << 16):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def send_until_full(self, data):
        """Sends the data again and again until the server has not taken anything for a while."""
        self.setblocking(False)
        rest, sent = b"", 0
        while select.select([], [self], [], 0.5)[1]:
            rest = rest or data
            try:
                count = self.send(rest)
            except BlockingIOError:
                continue
            rest, sent = rest[count:], sent + count
        return sent


class Neighbour(threading.Thread):
    """A well-behaved client: writes, reads back, flushes, in a place of its own."""

    def __init__(self, pool):
        super().__init__()
        self.pool, self.rounds, self.error, self.ends = pool, 0, None, False

    def run(self):
        chance = random.Random(5)
        try:
            client = nbd.NBD()
            client.connect_uri(self.pool.uri())
            while not self.ends:
                offset, length = chance.randrange(4 * MIB), chance.choice((100, BLOCK, 40000))
                data = chance.randbytes(length)
                client.pwrite(data, offset)
                if client.pread(length, offset) != data:
                    raise AssertionError(f"{length} bytes at {offset} are not what was written")
                if self.rounds % 16 == 0:
                    client.flush()
                self.rounds += 1
                time.sleep(0.002)
            client.shutdown()
        except Exception as error:
            self.error = error

    def goes_on(self, case):
        """Several more rounds."""
        goal, deadline = self.rounds + 5, time.time() + PATIENCE
        while self.rounds < goal and self.error is None:
            case.assertLess(time.time(), deadline, "the well-behaved client is not served")
            time.sleep(0.01)
        case.assertIsNone(self.error)


class Hostile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = Pool("256M").serve("--memory", str(MEMORY))
        # Every buffer has been used before anything is measured.
        client = nbd.NBD()
        client.connect_uri(cls.pool.uri())
        for _ in range(2):
            for offset in range(16 * MIB, 144 * MIB, MIB):
                client.pwrite(os.urandom(MIB), offset)
            for offset in range(16 * MIB, 144 * MIB, MIB):
                client.pread(MIB, offset)
        client.shutdown()

    @classmethod
    def tearDownClass(cls):
        if cls.pool.resident_bytes() > MEMORY + 32 * MIB:
            raise AssertionError(f"{cls.pool.resident_bytes()} bytes at the most")
        if "panicked" in cls.pool.said():
            raise AssertionError(cls.pool.said())
        cls.pool.stop()
        cls.pool.check()
        cls.pool.__exit__()

    def setUp(self):
        self.resident = self.pool.resident_bytes(peak=False)
        self.neighbour = Neighbour(self.pool)
        self.neighbour.start()
        self.addCleanup(self.end)
        self.neighbour.goes_on(self)

    def tearDown(self):
        self.neighbour.goes_on(self)
        grown = self.pool.resident_bytes(peak=False) - self.resident
        self.assertLess(grown, GROWTH_MAX, "memory has grown")

    def end(self):
        self.neighbour.ends = True
        self.neighbour.join()
        self.assertIsNone(self.neighbour.error)

    def raw(self):
        client = Raw(self.pool)
        self.addCleanup(client.close)
        return client

    def check_that_it_serves(self):
        with self.raw().greet().go() as client:
            client.sendall(command(FLUSH, 0, 0))
            self.assertEqual(client.result(), 0)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pool.server.pid}/fd"))

    def wait_for_descriptors(self, most):
        deadline = time.time() + PATIENCE
        while self.descriptors() > most:
            self.assertLess(time.time(), deadline, "connections are left behind")
            time.sleep(0.05)

    # ---- lengths that lie, and huge ones ----

    def test_cve_2022_26495_name_length_that_lies(self):
        for number in (INFO, GO):
            for length in (0xFFFFFFFF, 0xFFFFFFFA, 0x80000000, 4097, 8):
                client = self.raw().greet()
                self.assertEqual(client.ask(number, named(b"default", length)), REP_ERR_INVALID)
                self.assertEqual(client.ask(number, named(b"default")), REP_ACK, "the stream is still in step")
        client = self.raw().greet()
        self.assertEqual(client.ask(STRUCTURED_REPLY), REP_ACK)
        for data in (struct.pack(">I", 0xFFFFFFFF) + b"default\0\0\0\0", struct.pack(">I7sI", 7, b"default", 0xFFFFFFFF),
                     struct.pack(">I7sII", 7, b"default", 1, 0xFFFFFFFF) + b"base:allocation", b"", b"\0"):
            self.assertIn(client.ask(SET_META, data), (REP_ERR_INVALID, REP_ERR_TOO_BIG))
        client.go()

    def test_cve_2022_26496_info_and_go_with_more_data_than_they_need(self):
        for number in (INFO, GO):
            for size in (1024, 1025, 4096, 8192):
                client = self.raw().greet()
                requests = struct.pack(">H", size) + b"\0\x03" * size
                self.assertEqual(client.ask(number, struct.pack(">I7s", 7, b"default") + requests), REP_ACK)
            client = self.raw().greet()
            self.assertEqual(client.ask(number, named(b"default") + bytes(8000)), REP_ERR_INVALID)
            client.go()

    def test_cve_2017_15119_option_of_4_gib_is_not_drained(self):
        for number in (EXPORT_NAME, LIST, GO, 12345):
            for length in (0xFFFFFFFF, 1 << 31, (1 << 20) + 1):
                client = self.raw().greet()
                client.sendall(option(number, b"some of it", length))
                self.assertTrue(client.is_closed())

    def test_huge_options_again_and_again(self):
        """No more options than a handshake can need."""
        client = self.raw().greet()
        with contextlib.suppress(ConnectionError):
            for _ in range(400):
                client.sendall(option(12345, bytes(16000)))
        self.assertTrue(client.is_closed())

    def test_cve_2005_3534_and_cve_2011_0530_requests_longer_than_any_buffer(self):
        client = self.raw().greet().go()
        for length in (0xFFFFFFFF, 0x80000000, 64 * MIB, 32 * MIB + 1):
            client.sendall(command(READ, 0, length))
            self.assertEqual(client.result(), EINVAL)
        for length in (0xFFFFFFFF, 0x80000000):
            with self.raw().greet().go() as writer:
                writer.sendall(command(WRITE, 0, length) + b"some of it")
                self.assertTrue(writer.is_closed(), "so much is not swallowed")
        self.check_that_it_serves()

    def test_offsets_that_wrap(self):
        client = self.raw().greet().go()
        for number in (READ, TRIM, WRITE_ZEROES):
            for offset, length in (((1 << 64) - BLOCK, BLOCK), ((1 << 64) - 1, 2), (1 << 63, 1), (256 * MIB, 1),
                                   (256 * MIB - 1, 2), ((1 << 64) - 1, 0xFFFFFFFF)):
                client.sendall(command(number, offset, length))
                self.assertIn(client.result(), (EINVAL, ENOSPC))
        for offset in (256 * MIB, 256 * MIB - 1, (1 << 64) - 2):
            client.sendall(command(WRITE, offset, 4) + b"abcd")
            self.assertEqual(client.result(), ENOSPC, "as the specification says, not EINVAL as qemu-nbd")
        client.sendall(command(FLUSH, 0, 0))
        self.assertEqual(client.result(), 0)

    def test_a_flood_of_requests_that_cost_much_is_answered_and_keeps_nobody_out(self):
        """Pipelined BLOCK_STATUS of a dense range kept others waiting for a second and more, and handshakes were given up."""
        floods = [(command(BLOCK_STATUS, 0, 256 * MIB), True), (command(TRIM, 128 * MIB, 128 * MIB), False),
                  (command(WRITE_ZEROES, 128 * MIB, 128 * MIB), False), (command(FLUSH, 0, 0), False)]
        clients = []
        for request, structured in floods * 3:
            client = self.raw().greet()
            if structured:
                self.assertEqual(client.ask(STRUCTURED_REPLY), REP_ACK)
                self.assertEqual(client.ask(SET_META, meta(b"default", b"base:allocation")), REP_ACK)
            clients.append((client.go(), structured))
            client.sendall(request * 300)
        self.neighbour.goes_on(self)
        for client, structured in clients:
            for _ in range(300):
                if structured:
                    _, flags, kind, _, length = struct.unpack(">IHHQI", client.take(20))
                    self.assertEqual((flags, kind), (1, 5))
                    client.take(length)
                else:
                    self.assertEqual(client.result(), 0)

    def test_cve_2025_47711_and_cve_2025_47712_block_status_of_everything(self):
        client = self.raw().greet()
        self.assertEqual(client.ask(STRUCTURED_REPLY), REP_ACK)
        self.assertEqual(client.ask(SET_META, meta(b"default", b"base:allocation")), REP_ACK)
        client.go()
        for offset, length, good in ((0, 0xFFFFFFFF, False), (0, 256 * MIB, True), (BLOCK - 1, 0xFFFFF000, False),
                                     (0, 0, None), (1, 256 * MIB - 1, True), (200 * MIB + 1, 513, True)):
            for flags in (0, REQ_ONE):
                client.sendall(command(BLOCK_STATUS, offset, length, flags))
                magic, _, kind, cookie, size = struct.unpack(">IHHQI", client.take(20))
                self.assertEqual((magic, cookie), (0x668E33EF, 7))
                body = client.take(size)
                if good is not None:
                    self.assertEqual(kind, 5 if good else 0x8001, (offset, length))
                if kind == 5:
                    lengths = struct.unpack(f">{(size - 4) // 4}I", body[4:])[::2]
                    self.assertTrue(all(lengths))
                    self.assertLess(sum(lengths[:-1]), length)
                    self.assertLessEqual(sum(lengths), length)

    # ---- names ----

    def test_cve_2017_15118_and_cve_2020_10761_names_of_every_length(self):
        """Long names must neither overflow anything nor make the error message longer than one may be."""
        for size in (255, 256, 257, 1023, 4095, 4096):
            client = self.raw().greet()
            for number in (INFO, GO):
                self.assertEqual(client.ask(number, named(b"n" * size)), REP_ERR_UNKNOWN, size)
            self.assertIn(client.ask(GO, named(b"n" * 4097)), (REP_ERR_INVALID, REP_ERR_UNKNOWN))
            client.sendall(option(EXPORT_NAME, b"n" * size))
            self.assertTrue(client.is_closed())
        for name in (b"\0", b"default\0", b"\xff\xfe", b"../default", b"DEFAULT", b"default "):
            self.assertGreater(self.raw().greet().ask(GO, named(name)), REP_ERR_UNSUP)

    def test_cve_2013_7441_an_export_that_is_not_there_ends_that_connection_only(self):
        for _ in range(20):
            client = self.raw().greet()
            client.sendall(option(EXPORT_NAME, b"nosuch"))
            self.assertTrue(client.is_closed())
        self.check_that_it_serves()

    # ---- order, and data where none belongs ----

    def test_cve_2017_7539_data_where_an_option_has_none(self):
        client = self.raw().greet()
        for number in (LIST, STRUCTURED_REPLY):
            self.assertEqual(client.ask(number, b"unexpected"), REP_ERR_INVALID)
        self.assertEqual(client.ask(EXTENDED, b"unexpected"), REP_ERR_UNSUP)
        self.assertEqual(client.ask(ABORT, b"unexpected"), REP_ACK)
        self.assertTrue(client.is_closed())

    def test_cve_2017_9524_talking_before_the_greeting(self):
        whole = struct.pack(">I", 3) + option(GO, named(b"default")) + command(FLUSH, 0, 0) + command(DISC, 0, 0)
        for _ in range(20):
            client = self.raw()
            client.sendall(whole)
            client.take(18)
            self.assertEqual(client.answer(GO), REP_ACK)
            self.assertEqual(client.result(), 0)
            self.assertTrue(client.is_closed())

    def test_cve_2019_14851_options_and_commands_in_any_order(self):
        chance = random.Random(14851)
        words = [option(STRUCTURED_REPLY), option(SET_META, meta(b"default", b"base:allocation")), option(LIST),
                 option(LIST_META, meta(b"default")), option(INFO, named(b"default")), option(STARTTLS), option(EXTENDED),
                 option(SET_META, meta(b"nosuch", b"base:")), option(99, b"abc"), option(GO, named(b"nosuch"))]
        last = [option(GO, named(b"default")), option(ABORT), option(EXPORT_NAME, b"default"), option(EXPORT_NAME, b"nosuch"),
                command(READ, 0, 1), b"nonsense and more nonsense", b""]
        after = [command(READ, 0, 100), command(WRITE, 8 * MIB, 5) + b"hello", command(FLUSH, 0, 0), command(BLOCK_STATUS, 0, 5),
                 command(CACHE, 0, 5), command(99, 0, 0), command(READ, 0, 0), command(WRITE, 8 * MIB, 0), option(LIST),
                 command(DISC, 0, 0), command(WRITE_ZEROES, 8 * MIB, 5, FAST_ZERO)]
        for _ in range(300):
            parts = [struct.pack(">I", chance.choice((3, 3, 3, 1, 2, 0)))]
            parts += [chance.choice(words) for _ in range(chance.randrange(6))] + [chance.choice(last)]
            parts += [chance.choice(after) for _ in range(chance.randrange(6))]
            client = self.raw()
            with contextlib.suppress(ConnectionError):
                client.sendall(b"".join(parts))
                client.shutdown(socket.SHUT_WR)
            self.assertTrue(client.is_closed())
            client.close()
        self.check_that_it_serves()

    def test_cve_2021_3716_starttls_changes_nothing_and_nothing_is_left_of_it(self):
        """There is no TLS: STARTTLS is refused, and what comes before and after it is one plain session."""
        client = self.raw().greet()
        client.sendall(option(STRUCTURED_REPLY) + option(STARTTLS) + option(STARTTLS, b"data") + option(LIST))
        self.assertEqual(client.answer(STRUCTURED_REPLY), REP_ACK)
        self.assertEqual(client.answer(STARTTLS), REP_ERR_UNSUP)
        self.assertGreaterEqual(client.answer(STARTTLS), REP_ERR_UNSUP)
        self.assertEqual(client.answer(LIST), REP_ACK)
        client.go()

    def test_wrong_magic_numbers_and_flags(self):
        for flags in (4, 0x80000000, 0xFFFFFFFF):
            self.assertTrue(self.raw().greet(flags).is_closed())
        client = self.raw().greet()
        client.sendall(b"IHAVEOPS" + bytes(8))
        self.assertTrue(client.is_closed())
        client = self.raw().greet().go()
        client.sendall(command(READ, 0, 1, magic=0x25609514))
        self.assertTrue(client.is_closed())

    def test_flags_that_do_not_belong_to_a_command(self):
        """nbdkit 1.32 aborts when WRITE_ZEROES has a flag that was not advertised."""
        client = self.raw().greet().go()
        for number, flags in ((READ, FAST_ZERO), (READ, DF), (FLUSH, NO_HOLE), (TRIM, REQ_ONE), (WRITE_ZEROES, 0x8000),
                              (WRITE_ZEROES, 32), (WRITE_ZEROES, FAST_ZERO | 32), (BLOCK_STATUS, 0), (CACHE, 0), (200, 0)):
            client.sendall(command(number, 8 * MIB, 0 if number == FLUSH else 512, flags))
            self.assertEqual(client.result(), EINVAL, (number, flags))
        client.sendall(command(WRITE, 8 * MIB, 4, FAST_ZERO) + b"abcd")
        self.assertEqual(client.result(), EINVAL)
        client.sendall(command(WRITE_ZEROES, 8 * MIB, 512, FAST_ZERO | NO_HOLE | FUA))
        self.assertEqual(client.result(), 0)

    # ---- going away ----

    def test_cve_2011_1925_a_client_that_goes_at_every_byte_of_a_session(self):
        """A valid session is cut after every byte; with what the server has said read, and with it unread."""
        payload = bytes(range(256)) * 2 + b"end"
        session = struct.pack(">I", 3) + option(GO, named(b"default"))
        session += command(WRITE, 8 * MIB + 100, len(payload)) + payload
        session += command(READ, 8 * MIB + 100, len(payload)) + command(FLUSH, 0, 0) + command(DISC, 0, 0)
        before = self.descriptors()
        for reads in (True, False):
            for cut in range(len(session) + 1):
                with Raw(self.pool) as client:
                    if reads:
                        client.take(18)
                    client.sendall(session[:cut])
        self.wait_for_descriptors(before)
        with self.raw().greet().go() as client:
            client.sendall(command(READ, 8 * MIB + 100, len(payload)))
            self.assertEqual(client.result(), 0)
            self.assertEqual(client.take(len(payload)), payload)

    def test_a_client_that_goes_at_every_byte_of_a_negotiation(self):
        """Failed and unusual negotiations too. (qemu-nbd 7.2 dies when a client sends EXPORT_NAME and closes.)"""
        sessions = [
            struct.pack(">I", 1) + option(EXPORT_NAME, b"default"),
            struct.pack(">I", 3) + option(EXPORT_NAME, b"nosuch"),
            struct.pack(">I", 3) + option(LIST) + option(STRUCTURED_REPLY) + option(INFO, named(b"nosuch"))
            + option(SET_META, meta(b"default", b"base:allocation")) + option(77, b"unknown") + option(GO, named(b"default"))
            + command(BLOCK_STATUS, 0, MIB) + command(READ, 0, 5, DF),
            struct.pack(">I", 3) + option(ABORT),
        ]
        before = self.descriptors()
        for session in sessions:
            for cut in range(len(session) + 1):
                with Raw(self.pool) as client:
                    client.sendall(session[:cut])
        self.wait_for_descriptors(before)
        self.check_that_it_serves()

    def test_a_write_sent_right_before_the_goodbye_is_not_lost(self):
        """nbdkit 1.32 loses it."""
        for number in range(20):
            data = os.urandom(3000)
            with self.raw().greet().go() as client:
                client.sendall(command(WRITE, 9 * MIB + 5000 * number, len(data)) + data + command(DISC, 0, 0))
                client.is_closed()
            with self.raw().greet().go() as client:
                client.sendall(command(READ, 9 * MIB + 5000 * number, len(data)))
                self.assertEqual(client.result(), 0)
                self.assertEqual(client.take(len(data)), data)

    def test_cve_2017_10664_a_client_that_dies_with_replies_unread(self):
        """SIGPIPE elsewhere; nbdkit 1.32 aborts."""
        before = self.descriptors()
        for _ in range(30):
            with self.raw().greet().go() as client:
                client.sendall(b"".join(command(READ, at * MIB, MIB) for at in range(16, 48)))
                client.take(1000)
        self.wait_for_descriptors(before)

    # ---- staying ----

    def test_cve_2024_7409_idle_clients_lock_nobody_out(self):
        """200 that chose an export and 300 that did not. (qemu-nbd 7.2 serves nobody else.)"""
        idle = [self.raw().greet().go() for _ in range(200)]
        half_open = [self.raw() for _ in range(300)]
        with self.raw().greet().go() as client:
            client.sendall(command(READ, 0, 10))
            self.assertEqual(client.result(), 0)
            client.take(10)
        self.assertTrue(half_open[0].is_closed(), "the oldest handshakes make space")
        for client in idle:
            client.sendall(command(FLUSH, 0, 0))
            self.assertEqual(client.result(), 0)
        self.assertEqual(half_open[-1].greet().ask(LIST), REP_ACK, "and only these")

    def test_a_handshake_that_never_ends(self):
        """Silent, or a byte at a time, or one option after the other."""
        silent, slow, busy = self.raw(), self.raw().greet(), self.raw().greet()
        began, trickle = time.time(), iter(option(GO, named(b"default")))
        deadline, ended = began + PATIENCE, set()
        while len(ended) < 3:
            self.assertLess(time.time(), deadline, "a handshake lasts for ever")
            for client, data in ((slow, bytes([next(trickle, 0)])), (busy, b""), (silent, b"")):
                with contextlib.suppress(ConnectionError):
                    client.send(data)
            if busy not in ended:
                with contextlib.suppress(ConnectionError, EOFError):
                    busy.ask(LIST)
            for client in select.select([silent, slow, busy], [], [], 0.5)[0]:
                if client not in ended:
                    client.setblocking(False)
                    try:
                        if client.recv(1 << 16) == b"":
                            ended.add(client)
                    except ConnectionError:
                        ended.add(client)
                    except BlockingIOError:
                        pass
                    client.settimeout(PATIENCE)

    def test_replies_that_are_never_read(self):
        """Of every kind: data, errors, extents, options."""
        deaf = []
        for number in range(12):
            client = self.raw().greet().go()
            client.send_until_full(command(READ, (16 + number) * MIB, MIB))
            deaf.append(client)
        for data in (command(READ, 0, 0xFFFFFFFF), command(99, 0, 0), command(FLUSH, 0, 0), command(READ, 0, 1)):
            client = self.raw().greet().go()
            taken = client.send_until_full(data * 100)
            self.assertLess(taken, 4 * MIB, "what is not read is bounded")
            deaf.append(client)
        client = self.raw().greet()
        client.ask(STRUCTURED_REPLY)
        client.ask(SET_META, meta(b"default", b"base:allocation"))
        client.go()
        self.assertLess(client.send_until_full(command(BLOCK_STATUS, 0, 256 * MIB) * 100), 4 * MIB)
        deaf.append(client)
        client = self.raw().greet()
        with contextlib.suppress(ConnectionError):
            client.send_until_full(option(LIST) * 10)
        deaf.append(client)
        self.neighbour.goes_on(self)
        self.check_that_it_serves()

    def test_many_clients_that_do_it_all(self):
        """More clients than may have a large share of memory, each with more than a small share."""
        before = self.descriptors()
        clients = [self.raw().greet().go() for _ in range(150)]
        for number, client in enumerate(clients):
            data = b"".join(command(WRITE, 10 * MIB + at, 900) + b"x" * 900 for at in range(0, 40 * 900, 900))
            client.sendall(data + command(READ, (16 + number % 100) * MIB, 32 << 10, cookie=8))
        for client in clients[::2]:
            cookies = []
            for _ in range(41):
                _, error, cookie = struct.unpack(">IIQ", client.take(16))
                self.assertEqual(error, 0)
                cookies.append(cookie)
                if cookie == 8:
                    client.take(32 << 10)
            self.assertEqual(sorted(cookies), [7] * 40 + [8])
        for client in clients:
            client.close()
        self.wait_for_descriptors(before)
        self.check_that_it_serves()


class Limits(unittest.TestCase):
    def test_more_clients_than_there_may_be_wait_for_their_turn(self):
        with Pool("64M").serve("--memory", "64M", "--max-connections", "4") as pool:
            first = [Raw(pool).greet().go() for _ in range(4)]
            fifth = Raw(pool)
            fifth.settimeout(1)
            with self.assertRaises(TimeoutError):
                fifth.take(18)
            first.pop().close()
            fifth.settimeout(PATIENCE)
            fifth.greet().go().close()
            for client in first:
                client.sendall(command(FLUSH, 0, 0))
                self.assertEqual(client.result(), 0)
                client.close()
            pool.stop()

    def test_the_limit_on_open_files_is_raised_or_heeded(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "64M")
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
            try:
                pool.serve("--memory", "64M", "--max-connections", "150", create=False)
                with open(f"/proc/{pool.server.pid}/limits") as limits:
                    self.assertGreaterEqual(int(re.search(r"Max open files\s+(\d+)", limits.read()).group(1)), 150)
                pool.stop()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            command = ["sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", ONEFOLD, "serve", pool.path, "--memory", "64M"]
            with open(pool.log, "a") as log:
                pool.server = subprocess.Popen(command, stdout=log, stderr=log)
            deadline = time.time() + PATIENCE
            while "limit on open files is 200" not in pool.said():
                self.assertLess(time.time(), deadline, pool.said())
                time.sleep(0.05)
            pool.kill()

    def test_clients_may_come_while_the_pool_is_opened(self):
        """CVE-2017-9524: nothing is answered before everything is set up."""
        with Pool("64M").serve("--memory", "64M") as pool:
            pool.kill()
            for _ in range(3):
                pool.server = subprocess.Popen([ONEFOLD, "serve", pool.path, "--memory", "64M"], stdout=subprocess.DEVNULL,
                                               stderr=subprocess.DEVNULL)
                deadline = time.time() + PATIENCE
                while True:
                    try:
                        with Raw(pool) as client:
                            client.sendall(struct.pack(">I", 3) + option(GO, named(b"default")) + command(FLUSH, 0, 0))
                            client.take(18)
                            self.assertEqual(client.answer(GO), REP_ACK)
                            self.assertEqual(client.result(), 0)
                        break
                    except (ConnectionError, FileNotFoundError):
                        self.assertLess(time.time(), deadline)
                pool.kill()


if __name__ == "__main__":
    unittest.main()
