"""`status --prometheus`: what it prints is the text format, and the figures of `status --json` under the names in docs/reference/metrics.md."""

import os
import re
import subprocess
import unittest

from server import ONEFOLD, Pool, onefold, promtool, run

COUNTERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/reference/metrics.md")
ROW = re.compile(r"\| `(onefold_\w+)` \| (counter|gauge|histogram) \| ([^|]*) \| `([^`]+)` \| [^|]+ \|")
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (-?[0-9]+(?:\.[0-9]+)?)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
STATES = {
    "refuses_new": ["data", "metadata"],
    "mode": ["recovering", "normal", "read-only"],
    "scrub.state": ["never", "running", "paused", "finished", "stopped"],
    "flash.state": ["none", "away", "opening", "attached", "failed", "unused", "leaving"],
    "dedup.state": ["never", "running", "paused", "finished", "stopped"],
    "relocate.state": ["never", "running", "paused", "finished", "stopped"],
}


def documented():
    """Each metric of the docs: its type, its labels beside `pool`, and the figure that it is."""
    with open(COUNTERS, encoding="utf-8") as file:
        rows = [ROW.fullmatch(line.strip()) for line in file if line.startswith("| `onefold_")]
    assert rows and all(rows), "a row of a metric in docs/reference/metrics.md is not as the others"
    metrics = {row[1]: (row[2], re.findall(r"`(\w+)`", row[3]), row[4]) for row in rows}
    assert len(metrics) == len(rows), "a metric is there twice"
    return metrics


def parse(text):
    """The types, and the values by name and labels. Strict: for each metric HELP, TYPE and then its samples, each once."""
    assert text.endswith("\n")
    types, samples, helped, current = {}, {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            helped, words = line[7:].split(" ", 1)
            assert words and helped not in types, line
            current = None
        elif line.startswith("# TYPE "):
            current, kind = line[7:].split(" ")
            assert current == helped and kind in ("counter", "gauge", "histogram"), line
            types[current] = kind
        else:
            sample = SAMPLE.fullmatch(line)
            parts = ("_bucket", "_sum", "_count") if sample and types[current] == "histogram" else ("",)
            assert sample and sample[1] in [current + part for part in parts], line
            labels, at = [], 0
            while at < len(sample[2]):
                label = LABEL.match(sample[2], at)
                assert label, line
                unescaped = re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), label[2])
                labels.append((label[1], unescaped))
                at = label.end()
                assert at == len(sample[2]) or sample[2][at] == ",", line
                at += 1
            key = (sample[1], tuple(labels))
            assert len({name for name, _ in labels}) == len(labels) and key not in samples, line
            samples[key] = float(sample[3])
    return types, samples


def figures(report, path):
    """The values at a path, each with the names in the place of what is in capitals; a list of volumes gives theirs."""
    found = [((), report)]
    for step in path.split("."):
        following = []
        for names, value in found:
            if step.endswith("[]"):
                following += [((*names, item["name"]), item) for item in value[step[:-2]]]
            elif step.isupper():
                following += [((*names, name), item) for name, item in value.items()]
            else:
                following.append((names, value[step]))
        found = following
    return found


def histogram(name, labels, figure):
    """What a histogram says of requests whose times are in buckets, from up to 16 µs on, each to twice the one before."""
    samples, so_far = {}, 0
    for number, count in enumerate(figure["buckets"]):
        so_far += count
        bound = "+Inf" if number == len(figure["buckets"]) - 1 else f"{(16 << number) / 1e6:f}"
        samples[f"{name}_bucket", (*labels, ("le", bound))] = float(so_far)
    samples[f"{name}_sum", labels] = figure["seconds"]
    samples[f"{name}_count", labels] = float(figure["requests"])
    return samples


def expected(report, pool):
    samples = {}
    for name, (kind, labels, path) in documented().items():
        if kind == "histogram":
            for names, value in figures(report, path):
                samples |= histogram(name, (("pool", pool), *zip(labels, names)), value)
            continue
        if path in STATES:
            values = [((state,), state == figures(report, path)[0][1]) for state in STATES[path]]
        elif path == "failure":
            values = [((), report["failure"] is not None)]
        else:
            values = [(names, value) for names, value in figures(report, path) if value is not None]
        for names, value in values:
            assert len(names) == len(labels), (name, names, labels)
            # Prometheus has times in seconds.
            value = value / 1e9 if path.endswith("_ns") else value
            samples[name, (("pool", pool), *zip(labels, names))] = float(value)
    return samples


class Metrics(unittest.TestCase):
    def assert_metrics(self, pool, path):
        for _ in range(10):
            before = pool.status()
            text = onefold("status", path, "--prometheus").stdout
            if pool.status() == before:
                break
        types, samples = parse(text)
        self.assertEqual(types, {name: kind for name, (kind, _, _) in documented().items()})
        self.assertEqual(samples, expected(before, path))
        return samples

    def test_metrics_are_the_figures_of_the_status_under_the_names_of_the_docs(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "other", "--size", "16M", "--policy", "full")
            for volume in ["default", "other"]:
                run("qemu-io", "-f", "raw", "-c", "write -P 7 0 1M", "-c", "read -P 7 0 1M", pool.uri(volume))
            onefold("scrub", pool.path, "--wait")
            pool.settled()
            samples = self.assert_metrics(pool, pool.path)
            label = ("pool", pool.path)
            self.assertGreater(samples["onefold_writes_removed_blocks_total", (label,)], 0)
            self.assertEqual(samples["onefold_mode", (label, ("mode", "normal"))], 1)
            self.assertEqual(samples["onefold_scrub_state", (label, ("state", "finished"))], 1)
            self.assertGreater(
                samples["onefold_volume_writes_sizes_total", (label, ("volume", "other"), ("size", "larger"))], 0)
            pool.stop()

    def test_prometheus_finds_nothing_in_the_metrics(self):
        """Two were in nanoseconds, where Prometheus' unit of time is the second."""
        if not promtool():
            self.skipTest("there is no promtool (tests/tools fetches it): the metrics were not read by Prometheus")
        with Pool("64M").serve("--memory", "64M") as pool:
            text = onefold("status", pool.path, "--prometheus").stdout
            judged = run(promtool(), "check", "metrics", input=text)
            self.assertEqual((judged.stdout, judged.stderr), ("", ""))
            pool.stop()

    def test_a_pool_that_nobody_serves_has_the_same_metrics(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            types, _ = parse(onefold("status", pool.path, "--prometheus").stdout)
            self.assertEqual(set(types), set(documented()))

    def test_values_of_labels_are_escaped(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            path = os.path.join(pool.folder, 'a "quoted" \\n and\na line')
            os.symlink(pool.path, path)
            pool.settled()
            self.assert_metrics(pool, path)
            pool.stop()

    def test_one_format_at_a_time(self):
        done = subprocess.run([ONEFOLD, "status", "pool", "--json", "--prometheus"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--prometheus", done.stderr)


if __name__ == "__main__":
    unittest.main()
