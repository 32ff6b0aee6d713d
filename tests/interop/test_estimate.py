"""`onefold estimate`: what it says of an image is what a pool does that the image is written to; what it refuses, and what it names."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import nbd

sys.path.insert(0, os.path.dirname(__file__))
from server import BLOCK, ONEFOLD, Pool, distinct_blocks, onefold, system_tree

MIB = 1 << 20


def estimate(*arguments):
    return json.loads(onefold("estimate", "--json", *arguments).stdout)


def image(chance, blocks):
    """Runs of blocks that come often, single ones, new ones and zeroes."""
    pieces, fresh = [], chance.randrange(1 << 40) << 12
    while len(pieces) < blocks:
        start, kind = chance.randrange(1, 200), chance.randrange(6)
        fresh += 8
        pieces += (range(start, start + chance.randrange(1, 30)) if kind == 0 else [start] if kind == 1 else [0, 0] if kind == 2
                   else [start, start] if kind == 3 else range(fresh, fresh + 5))
    return b"".join(number.to_bytes(8, "little") * (BLOCK // 8) for number in pieces[:blocks])


class Estimates(unittest.TestCase):
    def test_an_estimate_is_what_a_pool_of_that_policy_then_reports(self):
        data = image(random.Random(5), 6 * 256)
        for policy in ("native", "full", "select", "idedup", "select:2,request"):
            for size in (BLOCK, 16 << 10, 64 << 10, MIB):
                with self.subTest(policy=policy, size=size), Pool("64M") as pool:
                    path = os.path.join(pool.folder, "image")
                    with open(path, "wb") as file:
                        file.write(data)
                    said = estimate(path, "--policy", policy, "--request-size", size)
                    self.assertTrue(said["exact"])
                    row, = said["estimates"]
                    pool.serve("--memory", "64M", "--policy", policy)
                    client = nbd.NBD()
                    client.connect_uri(pool.uri())
                    for at in range(0, len(data), size):
                        client.pwrite(data[at:at + size], at)
                    client.shutdown()
                    status = pool.settled()
                    writes = status["writes"]
                    self.assertEqual(row["written_blocks"]["estimate"], status["data_blocks_used"])
                    self.assertEqual(row["requests"], writes["requests"])
                    for name in ("written_blocks", "removed_blocks", "removed_requests"):
                        self.assertEqual(row[name], dict.fromkeys(["estimate", "low", "high"], writes[name]), name)
                    categories = {name: figure["estimate"] for name, figure in row["categories"].items()}
                    self.assertEqual(categories, writes["categories"])
                    self.assertEqual(said["zero_blocks"], writes["zero_blocks"])
                    pool.stop()

    def test_a_tree_of_files_has_as_many_blocks_as_it_has(self):
        tree = system_tree()
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(tree) for name in names]
        files = {(os.stat(path).st_dev, os.stat(path).st_ino): path for path in paths if not os.path.islink(path)}
        different, used = distinct_blocks(*files.values())
        exact, sampled = estimate(tree), estimate(tree, "--memory", "1M")
        self.assertEqual((exact["files"], exact["payload_blocks"]), (len(files), used))
        self.assertEqual(exact["distinct_blocks"]["estimate"], different)
        full = next(row for row in exact["estimates"] if row["policy"] == "full")
        self.assertEqual(full["written_blocks"]["estimate"], different)
        self.assertEqual(sampled["payload_blocks"], used)
        if not sampled["exact"]:
            # Wider than 95 %, since a test shall not fail one time in twenty.
            figure = sampled["distinct_blocks"]
            margin = figure["high"] - figure["low"]
            self.assertLessEqual(abs(figure["estimate"] - different), margin)

    def test_memory_is_bounded(self):
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder:
            path = os.path.join(folder, "image")
            with open(path, "wb") as file:
                for _ in range(512):
                    file.write(os.urandom(MIB))
            done = subprocess.run(["/usr/bin/env", "python3", "-c", (
                "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"), ONEFOLD, "estimate", path, "--memory", "4M"],
                capture_output=True, text=True, check=True)
            self.assertLess(int(done.stdout) * 1024, 24 * MIB)

    def test_what_cannot_be_read_is_named_and_does_not_stop_it(self):
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder:
            os.mkfifo(os.path.join(folder, "pipe"))
            with open(os.path.join(folder, "file"), "wb") as file:
                file.write(b"\1" * BLOCK)
            refused = onefold("estimate", os.path.join(folder, "pipe"), check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("name one of these", refused.stderr)
            refused = onefold("estimate", os.path.join(folder, "none"), check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("none does not exist", refused.stderr)
            self.assertEqual(onefold("estimate", check=False).returncode, 2)
            said = estimate(folder)
            self.assertEqual((said["files"], said["payload_blocks"], said["unreadable_count"]), (1, 1, 0))
            if os.geteuid() != 0:
                os.chmod(os.path.join(folder, "file"), 0)
                with open(os.path.join(folder, "other"), "wb") as file:
                    file.write(b"\2" * BLOCK)
                done = onefold("estimate", folder, "--json")
                self.assertIn("cannot read", done.stderr)
                said = json.loads(done.stdout)
                self.assertEqual((said["files"], said["unreadable_count"]), (1, 1))

    def test_a_pool_is_estimated_with_a_hint(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            done = onefold("estimate", pool.path)
            self.assertIn("onefold status", done.stderr)
            self.assertIn("idedup", done.stdout)
            pool.check()

    def test_an_interrupted_estimate_says_what_it_has(self):
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder:
            path = os.path.join(folder, "image")
            with open(path, "wb") as file:
                data = os.urandom(MIB)
                for _ in range(1024):
                    file.write(data)
            # Neither before it catches signals nor after its end.
            for delay in (0.05, 0.1, 0.2, 0.03, 0.4):
                begun = subprocess.Popen([ONEFOLD, "estimate", path, "--json", "--memory", "1G"], stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True)
                time.sleep(delay)
                begun.send_signal(signal.SIGINT)
                out, error = begun.communicate(timeout=120)
                if begun.returncode not in (0, -signal.SIGINT):
                    break
            else:
                self.skipTest("the signal always came too early or too late")
            self.assertEqual(begun.returncode, 1, error)
            if out:
                said = json.loads(out)
                self.assertTrue(said["interrupted"])
                self.assertLess(said["read_bytes"], said["total_bytes"])
                self.assertLessEqual(said["distinct_blocks"]["estimate"], 256)
            else:
                self.assertIn("interrupted before anything", error)


if __name__ == "__main__":
    unittest.main()
