"""Volumes come, change and go: served or not, with clients connected, and after a crash."""

import concurrent.futures
import contextlib
import errno
import hashlib
import json
import os
import pty
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import nbd

from server import ONEFOLD, PATIENCE, CommandTest, Pool, onefold, run
from test_hostile import LIST, REP_ACK, REP_SERVER, Raw, option

MIB = 1 << 20


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


def volume(pool, name):
    return {entry["name"]: entry for entry in pool.status()["volumes"]}.get(name)


def properties(pool, *arguments, of_pool=False):
    command = ["get", pool.path, *arguments] if of_pool else ["volume", "get", pool.path, *arguments]
    rows = json.loads(onefold(*command, "--json").stdout)["properties"]
    return {row["property"]: (row["value"], row["source"]) for row in rows}


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Volumes(CommandTest):
    def fails(self, code, call, *arguments):
        with self.assertRaises(nbd.Error) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.errnum, code, caught.exception)

    def test_a_deleted_volume_is_gone_and_its_name_is_free(self):
        def check(pool):
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            self.assertIn("deleted", onefold("volume", "delete", pool.path, "db").stdout)
            self.assertIsNone(volume(pool, "db"))
            self.assertIn("'db'", self.refused("volume", "delete", pool.path, "db"))
            onefold("volume", "create", pool.path, "db", "--size", "8M")
            self.assertEqual(volume(pool, "db")["size_bytes"], 8 * MIB)

        self.each_way(check)

    def test_1000_volumes_are_listed_by_those_who_ask_about_each(self):
        """`qemu-nbd --list` failed from 86 volumes on, `nbdinfo --list` from 128."""
        names = [f"v{number:060}" for number in range(999)]
        with Pool("64M").serve("--memory", "64M") as pool:
            with concurrent.futures.ThreadPoolExecutor(8) as many:
                list(many.map(lambda name: onefold("volume", "create", pool.path, name, "--size", "4M"), names))
            listed = run("qemu-nbd", "--list", "--socket", pool.path + ".sock").stdout
            self.assertIn("exports available: 1000", listed)
            self.assertEqual(re.findall(r"export: '(\w+)'", listed), ["default", *names])
            listed = json.loads(run("nbdinfo", "--list", "--json", pool.uri("")).stdout)
            self.assertEqual([export["export-name"] for export in listed["exports"]], ["default", *names])
            self.ask_for_lists_and_read_slowly(pool, ["default", *names])
            pool.stop()

    def ask_for_lists_and_read_slowly(self, pool, names):
        """A list is two parts of 64 KiB at most. The next is made when the client has taken the last."""
        clients, lists = 60, 20
        before = pool.resident_bytes(peak=False)
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(Raw(pool)).greet() for _ in range(clients)]
            for client in slow:
                client.sendall(option(LIST) * lists)
            onefold("volume", "delete", pool.path, names[500])
            self.assertLess(pool.resident_bytes(), before + clients * 128 * 1024 + 4 * MIB)
            for number in range(lists):
                found = []
                while True:
                    _, kind, data = slow[-1].reply()
                    if kind == REP_ACK:
                        break
                    self.assertEqual((kind, int.from_bytes(data[:4])), (REP_SERVER, len(data) - 4))
                    found.append(data[4:].decode())
                self.assertEqual(found, [name for name in names if name in found], "each once, in order")
                self.assertEqual([name for name in names if name not in found], [names[500]] * (1000 - len(found)))
            self.assertEqual(len(found), 999, "the deleted volume is in no later list")
            slow[-1].go()

    def test_an_exclusive_volume_lets_in_one_client_process(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "other", "--size", "16M")
            onefold("volume", "set", pool.path, "default", "exclusive=on")
            self.assertEqual(properties(pool, "default")["exclusive"], ("on", "volume"))
            self.assertEqual(properties(pool, "other")["exclusive"], ("off", "default"))
            pool.stop()
            pool.serve("--memory", "64M", create=False)
            # Several connections of one process are one client.
            clients = [connect(pool) for _ in range(3)]
            clients[1].pwrite(b"x" * 4096, 0)
            clients[1].flush()
            self.assertEqual(clients[2].pread(4096, 0), b"x" * 4096)
            for other in (["qemu-img", "info", pool.uri()], ["qemu-io", "-f", "raw", "-c", "read 0 4096", pool.uri()]):
                done = run(*other, check=False)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                self.assertRegex(done.stderr, f"'default' is exclusive, and client \\d+ \\(unix, process {os.getpid()}\\) has it")
            self.assertNotEqual(run("nbdcopy", pool.uri(), "null:", check=False).returncode, 0)
            run("qemu-img", "info", pool.uri("other"))
            for client in clients:
                client.shutdown()
            run("qemu-io", "-f", "raw", "-c", "read 0 4096", pool.uri())
            client = connect(pool)
            onefold("volume", "set", pool.path, "default", "exclusive=off")
            run("qemu-img", "info", pool.uri())
            client.shutdown()
            pool.stop()
            pool.check()

    def test_two_processes_that_write_one_volume_are_warned_of(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            one, other = connect(pool), connect(pool)
            for client in (one, other):
                client.pwrite(b"x" * 4096, 0)
            run("qemu-io", "-f", "raw", "-r", "-c", "read 0 4096", pool.uri())
            self.assertNotIn("beside", pool.said())
            run("qemu-io", "-f", "raw", "-c", "write 4096 4096", pool.uri())
            self.assertRegex(pool.said(), rf"WARN.*'default' is written by client \d+ \(unix, process \d+\) beside client \d+ "
                             rf"\(unix, process {os.getpid()}\).*exclusive=on")
            for client in (one, other):
                client.shutdown()
            pool.stop()

    def test_a_deletion_on_a_terminal_asks_first(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")

            def on_terminal(answer, *arguments):
                controller, terminal = pty.openpty()
                try:
                    done = subprocess.Popen([ONEFOLD, "volume", "delete", pool.path, "db", *arguments], stdin=terminal,
                                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    os.write(controller, answer)
                    said = done.communicate(timeout=PATIENCE)[1].decode()
                    return done.returncode, said
                finally:
                    os.close(controller)
                    os.close(terminal)

            onefold("volume", "create", pool.path, "db", "--size", "16M")
            for answer in (b"no\n", b"\n", b"\x04"):
                status, said = on_terminal(answer)
                self.assertEqual(status, 1, said)
                self.assertIn("delete the volume 'db'", said)
                self.assertIn("16 MiB", said)
                self.assertIn("nothing was deleted", said)
            self.assertIsNotNone(volume(pool, "db"))
            self.assertEqual(on_terminal(b"yes\n")[0], 0)
            self.assertIsNone(volume(pool, "db"))
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            status, said = on_terminal(b"", "--yes")
            self.assertEqual((status, said), (0, ""))
            # A script is not asked.
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            onefold("volume", "delete", pool.path, "db")

    def test_space_comes_back_after_a_deletion(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "big", "--size", "1T")
            client = connect(pool, "big")
            for part in range(32):
                client.pwrite(os.urandom(MIB), (part << 35))
            client.shutdown()
            self.assertEqual(pool.settled()["data_blocks_used"], 32 * 256)
            onefold("volume", "delete", pool.path, "big")
            after = pool.settled()
            self.assertEqual((after["data_blocks_used"], after["logical_blocks_used"]), (0, 0))
            pool.stop()
            pool.check()

    def test_a_volume_in_use_is_deleted_only_by_force(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            clients = [connect(pool, "db") for _ in range(2)]
            other = connect(pool)
            self.assertIn("2 clients", self.refused("volume", "delete", pool.path, "db"))
            clients[0].pwrite(b"x" * 4096, 0)
            onefold("volume", "delete", pool.path, "db", "--force")
            for client in clients:
                with self.assertRaises(nbd.Error):
                    client.pread(4096, 0)
            other.pwrite(b"y" * 4096, 0)
            self.assertEqual(other.pread(4096, 0), b"y" * 4096)
            with self.assertRaises(nbd.Error):
                connect(pool, "db")
            pool.stop()
            pool.check()

    def test_deleting_by_force_in_the_middle_of_writes_harms_nobody(self):
        with Pool("64M").serve("--memory", "64M", "--policy", "full") as pool:
            onefold("volume", "create", pool.path, "db", "--size", "16M")
            done = []

            def write():
                client = connect(pool, "db")
                with self.assertRaises(nbd.Error):
                    while True:
                        client.pwrite(os.urandom(MIB), 0)
                        done.append(1)

            writers = [threading.Thread(target=write) for _ in range(3)]
            for writer in writers:
                writer.start()
            other = connect(pool)
            while len(done) < 50:
                time.sleep(0.02)
            onefold("volume", "delete", pool.path, "db", "--force")
            for writer in writers:
                writer.join(timeout=PATIENCE)
                self.assertFalse(writer.is_alive())
            other.pwrite(b"z" * MIB, 0)
            self.assertEqual(other.pread(MIB, 0), b"z" * MIB)
            self.assertEqual(pool.settled()["data_blocks_used"], 1)
            pool.stop()
            pool.check()

    def test_a_larger_volume_keeps_its_data_and_clients_see_it_after_connecting_again(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            client.pwrite(b"a" * 4096, 64 * MIB - 4096)
            said = onefold("volume", "resize", pool.path, "default", "4T").stdout
            self.assertIn("4 TiB", said)
            self.assertIn("1 client is connected", said)
            self.assertEqual(client.get_size(), 64 * MIB)
            self.assertEqual(client.pread(4096, 64 * MIB - 4096), b"a" * 4096)
            client.shutdown()
            client = connect(pool)
            self.assertEqual(client.get_size(), 4 << 40)
            client.pwrite(b"b" * 4096, (4 << 40) - 4096)
            pool.settled()
            self.assertEqual(client.pread(4096, 64 * MIB - 4096), b"a" * 4096)
            self.assertEqual(client.pread(4096, (4 << 40) - 4096), b"b" * 4096)
            client.shutdown()
            pool.stop()
            pool.check()
            pool.serve(create=False)
            client = connect(pool)
            self.assertEqual(client.pread(4096, (4 << 40) - 4096), b"b" * 4096)
            client.shutdown()
            pool.stop()

    def test_shrinking_needs_force_and_cuts_off_for_good(self):
        def check(pool):
            error = self.refused("volume", "resize", pool.path, "default", "1M")
            self.assertIn("--force", error)
            onefold("volume", "resize", pool.path, "default", "1M", "--force")
            self.assertEqual(volume(pool, "default")["size_bytes"], MIB)

        self.each_way(check)
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            client.pwrite(os.urandom(4 * MIB), 0)
            onefold("volume", "resize", pool.path, "default", "1M", "--force")
            self.fails(errno.EINVAL, client.pread, 4096, 2 * MIB)
            self.fails(errno.EINVAL, client.pwrite, b"q" * 4096, 2 * MIB)
            self.assertEqual(len(client.pread(4096, 0)), 4096)
            onefold("volume", "resize", pool.path, "default", "8M")
            self.assertEqual(client.pread(MIB, 2 * MIB), bytes(MIB))
            client.shutdown()
            self.assertEqual(pool.settled()["data_blocks_used"], 256)
            pool.stop()
            pool.check()

    def test_what_was_answered_holds_after_kill(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            for name in ("one", "two", "three"):
                onefold("volume", "create", pool.path, name, "--size", "16M")
            client = connect(pool, "two")
            client.pwrite(b"w" * (8 * MIB), 0)
            client.flush()
            client.shutdown()
            onefold("volume", "delete", pool.path, "one")
            pool.kill()
            pool.serve(create=False)
            self.assertIsNone(volume(pool, "one"))
            onefold("volume", "resize", pool.path, "two", "4M", "--force")
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(volume(pool, "two")["size_bytes"], 4 * MIB)
            onefold("volume", "resize", pool.path, "two", "32G")
            onefold("volume", "set", pool.path, "three", "policy=native", "read-only=on")
            onefold("set", pool.path, "policy", "native")
            pool.kill()
            pool.check()
            pool.serve(create=False)
            self.assertEqual(volume(pool, "two")["size_bytes"], 32 << 30)
            client = connect(pool, "two")
            self.assertEqual(client.pread(4 * MIB, 0), b"w" * (4 * MIB))
            self.assertEqual(client.pread(4 * MIB, 4 * MIB), bytes(4 * MIB))
            client.shutdown()
            self.assertEqual(properties(pool, "three"), {"policy": ("native", "volume"), "read-only": ("on", "volume"), "exclusive": ("off", "default"), "timing": ("inline", "default"), "goal": ("none", "default"), "keep-runs": ("auto", "default"), "controller": ("forecast", "default"), "protected": ("off", "default"), "snapshots": ("off", "default")})
            self.assertEqual(properties(pool, "policy", of_pool=True), {"policy": ("native", "pool")})
            pool.stop()
            pool.check()

    def test_offline_writes_are_shared_by_a_pass_that_begins_by_itself(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "set", pool.path, "default", "timing=offline")
            self.assertIn("offline", onefold("volume", "list", pool.path).stdout)
            client = connect(pool)
            data = os.urandom(MIB)
            for at in range(3):
                client.pwrite(data, at * MIB)
            client.flush()
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["dedup"]["backlog_blocks"]), (3 * 256, 3 * 256))
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(properties(pool, "default", "timing"), {"timing": ("offline", "volume")})
            deadline = time.time() + PATIENCE
            while pool.status()["dedup"]["state"] != "finished":
                self.assertLess(time.time(), deadline, pool.status()["dedup"])
                time.sleep(0.5)
            self.assertEqual(pool.settled()["data_blocks_used"], 256)
            onefold("volume", "set", pool.path, "default", "timing=inline")
            client = connect(pool)
            client.pwrite(data, 4 * MIB)
            self.assertEqual(client.pread(MIB, 2 * MIB), data)
            client.shutdown()
            self.assertEqual(pool.settled()["data_blocks_used"], 256)
            deadline = time.time() + PATIENCE
            while "is finished: 2 MiB shared" not in pool.said():
                self.assertLess(time.time(), deadline, pool.said())
                time.sleep(0.2)
            pool.stop()
            pool.check()

    def test_a_pass_keeps_runs_until_it_is_told_not_to(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "set", pool.path, "default", "timing=offline")
            client = connect(pool)
            data = os.urandom(64 * 4096)
            client.pwrite(data, 0)
            client.pwrite(os.urandom(4096) + data[:16 * 4096] + os.urandom(4096), 4 * MIB)
            client.flush()
            onefold("dedup", pool.path, "--wait")
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["dedup"]["shared_blocks"]), (64 + 18, 0))
            self.assertGreater(status["dedup"]["kept_blocks"], 0)
            onefold("volume", "set", pool.path, "default", "keep-runs=off")
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(properties(pool, "default", "keep-runs"), {"keep-runs": ("off", "volume")})
            onefold("dedup", pool.path, "--wait")
            status = pool.settled()
            self.assertEqual(status["data_blocks_used"], 64 + 2)
            client = connect(pool)
            self.assertEqual(client.pread(16 * 4096, 4 * MIB + 4096), data[:16 * 4096])
            client.shutdown()
            pool.stop()
            pool.check()

    def test_a_pass_that_compares_shares_what_is_equal(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            self.assertEqual(properties(pool, "dedup-verify", of_pool=True), {"dedup-verify": ("kept", "default")})
            onefold("volume", "set", pool.path, "default", "timing=offline", "keep-runs=off")
            onefold("set", pool.path, "dedup-verify", "both")
            client = connect(pool)
            data = os.urandom(2 * MIB)
            client.pwrite(data, 0)
            client.pwrite(data[::-1], 8 * MIB)
            client.pwrite(data, 20 * MIB)
            client.flush()
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(properties(pool, "dedup-verify", of_pool=True), {"dedup-verify": ("both", "pool")})
            onefold("dedup", pool.path, "--wait")
            status = pool.settled()
            self.assertEqual((status["data_blocks_used"], status["dedup"]["unequal_blocks"]), (4 * 256, 0))
            client = connect(pool)
            self.assertEqual(client.pread(2 * MIB, 20 * MIB), data)
            client.shutdown()
            pool.stop()
            pool.check()

    def write_until(self, client, what):
        deadline = time.time() + PATIENCE
        while not what():
            self.assertLess(time.time(), deadline, "it never comes")
            for _ in range(100):
                client.pwrite(os.urandom(4096), 0)

    def test_goals_and_hybrid_timing_are_kept_and_shown(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "set", pool.path, "default", "timing=hybrid", "goal=200MiB/s")
            self.assertIn("hybrid, stays inline", onefold("volume", "list", pool.path).stdout)
            self.assertFalse(volume(pool, "default")["timing_state"]["may_change"])
            onefold("volume", "set", pool.path, "default", "policy=full")
            self.assertIn("hybrid, now inline", onefold("volume", "list", pool.path).stdout)
            client = connect(pool)
            self.assertEqual(volume(pool, "default")["timing_state"]["setpoint"], 200 * MIB)
            self.write_until(client, lambda: (volume(pool, "default")["timing_state"]["measured"] or 0) > 0)
            client.shutdown()
            self.assertEqual((pool.status()["throttle"]["policy"], pool.status()["throttle"]["pass_delay_ns"]), ("share", None))
            onefold("set", pool.path, "throttle", "paper")
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(properties(pool, "throttle", of_pool=True), {"throttle": ("paper", "pool")})
            onefold("volume", "set", pool.path, "default", "timing=offline", "goal=1000000iops")
            client = connect(pool)
            self.write_until(client, lambda: (pool.status()["throttle"]["pass_delay_ns"] or 0) > 1_000_000)
            client.shutdown()
            onefold("set", pool.path, "throttle", "paper:0.001")
            self.assertEqual(properties(pool, "throttle", of_pool=True), {"throttle": ("paper:0.001", "pool")})
            onefold("volume", "set", pool.path, "default", "timing=hybrid", "goal=200MiB/s")
            self.assertEqual(properties(pool, "default", "timing"), {"timing": ("hybrid", "volume")})
            self.assertEqual(properties(pool, "default", "goal"), {"goal": ("200MiB/s", "volume")})
            onefold("volume", "set", pool.path, "default", "controller=paper")
            self.assertEqual(properties(pool, "default", "controller"), {"controller": ("paper", "volume")})
            pool.kill()
            pool.serve(create=False)
            self.assertEqual(properties(pool, "default", "controller"), {"controller": ("paper", "volume")})
            onefold("volume", "set", pool.path, "default", "goal=none", "timing=inline")
            self.assertEqual(properties(pool, "default", "goal"), {"goal": ("none", "default")})
            pool.stop()
            pool.check()

    def test_properties_have_values_and_sources(self):
        def check(pool):
            self.assertEqual(properties(pool, "policy", of_pool=True), {"policy": ("select", "default")})
            self.assertEqual(properties(pool, "default"), {"policy": ("select", "default"), "read-only": ("off", "default"), "exclusive": ("off", "default"), "timing": ("hybrid", "default"), "goal": ("none", "default"), "keep-runs": ("auto", "default"), "controller": ("forecast", "default"), "protected": ("off", "default"), "snapshots": ("off", "default")})
            onefold("set", pool.path, "policy", "native")
            self.assertEqual(properties(pool, "default", "policy"), {"policy": ("native", "pool")})
            onefold("volume", "set", pool.path, "default", "policy=full")
            self.assertEqual(properties(pool, "default", "policy"), {"policy": ("full", "volume")})
            onefold("volume", "set", pool.path, "default", "policy=inherit")
            onefold("set", pool.path, "policy", "inherit")
            self.assertEqual(properties(pool, "default", "policy"), {"policy": ("select", "default")})
            table = onefold("volume", "get", pool.path, "default").stdout.splitlines()
            self.assertEqual(table[0].split(), ["NAME", "PROPERTY", "VALUE", "SOURCE"])
            self.assertEqual(table[1].split(), ["default", "policy", "select", "default"])

        self.each_way(check)

    def test_the_policy_is_in_force_at_once(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            onefold("set", pool.path, "policy", "native")
            client.pwrite(b"n" * MIB, 0)
            self.assertEqual(pool.settled()["data_blocks_used"], 256)
            onefold("volume", "set", pool.path, "default", "policy=full")
            client.pwrite(b"f" * MIB, MIB)
            self.assertEqual(pool.settled()["data_blocks_used"], 257)
            client.shutdown()
            pool.stop()

    def test_a_read_only_volume_refuses_writes_also_of_clients_that_were_there(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            client.pwrite(b"r" * 4096, 0)
            onefold("volume", "set", pool.path, "default", "read-only=on")
            self.fails(errno.EPERM, client.pwrite, b"s" * 4096, 0)
            self.fails(errno.EPERM, client.trim, 4096, 0)
            self.assertEqual(client.pread(4096, 0), b"r" * 4096)
            client.flush()
            later = connect(pool)
            self.assertTrue(later.is_read_only())
            later.shutdown()
            onefold("volume", "set", pool.path, "default", "read-only=off")
            client.pwrite(b"s" * 4096, 0)
            client.shutdown()
            self.assertFalse(connect(pool).is_read_only())
            pool.stop()

    def test_a_pool_served_read_only_is_not_written(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            run("qemu-io", "-f", "raw", "-c", "write -P 7 0 8M", pool.uri())
            pool.stop()
            before = digest(pool.path)
            os.chmod(pool.path, 0o400)
            pool.serve("--read-only", "--memory", "64M", create=False)
            client = connect(pool)
            self.assertTrue(client.is_read_only())
            self.assertEqual(client.pread(MIB, 4 * MIB), b"\x07" * MIB)
            client.set_strict_mode(0)
            self.fails(errno.EPERM, client.pwrite, b"x" * 4096, 0)
            client.flush()
            client.shutdown()
            status = pool.status()
            self.assertEqual(status["mode"], "read-only")
            for command in (["volume", "create", pool.path, "v", "--size", "1M"], ["volume", "delete", pool.path, "default"],
                            ["volume", "resize", pool.path, "default", "1G"], ["set", pool.path, "policy", "native"],
                            ["volume", "set", pool.path, "default", "policy=native"]):
                self.assertIn("read-only", self.refused(*command))
            time.sleep(2.5)
            pool.stop()
            self.assertEqual(digest(pool.path), before)
            os.chmod(pool.path, 0o600)
            pool.check()

    def test_a_pool_that_was_not_closed_is_recovered_before_it_is_served_read_only(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            client = connect(pool)
            client.pwrite(b"k" * MIB, 0)
            client.flush()
            pool.kill()
            copy = os.path.join(pool.folder, "copy")
            shutil.copy(pool.path, copy)
            pool.serve("--read-only", "--memory", "64M", create=False)
            client = connect(pool)
            self.assertEqual(client.pread(MIB, 0), b"k" * MIB)
            client.shutdown()
            pool.stop()
            pool.check()
            self.refuses_an_unwritable_one(copy)

    def refuses_an_unwritable_one(self, path):
        """Whoever tests as root may write to anything: another user tries."""
        os.chmod(path, 0o444)
        arguments = [ONEFOLD, "serve", path, "--read-only", "--memory", "64M"]
        if os.geteuid() == 0:
            folder = tempfile.mkdtemp(prefix="onefold-test-")
            try:
                program = shutil.copy(ONEFOLD, folder)
                path = shutil.copy(path, folder)
                for name in (folder, program):
                    os.chmod(name, 0o777)
                os.chmod(path, 0o444)
                arguments = ["setpriv", "--reuid=65534", "--clear-groups", program, "serve", path, "--read-only"]
                done = run(*arguments, check=False)
            finally:
                shutil.rmtree(folder)
        else:
            done = run(*arguments, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not closed cleanly", done.stderr)

    def test_wrong_input_names_the_choices(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            for served in (True, False):
                if not served:
                    pool.stop()
                for arguments, choice in (
                    (["volume", "set", pool.path, "default", "policy=some"], "full, select or idedup"),
                    (["volume", "set", pool.path, "default", "colour=red"], "policy or read-only"),
                    (["volume", "set", pool.path, "default", "read-only=1"], "on or off"),
                    (["volume", "set", pool.path, "default", "goal=20000"], "20000iops"),
                    (["volume", "set", pool.path, "default", "keep-runs=yes"], "on, off or auto"),
                    (["volume", "set", pool.path, "default", "controller=ours"], "forecast or paper"),
                    (["volume", "set", pool.path, "default", "timing=later"], "inline, offline or hybrid"),
                    (["volume", "set", pool.path, "default", "policy"], "KEY=VALUE"),
                    (["volume", "get", pool.path, "default", "colour"], "policy or read-only"),
                    (["set", pool.path, "colour", "red"], "policy"),
                    (["set", pool.path, "dedup-verify", "yes"], "kept, both or off"),
                    (["set", pool.path, "relocate", "22-22"], "such as 22-06"),
                    (["set", pool.path, "throttle", "paper:1"], "share, paper or paper:0.001"),
                    (["set", pool.path, "flash-policy", "paper:filter=0"], "budget, paper, or paper:"),
                    (["set", pool.path, "policy", "red"], "full, select or idedup"),
                    (["get", pool.path, "colour"], "policy"),
                    (["volume", "resize", pool.path, "default", "0"], "zero"),
                    (["volume", "resize", pool.path, "default", "4097"], "8192"),
                ):
                    self.assertIn(choice, self.refused(*arguments, status=2))
                for arguments in (["delete"], ["get"], ["resize"], ["set"]):
                    more = {"resize": ["1G"], "set": ["policy=full"]}.get(arguments[0], [])
                    error = self.refused("volume", *arguments, pool.path, "nobody", *more)
                    self.assertIn("'nobody'", error)
                self.assertIn("not possible", self.refused("volume", "resize", pool.path, "default", "8388608T"))
                self.assertEqual(volume(pool, "default")["size_bytes"], 64 * MIB)


if __name__ == "__main__":
    unittest.main()
