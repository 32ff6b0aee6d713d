"""Commands reach the server of the very file or device that they name, wherever it listens; looking at a pool writes nothing."""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

import nbd

from server import ONEFOLD, PATIENCE, Pool, onefold, run

ROOT = os.geteuid() == 0
MEMORY = ("--memory", "64M")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def volumes(path, *arguments):
    report = json.loads(onefold("volume", "list", path, "--json", *arguments).stdout)
    return [volume["name"] for volume in report["volumes"]]


def make(path, *names):
    onefold("create", path, "--capacity", "64M")
    for name in names:
        onefold("volume", "create", path, name, "--size", "16M")


class Server:
    """A server on a pool anywhere; it says as JSON where it listens."""

    def __init__(self, test, path, *arguments, environment=None, folder=None):
        command = [ONEFOLD, "serve", path, *MEMORY, "--json", *arguments]
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, env=environment, cwd=folder)
        test.addCleanup(self.kill)
        line = self.process.stdout.readline()
        self.errors.seek(0)
        if not line:
            raise AssertionError(self.errors.read().decode())
        self.started = json.loads(line)
        self.control = self.started["control"]

    def uri(self, name):
        return next(export["uris"][0] for export in self.started["exports"] if export["name"] == name)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=PATIENCE) == 0

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="onefold-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def refused(self, *arguments, says):
        done = onefold(*arguments, check=False)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertNotIn("panicked", done.stderr)
        for word in says:
            self.assertIn(word, done.stderr)
        return done.stderr


class Names(Case):
    """A control socket was found by the pool's path or by its id, and its server did whatever it was asked."""

    def test_a_command_for_a_backup_in_the_place_of_a_served_file_acts_on_the_backup(self):
        pool, moved = self.at("pool"), self.at("moved")
        make(pool, "precious")
        shutil.copy(pool, self.at("backup"))
        server = Server(self, pool)
        os.rename(pool, moved)
        os.rename(self.at("backup"), pool)
        onefold("volume", "delete", pool, "precious")
        self.assertEqual(volumes(pool), [])
        onefold("check", pool)
        # Its server goes on with what was moved; it is found where it listens.
        self.assertEqual(volumes(moved, "--control", server.control), ["precious"])
        self.refused("volume", "list", pool, "--control", server.control, says=[server.control, moved, pool])
        self.refused("serve", pool, says=[pool + ".sock", "--listen unix:PATH", "--control PATH"])
        server.stop()
        self.assertEqual(volumes(moved), ["precious"])

    def test_a_served_file_without_its_name_says_how_its_server_is_reached(self):
        pool, moved = self.at("pool"), self.at("moved")
        make(pool, "precious")
        server = Server(self, pool)
        os.rename(pool, moved)
        says = [moved, f"process {server.process.pid} ", "--control PATH", "another name"]
        self.refused("volume", "delete", moved, "precious", says=says)
        os.symlink(moved, pool)
        self.assertEqual(volumes(moved, "--control", server.control), ["precious"])

    def test_other_names_of_a_served_file_reach_its_server(self):
        pool = self.at("pool")
        make(pool, "one")
        server = Server(self, pool)
        os.symlink(pool, self.at("symbolic"))
        os.link(pool, self.at("hard"))
        onefold("volume", "create", self.at("symbolic"), "two", "--size", "16M")
        onefold("volume", "create", self.at("hard"), "three", "--size", "16M", "--control", server.control)
        self.assertEqual(volumes(pool), ["one", "two", "three"])
        run("nbdinfo", server.uri("one").replace("/one?", "/three?"))

    @unittest.skipUnless(ROOT, "mounting needs root")
    def test_a_bind_mount_of_a_served_file_reaches_its_server(self):
        os.mkdir(self.at("there"))
        pool, mounted = self.at("there", "pool"), self.at("here")
        make(pool, "one")
        os.mkdir(mounted)
        if run("mount", "--bind", self.at("there"), mounted, check=False).returncode != 0:
            self.skipTest("bind mounts are not allowed here")
        self.addCleanup(run, "umount", "--lazy", mounted)
        Server(self, pool)
        onefold("volume", "create", os.path.join(mounted, "pool"), "two", "--size", "16M")
        self.assertEqual(volumes(pool), ["one", "two"])


@unittest.skipUnless(ROOT and os.path.exists("/dev/loop-control"), "loop devices need root")
class Devices(Case):
    def loop(self, file):
        device = run("losetup", "--show", "-f", file).stdout.strip()
        self.addCleanup(run, "losetup", "-d", device, check=False)
        return device

    def test_a_command_for_a_copy_of_a_served_device_acts_on_the_copy(self):
        """The copy has the pool's id: its command deleted the volume of the original."""
        for name in ("original", "copy"):
            run("truncate", "-s", "256M", self.at(name))
        original, copy = self.loop(self.at("original")), self.loop(self.at("copy"))
        make(original, "precious")
        run("dd", f"if={original}", f"of={copy}", "bs=1M", "conv=fsync")
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.at("runtime")}
        server = Server(self, original, environment=environment)
        ask = lambda *arguments: run(ONEFOLD, *arguments, env=environment)
        listed = lambda device: [v["name"] for v in json.loads(ask("volume", "list", device, "--json").stdout)["volumes"]]
        ask("volume", "delete", copy, "precious")
        self.assertEqual(listed(original), ["precious"])
        self.assertEqual(listed(copy), [])
        ask("check", copy)
        # Both can be served at once, the second one elsewhere.
        done = run(ONEFOLD, "serve", copy, env=environment, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--control PATH", done.stderr)
        elsewhere = ("--control", self.at("ctl"))
        second = Server(self, copy, "--listen", f"unix:{self.at('sock')}", *elsewhere, environment=environment)
        ask("volume", "create", copy, "other", "--size", "16M", *elsewhere)
        self.assertEqual((listed(original), volumes(copy, *elsewhere)), (["precious"], ["other"]))
        second.stop()
        server.stop()

    def test_a_loop_device_over_a_served_file_is_refused_and_so_is_the_file_of_a_served_device(self):
        file = self.at("pool")
        make(file, "precious")
        device = self.loop(file)
        server = Server(self, file)
        self.refused("volume", "delete", device, "precious", says=[device, file, "in use"])
        self.refused("volume", "list", device, "--control", server.control, says=[server.control, device, file])
        self.refused("check", device, says=[device, file, "in use"])
        server.stop()
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.at("runtime")}
        server = Server(self, device, environment=environment)
        self.refused("volume", "delete", file, "precious", says=[file, "in use"])
        server.stop()
        self.assertEqual(volumes(file), ["precious"])


class Crowds(Case):
    """Commands beyond the places of a server were refused, some with "is it stopping?"."""

    def test_commands_wait_for_a_place_and_none_fails(self):
        pool = self.at("pool")
        make(pool)
        server = Server(self, pool)
        silent = []
        while len(silent) < 100:
            silent.append(socket.socket(socket.AF_UNIX))
            self.addCleanup(silent[-1].close)
            silent[-1].connect(server.control)
        command = [ONEFOLD, "status", pool, "--json"]
        waiting = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        for one in silent:
            one.close()
        for status in waiting:
            said = status.communicate(timeout=PATIENCE)[1]
            self.assertEqual(status.returncode, 0, said)
        server.stop()

    def test_many_commands_at_once_are_all_carried_out_whoever_serves_the_pool(self):
        pool = self.at("pool")
        make(pool)
        for served in [True, False]:
            with self.subTest(served=served):
                server = Server(self, pool) if served else None
                names = [f"volume-{served}-{number}" for number in range(40 if served else 8)]
                commands = [subprocess.Popen([ONEFOLD, "volume", "create", pool, name, "--size", "4M"], stdout=subprocess.DEVNULL,
                                             stderr=subprocess.PIPE, text=True) for name in names]
                for command in commands:
                    said = command.communicate(timeout=PATIENCE)[1]
                    self.assertEqual(command.returncode, 0, said)
                self.assertLessEqual(set(names), set(volumes(pool)))
                if server:
                    server.stop()


@unittest.skipUnless(ROOT, "bind mounts need root")
class Ends(Case):
    def test_nothing_is_busy_when_a_command_or_a_server_has_ended(self):
        """The kernel let go of the store, and of the listening sockets, only some time after the process had ended."""
        mounted = self.at("mounted")
        os.mkdir(mounted)
        make(self.at("pool"), "one")
        pool = os.path.join(mounted, "pool")

        def serve():
            server = Server(self, pool)
            client = nbd.NBD()
            client.connect_uri(server.uri("one"))
            client.pwrite(os.urandom(1 << 20), 0)
            server.stop()

        ways = [serve, lambda: onefold("volume", "set", pool, "one", "policy=full"), lambda: onefold("export", pool, "one", self.at("out"))]
        for way in ways * 5:
            if run("mount", "--bind", self.folder, mounted, check=False).returncode != 0:
                self.skipTest("bind mounts are not allowed here")
            try:
                way()
            finally:
                done = run("umount", mounted, check=False)
                if done.returncode != 0:
                    self.addCleanup(run, "umount", "--lazy", mounted, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            if os.path.exists(self.at("out")):
                os.remove(self.at("out"))


class Sockets(Case):
    def test_a_server_removes_its_own_sockets_and_not_those_that_took_their_place(self):
        first, second = self.at("first"), self.at("second")
        for pool in (first, second):
            make(pool, "v")
        places = ("--listen", f"unix:{self.at('sock')}", "--control", self.at("ctl"))
        one = Server(self, first, *places)
        for name in ("sock", "ctl"):
            os.remove(self.at(name))
        two = Server(self, second, *places)
        one.stop()
        run("nbdinfo", two.uri("v"))
        self.assertEqual(volumes(second, "--control", self.at("ctl")), ["v"])
        two.stop()
        self.assertEqual(sorted(os.listdir(self.folder)), ["first", "second"])

    def test_a_control_socket_elsewhere_serves_all_commands(self):
        pool, there = self.at("pool"), ("--control", self.at("elsewhere"))
        make(pool, "v")
        server = Server(self, pool, *there)
        self.assertEqual(server.control, there[1])
        self.assertFalse(os.path.exists(pool + ".ctl"))
        self.assertEqual(os.stat(there[1]).st_mode & 0o777, 0o600)
        for command in (["status", pool], ["status", pool, "--settle"], ["status", pool, "--recover"], ["get", pool],
                        ["set", pool, "policy", "full"], ["grow", pool, "--capacity", "80M"], ["scrub", pool, "--wait"],
                        ["volume", "create", pool, "w", "--size", "4M"], ["volume", "list", pool],
                        ["volume", "set", pool, "w", "read-only=on"], ["volume", "get", pool, "w"],
                        ["volume", "resize", pool, "w", "8M"], ["volume", "delete", pool, "w"]):
            done = onefold(*command, *there, check=False)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
        # Without it, they say how.
        self.refused("volume", "list", pool, says=[pool, "in use", "--control PATH"])
        server.stop()
        # Where no server runs, it does no harm.
        self.assertEqual(volumes(pool, *there), ["v"])

    def test_names_of_all_lengths_and_with_odd_characters_are_served_and_found(self):
        """A path with more than 102 bytes could not be served: its sockets' paths were too long."""
        deep = os.path.join(*["deep" * 10] * 5)
        os.makedirs(self.at(deep))
        odd = b"odd \xff\n'%20\"$(x)\\"
        runtime = {**os.environ, "XDG_RUNTIME_DIR": self.at("runtime")}
        paths = [self.at(deep, "pool"), os.path.join(deep, "relative"), "x" * 250,
                 os.path.join(os.fsencode(self.folder), odd), odd + b" relative", "-starts-with-a-dash"]
        space = 102 - len(self.folder) - 1
        paths += [self.at("n" * space), self.at("n" * (space + 1)), self.at("n" * (space + 3))]
        for path in paths:
            with self.subTest(path=path):
                name = ["--", path]
                command = lambda *words: subprocess.run([ONEFOLD, *words], env=runtime, cwd=self.folder, check=True,
                                                        capture_output=True, timeout=60).stdout
                command("create", "--capacity", "64M", *name)
                command("volume", "create", "--size", "16M", *name, "v")
                process = subprocess.Popen([ONEFOLD, "serve", *MEMORY, "--json", *name], env=runtime, cwd=self.folder,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
                try:
                    started = json.loads(process.stdout.readline())
                    run("nbdinfo", "--size", started["exports"][0]["uris"][0])
                    command("volume", "create", "--size", "16M", *name, "late")
                    report = json.loads(command("status", "--json", *name))
                    self.assertEqual([v["name"] for v in report["volumes"]], ["v", "late"])
                    self.assertEqual(report["memory_source"], "command line", "a server has answered")
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.stdout.close()
                    self.assertEqual(process.wait(timeout=PATIENCE), 0)
        self.assertEqual(os.listdir(self.at("runtime")), [])

    def test_short_names_are_said_at_the_start(self):
        pool = self.at("x" * 120)
        make(pool, "v")
        environment = {**os.environ, "XDG_RUNTIME_DIR": self.at("runtime")}
        process = subprocess.Popen([ONEFOLD, "serve", pool, *MEMORY], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   env=environment, text=True)
        said = []
        while not said or not said[-1].startswith("try:"):
            said.append(process.stdout.readline())
            self.assertNotEqual(said[-1], "", said)
        process.terminate()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=PATIENCE), 0)
        self.assertIn(f"commands find:  {self.at('runtime')}/path-", "".join(said))

    def test_what_is_too_long_or_in_the_way_names_the_switch(self):
        pool = self.at("pool")
        make(pool, "v")
        long = self.at("x" * 120)
        self.refused("serve", pool, "--control", long, says=[long, "107", "--control PATH"])
        self.refused("serve", pool, "--listen", f"unix:{long}", says=[long, "107", "--listen unix:PATH"])
        self.refused("volume", "list", pool, "--control", long, says=[long, "107", "--control PATH"])
        with open(self.at("file"), "w") as file:
            file.write("mine")
        self.refused("serve", pool, "--control", self.at("file"), says=["not a socket", "--control PATH"])
        self.refused("serve", pool, "--control", self.at("no", "ctl"), says=["its directory does not exist"])
        self.refused("serve", pool, "--control", self.at("one"), "--listen", f"unix:{self.at('one')}", says=["--control"])
        with open(self.at("file")) as file:
            self.assertEqual(file.read(), "mine")

    @unittest.skipUnless(os.path.exists("/dev/fuse") and shutil.which("nbdfuse"), "FUSE is not available here")
    def test_a_file_system_without_sockets_serves_a_pool_with_the_switches_that_the_error_names(self):
        with Pool("256M").serve(*MEMORY) as below:
            make(self.at("pool"), "v")
            run("nbdcopy", "--", self.at("pool"), below.uri())
            mount = self.at("fuse")
            os.mkdir(mount)
            fuse = subprocess.Popen(["nbdfuse", mount, below.uri()])
            self.addCleanup(fuse.wait, timeout=60)
            self.addCleanup(run, "fusermount3", "-u", "-z", mount, check=False)
            pool = os.path.join(mount, "nbd")
            deadline = time.time() + PATIENCE
            while not os.path.exists(pool):
                self.assertLess(time.time(), deadline)
                time.sleep(0.05)
            self.refused("serve", pool, says=[pool + ".sock", "--listen unix:PATH", "--control PATH"])
            there = ("--control", self.at("ctl"))
            server = Server(self, pool, "--listen", f"unix:{self.at('sock')}", *there)
            onefold("volume", "create", pool, "w", "--size", "16M", *there)
            self.assertEqual(volumes(pool, *there), ["v", "w"])
            server.stop()
            self.assertEqual(volumes(pool), ["v", "w"])


class Looking(Case):
    """`status` recovered a pool that was not closed cleanly, and closed it."""

    COMMANDS = (["status"], ["status", "--json"], ["status", "--prometheus"], ["get"], ["volume", "list"])

    def look(self, pool, **options):
        """What all that looks says; it leaves the pool as it was."""
        before, time_before = digest(pool), os.stat(pool).st_mtime_ns
        done = [run(ONEFOLD, *command, pool, **options) for command in self.COMMANDS]
        done.append(run(ONEFOLD, "volume", "get", pool, "default", **options))
        self.assertEqual((digest(pool), os.stat(pool).st_mtime_ns), (before, time_before))
        return done

    def killed(self):
        """A pool whose server was killed, and the figures that a recovery will bring."""
        pool = Pool("64M").serve(*MEMORY)
        self.addCleanup(pool.__exit__)
        onefold("volume", "create", pool.path, "late", "--size", "16M", "--policy", "full")
        for volume, blocks in (("default", 1), ("late", 40)):
            client = nbd.NBD()
            client.connect_uri(pool.uri(volume))
            for block in range(blocks):
                client.pwrite(bytes([block + 2]) * 4096, block * 4096)
                client.flush()
            client.shutdown()
        onefold("volume", "resize", pool.path, "late", "32M")
        pool.kill()
        return pool

    def test_of_a_pool_that_was_closed_cleanly_everything_is_shown_and_nothing_is_written(self):
        with Pool("64M").serve(*MEMORY) as pool:
            run("qemu-io", "-f", "raw", "-c", "write -P 1 0 4M", pool.uri())
            onefold("set", pool.path, "policy", "full")
            settled = pool.settled()
            pool.stop()
            done = self.look(pool.path)
            report = json.loads(done[1].stdout)
            for field in ("capacity_bytes", "logical_blocks_used", "data_blocks_used", "pool_policy", "mode"):
                self.assertEqual(report[field], settled[field], field)
            self.assertFalse(report["needs_recovery"])
            self.assertTrue(all(not one.stderr for one in done), done)
            before = digest(pool.path)
            onefold("status", pool.path, "--recover")
            self.assertEqual(digest(pool.path), before, "there was nothing to recover")

    def test_of_a_pool_that_was_not_closed_cleanly_the_figures_are_those_that_recovery_finds(self):
        pool = self.killed()
        done = self.look(pool.path)
        report = json.loads(done[1].stdout)
        self.assertTrue(report["needs_recovery"])
        self.assertIn("not closed cleanly", done[0].stdout)
        self.assertIn("status --recover", done[0].stdout)
        for one in done[3:]:
            self.assertIn("not closed cleanly", one.stderr)
        listed = json.loads(onefold("volume", "list", pool.path, "--json").stdout)
        self.assertTrue(listed["needs_recovery"])
        self.assertEqual([(v["name"], v["size_bytes"]) for v in report["volumes"]],
                         [("default", 64 << 20), ("late", 32 << 20)])
        # Exact figures take a recovery: it is asked for.
        self.refused("status", pool.path, "--settle", says=[pool.path, "--recover"])
        self.look(pool.path)
        recovered = pool.status("--recover", "--settle")
        self.assertFalse(recovered["needs_recovery"])
        self.assertEqual([v["logical_blocks_used"] for v in recovered["volumes"]], [1, 40])
        self.assertFalse(json.loads(self.look(pool.path)[1].stdout)["needs_recovery"])
        pool.check()

    def test_recovery_that_is_asked_for_is_done(self):
        pool = self.killed()
        self.assertIn("normal", onefold("status", pool.path, "--recover").stdout)
        self.assertFalse(pool.status()["needs_recovery"])

    def test_what_is_looked_at_can_be_served_afterwards(self):
        pool = self.killed()
        self.look(pool.path)
        pool.serve(*MEMORY, create=False)
        self.assertFalse(pool.status()["needs_recovery"], "its server has done that")
        client = nbd.NBD()
        client.connect_uri(pool.uri("late"))
        self.assertEqual(client.pread(40 * 4096, 0), b"".join(bytes([block + 2]) * 4096 for block in range(40)))
        client.shutdown()
        pool.stop()
        pool.check()

    @unittest.skipUnless(ROOT, "another user needs root")
    def test_of_a_file_that_may_only_be_read_everything_is_shown(self):
        program = self.at("onefold")
        shutil.copy(ONEFOLD, program)
        os.chmod(self.folder, 0o755)
        killed, clean = self.killed(), self.at("clean")
        shutil.copy(killed.path, self.at("unclean"))
        onefold("status", killed.path, "--recover")
        shutil.copy(killed.path, clean)
        for name in ("clean", "unclean"):
            os.chmod(self.at(name), 0o444)
            done = run(program, "status", self.at(name), "--json", user=65534)
            self.assertEqual(json.loads(done.stdout)["needs_recovery"], name == "unclean")
            done = run(program, "volume", "create", self.at(name), "x", "--size", "4M", check=False, user=65534)
            self.assertIn(self.at(name), done.stderr)
        mounted = self.at("mounted")
        os.mkdir(mounted)
        if run("mount", "--bind", self.folder, mounted, check=False).returncode != 0:
            self.skipTest("bind mounts are not allowed here")
        self.addCleanup(run, "umount", "--lazy", mounted)
        run("mount", "-o", "remount,ro,bind", mounted)
        for name in ("clean", "unclean"):
            self.assertEqual(len(self.look(os.path.join(mounted, name))), 6)
        # Served from there, with its sockets elsewhere.
        path, there = os.path.join(mounted, "clean"), ("--control", self.at("ctl"))
        self.refused("serve", path, "--read-only", says=["read-only", "--listen unix:PATH", "--control PATH"])
        server = Server(self, path, "--read-only", "--listen", f"unix:{self.at('sock')}", *there)
        self.assertEqual(volumes(path, *there), ["default", "late"])
        server.stop()


if __name__ == "__main__":
    unittest.main()
