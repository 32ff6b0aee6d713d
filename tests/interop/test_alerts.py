"""Each alert of contrib/prometheus fires when its cause is made on a real server, and falls silent when that is repaired.

What the server says before, during and after is handed to `promtool test rules` as three phases of a timeline, so that Prometheus itself evaluates the
rules, and `for:` costs no time.
"""

import errno
import json
import os
import re
import socket
import time
import unittest
import urllib.request

import nbd

from server import BLOCK, PATIENCE, ROOT, Pool, onefold, promtool, run
from test_faults import DATA, IN_JOURNAL, FaultyPool
from test_full import overcommitted
from test_metrics import parse
from test_scrub import flip, places

RULES = os.path.join(ROOT, "contrib/prometheus/onefold.rules.yml")
FIRING = 'count by (alertname) (ALERTS{alertstate="firing"})'
MIB = 1 << 20
MINUTE, HOUR, DAY = 60, 3600, 86400
TESTED = set()


def fires(*alerts):
    """Marks a test of these alerts."""
    TESTED.update(alerts)
    return lambda test: test


def rules():
    with open(RULES, encoding="utf-8") as file:
        return file.read()


def scrape(pool):
    """What a pool's server says now, of what the rules ask for; and when."""
    _, samples = parse(onefold("status", pool.path, "--prometheus").stdout)
    wanted = set(re.findall(r"\bonefold_\w+", rules()))
    return time.time(), {key: value for key, value in samples.items() if key[0] in wanted}


class Timeline:
    """Phases, each a scrape that holds for a time; before it figures may rise to it from the one before."""

    def __init__(self, step):
        self.step, self.length = step, 0
        self.series, self.asked = {}, []

    def phase(self, scraped, hold, *alerts, rise=0):
        """At the end of the phase these alerts fire, and no others."""
        when, samples = scraped
        rising, steps = rise // self.step, (rise + hold) // self.step
        begin = self.length
        for key, value in samples.items():
            if key[0] in ("onefold_scrub_finished_seconds", "onefold_scrub_started_seconds"):
                # Time begins at 0 here.
                value += begin * self.step - when
            values = self.series.setdefault(key, ["_"] * begin)
            before = values[-1] if values and values[-1] != "_" else value
            values += [before + (value - before) * (number + 1) / rising for number in range(rising)]
            values += [value] * (steps - rising)
        self.length += steps
        for values in self.series.values():
            values += ["_"] * (self.length - len(values))
        self.asked.append(((self.length - 1) * self.step, alerts))

    def judge(self, folder):
        """Has Prometheus evaluate the rules over it."""
        def name(key):
            labels = dict(key[1]) | {"job": "onefold", "instance": "test"}
            return key[0] + "{" + ",".join(f"{label}={json.dumps(value)}" for label, value in sorted(labels.items())) + "}"

        expected = [{
            "expr": FIRING, "eval_time": f"{when}s",
            "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
        } for when, alerts in self.asked]
        series = [{"series": name(key), "values": " ".join(map(str, values))} for key, values in self.series.items()]
        test = {"interval": f"{self.step}s", "input_series": series, "promql_expr_test": expected}
        path = os.path.join(folder, "alerts.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rule_files": [RULES], "evaluation_interval": f"{self.step}s", "tests": [test]}, file)
        done = run(promtool(), "test", "rules", path, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


def await_(holds):
    deadline = time.time() + PATIENCE
    while not holds():
        assert time.time() < deadline, "it does not come"
        time.sleep(0.05)


def fill(client, most, first=0):
    """Writes so many MiB of data that nothing else has; how many there was space for."""
    for number in range(most):
        try:
            client.pwrite(os.urandom(MIB), (first + number) * MIB)
        except nbd.Error as error:
            assert error.errnum == errno.ENOSPC, error
            return number
    return most


@unittest.skipUnless(promtool(), "there is no promtool (tests/tools fetches it): no alert was tried")
class Alerts(unittest.TestCase):
    def test_each_alert_has_a_test(self):
        self.assertEqual(set(re.findall(r"- alert: (\w+)", rules())), TESTED)

    @fires("OnefoldDown")
    def test_a_server_that_does_not_answer(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        def up():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                    return time.time(), {("up", ()): float(answer.status == 200)}
            except OSError:
                return time.time(), {("up", ()): 0.0}
        timeline = Timeline(MINUTE)
        with Pool("64M").serve("--memory", "64M", "--http", f"127.0.0.1:{port}") as pool:
            timeline.phase(up(), 5 * MINUTE)
            pool.kill()
            timeline.phase(up(), 5 * MINUTE, "OnefoldDown")
            pool.serve("--memory", "64M", "--http", f"127.0.0.1:{port}", create=False)
            timeline.phase(up(), 5 * MINUTE)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldFailed")
    def test_a_pool_that_has_failed(self):
        timeline = Timeline(MINUTE)
        with FaultyPool() as pool:
            pool.start()
            timeline.phase(scrape(pool), 5 * MINUTE)
            pool.plan(f"write {IN_JOURNAL} error=EIO")
            client = connect(pool, "one")
            client.pwrite(os.urandom(BLOCK), 0)
            with self.assertRaises(nbd.Error):
                client.flush()
            timeline.phase(scrape(pool), 5 * MINUTE, "OnefoldFailed")
            pool.end()
            pool.plan()
            onefold("repair", pool.path, "--yes")
            pool.start()
            timeline.phase(scrape(pool), 5 * MINUTE)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldDamaged")
    def test_damage_that_is_not_repaired(self):
        """It once fired until the next restart, also when what was lost had been restored."""
        timeline = Timeline(MINUTE)
        with Pool("64M").serve("--memory", "64M") as pool:
            block = os.urandom(BLOCK)
            client = connect(pool)
            client.pwrite(block + os.urandom(MIB - BLOCK), 0)
            client.shutdown()
            timeline.phase(scrape(pool), 5 * MINUTE)
            pool.stop()
            for place in places(pool, block):
                flip(pool, place)
            pool.serve("--memory", "64M", create=False)
            self.assertEqual(onefold("scrub", pool.path, "--wait", check=False).returncode, 1)
            timeline.phase(scrape(pool), 5 * MINUTE, "OnefoldDamaged")
            self.assertEqual(pool.status()["damages_left"], 1)
            # Restored, from a backup.
            client = connect(pool)
            client.pwrite(block, 0)
            client.flush()
            self.assertEqual(client.pread(BLOCK, 0), block)
            pool.settled()
            onefold("scrub", pool.path, "--wait")
            timeline.phase(scrape(pool), 5 * MINUTE)
            # What a read finds counts, and over a restart what the scrub knows.
            self.assertEqual(pool.status()["damages_left"], 0)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldNoSpace", "OnefoldNearlyFull")
    def test_a_pool_that_is_full(self):
        timeline = Timeline(MINUTE)
        with overcommitted("64M") as pool:
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            fill(client, 8)
            pool.settled()
            timeline.phase(scrape(pool), 10 * MINUTE)
            self.assertLess(fill(client, 200, 8), 200)
            timeline.phase(scrape(pool), 10 * MINUTE, "OnefoldNearlyFull", "OnefoldNoSpace")
            client.trim(200 * MIB, 8 * MIB)
            client.flush()
            pool.settled()
            timeline.phase(scrape(pool), 10 * MINUTE)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldSnapshotsHoldMuch")
    def test_snapshots_that_hold_much(self):
        timeline = Timeline(MINUTE)
        with overcommitted("64M") as pool:
            pool.serve("--memory", "64M", create=False)
            client = connect(pool)
            fill(client, 48)
            pool.settled()
            timeline.phase(scrape(pool), 60 * MINUTE)
            onefold("snapshot", "create", pool.path, "default@kept")
            self.assertGreater(pool.settled()["snapshots"]["blocks"], 40 * MIB // BLOCK)
            timeline.phase(scrape(pool), 20 * MINUTE)
            timeline.phase(scrape(pool), 20 * MINUTE, "OnefoldSnapshotsHoldMuch")
            client.shutdown()
            onefold("snapshot", "delete", pool.path, "default@kept", "--yes")
            onefold("volume", "delete", pool.path, "default", "--yes")
            self.assertEqual(pool.settled()["data_blocks_used"], 0)
            timeline.phase(scrape(pool), 20 * MINUTE)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldNoSpace")
    def test_a_host_that_is_full(self):
        timeline = Timeline(MINUTE)
        with FaultyPool() as pool:
            pool.start()
            client = connect(pool, "one")
            timeline.phase(scrape(pool), 5 * MINUTE)
            pool.plan("reserve error=ENOSPC", f"write from={DATA} error=ENOSPC")
            with self.assertRaises(nbd.Error):
                fill(client, 32)
                client.flush()
            await_(lambda: pool.status()["host_full"])
            timeline.phase(scrape(pool), 5 * MINUTE, "OnefoldNoSpace")
            pool.plan()
            # That there is space shows when somebody takes it.
            await_(lambda: fill(client, 1) == 1 and not pool.status()["host_full"])
            timeline.phase(scrape(pool), 5 * MINUTE)
            timeline.judge(pool.folder)
            pool.stop()

    @fires("OnefoldFullWithinADay")
    def test_a_pool_that_fills_up(self):
        timeline = Timeline(MINUTE)
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            fill(client, 20)
            pool.settled()
            timeline.phase(scrape(pool), 30 * MINUTE)
            fill(client, 20, 20)
            pool.settled()
            timeline.phase(scrape(pool), HOUR, "OnefoldFullWithinADay", rise=3 * HOUR)
            timeline.phase(scrape(pool), 7 * HOUR)
            timeline.judge(pool.folder)
            client.shutdown()
            pool.stop()

    @fires("OnefoldSlow")
    def test_a_disk_that_is_slow(self):
        timeline = Timeline(MINUTE)
        with FaultyPool() as pool:
            pool.start()
            client = connect(pool, "one")
            write = lambda: client.pwrite(os.urandom(BLOCK), 0, nbd.CMD_FLAG_FUA)
            write()
            timeline.phase(scrape(pool), 5 * MINUTE)
            pool.plan(f"write {IN_JOURNAL} slow=700")
            for _ in range(3):
                write()
            timeline.phase(scrape(pool), 0, "OnefoldSlow", rise=20 * MINUTE)
            pool.plan()
            for _ in range(500):
                write()
            timeline.phase(scrape(pool), 0, rise=20 * MINUTE)
            timeline.judge(pool.folder)
            client.shutdown()
            pool.stop()

    @fires("OnefoldNeverScrubbed", "OnefoldNotScrubbed")
    def test_a_pool_that_is_not_scrubbed(self):
        """It once could not fire for a pool that had never been scrubbed: there was no time to count from."""
        timeline = Timeline(HOUR)
        with Pool("64M").serve("--memory", "64M") as pool:
            timeline.phase(scrape(pool), 6 * DAY)
            timeline.phase(scrape(pool), 2 * DAY, "OnefoldNeverScrubbed")
            onefold("scrub", pool.path, "--wait")
            scrubbed = scrape(pool)
            timeline.phase(scrubbed, 34 * DAY)
            # The same figures, as Prometheus has them two days later.
            timeline.phase((scrubbed[0] + 34 * DAY, scrubbed[1]), 2 * DAY, "OnefoldNotScrubbed")
            onefold("scrub", pool.path, "--wait")
            timeline.phase(scrape(pool), DAY)
            timeline.judge(pool.folder)
            pool.stop()

    def test_a_scrub_that_goes_on_after_a_restart_has_a_date(self):
        """Nobody knew when it ended, so no alert could count from that."""
        with FaultyPool() as pool:
            pool.start()
            client = connect(pool, "one")
            fill(client, 8)
            client.shutdown()
            pool.settled()
            pool.plan(f"read from={DATA} slow=200")
            onefold("scrub", pool.path)
            pool.stop()
            self.assertIn(pool.status()["scrub"]["state"], ("running", "paused"))
            pool.plan()
            pool.start()
            await_(lambda: pool.status()["scrub"]["state"] == "finished")
            self.assertLess(abs(pool.status()["scrub"]["finished"] - time.time()), 60)
            pool.stop()


if __name__ == "__main__":
    unittest.main()
