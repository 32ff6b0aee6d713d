"""Running as a service: readiness, sockets that are handed over, logs, and a stop that comes to its end."""

import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import nbd

from server import BLOCK, ONEFOLD, PATIENCE, Pool, onefold, run
from test_clients import connect, raw_connection, request


# The process that a service manager forks names itself in LISTEN_PID, and becomes the server.
BECOME = ["sh", "-c", 'export LISTEN_PID=${OTHER_PID:-$$}; exec "$@"', "sh"]


def hand_over(descriptors):
    """What a service manager does between fork and exec: the descriptors become 3, 4, ..."""
    # Out of the way first: one of them may have the number that another gets.
    high = [os.dup2(descriptor, 100 + at) for at, descriptor in enumerate(descriptors)]
    for at, descriptor in enumerate(high):
        os.dup2(descriptor, 3 + at)
        os.close(descriptor)


class Service:
    """A server that is started as a service manager does it."""

    def __init__(self, case, arguments, descriptors=(), notify=True, other_pid="", names="", pool=None, program=ONEFOLD):
        self.case = case
        self.folder = tempfile.mkdtemp(prefix="onefold-service-")
        case.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.pool = pool or os.path.join(self.folder, "disk.onefold")
        self.log = os.path.join(self.folder, "log")
        environment = {**os.environ}
        self.notify = None
        if notify:
            self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            if notify == "abstract":
                name = f"onefold-test-{os.getpid()}-{id(self)}"
                self.notify.bind("\0" + name)
                environment["NOTIFY_SOCKET"] = "@" + name
            else:
                path = os.path.join(self.folder, "notify")
                self.notify.bind(path)
                environment["NOTIFY_SOCKET"] = path
            case.addCleanup(self.notify.close)
        command = [program, "serve", self.pool, *arguments]
        if descriptors:
            environment["LISTEN_FDS"] = str(len(descriptors))
            environment["LISTEN_FDNAMES"] = names
            environment["OTHER_PID"] = other_pid
            command = BECOME + command
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, close_fds=False,
                                            preexec_fn=lambda: hand_over(descriptors))
        case.addCleanup(self.end)
        self.told = []

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def said(self):
        with open(self.log) as log:
            return log.read()

    def wait_until_told(self, text, seconds=60):
        """Receives what the server tells its manager until a message has the text."""
        deadline = time.time() + seconds
        while not any(text in message for message in self.told):
            left = deadline - time.time()
            if left <= 0 or not select.select([self.notify], [], [], left)[0]:
                self.case.fail(f"never told {text!r}, only {self.told}; log: {self.said()}")
            self.told.append(self.notify.recv(4096).decode())

    def stop(self, seconds=60):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds)


def listening(kind=socket.SOCK_STREAM, path=None):
    if path is None:
        server = socket.socket(socket.AF_INET, kind)
        server.bind(("127.0.0.1", 0))
    else:
        server = socket.socket(socket.AF_UNIX, kind)
        server.bind(path)
    if kind == socket.SOCK_STREAM:
        server.listen()
    return server


NEW = ("--create", "--size", "64M", "--memory", "64M")


class Readiness(unittest.TestCase):
    def check_that_a_start_and_a_stop_are_told(self, notify):
        service = Service(self, NEW, notify=notify)
        service.wait_until_told("READY=1")
        # Ready means that clients can connect.
        client = nbd.NBD()
        client.connect_uri(f"nbd+unix:///default?socket={service.pool}.sock")
        client.pwrite(b"x" * BLOCK, 0)
        service.process.send_signal(signal.SIGTERM)
        service.wait_until_told("STOPPING=1")
        service.wait_until_told("STATUS=closing")
        self.assertEqual(service.process.wait(timeout=PATIENCE), 0)
        self.assertTrue(any("EXTEND_TIMEOUT_USEC=" in message for message in service.told), service.told)
        onefold("check", service.pool)

    def test_a_start_and_a_stop_are_told(self):
        self.check_that_a_start_and_a_stop_are_told("path")

    def test_over_an_abstract_socket_too(self):
        self.check_that_a_start_and_a_stop_are_told("abstract")

    def test_a_manager_that_does_not_read_holds_up_nothing(self):
        service = Service(self, NEW)
        service.notify.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        service.wait_until_told("READY=1")
        self.assertEqual(service.stop(), 0)

    def test_a_wrong_notify_socket_is_named(self):
        with Pool("64M") as pool:
            done = subprocess.run([ONEFOLD, "serve", pool.path, *NEW], env={**os.environ, "NOTIFY_SOCKET": "here"},
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("NOTIFY_SOCKET", done.stderr)
            self.assertFalse(os.path.exists(pool.path))


class SocketActivation(unittest.TestCase):
    def test_sockets_that_are_handed_over_are_used_and_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "handed.sock")
            with listening(path=path) as unix, listening() as tcp:
                # The client is there before the server is.
                early = socket.create_connection(tcp.getsockname())
                service = Service(self, NEW, [unix.fileno(), tcp.fileno()], names="disk:tcp")
                service.wait_until_told("READY=1")
                self.assertEqual(early.recv(8), b"NBDMAGIC")
                early.close()
                port = tcp.getsockname()[1]
                for uri in (f"nbd+unix:///default?socket={path}", f"nbd://127.0.0.1:{port}/default"):
                    self.assertEqual(run("nbdinfo", "--size", uri).stdout.strip(), str(64 << 20))
                    self.assertIn(uri, service.said())
                self.assertFalse(os.path.exists(service.pool + ".sock"), "in place of the default")
                self.assertEqual(service.stop(), 0)
                self.assertTrue(os.path.exists(path), "the manager's socket stays")
                # A client that comes now waits for the next server, which finds it.
                with socket.create_connection(tcp.getsockname()) as late:
                    late.settimeout(60)
                    again = Service(self, ("--memory", "64M"), [unix.fileno(), tcp.fileno()], pool=service.pool)
                    again.wait_until_told("READY=1")
                    self.assertEqual(late.recv(8), b"NBDMAGIC")
                    self.assertEqual(again.stop(), 0)

    def test_besides_listen(self):
        with listening() as tcp:
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "own.sock")
                service = Service(self, (*NEW, "--listen", f"unix:{path}"), [tcp.fileno()])
                service.wait_until_told("READY=1")
                run("nbdinfo", f"nbd+unix:///default?socket={path}")
                run("nbdinfo", f"nbd://127.0.0.1:{tcp.getsockname()[1]}/default")
                self.assertEqual(service.stop(), 0)
                self.assertFalse(os.path.exists(path), "its own socket is removed")

    def test_a_socket_that_does_not_block_is_waited_for(self):
        with listening() as tcp:
            tcp.setblocking(False)
            service = Service(self, NEW, [tcp.fileno()])
            service.wait_until_told("READY=1")
            run("nbdinfo", f"nbd://127.0.0.1:{tcp.getsockname()[1]}/default")
            self.assertEqual(service.stop(), 0)

    def test_what_is_for_another_process_is_left_alone(self):
        with listening() as tcp:
            service = Service(self, NEW, [tcp.fileno()], other_pid="1")
            service.wait_until_told("READY=1")
            run("nbdinfo", f"nbd+unix:///default?socket={service.pool}.sock")
            self.assertEqual(service.stop(), 0)

    def test_wrong_descriptors_are_refused_by_name(self):
        everywhere = socket.socket()
        everywhere.bind(("0.0.0.0", 0))
        everywhere.listen()
        ours, theirs = socket.socketpair()
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0onefold-test-{os.getpid()}")
        abstract.listen()
        with open("/dev/null") as file, listening(socket.SOCK_DGRAM) as datagrams, everywhere, ours, theirs, abstract:
            for wrong, says in ((file, "not a socket"), (datagrams, "not a stream socket"), (ours, "does not listen"),
                                (everywhere, "--allow-remote"), (abstract, "without a path")):
                service = Service(self, NEW, [wrong.fileno()], names="wrong")
                self.assertEqual(service.process.wait(timeout=PATIENCE), 1, says)
                self.assertIn(says, service.said())
                self.assertIn("descriptor 3 ('wrong')", service.said())
                self.assertNotIn("panicked", service.said())

    def test_descriptors_that_are_not_there(self):
        with Pool("64M") as pool:
            for count, says in (("7", "not open"), ("100000", "at most"), ("-1", "LISTEN_FDS"), ("x", "LISTEN_FDS")):
                done = subprocess.run([*BECOME, ONEFOLD, "serve", pool.path, *NEW], env={**os.environ, "LISTEN_FDS": count},
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(says, done.stderr)

    @unittest.skipUnless(shutil.which("systemd-socket-activate"), "systemd-socket-activate is not installed")
    def test_by_systemd_itself(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "64M")
            path = os.path.join(pool.folder, "activated.sock")
            pool.server = subprocess.Popen(["systemd-socket-activate", "-l", path, ONEFOLD, "serve", pool.path,
                                            "--memory", "64M"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            deadline = time.time() + PATIENCE
            while not os.path.exists(path):
                self.assertLess(time.time(), deadline)
                time.sleep(0.05)
            # The first client starts the server.
            run("nbdinfo", f"nbd+unix:///default?socket={path}")
            pool.stop()
            pool.check()


class Logs(unittest.TestCase):
    def test_one_line_for_what_an_operator_must_know(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pool_id = re.search(r"serving the pool ([0-9a-f]{32}): capacity 64 MiB", pool.said())
            self.assertIsNotNone(pool_id, pool.said())
            onefold("volume", "create", pool.path, "late", "--size", "16M")
            client = connect(pool)
            for block in range(500):
                client.pwrite(os.urandom(BLOCK), block * BLOCK)
                client.pread(BLOCK, block * BLOCK)
            client.flush()
            client.shutdown()
            self.assertIn("made the volume 'late' of 16 MiB", pool.said())
            pool.kill()
            pool.serve("--memory", "64M", create=False)
            self.assertRegex(pool.said(), r"not closed cleanly, recovered \d+ records with \d+ changes, \d+ blocks redone")
            pool.stop()
            lines = [line for line in pool.said().splitlines() if " INFO " in line or " WARN " in line]
            self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ", line) for line in lines), lines)
            self.assertLess(len(lines), 30, "none per I/O")
            self.assertIn("is closed", lines[-1])

    def test_levels(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--log", "warn")
            self.assertNotIn(" INFO ", pool.said())
            pool.stop()
            pool.serve("--memory", "64M", "--log", "debug")
            self.assertIn("client 1 (unix) came", pool.said())
            pool.stop()
            for arguments, environment in ((("--log", "loud"), {}), ((), {"ONEFOLD_LOG": "loud"})):
                done = subprocess.run([ONEFOLD, "serve", pool.path, *arguments], env={**os.environ, **environment},
                                      capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 2)
                for word in ("loud", "error", "warn", "info", "debug"):
                    self.assertIn(word, done.stderr)

    def test_the_journal_has_its_own_timestamps(self):
        with Pool("64M") as pool:
            with open(pool.log, "a") as log:
                status = os.fstat(log.fileno())
                environment = {**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
                pool.server = subprocess.Popen([ONEFOLD, "serve", pool.path, *NEW], env=environment, stdout=log, stderr=log)
            deadline = time.time() + PATIENCE
            while "serving the pool" not in pool.said():
                self.assertLess(time.time(), deadline)
                time.sleep(0.05)
            pool.stop()
            for line in pool.said().splitlines():
                self.assertNotRegex(line, r"^\d{4}-", line)

    def test_a_log_that_nobody_reads_ends_nothing(self):
        with Pool("64M") as pool:
            pool.server = subprocess.Popen([ONEFOLD, "serve", pool.path, *NEW, "--log", "debug"], stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE)
            while b"try:" not in pool.server.stdout.readline():
                self.assertIsNone(pool.server.poll())
            pool.server.stdout.close()
            pool.server.stderr.close()
            connect(pool).pwrite(b"x" * BLOCK, 0)
            pool.stop()

    def test_nearly_full_is_said_once_a_threshold(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            for mebibyte in range(62):
                client.pwrite(os.urandom(1 << 20), mebibyte << 20)
            client.flush()
            pool.settled()
            self.wait_for(pool, r"WARN 9\d % of the pool's capacity are in use")
            client.trim(64 << 20, 0)
            pool.settled()
            self.wait_for(pool, r"INFO \d+ % of the pool's capacity are in use.*less than before")
            self.assertLessEqual(pool.said().count("WARN"), 3)

    def wait_for(self, pool, pattern):
        deadline = time.time() + PATIENCE
        while not re.search(pattern, pool.said()):
            self.assertLess(time.time(), deadline, pool.said())
            time.sleep(0.1)


class Stop(unittest.TestCase):
    def start(self, *arguments):
        pool = Pool("256M").serve("--memory", "96M", *arguments)
        self.addCleanup(pool.__exit__)
        return pool

    def check_that_everything_flushed_is_there(self, pool, data):
        pool.serve("--memory", "96M", create=False)
        client = connect(pool)
        self.assertEqual(client.pread(len(data), 0), data)
        client.shutdown()
        pool.stop()
        pool.check()

    def test_cve_2024_7409_clients_that_do_nothing_do_not_hold_up_a_stop(self):
        """Idle ones, half-open ones, one in the middle of a write, one that takes no replies, one that keeps coming."""
        pool = self.start()
        writer = connect(pool)
        data = os.urandom(8 << 20)
        writer.pwrite(data, 0)
        writer.flush()
        idle = [raw_connection(pool) for _ in range(20)]
        half_open = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        for client in half_open:
            client.connect(pool.path + ".sock")
        writing, deaf = raw_connection(pool), raw_connection(pool)
        writing.sendall(request(1, 100 << 20, 1 << 20) + b"only a part")
        deaf.sendall(b"".join(request(0, at << 20, 1 << 20) for at in range(8)))
        time.sleep(0.3)
        began = time.time()
        pool.server.send_signal(signal.SIGTERM)
        self.assertEqual(pool.server.wait(timeout=PATIENCE), 0)
        pool.server = None
        # Five seconds for requests in service, and again for connections, and a checkpoint of next to nothing.
        self.assertLess(time.time() - began, 25)
        self.assertRegex(pool.said(), r"stopping: 4\d clients, \d+ with requests or replies in service")
        for client in (*idle, *half_open, writing, deaf):
            client.close()
        self.check_that_everything_flushed_is_there(pool, data)

    def test_the_last_checkpoint_is_given_up_at_the_deadline(self):
        pool = self.start("--stop-timeout", "0")
        client = connect(pool)
        data = os.urandom(24 << 20)
        client.pwrite(data, 0)
        client.shutdown()
        pool.stop()
        self.assertIn("giving up the last checkpoint", pool.said())
        self.assertIn("closed without a checkpoint", pool.said())
        # Not even a flush was asked for: what was answered is in the journal.
        self.check_that_everything_flushed_is_there(pool, data)
        self.assertIn("not closed cleanly", pool.said())

    def test_more_signals_are_no_less_safe(self):
        pool = self.start()
        client = connect(pool)
        data = os.urandom(24 << 20)
        client.pwrite(data, 0)
        deaf = raw_connection(pool)
        deaf.sendall(request(0, 0, 16 << 20))
        time.sleep(0.3)
        for _ in range(5):
            pool.server.send_signal(signal.SIGTERM)
            time.sleep(0.02)
        self.assertEqual(pool.server.wait(timeout=PATIENCE), 0)
        pool.server = None
        deaf.close()
        self.check_that_everything_flushed_is_there(pool, data)

    def test_requests_in_flight_are_answered(self):
        pool = self.start()
        client = connect(pool)
        buffers = [os.urandom(1 << 20) for _ in range(16)]
        cookies = [client.aio_pwrite(buffer, at << 20) for at, buffer in enumerate(buffers)]
        client.poll(0)
        pool.server.send_signal(signal.SIGTERM)
        answered = []
        try:
            while client.aio_in_flight():
                client.poll(1000)
        except nbd.Error:
            pass
        for cookie, buffer in zip(cookies, buffers):
            try:
                answered.append(client.aio_command_completed(cookie))
            except nbd.Error:
                answered.append(False)
        self.assertEqual(pool.server.wait(timeout=PATIENCE), 0)
        pool.server = None
        pool.serve("--memory", "96M", create=False)
        client = connect(pool)
        for at, (buffer, done) in enumerate(zip(buffers, answered)):
            if done:
                self.assertEqual(client.pread(1 << 20, at << 20), buffer)

    def test_status_of_a_pool_works_right_after(self):
        pool = self.start()
        pool.stop()
        self.assertEqual(json.loads(onefold("status", pool.path, "--json").stdout)["mode"], "normal")


if __name__ == "__main__":
    unittest.main()
