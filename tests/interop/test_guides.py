"""The commands of README.md, docs/README.md and the guides are run, each page in a folder of its own, in the order of the page.

A block of commands is fenced with ```sh. The line before it may say something about it:

    <!-- not run: REASON -->                the block is left out, and the reason printed
    <!-- runs until the end of the page --> the block is a server: it is begun, waited for until its socket is there, and ended with the page

After `<!-- prints -->` a ```text block is the output of the block before it: each line is in that output, in this order. `…` stands for any text in a line.
After `<!-- prints, with its own figures on each machine -->` numbers may differ, percentages by 20 at most.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from server import ONEFOLD, PATIENCE, ROOT, run

BLOCK = re.compile(r"(?:^<!-- (?P<says>.*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.S | re.M)
INDENTED = re.compile(r"(?:^\n|\A)(?P<code>(?: {4}\S.*\n)+)", re.M)
LANGUAGES = {"sh", "text", "ini"}
SERVER, NOT_RUN, PRINTS = "runs until the end of the page", "not run: ", "prints"
PRINTS_FIGURES = "prints, with its own figures on each machine"
FIGURE = r"\d[\d.,]*(?: (?:[KMGT]iB|bytes))?"
PERCENT_APART = 20
SECONDS = 120
# Guides without a command that can run here.
NONE_RUNS = ("docs/guide/comparison.md", "docs/guide/faq.md", "docs/guide/shared-storage.md")


class Page:
    """A page, and the folder in which its commands run."""

    def __init__(self, path):
        self.path = path
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            self.text = file.read()
        self.folder = tempfile.mkdtemp(prefix="onefold-guide-")
        self.servers, self.logs = [], []
        bin_folder = os.path.join(self.folder, ".bin")
        os.mkdir(bin_folder)
        os.symlink(ONEFOLD, os.path.join(bin_folder, "onefold"))
        search = os.pathsep.join([bin_folder, os.environ["PATH"], "/usr/sbin", "/sbin"])
        self.environment = {**os.environ, "PATH": search}

    def blocks(self):
        return [(match["says"] or "", match["language"], match["code"]) for match in BLOCK.finditer(self.text)]

    def begin(self, code):
        """Starts a block; its output goes to a file."""
        log = open(os.path.join(self.folder, f".log{len(self.logs)}"), "w+", encoding="utf-8")
        self.logs.append(log)
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", code], cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, start_new_session=True,
        )
        return process, log

    def output(self):
        """What each block has printed."""
        for log in self.logs:
            log.seek(0)
            yield log.read()

    def run(self, code):
        process, log = self.begin(code)
        try:
            status = process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end in {SECONDS} s"
            os.killpg(process.pid, signal.SIGKILL)
        self.expect(status == 0, code, status, log)

    def serve(self, code):
        before = self.ends()
        process, log = self.begin(code)
        self.servers.append(process)
        deadline = time.time() + SECONDS
        while self.ends() == before:
            self.expect(process.poll() is None, code, "it ended", log)
            self.expect(time.time() < deadline, code, "it is not ready", log)
            time.sleep(0.05)
        # The socket is there before the pool is open.
        for socket in self.ends() - before:
            while socket.endswith(".sock") and run("nbdinfo", "--list", f"nbd+unix:///?socket={socket}", check=False).returncode != 0:
                self.expect(process.poll() is None, code, "it ended", log)
                self.expect(time.time() < deadline, code, "it answers no client", log)
                time.sleep(0.05)

    def ends(self):
        """What a server makes when it is ready: sockets, and files that FUSE has mounted."""
        found = set()
        for folder, _, files in os.walk(self.folder):
            for name in files:
                path = os.path.join(folder, name)
                if name.endswith((".sock", ".vhost")) or os.path.ismount(path):
                    found.add(path)
        return found

    def prints(self, text, figures_differ=False):
        """Waits until the block that was begun last has printed these lines: a server goes on."""
        pattern = any_figures if figures_differ else lambda line: r".*?".join(map(re.escape, line.split("…")))
        lines = [pattern(line.strip()) for line in text.splitlines() if line.strip()]
        wanted = re.compile(r"(?:^.*\n)*?".join(rf"^ *{line} *\n" for line in lines), re.M)
        deadline = time.time() + PATIENCE
        while not (found := wanted.search(self.last_output())):
            self.expect(self.servers and self.servers[-1].poll() is None and time.time() < deadline, text, "it is not printed", self.logs[-1])
            time.sleep(0.05)
        if figures_differ:
            for promised, percent in zip(re.findall(r"([\d.]+) %", text), found.groups(), strict=True):
                self.expect(abs(float(promised) - float(percent)) <= PERCENT_APART, text, f"{percent} % in place of {promised} %", self.logs[-1])

    def last_output(self):
        # Not by our descriptor, whose position is the writer's.
        with open(self.logs[-1].name, encoding="utf-8") as file:
            return file.read()

    @staticmethod
    def expect(holds, code, what, log):
        if not holds:
            log.seek(0)
            raise AssertionError(f"{what}:\n{code}\n{log.read()}")

    def close(self):
        for process in reversed(self.servers):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(timeout=PATIENCE)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        for log in self.logs:
            log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def any_figures(line):
    """A line in which numbers and the width of columns may differ; a group is a percentage."""
    def pattern(part):
        return r"([\d.]+) %" if part.endswith(" %") else FIGURE if part[:1].isdigit() else " {2,}" if part.startswith("  ") else re.escape(part)
    return "".join(map(pattern, re.split(rf"([\d.]+ %|{FIGURE}| {{2,}})", line)))


def text_of(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def pages():
    guides = sorted(name for name in os.listdir(os.path.join(ROOT, "docs", "guide")) if name.endswith(".md"))
    return ["README.md", "docs/README.md"] + [f"docs/guide/{name}" for name in guides]


class Guides(unittest.TestCase):
    def test_every_block_runs_or_says_why_not(self):
        for path in pages():
            with self.subTest(page=path):
                page = Page(path)
                try:
                    ran = 0
                    for says, language, code in page.blocks():
                        if says in (PRINTS, PRINTS_FIGURES):
                            page.prints(code, says == PRINTS_FIGURES)
                        if language != "sh":
                            continue
                        if says.startswith(NOT_RUN):
                            print(f"{path}: {code.split(chr(10))[0]}: {says}")
                        elif says == SERVER:
                            page.serve(code)
                        else:
                            page.run(code)
                            ran += 1
                    self.assertEqual(ran == 0, path in NONE_RUNS, f"{ran} blocks ran")
                    if path in PROMISES:
                        PROMISES[path](self, page)
                finally:
                    page.close()

    def test_every_page_that_promises_space_is_held_to_it(self):
        promise = re.compile(r"takes? (?:next to )?no space|no new blocks|some blocks of 4 KiB")
        self.assertEqual({path for path in pages() if promise.search(BLOCK.sub(lambda block: block[0] if path == "README.md" else "", text_of(path)))},
                         set(PROMISES))

    def the_second_disk_takes_no_space(self, page):
        """docs/guide/clients.md: the same image again takes no space except for its map."""
        said = "".join(page.output())
        new = re.findall(r"stored: +(.*?) new", said)
        self.assertEqual(new[:2], ["32 MiB", "0 bytes"], said)

    def overlay_and_copy_take_next_to_no_space(self, page):
        """docs/guide/backup.md: the golden image, and beside it some blocks of 4 KiB, the written one among them."""
        page.run("onefold status vms.onefold --settle --json >status.json")
        with open(os.path.join(page.folder, "status.json"), encoding="utf-8") as file:
            report = json.load(file)
        golden = 32 << 8
        self.assertGreater(report["logical_blocks_used"], 2 * golden)
        self.assertLess(report["data_blocks_used"], golden + 64)

    def saves_what_it_promises(self, page):
        """README's example once ended in a saving of 0.0 %, where it promised that a clone takes no new blocks, and nobody read that."""
        said = "".join(page.output())
        promised = int(re.search(r"over (\d+) % of it takes no new blocks", page.text)[1])
        found = [int(percent) for percent in re.findall(r"stored: .*\((\d+) %\) needed no space", said)]
        self.assertEqual(len(found), 2, said)
        self.assertGreater(found[1], promised, said)
        self.assertGreater(float(re.search(r"saving +([\d.]+) %", said)[1]), 100 * promised / 200, said)

    def test_blocks_are_of_a_known_kind_and_say_only_what_is_understood(self):
        for path in pages():
            page = Page(path)
            page.close()
            for says, language, code in page.blocks():
                self.assertIn(language, LANGUAGES, f"{path}: {code}")
                known = ("", PRINTS, PRINTS_FIGURES) if language == "text" else ("", SERVER)
                self.assertTrue(says in known or says.startswith(NOT_RUN), f"{path}: {says}")
            outside = BLOCK.sub("", page.text)
            self.assertEqual([match["code"] for match in INDENTED.finditer(outside)], [], f"{path}: commands outside of a fence are not run")

    def test_the_first_command_serves_and_says_how_to_connect(self):
        page = Page("README.md")
        self.addCleanup(page.close)
        arguments = re.search(r"^cargo run --release -- (.*)$", page.text, re.M)[1]
        page.serve(f"exec onefold {arguments} --memory 256M")
        page.prints(page.text.split("```text\n")[1].split("```")[0])
        page.run(re.search(r"^try: +(nbdinfo .*)$", page.last_output(), re.M)[1])


PROMISES = {
    "README.md": Guides.saves_what_it_promises,
    "docs/guide/clients.md": Guides.the_second_disk_takes_no_space,
    "docs/guide/backup.md": Guides.overlay_and_copy_take_next_to_no_space,
}

if __name__ == "__main__":
    unittest.main()
