"""What a command writes to is nobody else's: every command with an output, with every kind of target that must not be written over. The
commands are those that crates/onefold/src/commands/paths.rs says write somewhere; a unit test there holds that against the command line."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from server import ONEFOLD, PATIENCE, ROOT, Pool, onefold, run

MIB = 1 << 20
IS_ROOT = os.geteuid() == 0 and os.path.exists("/dev/loop-control")
# What a command may do to what nobody uses, if it is told to: make a pool anew, take a cache from another pool.
MAY = {"create pool": {"pool", "hard link", "symbolic link", "loop device", "loop device inside", "cache"}, "cache attach device": {"cache"}}


def outputs():
    """The rows of the table that write."""
    with open(os.path.join(ROOT, "crates/onefold/src/commands/paths.rs")) as file:
        return {f"{command} {path}" for command, path in re.findall(r'\("([^"]+)", "([^"]+)", Writes\)', file.read())}


def awaited(what, condition):
    deadline = time.time() + PATIENCE
    while not condition():
        if time.time() > deadline:
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.02)


class Targets:
    """One of each kind, and what keeps it in use."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="onefold-guard-")
        self.loops, self.processes, self.mounts, self.made = [], [], [], {}
        self.served = Pool("64M")
        self.served.serve("--memory", "64M")
        run("qemu-io", "-f", "raw", "-c", "write -P 7 0 4M", "-c", "flush", self.served.uri())
        self.flash = self.file("flash", None)
        onefold("cache", "attach", self.served.path, self.flash, "--size", "16M")
        self.mine = self.pool("mine")
        self.make()

    def make(self):
        made = self.made
        made["pool served"] = self.served.path
        made["cache in use"] = self.flash
        made["pool"] = self.pool("pool")
        made["hard link"], made["symbolic link"] = self.file("hard", None), self.file("symbolic", None)
        os.link(self.pool("linked"), made["hard link"])
        os.symlink(self.pool("symlinked"), made["symbolic link"])
        made["cache"] = self.file("cache", None)
        onefold("cache", "attach", made["pool"], made["cache"], "--size", "16M")
        made["open"] = self.file("open")
        with open(made["open"], "ab") as output:
            self.hold(["sleep", "1000"], lambda: True, stdout=output)
        made["locked by QEMU"] = self.file("locked")
        socket = self.file("nbd.sock", None)
        self.hold(["qemu-nbd", "--persistent", "-f", "raw", "-k", socket, made["locked by QEMU"]], lambda: os.path.exists(socket))
        made["read by QEMU"] = self.file("read")
        other = self.file("read.sock", None)
        self.hold(["qemu-nbd", "--persistent", "-r", "-f", "raw", "-k", other, made["read by QEMU"]], lambda: os.path.exists(other))
        made["directory"] = self.file("directory", None)
        os.mkdir(made["directory"])
        made["pipe"] = self.file("pipe", None)
        os.mkfifo(made["pipe"])
        if not IS_ROOT:
            return
        made["loop device"] = self.loop(self.pool("looped"))
        made["loop device inside"] = self.loop(self.pool("inside"), "--offset", 8 * MIB)
        made["loop device of a served pool"] = self.loop(self.served.path)
        made["loop device of a cache in use"] = self.loop(self.flash)
        made["under a loop device"] = self.file("under")
        self.loop(made["under a loop device"])
        made["under a mount"] = self.file("mounted", "64M")
        run("mkfs.ext4", "-q", "-F", made["under a mount"])
        made["mounted"] = self.loop(made["under a mount"])
        folder = self.file("mount", None)
        os.mkdir(folder)
        run("mount", "-o", "ro", made["mounted"], folder)
        self.mounts.append(folder)

    def file(self, name, size="32M"):
        path = os.path.join(self.folder, name)
        if size:
            run("truncate", "-s", size, path)
            with open(path, "r+b") as file:
                file.write(b"my only thesis")
        return path

    def pool(self, name):
        path = self.file(name + ".onefold", None)
        onefold("create", path, "--capacity", "64M")
        return path

    def loop(self, path, *arguments):
        self.loops.append(run("losetup", "--show", *arguments, "-f", path).stdout.strip())
        return self.loops[-1]

    def hold(self, command, is_ready, **options):
        self.processes.append(subprocess.Popen(command, **options))
        awaited(command, is_ready)

    def state(self, kind):
        """What shows that a target was written to, or replaced. Those that are served change by themselves: their ends are looked at later."""
        path = self.made[kind]
        about = os.stat(path)
        same = (about.st_ino, about.st_mode)
        if kind in ("directory", "pipe"):
            return same
        with open(path, "rb") as file:
            begins = file.read(64)
        if "served" in kind or "in use" in kind:
            return same, about.st_size, begins
        beneath = os.path.realpath(path)
        if beneath.startswith("/dev/loop"):
            beneath = run("losetup", "-n", "-O", "BACK-FILE", path).stdout.strip()
        about = os.stat(beneath)
        return same, begins, about.st_size, about.st_mtime_ns, about.st_blocks

    def detach(self):
        for folder in self.mounts:
            run("umount", folder, check=False)
        for device in self.loops:
            run("losetup", "-d", device, check=False)
        self.mounts, self.loops = [], []

    def end(self):
        self.detach()
        for process in self.processes:
            process.kill()
            process.wait()
        self.served.__exit__()
        shutil.rmtree(self.folder, ignore_errors=True)


class Guard(unittest.TestCase):
    def setUp(self):
        self.targets = Targets()
        self.addCleanup(self.targets.end)
        self.number = 0

    def serve(self, *arguments):
        """Starts a server, which may end by itself or must be stopped; its status in the first case."""
        server = subprocess.Popen([ONEFOLD, "serve", *arguments, "--json", "--memory", "64M"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # A server that hangs at its start is ended.
        watch = threading.Timer(PATIENCE, server.kill)
        watch.start()
        line = server.stdout.readline()
        watch.cancel()
        if line:
            server.send_signal(signal.SIGTERM)
        said = server.communicate(timeout=PATIENCE)[1]
        self.assertNotIn(b"panicked", said)
        return None if line else server.returncode

    def man(self, target):
        self.number += 1
        folder = self.targets.file(f"man-{self.number}", None)
        os.mkdir(folder)
        page = os.path.join(folder, "onefold.1")
        if target.startswith("/dev") or os.path.isdir(target):
            os.symlink(target, page)
        else:
            os.link(target, page, follow_symlinks=False)
        return onefold("man", folder, check=False).returncode

    def record(self, target):
        """To the target; and to a name whose recordings of before would be kept where the target is."""
        mine = self.targets.mine
        statuses = [self.serve(mine, "--record", target)]
        if not target.startswith("/dev") and not os.path.isdir(target):
            self.number += 1
            calls = self.targets.file(f"calls-{self.number}", None)
            with open(calls, "wb") as file:
                file.write(b"ONEFREC\0")
            os.link(target, calls + ".3", follow_symlinks=False)
            before = os.stat(calls + ".3", follow_symlinks=False).st_ino
            statuses.append(self.serve(mine, "--record", calls))
            self.assertEqual(os.stat(calls + ".3", follow_symlinks=False).st_ino, before)
        return None if None in statuses else min(statuses)

    def save(self, target):
        pool = self.targets.served.path
        onefold("relocate", "profile", "start", pool)
        return onefold("relocate", "profile", "save", pool, target, check=False).returncode

    def run_each(self, *commands):
        statuses = []
        for command in commands:
            done = onefold(*command, check=False)
            self.assertNotIn("panicked", done.stderr)
            statuses.append(done.returncode)
        return min(statuses)

    def attempts(self, output, target):
        served, mine = self.targets.served.path, self.targets.mine
        export = ["export", served, "default", target]
        return {
            "create pool": lambda: self.run_each(["create", target, "--capacity", "8M", "--force"]),
            "relocate profile save file": lambda: self.save(target),
            "cache attach device": lambda: self.run_each(["cache", "attach", served, target, "--force"], ["cache", "attach", mine, target, "--force"]),
            "serve pool": lambda: self.serve(target, "--create", "--size", "8M"),
            "serve listen": lambda: self.serve(mine, "--listen", f"unix:{target}"),
            "serve control": lambda: self.serve(mine, "--control", target),
            "serve flash": lambda: self.serve(mine, "--flash", target),
            "serve record": lambda: self.record(target),
            "export image": lambda: self.run_each(
                [*export, "--overwrite", "--format", "raw"], [*export, "--resume", "--format", "raw"], [*export, "--overwrite", "--format", "qcow2"]),
            "man folder": lambda: self.man(target),
        }[output]()

    def test_no_output_of_any_command_goes_over_what_is_not_its_own(self):
        targets, wrong = self.targets, []
        for output in sorted(outputs()):
            for kind, target in targets.made.items():
                if kind in MAY.get(output, ()):
                    continue
                before = targets.state(kind)
                try:
                    status = self.attempts(output, target)
                except KeyError:
                    self.fail(f"'{output}' writes somewhere: say here how it is tried")
                if targets.state(kind) != before:
                    wrong.append(f"{output}: {kind} was changed (status {status})")
                # A server may go on without what it was given, or serve what is a pool.
                if status == 0 or status is None and output not in ("serve flash", "serve pool"):
                    wrong.append(f"{output}: {kind} was not refused")
        self.assertEqual(wrong, [])
        self.assertNotIn("failed", run("qemu-io", "-f", "raw", "-c", "read -P 7 0 4M", targets.served.uri()).stdout)
        targets.served.stop()
        targets.served.check()
        targets.detach()
        targets.served.serve("--memory", "64M", "--flash", targets.flash, create=False)
        self.assertIn('"attached"', onefold("cache", "status", targets.served.path, "--json").stdout)
        targets.served.stop()

    def test_an_image_that_is_a_pool_or_its_cache_is_not_imported(self):
        targets = self.targets
        for kind in ("pool served", "cache in use", "pool", "symbolic link", "hard link", "cache", "loop device of a served pool",
                     "loop device of a cache in use"):
            if kind not in targets.made:
                continue
            for arguments, is_taken in [([], False), (["--format", "raw"], kind in ("pool", "symbolic link", "hard link", "cache"))]:
                done = onefold("import", targets.served.path, "image", targets.made[kind], *arguments, "--overwrite", check=False)
                # There is no space for a pool in a pool; what is refused is refused before.
                self.assertEqual("is a Onefold pool" in done.stderr or "is the flash cache" in done.stderr, not is_taken, (kind, done.stderr))

    def test_a_message_says_what_is_there_and_what_to_do(self):
        made = self.targets.made
        words = {"pool": ["a Onefold pool", "remove the file"], "cache": ["flash cache"], "open": ["sleep"], "locked by QEMU": ["stop that first"],
                 "pool served": ["in use"], "under a loop device": ["losetup -d"], "mounted": ["unmount it"], "loop device inside": ["leads to"]}
        for kind, expected in words.items():
            if kind in made:
                done = onefold("export", self.targets.mine, "missing", made[kind], "--overwrite", "--format", "raw", check=False)
                for word in [made[kind], *expected]:
                    self.assertIn(word, done.stderr, kind)

    def test_create_with_force_makes_a_pool_anew_that_nobody_uses(self):
        for kind in ("pool", "symbolic link", "loop device"):
            if kind in self.targets.made:
                onefold("create", self.targets.made[kind], "--capacity", "32M", "--force")
                onefold("check", self.targets.made[kind])


if __name__ == "__main__":
    unittest.main()
