"""Programs in a terminal of their own: what they print, the screen that results, and the screen as SVG."""

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

from server import PATIENCE

CONTROL = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|([\r\n\b\t])|([^\x00-\x1f\x7f])")
# Pixels of a letter, a line, the margin; size of the font.
LETTER, LINE, MARGIN, FONT = 8.4, 18, 16, 14
GROUND, INK, DIM, EDGE = "#14171a", "#e4e7ea", "#8f98a1", "#3d444b"
COLOURS = ("#5c6670", "#f0776c", "#2fc79a", "#e6b450", "#4aa3df", "#d56fa0", "#56c8d8", "#e4e7ea")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *command, rows=40, columns=100, **options):
        self.near, self.far = pty.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.far)
        self.said = b""
        self.process = subprocess.Popen(command, stdin=self.far, stdout=self.far, stderr=self.far, **options)

    def wait_for(self, text, seconds=PATIENCE):
        deadline = time.time() + seconds
        while text not in self.said:
            if time.time() > deadline:
                raise AssertionError(f"{text} is not in {self.said}")
            self.read(0.1)

    def read(self, seconds):
        """Takes what comes within this time; false if nothing does."""
        if not select.select([self.near], [], [], seconds)[0]:
            return False
        self.said += os.read(self.near, 65536)
        return True

    def end(self):
        """Its exit status, when it has ended; what it has said to the end."""
        deadline = time.time() + PATIENCE
        while self.process.poll() is None:
            if time.time() > deadline:
                raise AssertionError("it does not end")
            self.read(0.1)
        while self.read(0.2):
            pass
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.near)
        os.close(self.far)


class Screen:
    """The screen of a terminal: rows of letters, each with its style. It grows downward and does not scroll."""

    def __init__(self, columns=100):
        self.columns, self.rows, self.at, self.style = columns, [], (0, 0), ("", "", "")

    def feed(self, said):
        """Shows output; styles are weight, colour and ground."""
        for sign in CONTROL.finditer(said):
            row, column = self.at
            if sign[4]:
                if column == self.columns:
                    row, column = row + 1, 0
                self.put(row, column, sign[4])
                self.at = row, column + 1
            elif sign[3]:
                self.at = {"\r": (row, 0), "\n": (row + 1, column), "\b": (row, max(column - 1, 0)), "\t": (row, column // 8 * 8 + 8)}[sign[3]]
            elif sign[2] == "m":
                self.set_style([int(number or 0) for number in sign[1].split(";")])
            elif sign[2]:
                numbers = [int(number) for number in sign[1].lstrip("?").split(";") if number]
                self.move(sign[2], numbers)
        return self

    def put(self, row, column, letter):
        while len(self.rows) <= row:
            self.rows.append([])
        line = self.rows[row]
        line.extend([(" ", ("", "", ""))] * (column + 1 - len(line)))
        line[column] = (letter, self.style)

    def move(self, kind, numbers):
        (row, column), first = self.at, numbers[0] if numbers else 0
        if kind == "H":
            self.at = max(first, 1) - 1, (numbers[1] if len(numbers) > 1 else 1) - 1
        elif kind in "ABCD":
            step = max(first, 1)
            self.at = {"A": (max(row - step, 0), column), "B": (row + step, column), "C": (row, column + step), "D": (row, max(column - step, 0))}[kind]
        elif kind == "J" and first == 2:
            self.rows = []
        elif kind in "JK" and row < len(self.rows):
            del self.rows[row][0 if first == 2 else column:]
            if kind == "J":
                del self.rows[row + 1:]

    def set_style(self, numbers):
        weight, colour, ground = self.style
        while numbers:
            number = numbers.pop(0)
            if number in (38, 48) and numbers[:1] == [5]:
                chosen = COLOURS[numbers[1] % 8] if numbers[1] < 16 else ""
                colour, ground = (chosen, ground) if number == 38 else (colour, chosen)
                del numbers[:2]
            elif number == 0:
                weight, colour, ground = "", "", ""
            elif number in (1, 2, 22):
                weight = {1: "bold", 2: "dim", 22: ""}[number]
            elif number in (39, 49):
                colour, ground = ("", ground) if number == 39 else (colour, "")
            elif number // 10 in (3, 9):
                colour = COLOURS[number % 10]
            elif number // 10 == 4:
                ground = COLOURS[number % 10]
        self.style = weight, colour, ground

    def lines(self):
        """The rows as text."""
        return ["".join(letter for letter, _ in row).rstrip() for row in self.rows]

    def spans(self, row):
        """Stretches of one style in a row: first column, text, style."""
        found = []
        for column, (letter, style) in enumerate(self.rows[row]):
            if found and found[-1][2] == style:
                found[-1] = (found[-1][0], found[-1][1] + letter, style)
            else:
                found.append((column, letter, style))
        return found

    def svg_of_row(self, row, y):
        """SVG of a row: each word has its place and width, whatever the font."""
        out = ""
        for column, text, (weight, colour, ground) in self.spans(row):
            if ground:
                out += f'<rect x="{MARGIN + column * LETTER:.1f}" y="{y - LINE + 5}" width="{len(text) * LETTER:.1f}" height="{LINE}" fill="{ground}"/>'
            style = f' fill="{colour or DIM}"' if colour or weight == "dim" else ""
            style += ' font-weight="bold"' if weight == "bold" else ""
            for word in re.finditer(r"\S+(?: \S+)*", text):
                x, width = MARGIN + (column + word.start()) * LETTER, len(word[0]) * LETTER
                out += f'<text x="{x:.1f}" y="{y}" textLength="{width:.1f}"{style}>{html.escape(word[0], quote=False)}</text>'
        return out


def svg(columns, rows, content, title, comment="", style=""):
    """A picture of a terminal with so many columns and rows."""
    width, height = round(columns * LETTER + 2 * MARGIN), rows * LINE + 2 * MARGIN
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n<!-- {comment} -->\n'
            f"<title>{html.escape(title)}</title>\n<style>text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
            f"white-space:pre}}{style}</style>\n"
            f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{GROUND}" stroke="{EDGE}"/>\n<g fill="{INK}">\n{content}\n</g>\n</svg>\n')


def words_of(picture):
    """The lines of a picture of a terminal, without what differs from one time to the next: numbers with their units, and blanks."""
    lines = {}
    for _, y, text in re.findall(r'<text x="([\d.]+)" y="(\d+)"[^>]*>([^<]*)</text>', picture):
        lines[int(y)] = lines.get(int(y), "") + " " + html.unescape(text)
    return [without_numbers(lines[y]) for y in sorted(lines)]


def without_numbers(line):
    # A share that is not counted yet, or estimated.
    line = re.sub(r"\bcounting\b|\babout (?=\d)", lambda word: "0" if word[0] == "counting" else "", line)
    line = re.sub(r"\b\d[\d.,:]*(?:T[\d:.]+Z)?(?: ?(?:bytes|[KMGT]iB|ms|us|µs|s|%)(?!\w))?", "N", re.sub(r"\d{4}-\d\d-\d\d", "0", line))
    return " ".join(line.split())
