"""`repro bench` against a served pool: what it wrote reads back, and the pool saves what was generated as duplicate."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from server import ROOT, Pool, run

REPRO = os.environ.get("REPRO", os.path.join(ROOT, "target", "release", "repro"))
# Our own: half of all blocks are of 212 contents.
DISTRIBUTION = "0 3000\n1 10\n9 200\n499 2\n"


def distribution(pool):
    path = os.path.join(pool.folder, "distribution")
    with open(path, "w") as file:
        file.write(DISTRIBUTION)
    return path


def bench(pool, *arguments, check=True):
    done = run(REPRO, "bench", pool.uri(), distribution(pool), *arguments, check=check)
    return json.loads(done.stdout) if check else done


class Bench(unittest.TestCase):
    def test_a_pool_saves_what_was_generated_as_duplicate(self):
        for pattern in ("sequential", "hotspot", "uniform", "zipf"):
            with self.subTest(pattern=pattern), Pool("128M").serve("--memory", "64M", "--policy", "full") as pool:
                report = bench(pool, "--overwrite", "--pattern", pattern, "--size", "24M", "--runs", "2", "--workers", "3",
                               "--depth", "4", "--request", "8K", "--verify")
                generated = report["generated"]
                self.assertEqual(generated["written_blocks"], 2 * 24 * 256)
                self.assertEqual(report["verified_blocks"], generated["live_blocks"])
                status = pool.settled()
                stored = status["data_blocks_used"] - status["replicas"]["blocks"]
                self.assertEqual(stored, generated["distinct_blocks"], "what is different is stored")
                self.assertEqual(status["logical_blocks_used"], generated["live_blocks"])
                self.assertEqual(status["logical_blocks_used"] - stored, report["saved_blocks"])
                self.assertEqual([entry["requests"] for entry in report["runs"]], [24 * 128] * 2)
                for name in ("throughput_mib_s", "requests_a_second", "latency_mean_us"):
                    self.assertGreater(report[name]["mean"], 0)
                    self.assertGreater(report[name]["sd"], 0)
                latency = report["runs"][0]["latency"]
                self.assertLessEqual(latency["p50_us"], latency["p99_us"])
                pool.stop()
                pool.check()

    def test_reads_and_writes_at_a_rate_for_some_time(self):
        with Pool("64M").serve("--memory", "64M", "--policy", "full") as pool:
            report = bench(pool, "--overwrite", "--fill", "--span", "16M", "--pattern", "uniform", "--reads", "50",
                           "--rate", "500", "--seconds", "1", "--runs", "1", "--workers", "2", "--verify", "--durable")
            one, = report["runs"]
            self.assertLessEqual(one["requests"], 502)
            self.assertGreater(one["requests"], 100)
            self.assertIn("reads", one)
            self.assertIn("writes", one)
            self.assertEqual(report["verified_blocks"], 16 * 256)
            self.assertEqual(pool.settled()["data_blocks_used"], report["generated"]["distinct_blocks"])
            pool.stop()

    def test_nothing_is_overwritten_unless_it_may_be(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            done = bench(pool, "--size", "1M", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--overwrite", done.stderr)
            self.assertEqual(pool.settled()["data_blocks_used"], 0)
            pool.stop()

    def test_a_device_that_is_not_there_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file, socket = os.path.join(folder, "distribution"), os.path.join(folder, "none.sock")
            with open(file, "w") as out:
                out.write(DISTRIBUTION)
            for uri, words in ((f"nbd+unix:///default?socket={socket}", socket), ("nbd://127.0.0.1:1/x", "127.0.0.1:1"),
                               ("http://x", "is no device")):
                done = subprocess.run([REPRO, "bench", uri, file], capture_output=True, text=True, timeout=60)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main()
