"""docs/pictures are of this program: a new session and a new screen have the lines of the pictures, except for numbers.

The charts are compared in `figures/pictures.rs` of repro.
"""

import importlib.machinery
import importlib.util
import os
import re
import struct
import tempfile
import unittest
import xml.etree.ElementTree

from server import ROOT
from terminal import Screen, without_numbers, words_of

loader = importlib.machinery.SourceFileLoader("pictures", os.path.join(ROOT, "bench", "pictures"))
loader_spec = importlib.util.spec_from_loader("pictures", loader)
pictures = importlib.util.module_from_spec(loader_spec)
loader.exec_module(pictures)

REMAKE = "bench/pictures makes other lines than docs/pictures has: run it, look at the pictures, and keep them"
FOLDER = os.path.join(ROOT, "docs", "pictures")


def picture(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()


class Pictures(unittest.TestCase):
    def test_the_session_is_what_the_quickstart_prints_today(self):
        self.assertEqual(words_of(pictures.draw_session(pictures.session())), words_of(picture("session.svg")), REMAKE)

    def test_top_has_the_parts_of_its_picture(self):
        """Figures and remarks depend on the load. Titles of boxes and heads of columns do not."""
        def parts(text):
            found = re.findall(r"┌([a-z ]+)", text) + re.findall(r"│ ?((?:now|policy|volume) [^│]*)", text)
            return [without_numbers(part) for part in found]

        now = "\n".join(pictures.top(seconds=3).lines())
        there = "\n".join(words_of(picture("top.svg")))
        self.assertEqual(len(parts(there)), 9, "six boxes, three of them with heads")
        self.assertEqual(parts(now), parts(there), REMAKE)

    def test_the_page_can_be_made(self):
        with open(os.path.join(FOLDER, "page.png"), "rb") as file:
            self.assertEqual(self.size(file.read(24)), (pictures.WIDTH, pictures.HEIGHT))
        if not pictures.chromium():
            self.skipTest("no Chromium: apt-get install chromium")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.png")
            pictures.page(path, seconds=3)
            with open(path, "rb") as file:
                self.assertEqual(self.size(file.read(24)), (pictures.WIDTH, pictures.HEIGHT))

    @staticmethod
    def size(begin):
        """Width and height in the beginning of a PNG file."""
        if begin[:8] != b"\x89PNG\r\n\x1a\n":
            raise AssertionError("no PNG")
        return struct.unpack(">II", begin[16:24])

    def test_every_picture_is_shown_and_small(self):
        pages = "".join(picture(os.path.join("..", "guide", f"{name}.md")) for name in ("quickstart", "monitor", "comparison", "policies"))
        for name in sorted(os.listdir(FOLDER)):
            with self.subTest(name):
                self.assertIn(f"](../pictures/{name})", pages)
                self.assertLess(os.path.getsize(os.path.join(FOLDER, name)), 250 << 10)
                if name.endswith(".svg"):
                    root = xml.etree.ElementTree.fromstring(picture(name))
                    self.assertLessEqual(int(root.get("width")), 1000, "wider than a page")

    def test_lines_are_compared_without_numbers(self):
        self.assertEqual(without_numbers("web1    64 MiB  32 MiB   about 62 %  select"), without_numbers("web1  64 MiB  1.5 GiB counting select"))
        self.assertEqual(without_numbers("scrub finished 2026-11-30 02:08 UTC: 39.8 MiB read"), "scrub finished N N UTC: N read")

    def test_a_screen_is_what_a_terminal_shows(self):
        said = "progress 10 %\rprogress 90 %\r\x1b[Kdone\r\n\x1b[1mbold\x1b[22m \x1b[38;5;2mwell\x1b[39m\r\n\x1b[1;6Hat\x1b[2;1HB"
        screen = Screen(20).feed(said)
        self.assertEqual(screen.lines(), ["done at", "Bold well"])
        self.assertEqual([text for _, text, _ in screen.spans(1)], ["B", "old", " ", "well"])
        self.assertEqual(Screen(4).feed("abcdef").lines(), ["abcd", "ef"])


if __name__ == "__main__":
    unittest.main()
