"""Counts that only fall: recorded in a TOML file, and compared with it at each run. For tests/layers and tests/pages."""
import argparse
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def parser(doc):
    """The options of a program that counts; the first line of its docs is its help."""
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument("--record", action="store_true", help="record the present counts")
    return made


class Ratchet:
    """The record of tests/NAME: tests/NAME.toml."""

    def __init__(self, name, header):
        self.program, self.header, self.path = f"tests/{name}", header, ROOT / "tests" / f"{name}.toml"
        self.before = tomllib.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def show(self, counts):
        """Prints each count, and the recorded one if that differs."""
        for name, count in counts.items():
            print(f"{count:5}  {name}" + (f" (recorded: {self.before[name]})" if self.before.get(name, count) != count else ""))

    def risen(self, counts, bounds=None):
        """The counts above the recorded ones; below its bound, a count may rise."""
        return [name for name, count in counts.items() if count > max(self.before.get(name, count), (bounds or {}).get(name, 0))]

    def hold(self, counts, record, parts=(), bounds=None):
        """Ends the program if a count has risen; with `record`, writes the counts instead.

        `parts` are counts whose sum is another count: if some rose and no sum did, something moved, and that may be recorded.
        """
        more = self.risen(counts, bounds)
        moved = set(more) <= set(parts)
        if more and not (record and moved):
            hint = f"If these have moved, `{self.program} --record`" if moved else f"`{self.program} --list` says where"
            sys.exit(f"{self.program}: more than is recorded: {'; '.join(more)}. {hint}")
        if record:
            text = f"# {self.header} Made by `{self.program} --record`; the numbers only fall.\n"
            self.path.write_text(text + "".join(f'"{name}" = {count}\n' for name, count in counts.items()), encoding="utf-8")
        elif any(count < self.before.get(name, count) for name, count in counts.items()):
            print(f"less than is recorded: {self.program} --record")
