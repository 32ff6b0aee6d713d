"""`onefold top`: the figures of the status in a terminal, which is left as it was however it ends."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
import unittest

from server import ONEFOLD, PATIENCE, Pool, onefold, run

ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class Terminal:
    """`onefold top` in a terminal of its own."""

    def __init__(self, *arguments, rows=40, columns=100):
        self.near, self.far = pty.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.far)
        self.said = b""
        self.process = subprocess.Popen([ONEFOLD, "top", *arguments], stdin=self.far, stdout=self.far, stderr=self.far)

    def wait_for(self, text, seconds=PATIENCE):
        deadline = time.time() + seconds
        while text not in self.said:
            if time.time() > deadline:
                raise AssertionError(f"{text} is not in {self.said}")
            if select.select([self.near], [], [], 0.1)[0]:
                self.said += os.read(self.near, 65536)

    def end(self):
        """Its exit status, when it has ended; what it has said to the end."""
        deadline = time.time() + PATIENCE
        while self.process.poll() is None:
            if time.time() > deadline:
                raise AssertionError("it does not end")
            if select.select([self.near], [], [], 0.1)[0]:
                self.said += os.read(self.near, 65536)
        while select.select([self.near], [], [], 0.2)[0]:
            self.said += os.read(self.near, 65536)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.near)
        os.close(self.far)


class Top(unittest.TestCase):
    def terminal(self, *arguments, **options):
        terminal = Terminal(*arguments, **options)
        self.addCleanup(terminal.close)
        return terminal

    def assert_left_as_it_was(self, terminal):
        self.assertEqual(terminal.said.count(ENTER), 1)
        self.assertGreater(terminal.said.rfind(LEAVE), terminal.said.rfind(ENTER))
        self.assertGreater(terminal.said.rfind(SHOW_CURSOR), terminal.said.rfind(ENTER))
        self.assertEqual(termios.tcgetattr(terminal.far), terminal.before)

    def test_one_frame_has_the_figures_of_the_status(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "other", "--size", "16M", "--policy", "full")
            for volume in ["default", "other"]:
                run("qemu-io", "-f", "raw", "-c", "write -P 7 0 1M", pool.uri(volume))
            pool.settled()
            text, report = onefold("top", pool.path, "--once").stdout, pool.status()
            self.assertIn("\nwell\n", text)
            self.assertIn(f"{report['saving_percent']:.1f} % saved", text)
            for volume in report["volumes"]:
                self.assertRegex(text, rf"{volume['name']} +1 MiB +(counting|100 %) +{volume['size_bytes'] >> 20} MiB +{volume['policy']}")
            self.assertRegex(text, r"write +0 +–")
            for words in ["scrub", "never", "idedup", "read cache", "requests and latency"]:
                self.assertIn(words, text)
            self.assertNotIn("\x1b", text)
            self.assertNotIn("q ends this", text)
            pool.stop()

    def test_the_terminal_is_left_as_it_was(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            for key in [b"q", b"\x1b", b"\x03"]:
                terminal = self.terminal(pool.path)
                terminal.wait_for(b"q ends this")
                os.write(terminal.near, key)
                self.assertEqual(terminal.end(), 0, key)
                self.assert_left_as_it_was(terminal)
            for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
                terminal = self.terminal(pool.path)
                terminal.wait_for(b"q ends this")
                terminal.process.send_signal(number)
                self.assertEqual(terminal.end(), 0, number)
                self.assert_left_as_it_was(terminal)
            pool.stop()

    def test_a_terminal_that_goes_away_ends_it(self):
        """No signal says so where the terminal does not control the process: it asked without a pause, and never looked at anything else."""
        with Pool("64M").serve("--memory", "64M") as pool:
            terminal = Terminal(pool.path)
            self.addCleanup(terminal.process.kill)
            terminal.wait_for(b"q ends this")
            os.close(terminal.far)
            os.close(terminal.near)
            terminal.process.wait(timeout=PATIENCE)
            self.assertIn(terminal.process.returncode, (0, 1))
            pool.stop()

    def test_a_server_that_ends_and_comes_again_is_followed(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            terminal = self.terminal(pool.path)
            terminal.wait_for(b"q ends this")
            pool.stop()
            terminal.wait_for(b"these are the last figures: no server has")
            pool.serve("--memory", "64M", create=False)
            before = len(terminal.said)
            deadline = time.time() + PATIENCE
            while not re.search(rb"well", terminal.said[before:]):
                self.assertLess(time.time(), deadline)
                if select.select([terminal.near], [], [], 0.1)[0]:
                    terminal.said += os.read(terminal.near, 65536)
            os.write(terminal.near, b"q")
            self.assertEqual(terminal.end(), 0)
            self.assert_left_as_it_was(terminal)
            pool.stop()

    def test_any_size_of_a_terminal_will_do(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            for rows, columns in [(1, 1), (3, 200), (24, 80), (200, 20), (0, 0)]:
                terminal = self.terminal(pool.path, rows=rows, columns=columns)
                terminal.wait_for(ENTER)
                time.sleep(0.3)
                os.write(terminal.near, b"q")
                self.assertEqual(terminal.end(), 0, (rows, columns, terminal.said))
                self.assert_left_as_it_was(terminal)
            pool.stop()

    def test_what_cannot_be_shown_is_said(self):
        with Pool("64M") as pool:
            said = onefold("top", pool.path, check=False)
            self.assertEqual((said.returncode, said.stderr), (1, f"onefold: {pool.path} does not exist\n"))
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "16M")
            said = onefold("top", pool.path, "--once", check=False)
            self.assertEqual(said.returncode, 1)
            self.assertIn(f"no server has {pool.path}: 'onefold serve {pool.path}' starts one", said.stderr)
            pool.serve("--memory", "64M", create=False)
            said = onefold("top", pool.path, check=False)
            self.assertEqual(said.returncode, 1)
            self.assertIn("the output is no terminal: 'onefold top", said.stderr)
            pool.stop()


if __name__ == "__main__":
    unittest.main()
