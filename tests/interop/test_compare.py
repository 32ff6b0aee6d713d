"""bench/compare in short: every server goes through its jobs, nothing is measured twice, and the tables have what was measured."""

import json
import os
import shutil
import tempfile
import unittest

from server import ONEFOLD, ROOT, run

JOB = "random write, 4K, depth 32"
COMPARE = os.path.join(ROOT, "bench", "compare")


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="onefold-test-")
        self.results = os.path.join(self.folder, "results.jsonl")

    def tearDown(self):
        shutil.rmtree(self.folder)

    def compare(self, *arguments, check=True):
        return run(COMPARE, "--results", self.results, *arguments, check=check)

    def test_what_is_measured_is_reported_once(self):
        options = ["--size-mib", "64", "--seconds", "1", "--rounds", "1", "--policies", "select", "--onefold", ONEFOLD,
                   "--directory", os.path.join(self.folder, "disks"), "--job", JOB + ", a"]
        first = self.compare(*options, "--keep")
        with open(self.results) as file:
            lines = [json.loads(line) for line in file]
        names = ["nbdkit", "qemu-nbd", "device", "null", "onefold select"]
        self.assertEqual([line["server"] for line in lines if line["job"] == "fill"], ["onefold select", "device"])
        done = [(line["server"], line["duplicates"]) for line in lines if line["job"] != "fill"]
        self.assertEqual(sorted(done), sorted([(name, 0) for name in names] + [("onefold select", percent) for percent in (25, 50, 75)]))
        for line in lines:
            self.assertTrue(line["operations"] > 0 and line["operations_per_second"] > 0 and line["p99_us"] > 0, line)
            self.assertEqual(line["cpu_us_per_operation"] > 0, line["server"] != "device")
        self.assertIn("75 % duplicates", first.stdout)
        # Nothing is left to do; without --keep the disks go.
        again = self.compare(*options)
        self.assertEqual(again.stdout, first.stdout)
        with open(self.results) as file:
            self.assertEqual(len(file.readlines()), len(lines))
        self.assertEqual(os.listdir(self.folder), ["results.jsonl"])
        self.assertEqual(self.compare("--report").stdout, first.stdout)

    def test_bad_input_is_named(self):
        self.assertIn("has no results", self.compare("--report", check=False).stderr)
        with open(self.results, "w") as file:
            file.write("not JSON\n")
        self.assertIn("is no file of results", self.compare("--report", check=False).stderr)
        self.assertIn("at least 1", self.compare("--rounds", "0", check=False).stderr)


if __name__ == "__main__":
    unittest.main()
