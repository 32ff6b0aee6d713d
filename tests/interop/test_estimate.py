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
from server import BLOCK, ONEFOLD, Pool, distinct_blocks, onefold, run, system_tree

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
            done = onefold("estimate", pool.path, "--all")
            self.assertIn("onefold status", done.stderr)
            self.assertIn("idedup", done.stdout)
            pool.check()

    def test_an_image_is_what_its_guest_sees(self):
        """Of a compressed qcow2 the compressed bytes were counted, which nothing shares: 0 % where a pool saves half."""
        data = image(random.Random(7), 4 * 256) * 2
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder:
            raw = os.path.join(folder, "disk.raw")
            with open(raw, "wb") as file:
                file.write(data)
            wanted = estimate(raw)
            for format, *more in (["qcow2", "-c"], ["qcow2"], ["vmdk"], ["vmdk", "-o", "subformat=streamOptimized"], ["vdi"], ["vhdx"], ["qed"]):
                with self.subTest(format=format, more=more):
                    path = os.path.join(folder, f"disk.{format}")
                    run("qemu-img", "convert", "-f", "raw", "-O", format, *more, raw, path)
                    said = estimate(path)
                    self.assertEqual((said["images"], wanted["images"]), (1, 0))
                    for name in ("payload_blocks", "distinct_blocks"):
                        self.assertEqual(said[name], wanted[name], name)
                    full = [next(row for row in each["estimates"] if row["policy"] == "full") for each in (said, wanted)]
                    self.assertEqual(full[0]["removed_blocks"], full[1]["removed_blocks"])
                    # More memory than it takes, or less: then everything is read twice.
                    self.assertEqual(estimate(path, "--memory", "1M")["payload_blocks"], wanted["payload_blocks"])
                    os.remove(path)

    def test_what_an_import_refuses_is_refused_or_left_out_and_named(self):
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder, Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            base, overlay, packed, cut = (os.path.join(folder, name) for name in ("base.qcow2", "overlay.qcow2", "disk.gz", "cut.qcow2"))
            run("qemu-img", "create", "-q", "-f", "qcow2", base, "4M")
            run("qemu-io", "-c", "write -P 7 0 2M", base)
            run("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", overlay)
            with open(packed, "wb") as file:
                file.write(b"\x1f\x8b" + b"\3" * BLOCK)
            run("qemu-img", "convert", "-O", "qcow2", base, cut)
            os.truncate(cut, os.path.getsize(cut) - MIB)
            for path, allowed in ((overlay, ["--allow", "other-files"]), (packed, []), (cut, ["--allow", "damaged"])):
                refused = onefold("estimate", path, check=False)
                imported = onefold("import", pool.path, "v", path, check=False)
                self.assertEqual((refused.returncode, refused.stderr), (1, imported.stderr))
                self.assertEqual(estimate(path, "--format", "raw")["images"], 0)
                if allowed:
                    self.assertEqual(estimate(path, *allowed)["images"], 1)
            done = onefold("estimate", folder, "--json")
            said = json.loads(done.stdout)
            self.assertEqual({os.path.basename(each["path"]) for each in said["unreadable"]}, {"overlay.qcow2", "cut.qcow2"})
            self.assertIn("--allow other-files", done.stderr)
            self.assertEqual((said["images"], said["files"]), (1, 2))

    def test_the_first_line_is_the_answer_and_the_rest_is_short(self):
        with tempfile.TemporaryDirectory(prefix="onefold-test-") as folder:
            path = os.path.join(folder, "image")
            with open(path, "wb") as file:
                file.write(os.urandom(2 * MIB) * 2)
            lines = onefold("estimate", path).stdout.splitlines()
            self.assertEqual(lines[0], "A pool would save 2 MiB (50.0 %) of 4 MiB with the policy 'select' (the default), written 64 KiB at a time.")
            self.assertLessEqual(len(lines), 10)
            rows = onefold("estimate", path, "--all").stdout
            self.assertEqual(len(rows.split("\n\n")[1].splitlines()), 1 + 20)
            self.assertIn("idedup", onefold("estimate", path, "--policy", "idedup").stdout)
            # Half of it is text, half noise: containers of 1 MiB, block by block.
            with open(path, "wb") as file:
                file.write(os.urandom(MIB))
                file.write(b"".join(b"%d: the same words, and again the same words; " % at * 90 for at in range(256 * 2))[:2 * MIB])
            said = estimate(path)["compression"]
            self.assertEqual((said["container_bytes"], said["containers"], said["one_window_in"]), (MIB, 3, 1))
            self.assertTrue(33 < said["zstd_percent"] <= said["lz4_percent"] < 50, said)
            self.assertIn("(sample of 3): lz4", onefold("estimate", path).stdout)

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
