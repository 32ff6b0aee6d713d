"""Limits of the system and numbers at the edge: what they make impossible is done without or refused, and the service goes on."""

import os
import re
import shutil
import socket
import threading
import time
import unittest

from server import BLOCK, ONEFOLD, Pool, onefold, run
from test_clients import connect

MIB = 1 << 20
# Of 1 MiB each: more changes than 128 MiB of memory have space to replay.
REQUESTS = 2000


class LittleLocked(Pool):
    """A pool whose server may lock so much memory. Root may lock any amount: then the server is somebody else's."""

    def __init__(self, locked, size="256M"):
        super().__init__(size)
        os.chmod(self.folder, 0o777)
        program = os.path.join(self.folder, "onefold")
        shutil.copy(ONEFOLD, program)
        run_as = ["prlimit", f"--memlock={locked}:{locked}"]
        if os.geteuid() == 0:
            run_as += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
        self.program = os.path.join(self.folder, "limited")
        with open(self.program, "w") as script:
            script.write(f"#!/bin/sh\nexec {' '.join(run_as)} {program} \"$@\"\n")
        os.chmod(self.program, 0o755)


class LockedMemory(unittest.TestCase):
    """Each round writes more than there are buffers, in requests of one block and of many; then all of it is read."""

    def write_meanwhile(self, pool, work):
        """Writes on two connections until `work` is done, which gets a function that waits until some rounds have passed."""
        done, failures, rounds = threading.Event(), [], [0, 0]

        def write(number):
            client, part = connect(pool), 24 * MIB
            blocks = {}
            try:
                while not done.is_set():
                    length = 64 * BLOCK if rounds[number] % 2 else BLOCK
                    for at in range(number * part, (number + 1) * part, 64 * BLOCK):
                        blocks[at] = os.urandom(length)
                        client.aio_pwrite(blocks[at], at)
                    client.flush()
                    while client.aio_in_flight():
                        client.poll(1000)
                    for at, block in blocks.items():
                        if client.pread(len(block), at) != block:
                            failures.append(f"{at} reads as something else")
                    rounds[number] += 1
            except Exception as error:
                failures.append(repr(error))

        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]

        def go_on():
            until = [count + 2 for count in rounds]
            while any(count < least for count, least in zip(rounds, until)) and all(map(threading.Thread.is_alive, writers)):
                time.sleep(0.01)

        for writer in writers:
            writer.start()
        try:
            go_on()
            work(go_on)
        finally:
            done.set()
            for writer in writers:
                writer.join()
        self.assertEqual(failures, [], pool.said())

    def check_that_memory_can_be_changed(self, locked, warnings_first):
        with LittleLocked(locked) as pool:
            pool.serve("--memory", "64M")
            self.assertEqual(pool.said().count("buffers are not registered"), warnings_first, pool.said())

            def raise_and_lower(go_on):
                for memory in ("512M", "64M", "256M"):
                    onefold("set", pool.path, "memory", memory)
                    go_on()

            self.write_meanwhile(pool, raise_and_lower)
            self.assertEqual(pool.said().count("buffers are not registered"), 1, pool.said())
            self.assertIn("LimitMEMLOCK=", pool.said())
            self.assertEqual(pool.status()["mode"], "normal")
            pool.stop()
            pool.check()

    def test_buffers_of_which_only_some_can_be_registered_fail_no_write(self):
        """The usual limit, 8 MiB: the kernel took the first few of the buffers, and that was taken for all of them."""
        self.check_that_memory_can_be_changed(8 * MIB, 1)

    def test_buffers_that_cannot_be_registered_again_fail_no_write(self):
        """Enough for the memory that it starts with, too little for more."""
        if run("prlimit", f"--memlock={64 * MIB}:{64 * MIB}", "true", check=False).returncode != 0:
            self.skipTest("the limit on locked memory cannot be set to 64 MiB here")
        self.check_that_memory_can_be_changed(64 * MIB, 0)

    def test_a_server_with_hardly_any_locked_memory_serves(self):
        self.check_that_memory_can_be_changed(64 << 10, 1)


class Edges(unittest.TestCase):
    """What ends a command never ends the service."""

    def test_numbers_at_the_edge_are_kept_or_refused(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            last = 2**64 - 1
            for key, value, good in [
                ("memory", last, False), ("memory", last + 1, False), ("memory", "16777216T", False), ("memory", -1, False),
                ("replicas", last, True), ("replicas", last - 1, True), ("replicas", last + 1, False),
                ("second-copies", 2**32 - 1, True), ("second-copies", 2**32, False), ("cache", "fixed:256", False),
                ("policy", "select:256", False), ("policy", "idedup:255", True),
            ]:
                done = onefold("set", pool.path, key, value, check=False)
                self.assertEqual(done.returncode == 0, good, f"{key} {value}: {done.stderr}")
                self.assertNotIn("panicked", done.stderr + pool.said())
            for number in (0, 1, 2**31, 2**52, 2**63, last - 4095, last):
                for command in (["volume", "create", pool.path, "v", "--size"], ["volume", "resize", pool.path, "default"],
                                ["grow", pool.path, "--capacity"]):
                    done = onefold(*command, number, check=False)
                    self.assertIn(done.returncode, (0, 1, 2), done.stderr)
                    self.assertNotIn("panicked", done.stderr)
                    self.assertNotIn("broke off", done.stderr)
                onefold("volume", "delete", pool.path, "v", check=False)
            onefold("volume", "resize", pool.path, "default", "64M", "--force")
            self.assertEqual(pool.settled()["mode"], "normal")
            self.assertNotIn("panicked", pool.said())
            pool.stop()
            pool.serve(create=False)
            self.assertIn(str(last - 1), onefold("get", pool.path, "replicas").stdout)
            pool.stop()
            pool.check()
            # The same without a server.
            for arguments in (["memory", last], ["replicas", last], ["memory", "default"]):
                self.assertNotIn("panicked", onefold("set", pool.path, *arguments, check=False).stderr)
            refused = onefold("status", pool.path, "--memory", last, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("ask for less", refused.stderr)

    def test_garbage_on_the_control_socket_ends_at_most_its_connection(self):
        def ask(pool, data):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(30)
            client.connect(pool.path + ".ctl")
            answer = b""
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while part := client.recv(1 << 16):
                    answer += part
            except (BrokenPipeError, ConnectionResetError):
                pass
            client.close()
            return answer

        with Pool("64M").serve("--memory", "64M") as pool:
            numbers = [b"18446744073709551616", b"-1", b"1e400", b"0.5", b"1" * 5000, b'"1"', b"[]", b"true"]
            commands = [b'{"command":"grow","capacity_bytes":%s}', b'{"command":"set-pool","memory_bytes":%s}',
                        b'{"command":"set-pool","second_copies":%s}', b'{"command":"set-pool","replicas":{"bytes":%s}}',
                        b'{"command":"create-volume","name":"v","size_bytes":%s,"policy":"inherit"}',
                        b'{"command":"resize-volume","name":"default","size_bytes":%s,"force":true}']
            garbage = [command % number + b"\n" for command in commands for number in numbers]
            garbage += [b"", b"\n", b"\0" * 100, b"\xff\xfe\n", b"{", b'{"command":"sta', b'{"command":', b"[" * 60000 + b"\n",
                        b'{"a":' * 10000 + b"\n", b'{"command":"status","settle":' + b"[" * 30000 + b"\n", b"x" * (1 << 20),
                        b'{"command":"' + b"y" * 65000 + b'"}\n', b'"' + b"\\u0000" * 8000 + b'"\n',
                        b'{"command":"create-volume","name":"' + b"v" * 60000 + b'","size_bytes":4096,"policy":"inherit"}\n']
            before = pool.status()
            for data in garbage:
                answer = ask(pool, data)
                self.assertNotIn(b'{"done"', answer, data[:80])
            self.assertNotIn("panicked", pool.said())
            after = pool.status()
            for key in ("capacity_bytes", "volumes", "memory_cap_bytes", "mode"):
                self.assertEqual(after[key], before[key], key)
            pool.stop()
            pool.check()


class MemoryOfCommands(unittest.TestCase):
    """A server with much memory was killed, and left more in its journal than 128 MiB have space for."""

    def test_commands_take_what_a_killed_server_has_left_to_replay(self):
        with Pool("4G") as pool:
            pool.serve("--memory", "2G")
            client = connect(pool)
            # What is known already is a change of the map for each block, and no data.
            contents = [os.urandom(MIB) for _ in range(4)]
            for at, content in enumerate(contents):
                client.pwrite(content, at * MIB)
            pool.settled()
            for at in range(REQUESTS):
                client.aio_pwrite(contents[at % 4], at * MIB)
                while client.aio_in_flight() > 16:
                    client.poll(1000)
            client.flush()
            pool.kill()
            killed = pool.path + ".killed"
            run("cp", "--sparse=always", pool.path, killed)
            refused = onefold("serve", pool.path, "--memory", "128M", check=False)
            self.assertEqual(refused.returncode, 1, refused.stderr)
            enough = re.search(rf"'onefold serve {re.escape(pool.path)} --memory (\d+)M' can", refused.stderr)
            self.assertIsNotNone(enough, refused.stderr)
            for command in (["set", pool.path, "policy", "full"], ["check", pool.path]):
                refused = onefold(*command, "--memory", "128M", check=False)
                self.assertEqual(refused.returncode, 1, refused.stderr)
                self.assertRegex(refused.stderr, r"say --memory \d+M")
            # Nobody says how much: it takes what it needs.
            onefold("set", pool.path, "policy", "full")
            self.assertEqual(pool.status()["mode"], "normal")
            os.rename(killed, pool.path)
            pool.serve("--memory", f"{enough.group(1)}M", create=False)
            pool.stop()
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            for at in range(0, REQUESTS, REQUESTS // 20):
                self.assertEqual(client.pread(MIB, at * MIB), contents[at % 4])
            client.shutdown()
            pool.stop()


if __name__ == "__main__":
    unittest.main()
