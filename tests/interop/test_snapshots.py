"""Snapshots, clones and rollbacks: what a snapshot keeps stays, what is written to a clone is seen by nobody else, and all outlive kill -9."""

import errno
import json
import os
import pty
import subprocess
import time
import unittest
from datetime import datetime, timezone

import nbd

from server import ONEFOLD, PATIENCE, CommandTest, Pool, faulty, onefold, run

MIB = 1 << 20
CLONES = 20


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


def pattern(pool, volume, command):
    """Runs a command of qemu-io on a volume; a snapshot is opened read-only."""
    read_only = ["-r"] if "@" in volume else []
    done = run("qemu-io", "-f", "raw", *read_only, "-c", command, pool.uri(volume))
    assert "failed" not in done.stdout, done.stdout


def content(pool, volume):
    """All bytes of a volume, by another client than libnbd."""
    path = os.path.join(pool.folder, "copy")
    run("nbdcopy", pool.uri(volume), path)
    with open(path, "rb") as file:
        return file.read()


def content_of(path):
    """The text of a file that another process may be about to write."""
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read()


def snapshots(pool, *volume):
    listed = json.loads(onefold("snapshot", "list", pool.path, *volume, "--json").stdout)["snapshots"]
    return {entry["name"]: entry for entry in listed}


def volumes(pool):
    return {entry["name"]: entry for entry in json.loads(onefold("volume", "list", pool.path, "--json").stdout)["volumes"]}


class Snapshots(CommandTest):
    def test_a_snapshot_keeps_what_its_volume_loses(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pattern(pool, "default", "write -P 0x11 0 8M")
            before = int(time.time())
            said = onefold("snapshot", "create", pool.path, "default@one").stdout
            self.assertIn("made the snapshot 'default@one'", said)
            pattern(pool, "default", "write -P 0x22 2M 2M")
            pattern(pool, "default", "write -z 4M 1M")
            pattern(pool, "default", "discard 5M 1M")
            for _ in range(2):
                pattern(pool, "default@one", "read -P 0x11 0 8M")
                pattern(pool, "default@one", "read -P 0 8M 56M")
                pattern(pool, "default", "read -P 0x22 2M 2M")
                pattern(pool, "default", "read -P 0 4M 2M")
                pattern(pool, "default", "read -P 0x11 6M 2M")
                pool.kill()
                pool.serve("--memory", "64M", create=False)
            found = snapshots(pool)["default@one"]
            self.assertEqual([found[key] for key in ("volume", "size_bytes", "logical_blocks_used", "clones")],
                             ["default", 64 * MIB, 2048, 0])
            self.assertTrue(before <= found["created"] <= time.time(), found)
            info = json.loads(run("nbdinfo", "--json", pool.uri("default@one")).stdout)["exports"][0]
            self.assertTrue(info["is_read_only"], info)
            self.assertEqual(info["export-size"], 64 * MIB)
            client = connect(pool, "default@one")
            with self.assertRaises(nbd.Error) as caught:
                client.set_strict_mode(0)
                client.pwrite(b"x" * 4096, 0)
            self.assertEqual(caught.exception.errnum, errno.EPERM)
            client.shutdown()
            listed = json.loads(run("nbdinfo", "--list", "--json", pool.uri("")).stdout)["exports"]
            self.assertEqual([export["export-name"] for export in listed], ["default"])
            pool.stop()
            pool.check()

    def test_clones_begin_as_the_snapshot_and_go_their_own_ways(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            image = os.urandom(8 * MIB)
            client = connect(pool)
            for at in range(0, len(image), MIB):
                client.pwrite(image[at:at + MIB], at)
            client.shutdown()
            onefold("snapshot", "create", pool.path, "default@gold")
            used = pool.settled()["data_blocks_used"]
            said = onefold("clone", pool.path, "default@gold", "vm", "--count", CLONES).stdout
            self.assertIn(f"made {CLONES} volumes, clones of 'default@gold': 'vm-1' to 'vm-{CLONES}'", said)
            names = [f"vm-{number + 1}" for number in range(CLONES)]
            known = volumes(pool)
            self.assertEqual(sorted(known), sorted(["default", *names]))
            self.assertEqual({known[name]["origin"] for name in names}, {"default@gold"})
            self.assertEqual((known["default"]["origin"], known["default"]["snapshots"]), (None, 1))
            self.assertEqual(snapshots(pool)["default@gold"]["clones"], CLONES)
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["logical_blocks_used"]), (used, used))
            whole = image + bytes(56 * MIB)
            for name in (names[0], names[-1]):
                self.assertEqual(content(pool, name), whole, name)
            client = connect(pool, "vm-7")
            client.pwrite(b"w" * 4096, MIB)
            client.pwrite(b"v" * 512, 3 * MIB + 1024)
            client.trim(MIB, 5 * MIB)
            client.flush()
            written = bytearray(whole)
            written[MIB:MIB + 4096] = b"w" * 4096
            written[3 * MIB + 1024:3 * MIB + 1536] = b"v" * 512
            self.assertEqual(client.pread(4096, 3 * MIB), written[3 * MIB:3 * MIB + 4096])
            client.shutdown()
            pool.kill()
            pool.serve("--memory", "64M", create=False)
            found = content(pool, "vm-7")
            self.assertEqual(found[:5 * MIB] + found[6 * MIB:], written[:5 * MIB] + written[6 * MIB:])
            self.assertIn(found[5 * MIB:6 * MIB], (bytes(MIB), image[5 * MIB:6 * MIB]))
            for name in ("vm-6", "vm-8", "default", "default@gold"):
                self.assertEqual(content(pool, name), whole, name)
            onefold("volume", "resize", pool.path, "vm-2", "128M")
            self.assertEqual(content(pool, "vm-2"), whole + bytes(64 * MIB))
            # A clone has snapshots and clones of its own.
            onefold("snapshot", "create", pool.path, "vm-7@own")
            onefold("clone", pool.path, "vm-7@own", "second")
            self.assertEqual(content(pool, "second"), found)
            self.assertEqual(volumes(pool)["second"]["origin"], "vm-7@own")
            self.assertEqual(volumes(pool)["vm-7"]["origin"], "default@gold")
            self.assertIn("clone of vm-7@own", onefold("volume", "list", pool.path).stdout)
            self.assertIn("1 snapshot with 8 KiB, 1 clone, clone of default@gold", onefold("volume", "list", pool.path).stdout)
            onefold("volume", "delete", pool.path, "second")
            onefold("snapshot", "delete", pool.path, "vm-7@own")
            for name in names:
                onefold("volume", "delete", pool.path, name)
            self.assertEqual(content(pool, "default"), whole)
            onefold("snapshot", "delete", pool.path, "default@gold")
            self.assertEqual(snapshots(pool), {})
            self.assertEqual(content(pool, "default"), whole)
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["logical_blocks_used"]), (used, used))
            pool.stop()
            pool.check()

    def test_the_space_of_a_deleted_snapshot_comes_back(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            client.pwrite(os.urandom(4 * MIB), 0)
            client.flush()
            onefold("snapshot", "create", pool.path, "default@gold")
            onefold("clone", pool.path, "default@gold", "vm")
            client.pwrite(os.urandom(4 * MIB), 0)
            client.shutdown()
            self.assertEqual(pool.settled()["data_blocks_used"], 2048, "overwriting what a snapshot holds frees nothing")
            onefold("snapshot", "delete", pool.path, "default@gold")
            self.assertEqual(pool.settled()["data_blocks_used"], 2048, "the clone inherits it")
            self.assertEqual((volumes(pool)["vm"]["origin"], volumes(pool)["default"]["snapshots"]), (None, 0))
            self.refused("clone", pool.path, "default@gold", "other")
            onefold("volume", "delete", pool.path, "vm")
            self.assertEqual(pool.settled()["data_blocks_used"], 1024, "the volume has overwritten all of it")
            onefold("volume", "delete", pool.path, "default")
            self.assertEqual(pool.settled()["data_blocks_used"], 0)
            pool.stop()
            pool.check()

    def test_a_group_is_of_one_moment(self):
        """A client writes a number to two volumes, one after the other; in each group they differ by at most one."""
        with Pool("64M").serve("--memory", "64M") as pool:
            for name in ("data", "log"):
                onefold("volume", "create", pool.path, name, "--size", "16M")
            data, log = connect(pool, "data"), connect(pool, "log")
            number = 0
            for group in range(5):
                making = subprocess.Popen([ONEFOLD, "snapshot", "create", pool.path, f"data@g{group}", f"log@g{group}"],
                                          stdout=subprocess.DEVNULL)
                while making.poll() is None or number == 0:
                    number += 1
                    for client in (data, log):
                        client.pwrite(number.to_bytes(8) * 512, (number % 64) * 4096)
                self.assertEqual(making.returncode, 0)
            data.shutdown()
            log.shutdown()

            def newest(volume):
                found = content(pool, volume)
                return max(int.from_bytes(found[at:at + 8]) for at in range(0, 64 * 4096, 4096))

            pool.kill()
            pool.serve("--memory", "64M", create=False)
            last = 0
            for group in range(5):
                first, second = newest(f"data@g{group}"), newest(f"log@g{group}")
                self.assertIn(first - second, (0, 1), f"group {group}")
                self.assertGreaterEqual(second, last)
                last = first
            self.assertEqual(list(snapshots(pool, "log")), [f"log@g{group}" for group in range(5)])
            pool.stop()
            pool.check()

    def test_commands_work_without_a_server_as_with_one(self):
        def check(pool):
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            made = json.loads(onefold("snapshot", "create", pool.path, "db@s", "default@s", "--json").stdout)["snapshots"]
            self.assertEqual(sorted(entry["name"] for entry in made), ["db@s", "default@s"])
            self.assertEqual(sorted(snapshots(pool)), ["db@s", "default@s"])
            self.assertEqual(list(snapshots(pool, "db")), ["db@s"])
            text = onefold("snapshot", "list", pool.path, "db").stdout
            self.assertRegex(text, r"snapshot +created +size +holds +refer +clones\n +db@s +\d{4}-\d\d-\d\d \d\d:\d\d UTC +16 MiB +0 bytes +0 bytes +0\n")
            made = json.loads(onefold("clone", pool.path, "db@s", "new", "--count", "3", "--json").stdout)
            self.assertEqual(made["clones"], ["new-1", "new-2", "new-3"])
            self.assertIn("made the volume 'one', a clone of 'db@s'", onefold("clone", pool.path, "db@s", "one").stdout)
            self.assertEqual(sorted(volumes(pool)), ["db", "default", "new-1", "new-2", "new-3", "one"])
            self.assertIn("'db@s', 'default@s'", onefold("snapshot", "delete", pool.path, "db@s", "default@s").stdout)
            self.assertEqual(snapshots(pool), {})
            self.assertIn("no snapshots yet", onefold("snapshot", "list", pool.path).stdout)
            onefold("volume", "delete", pool.path, "db")

        self.each_way(check)

    def test_what_cannot_be_done_is_refused_with_the_reason(self):
        def check(pool):
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            onefold("snapshot", "create", pool.path, "db@s")
            for arguments, reasons in [
                (["snapshot", "create", pool.path, "db"], ["'db'", "VOLUME@NAME"]),
                (["snapshot", "create", pool.path, "db@a", "default@b"], ["one name"]),
                (["snapshot", "create", pool.path, "db@a", "db@a"], ["twice"]),
                (["snapshot", "create", pool.path, "db@s"], ["'db@s' exists"]),
                (["snapshot", "create", pool.path, "db@.s"], ["not allowed"]),
                (["snapshot", "create", pool.path, "none@s"], ["no volume 'none'"]),
                (["snapshot", "create", pool.path, "db@s@t"], ["not allowed"]),
                (["snapshot", "list", pool.path, "none"], ["no volume 'none'"]),
                (["snapshot", "delete", pool.path, "db@none"], ["no snapshot 'db@none'", "snapshot list"]),
                (["snapshot", "delete", pool.path, "db"], ["VOLUME@NAME"]),
                (["snapshot", "delete", pool.path, "db@s,none"], ["no snapshot 'db@none'"]),
                (["snapshot", "delete", pool.path, "db@s%none"], ["no snapshot 'db@none'"]),
                (["snapshot", "delete", pool.path, "default@%"], ["'default' has no snapshots"]),
                (["snapshot", "delete", pool.path, "db@s,"], ["comma"]),
                (["snapshot", "rollback", pool.path, "db"], ["VOLUME@NAME"]),
                (["snapshot", "rollback", pool.path, "db@none"], ["no snapshot 'db@none'", "snapshot list"]),
                (["snapshot", "rollback", pool.path, "none@s", "-r"], ["no snapshot 'none@s'"]),
                (["clone", pool.path, "db", "new"], ["VOLUME@NAME"]),
                (["clone", pool.path, "db@none", "new"], ["no snapshot 'db@none'"]),
                (["clone", pool.path, "db@s", "default"], ["'default' exists"]),
                (["clone", pool.path, "db@s", "a@b"], ["not allowed"]),
                (["clone", pool.path, "db@s", ".new", "--count", "3"], ["not allowed"]),
                (["volume", "delete", pool.path, "db"], ["'db' has 1 snapshot", "--snapshots"]),
                (["volume", "delete", pool.path, "default", "db"], ["'db' has 1 snapshot", "--snapshots"]),
                (["volume", "delete", pool.path, "default", "none", "--snapshots"], ["no volume 'none'"]),
                (["volume", "delete", pool.path, "db@s", "--snapshots"], ["onefold snapshot delete"]),
                (["volume", "set", pool.path, "db@s", "snapshots=daily:1"], ["snapshot", "onefold clone"]),
                (["volume", "delete", pool.path, "db@s"], ["onefold snapshot delete"]),
                (["volume", "resize", pool.path, "db@s", "32M"], ["snapshot", "onefold clone"]),
                (["volume", "resize", pool.path, "db@s", "1M", "--force"], ["snapshot", "onefold clone"]),
                (["volume", "set", pool.path, "db@s", "read-only=off"], ["snapshot", "onefold clone"]),
                (["volume", "create", pool.path, "db@t", "--size", "16M"], ["not allowed"]),
                (["volume", "set", pool.path, "db@s", "protected=on"], ["snapshot hold"]),
                (["volume", "rename", pool.path, "db", "default"], ["'default' exists"]),
                (["volume", "rename", pool.path, "db", "db"], ["'db' exists"]),
                (["volume", "rename", pool.path, "none", "new"], ["no volume 'none'"]),
                (["volume", "rename", pool.path, "db", ".new"], ["not allowed"]),
                (["volume", "rename", pool.path, "db", "db@new"], ["not allowed"]),
                (["volume", "rename", pool.path, "db", "(replicas)"], ["not allowed"]),
                (["volume", "rename", pool.path, "db@s", "new"], ["begin with 'db@'"]),
                (["volume", "rename", pool.path, "db@s", "default@s"], ["begin with 'db@'"]),
                (["volume", "rename", pool.path, "db@s", "db@"], ["not allowed"]),
                (["volume", "rename", pool.path, "db@s", "db@s"], ["'db@s' exists"]),
                (["snapshot", "hold", pool.path, "db"], ["VOLUME@NAME"]),
                (["snapshot", "hold", pool.path, "db@s", "db@none"], ["no snapshot 'db@none'"]),
                (["snapshot", "release", pool.path, "db@none"], ["no snapshot 'db@none'"]),
            ]:
                error = self.refused(*arguments)
                for reason in reasons:
                    self.assertIn(reason, error, arguments)
            for schedule, reason in [("hourly", "hourly:36"), ("hourly:0", "1 to 1000"), ("daily:1,daily:2", "'daily' is named twice"),
                                     ("minutely:1", "frequently, hourly, daily"), ("on", "it is off"),
                                     ("hourly:1000,daily:1000,weekly:1000,monthly:1000,yearly:1", "at most 4000")]:
                self.assertIn(reason, self.refused("volume", "set", pool.path, "db", f"snapshots={schedule}", status=2))
            for count in ("0", "32769", "-1", "x"):
                self.refused("clone", pool.path, "db@s", "new", f"--count={count}", status=2)
            self.refused("volume", "set", pool.path, "db", "protected=maybe", status=2)
            self.assertEqual(sorted(volumes(pool)), ["db", "default"])
            self.assertEqual(list(snapshots(pool)), ["db@s"])
            self.assertFalse(snapshots(pool)["db@s"]["held"])

        self.each_way(check)

    def test_a_snapshot_in_use_is_deleted_only_by_force(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pattern(pool, "default", "write -P 0x33 0 1M")
            onefold("snapshot", "create", pool.path, "default@s")
            readers, writer = [connect(pool, "default@s") for _ in range(2)], connect(pool)
            self.assertIn("2 clients", self.refused("snapshot", "delete", pool.path, "default@s"))
            self.assertEqual(readers[0].pread(4096, 0), b"\x33" * 4096)
            onefold("snapshot", "delete", pool.path, "default@s", "--force")
            for reader in readers:
                with self.assertRaises(nbd.Error):
                    reader.pread(4096, 0)
            with self.assertRaises(nbd.Error):
                connect(pool, "default@s")
            self.assertEqual(writer.pread(4096, 0), b"\x33" * 4096)
            writer.shutdown()
            pool.stop()
            pool.check()

    def test_a_clone_of_a_read_only_volume_can_be_written(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "set", pool.path, "default", "read-only=on", "exclusive=on", "policy=full")
            holder = connect(pool)
            onefold("snapshot", "create", pool.path, "default@gold")
            onefold("clone", pool.path, "default@gold", "vm")
            # An exclusive volume lets one client in; its snapshots are for any number.
            for _ in range(2):
                pattern(pool, "default@gold", "read -P 0 0 1M")
            holder.shutdown()
            pattern(pool, "vm", "write -P 0x44 0 1M")
            known = volumes(pool)
            self.assertEqual((known["default"]["read_only"], known["vm"]["read_only"], known["vm"]["policy"]), (True, False, "full"))
            pool.stop()
            pool.check()

    def test_a_rollback_gives_a_volume_its_former_content(self):
        def check(pool):
            made = ["db@one", "db@two", "db@three"]
            self.assertEqual(sorted(snapshots(pool)), sorted(made))
            said = onefold("snapshot", "rollback", pool.path, "db@two").stdout
            self.assertEqual(said, "rolled the volume 'db' back to 'db@two'\nkept the newer snapshot 'db@three'\n")
            self.assertEqual(volumes(pool)["db"]["size_bytes"], 32 * MIB)
            onefold("clone", pool.path, "db@three", "other")
            done = json.loads(onefold("snapshot", "rollback", pool.path, "db@one", "-r", "--json").stdout)
            self.assertEqual([done[key] for key in ("volume", "snapshot", "deleted", "newer")],
                             ["db", "db@one", ["db@two"], ["db@three"]])
            self.assertEqual(sorted(snapshots(pool)), ["db@one", "db@three"])
            self.assertEqual(volumes(pool)["db"]["size_bytes"], 16 * MIB)
            image = os.path.join(pool.folder, "image.raw")
            for name, expected in [("db", b"\x11" * MIB + bytes(15 * MIB)), ("other", b"\x33" * MIB + bytes(31 * MIB)),
                                   ("db@three", b"\x33" * MIB + bytes(31 * MIB)), ("db@one", b"\x11" * MIB + bytes(15 * MIB))]:
                onefold("export", pool.path, name, image, "--overwrite")
                with open(image, "rb") as file:
                    self.assertEqual(file.read(), expected, name)

        for served in (True, False):
            with self.subTest(served=served), Pool("64M").serve("--memory", "64M") as pool:
                onefold("volume", "create", pool.path, "db", "--size", "16M")
                for number, name in enumerate(("one", "two", "three"), 1):
                    pattern(pool, "db", f"write -P {17 * number} 0 1M")
                    onefold("snapshot", "create", pool.path, f"db@{name}")
                    if name == "one":
                        onefold("volume", "resize", pool.path, "db", "32M")
                pattern(pool, "db", "write -P 0x44 0 32M")
                if not served:
                    pool.stop()
                check(pool)
                if served:
                    pattern(pool, "db", "write -P 0x55 2M 1M")
                    pool.kill()
                    pool.serve("--memory", "64M", create=False)
                    pattern(pool, "db", "read -P 0x11 0 1M")
                    pool.stop()
                pool.check()

    def test_a_volume_in_use_is_rolled_back_only_by_force(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pattern(pool, "default", "write -P 0x33 0 1M")
            onefold("snapshot", "create", pool.path, "default@s")
            onefold("volume", "create", pool.path, "other", "--size", "16M")
            users, other = [connect(pool) for _ in range(2)], connect(pool, "other")
            users[0].pwrite(b"w" * 4096, 0)
            self.assertIn("2 clients", self.refused("snapshot", "rollback", pool.path, "default@s"))
            self.assertEqual(users[1].pread(4096, 0), b"w" * 4096)
            self.assertIn("rolled the volume 'default' back", onefold("snapshot", "rollback", pool.path, "default@s", "--force").stdout)
            for user in users:
                with self.assertRaises(nbd.Error):
                    user.pread(4096, 0)
            other.pwrite(b"o" * 4096, 0)
            other.shutdown()
            # Another client sees the snapshot's content, and writes.
            pattern(pool, "default", "read -P 0x33 0 1M")
            pattern(pool, "default", "write -P 0x44 0 1M")
            reader = connect(pool, "default@s")
            onefold("snapshot", "rollback", pool.path, "default@s")
            self.assertEqual(reader.pread(4096, 0), b"\x33" * 4096)
            reader.shutdown()
            pattern(pool, "default", "read -P 0x33 0 1M")
            pool.stop()
            pool.check()

    def test_what_is_held_or_protected_is_not_rolled_back_over(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            for number, name in enumerate(("old", "new"), 1):
                pattern(pool, "default", f"write -P {17 * number} 0 1M")
                onefold("snapshot", "create", pool.path, f"default@{name}")
            onefold("volume", "set", pool.path, "default", "protected=on")
            user = connect(pool)
            said = self.refused("snapshot", "rollback", pool.path, "default@old", "--force")
            self.assertIn("the volume 'default': it is protected", said)
            self.assertEqual(user.pread(4096, 0), b"\x22" * 4096, "the client is still connected")
            user.shutdown()
            onefold("volume", "set", pool.path, "default", "protected=off")
            onefold("snapshot", "hold", pool.path, "default@new")
            self.assertIn("'default@new' is held", self.refused("snapshot", "rollback", pool.path, "default@old", "-r"))
            pattern(pool, "default", "read -P 0x22 0 1M")
            onefold("snapshot", "rollback", pool.path, "default@old")
            pattern(pool, "default", "read -P 0x11 0 1M")
            pattern(pool, "default@new", "read -P 0x22 0 1M")
            pool.stop()
            pool.check()

    def test_other_commands_read_a_snapshot_and_write_none(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pattern(pool, "default", "write -P 0x55 1M 1M")
            onefold("snapshot", "create", pool.path, "default@s")
            pattern(pool, "default", "write -P 0x66 1M 1M")
            image = os.path.join(pool.folder, "image.raw")
            said = onefold("export", pool.path, "default@s", image).stdout
            self.assertIn("exported the volume 'default@s'", said)
            with open(image, "rb") as file:
                self.assertEqual(file.read(), bytes(MIB) + b"\x55" * MIB + bytes(62 * MIB))
            uri = onefold("connect", pool.path, "default@s").stdout.strip()
            self.assertIn("default@s", uri.replace("%40", "@"))
            self.assertEqual(run("nbdinfo", "--size", uri).stdout.strip(), str(64 * MIB))
            self.assertIn("readonly", onefold("connect", pool.path, "default@s", "--libvirt").stdout)
            self.assertIn("snapshot", self.refused("import", pool.path, "default@s", image, "--overwrite"))
            self.assertIn("snapshot", self.refused("import", pool.path, "default@other", image))
            self.assertIn("default", onefold("status", pool.path).stdout)
            for text in (onefold("status", pool.path, "--all").stdout, onefold("status", pool.path, "--prometheus").stdout,
                         onefold("top", pool.path, "--once").stdout):
                self.assertNotIn("@s", text)
            metrics = onefold("status", pool.path, "--prometheus").stdout
            self.assertRegex(metrics, r'onefold_volume_snapshots\{[^}]*volume="default"\} 1\n')
            pool.stop()
            onefold("export", pool.path, "default@s", image, "--overwrite")
            with open(image, "rb") as file:
                self.assertEqual(file.read(2 * MIB), bytes(MIB) + b"\x55" * MIB)
            pool.check()

    def test_a_renamed_volume_keeps_its_clients_and_snapshots(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            onefold("snapshot", "create", pool.path, "db@one", "default@one")
            onefold("clone", pool.path, "db@one", "copy")
            client = connect(pool, "db")
            client.pwrite(b"a" * 4096, 0)
            said = onefold("volume", "rename", pool.path, "db", "data").stdout
            self.assertEqual(said, "renamed 'db' to 'data'\n1 client stays connected: it finds 'data' when it connects again\n")
            client.pwrite(b"b" * 4096, 4096)
            self.assertEqual(client.pread(8192, 0), b"a" * 4096 + b"b" * 4096)
            client.flush()
            with self.assertRaises(nbd.Error):
                connect(pool, "db")
            # The old name is free at once.
            onefold("volume", "create", pool.path, "db", "--size", "32M")
            onefold("volume", "rename", pool.path, "data@one", "data@first")
            client.pwrite(b"c" * 4096, 8192)
            client.flush()
            for _ in range(2):
                again = connect(pool, "data")
                self.assertEqual((again.get_size(), again.pread(4096, 8192)), (16 * MIB, b"c" * 4096))
                again.shutdown()
                self.assertEqual(sorted(snapshots(pool)), ["data@first", "default@one"])
                self.assertEqual(list(snapshots(pool, "data")), ["data@first"])
                self.assertEqual(volumes(pool)["copy"]["origin"], "data@first")
                pattern(pool, "data@first", "read -P 0 0 16M")
                listed = json.loads(run("nbdinfo", "--list", "--json", pool.uri("")).stdout)["exports"]
                self.assertEqual(sorted(export["export-name"] for export in listed), ["copy", "data", "db", "default"])
                pool.kill()
                pool.serve("--memory", "64M", create=False)
            made = json.loads(onefold("volume", "rename", pool.path, "data", "x", "--json").stdout)["volume"]
            self.assertEqual((made["name"], made["snapshots"]), ("x", 1))
            pool.stop()
            pool.check()

    def test_what_is_held_or_protected_is_not_deleted(self):
        def check(pool):
            onefold("snapshot", "create", pool.path, "default@a")
            onefold("snapshot", "create", pool.path, "default@b")
            held = json.loads(onefold("snapshot", "hold", pool.path, "default@a", "--json").stdout)["snapshots"]
            self.assertEqual([(entry["name"], entry["held"]) for entry in held], [("default@a", True)])
            self.assertEqual({name: entry["held"] for name, entry in snapshots(pool).items()}, {"default@a": True, "default@b": False})
            self.assertRegex(onefold("snapshot", "list", pool.path).stdout, r"default@a .* 0, held\n")
            # Of several none is deleted if one is held.
            for force in ([], ["--force"]):
                error = self.refused("snapshot", "delete", pool.path, "default@b", "default@a", *force)
                self.assertIn("'default@a': it is held: 'onefold snapshot release'", error)
            self.assertEqual(sorted(snapshots(pool)), ["default@a", "default@b"])
            onefold("clone", pool.path, "default@a", "vm")
            onefold("volume", "set", pool.path, "vm", "protected=on")
            self.assertRegex(onefold("volume", "list", pool.path).stdout, r"vm .*clone of default@a, .*protected")
            self.assertRegex(onefold("volume", "get", pool.path, "vm", "protected").stdout, r"vm +protected +on +volume\n")
            for force in ([], ["--force"]):
                self.assertIn("protected=off", self.refused("volume", "delete", pool.path, "vm", *force))
            onefold("volume", "set", pool.path, "vm", "protected=off")
            onefold("volume", "delete", pool.path, "vm")
            said = onefold("snapshot", "release", pool.path, "default@a").stdout
            self.assertEqual(said, "released the snapshot 'default@a'\n")
            onefold("snapshot", "delete", pool.path, "default@a", "default@b")
            self.assertEqual(snapshots(pool), {})

        self.each_way(check)

    def test_a_deletion_on_a_terminal_asks_first(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            onefold("snapshot", "create", pool.path, "db@s")

            def on_terminal(answer):
                controller, terminal = pty.openpty()
                try:
                    done = subprocess.Popen([ONEFOLD, "snapshot", "delete", pool.path, "db@s"], stdin=terminal,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    os.write(controller, answer)
                    return done.communicate(timeout=PATIENCE)[1].decode(), done.returncode
                finally:
                    os.close(controller)
                    os.close(terminal)

            said, status = on_terminal(b"no\n")
            self.assertEqual(status, 1)
            self.assertIn("delete the snapshot 'db@s'", said)
            self.assertIn("nothing was deleted", said)
            self.assertEqual(on_terminal(b"yes\n")[1], 0)
            self.assertEqual(snapshots(pool), {})

    def test_volumes_are_deleted_together_and_with_their_snapshots(self):
        def check(pool):
            for name in ("a", "b", "c"):
                onefold("volume", "create", pool.path, name, "--size", "16M")
            for name in ("one", "two"):
                onefold("snapshot", "create", pool.path, f"a@{name}", f"b@{name}")
            onefold("clone", pool.path, "a@one", "clone")
            self.assertIn("deleted the volume 'c';", onefold("volume", "delete", pool.path, "c", "--snapshots").stdout)
            self.assertIn("'a' has 2 snapshots", self.refused("volume", "delete", pool.path, "a", "b"))
            said = onefold("volume", "delete", pool.path, "a", "b", "--snapshots").stdout
            self.assertIn("deleted the volumes 'a', 'b' with their 4 snapshots", said)
            self.assertEqual((sorted(volumes(pool)), snapshots(pool)), (["clone", "default"], {}))
            self.assertIsNone(volumes(pool)["clone"]["origin"])
            done = json.loads(onefold("volume", "delete", pool.path, "clone", "default", "--json").stdout)
            self.assertEqual(done["deleted"], ["clone", "default"])
            self.assertEqual(volumes(pool), {})

        self.each_way(check)

    def test_deleted_together_with_a_volume_its_snapshots_do_not_come_back(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            pattern(pool, "default", "write -P 0x11 0 8M")
            onefold("snapshot", "create", pool.path, "default@gold")
            onefold("clone", pool.path, "default@gold", "vm")
            reader = connect(pool, "default@gold")
            self.assertIn("in use by 1 client", self.refused("volume", "delete", pool.path, "default", "--snapshots"))
            onefold("volume", "delete", pool.path, "default", "--snapshots", "--force")
            with self.assertRaises(nbd.Error):
                reader.pread(4096, 0)
            pool.kill()
            pool.serve("--memory", "64M", create=False)
            self.assertEqual((list(volumes(pool)), snapshots(pool)), (["vm"], {}))
            pattern(pool, "vm", "read -P 0x11 0 8M")
            onefold("volume", "delete", pool.path, "vm")
            self.assertEqual(pool.settled()["data_blocks_used"], 0)
            pool.stop()
            pool.check()

    def test_several_snapshots_and_ranges_are_deleted_by_their_creation(self):
        def check(pool):
            # The order of their names is another one.
            for name in ("e", "d", "c", "b", "a"):
                onefold("snapshot", "create", pool.path, f"default@{name}")
            self.assertIn("creation", onefold("snapshot", "delete", "--help").stdout)
            self.assertIn("default@d%b", self.refused("snapshot", "delete", pool.path, "default@b%d"))
            onefold("clone", pool.path, "default@c", "vm", "--count", "2")
            done = json.loads(onefold("snapshot", "delete", pool.path, "default@d%b", "--json").stdout)
            self.assertEqual((done["deleted"], done["with_clones"]),
                             (["default@d", "default@c", "default@b"], ["default@c"]))
            onefold("snapshot", "create", pool.path, "default@f")
            onefold("clone", pool.path, "default@f", "other")
            said = onefold("snapshot", "delete", pool.path, "default@a,f").stdout
            self.assertIn("deleted the snapshots 'default@a', 'default@f'", said)
            self.assertIn("'default@f' has 1 clone:", said)
            self.assertEqual(list(snapshots(pool)), ["default@e"])
            self.assertIn("'default@e'", onefold("snapshot", "delete", pool.path, "default@%").stdout)
            self.assertEqual(snapshots(pool), {})

        self.each_way(check)

    def test_an_import_ends_with_a_snapshot(self):
        def check(pool):
            image, wrong = os.path.join(pool.folder, "image.raw"), os.path.join(pool.folder, "wrong.raw")
            for path in (image, wrong):
                with open(path, "wb") as file:
                    file.write(os.urandom(4 * MIB))
            for name, reason in ((".v1", "not allowed"), ("a@v1", "not allowed"), ("", "not allowed")):
                self.assertIn(reason, self.refused("import", pool.path, "golden", image, f"--snapshot={name}"))
            self.assertNotIn("golden", volumes(pool))
            said = onefold("import", pool.path, "golden", image, "--snapshot", "v1").stdout
            self.assertRegex(said, r"snapshot: +golden@v1; 'onefold clone \S+ golden@v1 NAME' makes a volume of it")
            self.assertEqual(list(snapshots(pool)), ["golden@v1"])
            # Nothing is written before it is refused.
            self.assertIn("'golden@v1' exists", self.refused("import", pool.path, "golden", wrong, "--overwrite", "--snapshot", "v1"))
            # As behind an interruption: all of it is there, but for the snapshot.
            done = json.loads(onefold("import", pool.path, "golden", image, "--resume", "--snapshot", "v2", "--json").stdout)
            self.assertEqual((done["snapshot"], done["in_place_bytes"], done["sent_bytes"]), ("golden@v2", 4 * MIB, 0))
            onefold("import", pool.path, "golden", wrong, "--overwrite")
            copy = os.path.join(pool.folder, "copy.raw")
            for name, path in (("golden@v1", image), ("golden@v2", image), ("golden", wrong)):
                onefold("export", pool.path, name, copy, "--overwrite")
                run("cmp", copy, path)

        self.each_way(check)


class Schedules(unittest.TestCase):
    """Automatic snapshots, with a clock that stands still until a test sets it: this needs the build with faults."""

    def serve(self, pool):
        pool.clock = os.path.join(pool.folder, "now.clock")
        pool.program, pool.environment = faulty(), {**os.environ, "ONEFOLD_CLOCK": pool.clock}
        return pool.serve("--memory", "64M", create=not os.path.exists(pool.path))

    def at(self, pool, time_of_day, day="2026-11-28"):
        """Sets the clock, and waits until the server has done what is due."""
        seconds = int(datetime.fromisoformat(f"{day}T{time_of_day}").replace(tzinfo=timezone.utc).timestamp())
        with open(pool.clock + ".new", "w") as file:
            file.write(str(seconds))
        os.rename(pool.clock + ".new", pool.clock)
        seen = os.path.splitext(pool.clock)[0] + ".snapshots-seen"
        deadline = time.time() + PATIENCE
        while content_of(seen) != str(seconds):
            self.assertLess(time.time(), deadline, "the server does not look")
            time.sleep(0.01)

    def automatic(self, pool, volume):
        names = [name.split("@")[1] for name in snapshots(pool, volume)]
        return sorted(name.removeprefix("auto-2026-11-") for name in names)

    def test_a_schedule_takes_snapshots_and_keeps_the_newest(self):
        with Pool("64M") as pool:
            self.serve(pool)
            for name in ("a", "b"):
                onefold("volume", "create", pool.path, name, "--size", "16M")
            onefold("snapshot", "create", pool.path, "a@mine")
            onefold("volume", "set", pool.path, "a", "snapshots=daily:1,hourly:2")
            onefold("volume", "set", pool.path, "b", "snapshots=hourly:1")
            self.at(pool, "12:59:30")
            self.assertEqual(self.automatic(pool, "a"), ["28T12:59Z-daily", "28T12:59Z-hourly", "mine"])
            self.assertEqual(self.automatic(pool, "b"), ["28T12:59Z-hourly"])
            pattern(pool, "a", "write -P 0x11 0 1M")
            self.at(pool, "13:00:00")
            pattern(pool, "a", "write -P 0x22 0 1M")
            self.at(pool, "13:59:59")
            self.assertEqual(self.automatic(pool, "a"), ["28T12:59Z-daily", "28T12:59Z-hourly", "28T13:00Z-hourly", "mine"])
            self.assertEqual(self.automatic(pool, "b"), ["28T13:00Z-hourly"])
            self.assertIn("made the snapshot 'auto-2026-11-28T13:00Z-hourly' of 'a', 'b'", pool.said())
            pattern(pool, "a@auto-2026-11-28T13:00Z-hourly", "read -P 0x11 0 1M")
            self.at(pool, "14:00:07")
            self.assertEqual(self.automatic(pool, "a"), ["28T12:59Z-daily", "28T13:00Z-hourly", "28T14:00Z-hourly", "mine"])
            # What was missed is not made up for, and the schedule outlives the server.
            pool.kill()
            self.serve(pool)
            self.at(pool, "06:10:00", day="2026-11-30")
            self.assertEqual(self.automatic(pool, "a"), ["28T14:00Z-hourly", "30T06:10Z-daily", "30T06:10Z-hourly", "mine"])
            self.assertEqual(self.automatic(pool, "b"), ["30T06:10Z-hourly"])
            # A clone has no schedule.
            onefold("clone", pool.path, "a@auto-2026-11-30T06:10Z-daily", "clone")
            shown = json.loads(onefold("volume", "get", pool.path, "a", "snapshots", "--json").stdout)["properties"]
            self.assertEqual([(one["value"], one["source"]) for one in shown], [("hourly:2,daily:1", "volume")])
            self.assertIn("snapshots hourly:2,daily:1", onefold("volume", "list", pool.path).stdout)
            onefold("volume", "set", pool.path, "a", "snapshots=off")
            self.at(pool, "07:00:00", day="2026-11-30")
            self.assertEqual(self.automatic(pool, "a"), ["28T14:00Z-hourly", "30T06:10Z-daily", "30T06:10Z-hourly", "mine"])
            self.assertEqual(self.automatic(pool, "b"), ["30T07:00Z-hourly"])
            self.assertEqual(snapshots(pool, "clone"), {})
            pool.stop()
            pool.check()

    def test_a_snapshot_that_cannot_be_deleted_is_reported_and_left(self):
        with Pool("64M") as pool:
            self.serve(pool)
            onefold("volume", "create", pool.path, "other", "--size", "16M")
            for name in ("default", "other"):
                onefold("volume", "set", pool.path, name, "snapshots=frequently:1")
            self.at(pool, "13:00:00")
            reader = connect(pool, "default@auto-2026-11-28T13:00Z-frequently")
            for minute in ("15", "30"):
                self.at(pool, f"13:{minute}:00")
            self.assertEqual(self.automatic(pool, "default"), ["28T13:00Z-frequently", "28T13:30Z-frequently"])
            self.assertEqual(self.automatic(pool, "other"), ["28T13:30Z-frequently"])
            failure = volumes(pool)["default"]["snapshots_failure"]
            self.assertRegex(failure, r"^2026-11-28 13:15 UTC: 'default@auto-2026-11-28T13:00Z-frequently' is not deleted: .*1 client")
            self.assertIsNone(volumes(pool)["other"]["snapshots_failure"])
            self.assertIn(failure, onefold("status", pool.path).stdout)
            self.assertIn("snapshots frequently:1 (last failed)", onefold("volume", "list", pool.path).stdout)
            self.assertEqual(pool.said().count("is not deleted"), 1)
            reader.shutdown()
            self.at(pool, "14:00:00")
            self.assertEqual(self.automatic(pool, "default"), ["28T14:00Z-frequently"])
            self.assertIsNone(volumes(pool)["default"]["snapshots_failure"])
            pool.stop()
            pool.check()


if __name__ == "__main__":
    unittest.main()
