"""`onefold top`: the figures of the status in a terminal, which is left as it was however it ends."""

import os
import re
import signal
import termios
import time
import unittest

from server import ONEFOLD, PATIENCE, Pool, onefold, run
from terminal import Terminal

ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class Top(unittest.TestCase):
    def terminal(self, *arguments, **options):
        terminal = Terminal(ONEFOLD, "top", *arguments, **options)
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
            terminal = Terminal(ONEFOLD, "top", pool.path)
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
                terminal.read(0.1)
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
