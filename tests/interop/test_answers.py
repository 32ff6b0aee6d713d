"""Answers of a server have the volumes that were asked for: a command's answer is as long beside 1,000 volumes as beside 10, and all volumes come in parts."""

import concurrent.futures
import json
import os
import socket
import unittest

from server import PATIENCE, Pool, onefold, run
from test_http import get, page_of

AT_ONCE = 256


class Asker:
    """A client of a pool's control socket."""

    def __init__(self, pool):
        found = os.stat(pool.path)
        self.store = {"file": {"file_system": found.st_dev, "inode": found.st_ino}}
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(pool.path + ".ctl")
        self.answers = self.socket.makefile("rb")

    def ask(self, command, **of):
        """The answer to a command, by its kind."""
        line = {"store": self.store, "request": {"command": command, **of}}
        self.socket.sendall(json.dumps(line).encode() + b"\n")
        return json.loads(self.answers.readline())

    def create(self, name):
        return self.ask("create-volume", name=name, size_bytes=1 << 20, policy="inherit")["done"]

    def part(self, behind):
        """The volumes of a part, and the number behind which the next one begins."""
        answer = self.ask("status", settle=False, volumes={"behind": behind})
        part = answer.get("part") or {"report": answer["done"], "next": None}
        return part["report"]["volumes"], part["next"]

    def parts(self):
        behind = 0
        while behind is not None:
            volumes, behind = self.part(behind)
            yield volumes

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answers.close()
        self.socket.close()


def create(pool, numbers):
    def some(of):
        with Asker(pool) as asker:
            return [asker.create(f"v{number:04}") for number in of]

    with concurrent.futures.ThreadPoolExecutor(8) as many:
        list(many.map(some, [numbers[start::8] for start in range(8)]))


def shape(value):
    """An answer with its numbers replaced, whose digits differ from one moment to the next."""
    match value:
        case dict():
            # One entry more every ten seconds.
            return {name: shape(of) for name, of in value.items() if name != "history"}
        case list():
            return [shape(of) for of in value]
        case bool() | str() | None:
            return value
        case _:
            return 0


def names(volumes):
    return [volume["name"] for volume in volumes]


class Answers(unittest.TestCase):
    def test_answers_of_1000_volumes(self):
        with Pool("256M").serve("--memory", "128M", "--http", "127.0.0.1:0") as pool, Asker(pool) as asker:
            create(pool, range(8))
            answers = [asker.create("new1")]
            create(pool, range(8, 997))
            answers.append(asker.create("new2"))
            self.assertEqual([names(answer["volumes"]) for answer in answers], [["new1"], ["new2"]])
            few, many = (json.dumps(shape(answer)).replace("new2", "new1") for answer in answers)
            self.assertEqual(few, many, "as long beside 10 volumes as beside 1,000")
            self.parts(pool, asker)
            self.profile(pool)
            self.named(pool, asker)
            self.changed_between_two_parts(asker)
            pool.stop()

    def parts(self, pool, asker):
        """`status --json`, the list, the page and the metrics have all volumes."""
        parts = list(asker.parts())
        self.assertEqual([len(part) for part in parts], [AT_ONCE] * 3 + [1000 - 3 * AT_ONCE])
        whole = pool.status()
        self.assertEqual(whole["volumes"], sum(parts, []))
        self.assertEqual(len(set(names(whole["volumes"]))), 1000)
        listed = json.loads(onefold("volume", "list", pool.path, "--json").stdout)
        self.assertEqual(listed["volumes"], whole["volumes"])
        address = page_of(pool)
        self.assertEqual(json.loads(get(address, "/status.json")[1])["volumes"], whole["volumes"])
        self.assertEqual(get(address, "/metrics")[1].count("onefold_volume_size_bytes{"), 1000)
        self.assertIn("of 1000 volumes", get(address)[1])
        self.assertIn("of 1000", onefold("top", "--once", pool.path).stdout)
        # Commands that print all figures after they have done something.
        for command in (["dedup"], ["scrub", "--wait"]):
            report = json.loads(onefold(*command, pool.path, "--json").stdout)
            self.assertEqual(names(report["volumes"]), names(whole["volumes"]))
        self.assertEqual(names(asker.ask("scrub", action="start")["done"]["volumes"]), [])

    def profile(self, pool):
        """A saved profile names all volumes."""
        file = os.path.join(pool.folder, "profile")
        onefold("relocate", "profile", "start", pool.path)
        onefold("relocate", "profile", "save", pool.path, file)
        with open(file) as lines:
            saved = json.loads(lines.readline())["volumes"]
        self.assertEqual([name for _, name in saved], names(pool.status()["volumes"]))
        onefold("relocate", "profile", "load", pool.path, file)
        onefold("relocate", "profile", "stop", pool.path)

    def named(self, pool, asker):
        """Commands about one volume find the last one."""
        def ask(*wanted):
            return asker.ask("status", settle=False, volumes={"named": wanted})

        self.assertEqual(names(ask("v0990", "nobody", "v0003", "v0990")["done"]["volumes"]), ["v0003", "v0990"])
        self.assertEqual(names(ask()["done"]["volumes"]), [])
        self.assertEqual(len(ask(*(f"v{number:04}" for number in range(100, 100 + AT_ONCE)))["done"]["volumes"]), AT_ONCE)
        self.assertIn("257 volumes are named", ask(*map(str, range(AT_ONCE + 1)))["failed"])
        # A request of a program that knows no parts.
        self.assertIn("part", asker.ask("status", settle=False))
        self.assertIn("v0990", onefold("connect", pool.path, "v0990").stdout)
        self.assertIn("'nobody'", onefold("connect", pool.path, "nobody", check=False).stderr)
        self.assertIn("goal", onefold("volume", "get", pool.path, "v0990").stdout)
        image = os.path.join(pool.folder, "image")
        with open(image, "wb") as file:
            file.write(b"image" * 100_000)
        self.assertIn("imported", onefold("import", pool.path, "v0990", image).stdout)
        run("cmp", "-n", "500000", image, self.exported(pool, "v0990"))

    def exported(self, pool, name):
        image = os.path.join(pool.folder, "exported.raw")
        onefold("export", pool.path, name, image)
        return image

    def changed_between_two_parts(self, asker):
        """Each volume comes once, those deleted before their part not at all."""
        first, behind = asker.part(0)
        for name in ("v0020", "v0900"):
            self.assertEqual(asker.ask("delete-volumes", names=[name], force=False)["done"]["volumes"], [])
        asker.create("late")
        second, behind = asker.part(behind)
        asker.ask("delete-volumes", names=["v0901"], force=False)
        third, behind = asker.part(behind)
        asker.ask("delete-volumes", names=["late"], force=False)
        asker.create("later")
        last, behind = asker.part(behind)
        self.assertIsNone(behind)
        found = names(first + second + third + last)
        self.assertEqual(len(found), len(set(found)))
        self.assertIn("v0020", found, "it was there at the time of its part")
        self.assertFalse({"v0900", "v0901", "late"} & set(found))
        self.assertIn("later", found)
        self.assertEqual(len(found), 999)


if __name__ == "__main__":
    unittest.main()
