"""What `status` shows first: about ten lines that are of now, say what to do, and never save less than nothing."""

import os
import re
import time
import unittest

import nbd

from server import PATIENCE, Pool, onefold
from test_http import Figures, get, page_of
from test_metrics import parse

MIB = 1 << 20


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


def text(pool, *arguments):
    return onefold("status", pool.path, *arguments).stdout


class Status(unittest.TestCase):
    def assert_is_short(self, said):
        head = next(number for number, line in enumerate(said.splitlines()) if line.startswith("  volume "))
        self.assertLessEqual(head, 11, said)

    def test_an_empty_pool(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            said = text(pool)
            self.assertIn(f"{pool.path}: normal, not served\n", said)
            self.assertRegex(said, r"capacity +64 MiB +0 % in use; metadata space: \d+ %\n")
            self.assertRegex(said, r"saving +0\.0 %\n")
            self.assertIn("no volumes yet: make one with", said)
            self.assertLessEqual(len(said.splitlines()), 12, said)

    def test_a_pool_in_use_has_figures_of_now_and_every_figure_with_all(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            data = os.urandom(4 * MIB)
            client.pwrite(data, 0)
            client.pwrite(data, 8 * MIB)
            # Nothing has been merged yet, and nobody waits for that.
            report = pool.status()
            self.assertEqual((report["logical_blocks_used"], report["data_blocks_used"]), (2048, 1024), report["unmerged_entries"])
            self.assertEqual((report["saving_percent"], report["volumes"][0]["logical_blocks_used"]), (50.0, 2048))
            said = text(pool)
            self.assert_is_short(said)
            self.assertIn(f"{pool.path}: normal, served\n", said)
            self.assertRegex(said, r"logical +8 MiB .*\n +data +4 MiB .*\n +saving +50\.0 %\n +memory +[\d.]+ MiB of 64 MiB\n")
            self.assertRegex(said, r"volume +size +holds +shared +policy +remarks\n +default +64 MiB +8 MiB +(counting|100 %) +select +1 client\n")
            for words in ["what if", "read cache", "hybrid"]:
                self.assertNotIn(words, said)
            every = text(pool, "--all")
            for words in ["what if", "read cache", "device", "overhead", "requests since the server was started"]:
                self.assertIn(words, every)
            settled = pool.settled()
            self.assertEqual((settled["logical_blocks_used"], settled["data_blocks_used"]), (2048, 1024))
            client.shutdown()
            pool.stop()

    def test_what_each_volume_shares_is_right_and_still_there_after_a_restart(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            data, half = os.urandom(4 * MIB), os.urandom(2 * MIB)
            volumes = {"one": (data, 100), "other": (data, 100), "half": (data[: 2 * MIB] + half, 50), "unique": (os.urandom(MIB), 0), "empty": (b"", 0)}
            for name in volumes:
                onefold("volume", "create", pool.path, name, "--size", "16M", "--policy", "full")
            serve = lambda: pool.serve("--memory", "64M", "--http", "127.0.0.1:0", create=False)
            serve()
            for name, (content, _) in volumes.items():
                if content:
                    client = connect(pool, name)
                    client.pwrite(content, 0)
                    client.shutdown()
            expected = {name: (percent, 0) for name, (_, percent) in volumes.items()}
            for restarts in [False, True]:
                if restarts:
                    pool.stop()
                    serve()
                deadline = time.time() + PATIENCE
                while True:
                    report = pool.status()
                    shared = {volume["name"]: (volume["shared_percent"], volume["shared_error_percent"]) for volume in report["volumes"]}
                    if shared == expected:
                        break
                    self.assertLess(time.time(), deadline, shared)
                    time.sleep(0.2)
                for said in [text(pool), text(pool, "--all"), onefold("top", pool.path, "--once").stdout]:
                    for name, percent in [("one", 100), ("other", 100), ("half", 50), ("unique", 0), ("empty", 0)]:
                        self.assertRegex(said, rf"\b{name} .* {percent} %")
                self.assertIn("<td>50 %</td>", re.sub(r"</?data[^>]*>", "", get(page_of(pool))[1]))
                samples = parse(onefold("status", pool.path, "--prometheus").stdout)[1]
                found = {dict(labels)["volume"]: value for (name, labels), value in samples.items() if name == "onefold_volume_shared_percent"}
                self.assertEqual(found, {name: percent for name, (percent, _) in expected.items()})
            pool.stop()

    def test_twenty_of_many_volumes_are_shown(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "16M")
            pool.serve("--memory", "64M", "--http", "127.0.0.1:0", create=False)
            onefold("volume", "delete", pool.path, "default")
            for number in range(25):
                onefold("volume", "create", pool.path, f"vm{number:02}", "--size", "16M")
            connect(pool, "vm24").pwrite(os.urandom(MIB), 0)
            said = text(pool)
            self.assertEqual(len(re.findall(r"^  vm\d\d ", said, re.M)), 20)
            self.assertRegex(said, r"holds +shared +policy.*\n  vm24 ")
            self.assertIn(f"these 20 hold most, and there are 5 more: 'onefold status {pool.path} --all'\n", said)
            self.assertEqual(len(re.findall(r"^  vm\d\d ", text(pool, "--all"), re.M)), 25)
            address = page_of(pool)
            page = get(address)[1]
            names = lambda page: re.findall(r"<tr><td>(vm\d\d)</td>", page)
            self.assertEqual((len(names(page)), names(page)[0]), (20, "vm24"))
            self.assertIn("The 20 of 25 volumes that hold most.", page)
            self.assertLess(page.index('id="requests"'), page.index('id="jobs"'))
            self.assertLess(page.index('id="jobs"'), page.index('id="volumes"'))
            self.assertEqual(names(get(address, "/?find=VM0")[1]), [f"vm0{number}" for number in range(10)])
            self.assertEqual(names(get(address, "/?find=nobody")[1]), [])
            pool.stop()

    def test_a_full_pool_says_that_writes_are_refused_and_what_to_do(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "1G")
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            with self.assertRaises(nbd.Error):
                for number in range(200):
                    client.pwrite(os.urandom(MIB), number * MIB)
            said = text(pool)
            self.assert_is_short(said)
            self.assertRegex(said, r"\n  full +writes of new blocks are refused: the pool's capacity is used up: trim")
            client.shutdown()
            pool.stop()

    def test_a_pool_that_is_served_read_only_says_that_writes_are_refused(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pool.stop()
            pool.serve("--memory", "64M", "--read-only", create=False)
            self.assertIn(f"{pool.path}: read-only, writes are refused, served\n", text(pool))
            pool.stop()

    def test_what_is_saved_is_never_less_than_nothing(self):
        """A volume of 37 MiB was deleted beside a small one: -9300 % were saved while its blocks were being freed."""
        with Pool("64M").serve("--memory", "64M", "--http", "127.0.0.1:0") as pool:
            address = page_of(pool)
            connect(pool).pwrite(os.urandom(MIB // 4), 0)
            onefold("volume", "create", pool.path, "large", "--size", "64M")
            client = connect(pool, "large")
            for number in range(37):
                client.pwrite(os.urandom(MIB), number * MIB)
            client.shutdown()
            pool.settled()
            onefold("volume", "delete", pool.path, "large")
            deadline = time.time() + PATIENCE
            while True:
                self.assertLess(time.time(), deadline)
                report = pool.status()
                shown = [report["saving_percent"], Figures(get(address)[1]).found["saving_percent"]]
                shown += [value for (name, _), value in parse(get(address, "/metrics")[1])[1].items() if name == "onefold_saving_percent"]
                shown += [float(re.search(r"saving +(-?[\d.]+) %", text(pool))[1])]
                self.assertEqual(len(shown), 4)
                for saving in shown:
                    self.assertGreaterEqual(saving, 0)
                    self.assertLess(saving, 5, "nothing here is there twice")
                if report["data_blocks_used"] == 64:
                    break
            self.assertRegex(onefold("top", pool.path, "--once").stdout, r"│0\.0 % saved")
            pool.stop()

    def test_a_pass_is_advised_where_it_would_give_much_back(self):
        with Pool("64M").serve("--memory", "64M", "--policy", "observe", "--http", "127.0.0.1:0") as pool:
            client = connect(pool)
            data = os.urandom(8 * MIB)
            client.pwrite(data, 0)
            self.assertNotIn("to gain", text(pool))
            client.pwrite(data, 16 * MIB)
            said = text(pool)
            self.assertRegex(said, rf"\n  to gain +up to 8 MiB, .*: 'onefold dedup {re.escape(pool.path)}'\n")
            self.assertIn("to gain: up to 8 MiB", get(page_of(pool))[1])
            onefold("dedup", pool.path, "--wait")
            report = pool.settled()
            self.assertEqual((report["data_blocks_used"], report["dedup"]["missed_blocks"]), (2048, 0))
            self.assertNotIn("to gain", text(pool))
            client.shutdown()
            pool.stop()


if __name__ == "__main__":
    unittest.main()
