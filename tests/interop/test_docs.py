"""The docs hold together: every link leads to a file that is there, and to a heading that it has; recorded figures have their fields.

Names of files in backticks: tests/pages.
"""

import csv
import glob
import json
import os
import re
import subprocess
import unittest

from server import ROOT


def pages():
    """Every page of the project, by its path from the root."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return listed.split()


def text_of(page):
    """A page without its blocks of code, where brackets mean something else."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", lambda code: code[0].replace("[", " ").replace("]", " "), text)


def anchors(page):
    """What headings are called in links: in small letters, blanks as hyphens, without other signs."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        headings = re.findall(r"^#+ (.*)$", file.read(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Links(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        wrong, seen = [], 0
        for page in pages():
            for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text_of(page)):
                if re.match(r"[a-z]+:", target):
                    continue
                seen += 1
                path, _, anchor = target.partition("#")
                there = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
                if page.startswith("docs/") and not there.startswith("docs/"):
                    wrong.append(f"{page}: {target}: the site has only docs/")
                if not os.path.exists(os.path.join(ROOT, there)):
                    wrong.append(f"{page}: {target}: no such file")
                elif anchor and there.endswith(".md") and anchor not in anchors(there):
                    wrong.append(f"{page}: {target}: no such heading")
        self.assertGreater(seen, 50)
        self.assertEqual(wrong, [])

    def test_every_page_is_in_the_table_of_contents(self):
        """docs/SUMMARY.md is what `mdbook build docs` makes a site of."""
        with open(os.path.join(ROOT, "docs", "SUMMARY.md"), encoding="utf-8") as file:
            listed = re.findall(r"^(?:- )?\[[^\]]+\]\(([^)]+)\)$", file.read(), re.M)
        there = {page.removeprefix("docs/") for page in pages() if page.startswith("docs/")} - {"SUMMARY.md"}
        self.assertEqual(sorted(listed), sorted(there))

    def test_questions_of_a_new_maintainer_lead_to_their_files(self):
        """CONTRIBUTING.md, "Where things are": each file has the term that one would search for."""
        with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| .*\? \| (.+) \| `(.+)` \|$", file.read(), re.M)
        self.assertGreaterEqual(len(rows), 10)
        for term, path in rows:
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                self.assertIn(term.lower(), file.read().lower(), path)

    def test_guarantees_name_tests_that_are_there(self):
        """docs/reference/guarantees.md: `file`: `test`, and further tests of that file."""
        listed = subprocess.run(["git", "ls-files", "*.rs", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        with open(os.path.join(ROOT, "docs/reference/guarantees.md"), encoding="utf-8") as file:
            text = " ".join(file.read().split())
        wrong, seen = [], 0
        for name, tests in re.findall(r"`([\w/]+\.(?:rs|py))`: (`\w+`(?:,? (?:and )?`\w+`(?!:))*)", text):
            source = ""
            for path in listed:
                if path.endswith(f"/{name}"):
                    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                        source += file.read()
            for test in re.findall(r"`(\w+)`", tests):
                seen += 1
                wrong += [] if re.search(rf"\b(fn|def) {test}\(", source) else [f"{name}: {test}"]
        self.assertGreater(seen, 40)
        self.assertEqual(wrong, [])


class Results(unittest.TestCase):
    """bench/results/*.jsonl, a file for each month: a figure a line, with what made it."""

    TEXTS = ("date", "subject", "command", "machine", "figure", "unit")

    def test_every_line_has_its_fields(self):
        files = glob.glob(os.path.join(ROOT, "bench", "results", "*.jsonl"))
        self.assertNotEqual(files, [])
        for path in files:
            with open(path, encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    with self.subTest(f"{os.path.basename(path)}:{number}"):
                        self.check(json.loads(line), os.path.basename(path).removesuffix(".jsonl"))

    def check(self, result, month):
        for field in self.TEXTS:
            self.assertTrue(isinstance(result[field], str) and result[field], field)
        # A day of the month, or the month where no day is known.
        self.assertRegex(result["date"], rf"^{month}(-\d\d)?$")
        values = result["value"] if isinstance(result["value"], list) else [result["value"]]
        self.assertTrue(values and all(type(value) in (int, float, str) for value in values), "value")
        # A standard deviation or error, or minimum and maximum.
        spread = result.get("spread", 0)
        ends = spread if isinstance(spread, list) else [0, spread]
        self.assertTrue(len(ends) == 2 and all(type(end) in (int, float) for end in ends) and ends[0] <= ends[1], "spread")
        self.assertRegex(result.get("commit", "0000000"), r"^[0-9a-f]{7,40}$")
        self.assertLessEqual(result.keys(), {*self.TEXTS, "value", "spread", "commit", "note"})

    def test_the_scores_of_the_papers_are_those_of_the_verdicts(self):
        """docs/papers/figures.md, "Scores": how many claims that count hold, by the list of the full form."""
        counts = {}
        with open(os.path.join(ROOT, "docs", "papers", "figures", "verdicts.csv"), encoding="utf-8") as file:
            for line in csv.DictReader(file):
                count = counts.setdefault((re.match(r"\w+", line["claim"])[0], line["kind"]), [0, 0])
                count[0] += line["verdict"] == "holds"
                count[1] += 1
        with open(os.path.join(ROOT, "docs", "papers", "figures.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| \[.*\] *\(.*\) \| (\d+) of (\d+) \| (\d+) of (\d+) \| `repro figure (\w+) ", file.read(), re.M)
        self.assertEqual(len(rows), 5)
        for *numbers, paper in rows:
            self.assertEqual([int(number) for number in numbers], counts[paper, "predicted"] + counts[paper, "statement"], paper)


if __name__ == "__main__":
    unittest.main()
