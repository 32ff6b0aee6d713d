"""The Grafana board and the alert rules in contrib/: every metric and label that they name is in docs/reference/metrics.md."""

import json
import os
import re
import unittest

from server import ROOT, promtool, run
from test_metrics import documented

RULES = os.path.join(ROOT, "contrib/prometheus/onefold.rules.yml")
BOARD = os.path.join(ROOT, "contrib/grafana/onefold.json")
PARTS = {"_bucket": {"le"}, "_sum": set(), "_count": set()}


def board():
    with open(BOARD, encoding="utf-8") as file:
        return json.load(file)


def expressions():
    """The expressions of all alerts and panels, each with where it stands."""
    with open(RULES, encoding="utf-8") as file:
        alerts = re.findall(r"- alert: (\w+)\n +expr: (.+)\n", file.read())
    panels = [(panel["title"], target["expr"]) for panel in board()["panels"] for target in panel["targets"]]
    return alerts + panels


def labels_of(name):
    """The labels of a metric as it is scraped; None if docs/reference/metrics.md does not have it."""
    metrics = documented()
    if name in metrics and metrics[name][0] != "histogram":
        return {"pool", "job", "instance", *metrics[name][1]}
    for part, more in PARTS.items():
        base = name.removesuffix(part)
        if base != name and metrics.get(base, ("",))[0] == "histogram":
            return {"pool", "job", "instance", *metrics[base][1], *more}
    return None


class Contrib(unittest.TestCase):
    def test_nothing_gives_the_group_of_all_disks(self):
        """Whoever is in `disk` may write every disk of the host."""
        listed = run("git", "ls-files", "contrib", "docs", "README.md", "crates/onefold/Cargo.toml", cwd=ROOT).stdout.split()
        found = []
        for name in listed:
            with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as file:
                found += [f"{name}: {line}" for line in file if re.search(r"(Groups?=disk|-a?G disk|group [`'\"]?disk[`'\"]?|root:disk\b)", line)]
        self.assertEqual([line for line in found if "never" not in line], [])

    def test_the_units_have_a_group_of_their_own(self):
        with open(os.path.join(ROOT, "contrib/systemd/onefold@.socket"), encoding="utf-8") as file:
            socket = file.read()
        with open(os.path.join(ROOT, "contrib/systemd/sysusers.conf"), encoding="utf-8") as file:
            users = file.read()
        group = re.search(r"^SocketGroup=(\w+)$", socket, re.M)[1]
        self.assertRegex(users, rf"(?m)^[ug] {group}\b")
        with open(os.path.join(ROOT, "contrib/systemd/onefold@.service"), encoding="utf-8") as file:
            service = file.read()
        # Members of the group connect; the pool's file is not theirs.
        self.assertIn("StateDirectoryMode=0700", service)
        with open(os.path.join(ROOT, "contrib/udev/70-onefold.rules"), encoding="utf-8") as file:
            rules = [line for line in file if line.strip() and not line.startswith("#")]
        self.assertTrue(rules)
        for rule in rules:
            self.assertRegex(rule, r'^SUBSYSTEM=="block", ENV\{\w+\}=="[^"]+", OWNER="onefold"$')

    def test_metrics_and_their_labels_are_those_of_the_docs(self):
        seen = 0
        for where, expression in expressions():
            for name, chosen in re.findall(r"\b(onefold_\w+)(?:\{([^}]*)\})?", expression):
                seen += 1
                labels = labels_of(name)
                self.assertIsNotNone(labels, f"{where}: {name} is not in docs/reference/metrics.md")
                for label in re.findall(r"(\w+) *(?:=~|!~|!=|=)", chosen):
                    self.assertIn(label, labels, f"{where}: {name}")
        self.assertGreater(seen, 30)

    def test_each_alert_says_what_has_happened_and_what_to_do(self):
        with open(RULES, encoding="utf-8") as file:
            alerts = file.read().split("- alert: ")[1:]
        self.assertGreater(len(alerts), 5)
        for alert in alerts:
            for part in ["expr: ", "severity: ", "summary: ", "description: "]:
                self.assertIn(part, alert)

    def test_prometheus_takes_the_rules(self):
        if not promtool():
            self.skipTest("there is no promtool (tests/tools fetches it): the rules were not read by Prometheus")
        run(promtool(), "check", "rules", "--lint=all", "--lint-fatal", RULES)

    def test_the_board_has_panels_that_do_not_overlap(self):
        taken = set()
        for panel in board()["panels"]:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24)
            taken |= cells
            self.assertTrue(panel["targets"] and panel["title"])


if __name__ == "__main__":
    unittest.main()
