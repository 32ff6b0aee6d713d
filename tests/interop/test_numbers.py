"""Limits of the system and numbers at the edge: what they make impossible is done without or refused, and the service goes on."""

import os
import shutil
import threading
import time
import unittest

from server import BLOCK, ONEFOLD, Pool, onefold, run
from test_clients import connect

MIB = 1 << 20


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


if __name__ == "__main__":
    unittest.main()
