"""The README's own commands, in its order: each does what a newcomer is told it does."""

import os
import re
import shlex
import signal
import socket
import subprocess
import tempfile
import unittest

from server import ONEFOLD, ROOT, run

PORT = 10809


def blocks():
    """The blocks of commands of `## Use`, without their comments."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        use = file.read().split("## Use\n")[1].split("\n## ")[0]
    found = [block.strip().splitlines() for block in re.findall(r"```text\n(.*?)```", use, re.S)]
    return [[line.split(" #")[0].strip() for line in block] for block in found]


def first_command():
    """What the README begins with."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        line = re.search(r"^    cargo run --release -- (.*)$", file.read(), re.M)
    return line[1]


class Readme(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="onefold-readme-")
        self.servers = []
        raw = os.path.join(self.folder.name, "debian.raw")
        with open(raw, "wb") as file:
            file.write(os.urandom(8 << 20) * 2)
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, os.path.join(self.folder.name, "debian.qcow2"))

    def tearDown(self):
        for server in self.servers:
            server.kill()
            server.stdout.close()
            server.wait()
        self.folder.cleanup()

    def start(self, words):
        server = subprocess.Popen([ONEFOLD, *words], cwd=self.folder.name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.servers.append(server)
        said = ""
        while "try:" not in said:
            line = server.stdout.readline()
            self.assertTrue(line, f"the server ended: {words} {said}")
            said += line
        return said

    def stop(self):
        server = self.servers.pop()
        server.send_signal(signal.SIGTERM)
        server.stdout.close()
        self.assertEqual(server.wait(timeout=60), 0)

    def run_line(self, line):
        words = shlex.split(line)
        self.assertEqual(words[0], "onefold", line)
        words = [self.folder.name if word.startswith("/srv/") else word for word in words[1:]]
        return words, run(ONEFOLD, *words, cwd=self.folder.name).stdout if words[0] != "serve" else self.start(words)

    def test_the_blocks_of_use_do_what_they_say(self):
        if os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 6 << 30:
            self.skipTest("the README's server has 4 GiB of memory, and this machine has too little for that")
        images, volumes, beside = blocks()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                self.skipTest(f"somebody else listens on port {PORT} of this machine")
        said = self.start(shlex.split(first_command()))
        self.assertIn("nbd+unix:///default?socket=", said)
        for line in images:
            words, said = self.run_line(line)
            self.assertTrue(said, line)
        run("qemu-img", "compare", os.path.join(self.folder.name, "debian.qcow2"), os.path.join(self.folder.name, "copy.qcow2"))
        self.stop()
        for line in volumes:
            self.run_line(line)
        self.assertRegex(run(ONEFOLD, "get", "pool.onefold", "memory", cwd=self.folder.name).stdout, r"memory +4G +pool")
        self.stop()
        for line in beside:
            self.run_line(line)


if __name__ == "__main__":
    unittest.main()
