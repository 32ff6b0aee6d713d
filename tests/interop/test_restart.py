"""A server that is stopped, upgraded or killed under a client that stays: QEMU's block layer, which connects again by itself.

`qemu-nbd` stands for a guest's QEMU: it is the same block driver with the same `reconnect-delay`, and what it serves is what the guest would see.
The listening socket stays open meanwhile, as a service manager keeps it.
"""

import random
import shutil
import subprocess
import tempfile
import os
import time
import unittest

import nbd

from server import BLOCK, onefold
from test_service import Service, listening

TIMES = 10
SIZE = 32 << 20
BEGIN = ("--create", "--size", "64M", "--memory", "64M")


class Restart(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="onefold-restart-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.pool = os.path.join(self.folder, "disk.onefold")
        self.path = os.path.join(self.folder, "server.sock")
        self.listener = listening(path=self.path)
        self.addCleanup(self.listener.close)
        self.server = self.start()
        self.server.wait_until_told("READY=1")
        guest = os.path.join(self.folder, "guest.sock")
        bridge = subprocess.Popen([
            "qemu-nbd", "--persistent", "--socket", guest, "--shared", "2", "--discard", "unmap", "--image-opts",
            f"driver=nbd,server.type=unix,server.path={self.path},export=default,reconnect-delay=60"])
        self.addCleanup(bridge.wait)
        self.addCleanup(bridge.kill)
        self.client = nbd.NBD()
        for _ in range(200):
            if os.path.exists(guest):
                break
            time.sleep(0.05)
        self.client.connect_unix(guest)
        self.random = random.Random(1)
        self.model = {}

    def start(self):
        return Service(self, BEGIN, [self.listener.fileno()], pool=self.pool)

    def write(self, flags):
        at = self.random.randrange(SIZE // BLOCK)
        block = self.random.randbytes(BLOCK // 4) * 4
        self.client.pwrite(block, at * BLOCK, flags)
        self.model[at] = block

    def all_is_there(self):
        for at, block in self.model.items():
            self.assertEqual(self.client.pread(BLOCK, at * BLOCK), block, f"block {at}")

    def goes_on_while(self, end, flags):
        """Writes at all times, while servers end and others follow; no request may fail."""
        for _ in range(TIMES):
            for _ in range(100):
                self.write(flags)
            # Some are in progress when the server ends.
            pending = []
            for _ in range(8):
                at = self.random.randrange(SIZE // BLOCK)
                if at in {at for at, _, _ in pending}:
                    continue
                block = nbd.Buffer.from_bytearray(bytearray(self.random.randbytes(BLOCK)))
                pending.append((at, block, self.client.aio_pwrite(block, at * BLOCK, flags=flags)))
            end(self.server)
            self.server = self.start()
            for at, block, cookie in pending:
                while not self.client.aio_command_completed(cookie):
                    self.assertGreater(self.client.poll(60000), 0, "an answer that does not come")
                self.model[at] = bytes(block.to_bytearray())
            self.write(flags)
        self.all_is_there()
        self.client.shutdown()
        self.assertEqual(self.server.stop(), 0)
        onefold("check", self.pool)

    def test_a_server_that_stops_loses_nothing_that_was_answered(self):
        """As at an upgrade: a stop makes everything durable, also what no client has flushed. What was in progress when the stop began once got
        ESHUTDOWN, which QEMU gave to its guest as an error."""
        self.goes_on_while(lambda server: self.assertEqual(server.stop(), 0), 0)

    def test_a_server_that_is_killed_loses_nothing_that_was_written_through(self):
        def kill(server):
            server.process.kill()
            server.process.wait()

        self.goes_on_while(kill, nbd.CMD_FLAG_FUA)


if __name__ == "__main__":
    unittest.main()
