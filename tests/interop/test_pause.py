"""The server is stopped for longer than its timeouts (SIGSTOP), under load, and goes on: nobody is cut off, nothing is lost."""

import os
import signal
import threading
import time
import unittest

import nbd

from model import Writer
from server import PATIENCE, Pool, onefold

# Longer than any timeout of the server; the longest is for clients that stall, 30 s.
PAUSE = float(os.environ.get("ONEFOLD_PAUSE", "31"))
MIB = 1 << 20


def effort(pid):
    """Seconds of processor time and voluntary switches of all threads so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    switches = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as file:
            switches += next(int(line.split()[1]) for line in file if line.startswith("voluntary"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), switches


class Pause(unittest.TestCase):
    def test_a_server_that_stood_still_goes_on(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "128M")
            for name in ("one", "two", "three"):
                onefold("volume", "create", pool.path, name, "--size", "32M")
            pool.serve("--memory", "64M", create=False)
            before = len(pool.said())
            self.go_through(pool)
            self.assertEqual(pool.status()["mode"], "normal")
            self.assertNotRegex(pool.said()[before:], "WARN|ERROR")
            pool.stop()
            pool.check()

    def go_through(self, pool):
        self.answers = []
        data = os.urandom(MIB)
        idle, busy = nbd.NBD(), nbd.NBD()
        for client in (idle, busy):
            client.connect_uri(pool.uri("three"))
        idle.pwrite(data, 0)
        idle.flush()
        writers = [Writer(pool.uri(name), 0, 2048, {}, number) for number, name in enumerate(("one", "two"))]
        for writer in writers:
            writer.start()
        time.sleep(1)
        pool.server.send_signal(signal.SIGSTOP)
        # More than the socket holds: of one of them the server has got a part only.
        for at in range(1, 12):
            busy.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(data)), at * MIB, self.succeeds)
        busy.aio_flush(self.succeeds)
        busy.poll(0)
        late, came = nbd.NBD(), []
        thread = threading.Thread(target=lambda: came.append(late.connect_uri(pool.uri("three"))))
        thread.start()
        time.sleep(PAUSE)
        lines = pool.said().count("\n")
        pool.server.send_signal(signal.SIGCONT)
        deadline = time.time() + PATIENCE
        while busy.aio_in_flight():
            busy.poll(100)
            self.assertLess(time.time(), deadline, "requests are not answered")
        self.assertEqual(self.answers, [0] * 12)
        thread.join(timeout=PATIENCE)
        self.assertEqual(came, [None], "who came meanwhile is served")
        for client in (idle, busy, late):
            self.assertEqual(client.pread(MIB, 0), data)
            self.assertEqual(client.pread(MIB, 11 * MIB), data)
        time.sleep(1)
        for writer in writers:
            writer.stop()
        for writer, name in zip(writers, ("one", "two")):
            client = nbd.NBD()
            client.connect_uri(pool.uri(name))
            writer.all_flushed()
            writer.judge(client)
        # What was due meanwhile happens once: a server without work sleeps.
        pool.settled()
        time.sleep(1)
        before, began = effort(pool.server.pid), time.time()
        time.sleep(2)
        after, seconds = effort(pool.server.pid), time.time() - began
        self.assertLess((after[0] - before[0]) / seconds, 0.1, "of a processor")
        self.assertLess((after[1] - before[1]) / seconds, 50, "wake-ups a second")
        self.assertLess(pool.said().count("\n") - lines, 5)

    def succeeds(self, error):
        self.answers.append(error.value)
        return 1


if __name__ == "__main__":
    unittest.main()
