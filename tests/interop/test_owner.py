"""One pool, two openings: by the file and a loop device over it, a hard link, a bind mount, a mapped device, another container, another host.

The second one is refused and told who has the pool; a dead owner is followed; a live one of another host only with --take-over, and then it
notices. Another host is made of a mount namespace with another machine id and another boot id. `ONEFOLD_OWNER_ROUNDS=1000` races openings for longer.
"""

import os
import random
import signal
import subprocess
import time
import unittest
import uuid

from server import ONEFOLD, PATIENCE, Pool, onefold, run

ROUNDS = int(os.environ.get("ONEFOLD_OWNER_ROUNDS", "8"))


def can_use_loop_devices():
    return os.geteuid() == 0 and os.path.exists("/dev/loop-control")


def write(uri, pattern, offset="0", length="4M"):
    done = run("qemu-io", "-f", "raw", "-c", f"write -P {pattern} {offset} {length}", "-c", "flush", uri)
    assert "failed" not in done.stdout, done.stdout


def holds(uri, pattern, offset="0", length="4M"):
    done = run("qemu-io", "-f", "raw", "-c", f"read -P {pattern} {offset} {length}", uri)
    return "failed" not in done.stdout


@unittest.skipUnless(can_use_loop_devices(), "loop devices need root")
class Owner(unittest.TestCase):
    def setUp(self):
        self.pool = Pool("64M")
        self.undo = []
        self.servers = []
        onefold("create", self.pool.path, "--capacity", "64M")
        onefold("volume", "create", self.pool.path, "default", "--size", "64M")

    def tearDown(self):
        for server in self.servers:
            if server.poll() is None:
                server.kill()
                server.wait()
        self.pool.__exit__()
        for command in reversed(self.undo):
            # A device is busy until the last write of a killed process has ended.
            for _ in range(50):
                if run(*command, check=False).returncode == 0:
                    break
                time.sleep(0.1)

    def loop(self, file=None):
        device = run("losetup", "--show", "-f", file or self.pool.path).stdout.strip()
        self.undo.append(["losetup", "-d", device])
        return device

    def start(self, path, name, *arguments, prefix=()):
        """A server on a path, with sockets of its own; its log is at `.log`."""
        command = [*prefix, ONEFOLD, "serve", path, "--memory", "64M", "--listen", f"unix:{self.socket(name)}", *arguments]
        with open(self.log(name), "w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.servers.append(server)
        return server

    def socket(self, name):
        return os.path.join(self.pool.folder, f"{name}.sock")

    def log(self, name):
        return os.path.join(self.pool.folder, f"{name}.log")

    def said(self, name):
        with open(self.log(name)) as log:
            return log.read()

    def uri(self, name):
        return f"nbd+unix:///default?socket={self.socket(name)}"

    def is_ready(self, name):
        return "serving " in self.said(name).replace("serving the pool", "")

    def until_ready(self, server, name):
        deadline = time.time() + PATIENCE
        while not self.is_ready(name):
            self.assertIsNone(server.poll(), self.said(name))
            self.assertLess(time.time(), deadline, self.said(name))
            time.sleep(0.02)

    def other_host(self):
        """What runs a command as on another host: other machine, other boot."""
        folder = self.pool.folder
        for name, text in (("machine", uuid.uuid4().hex), ("boot", str(uuid.uuid4()))):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text + "\n")
        mounts = f"mount --bind {folder}/machine /etc/machine-id && mount --bind {folder}/boot /proc/sys/kernel/random/boot_id"
        return ["unshare", "-m", "--uts", "sh", "-c", f'hostname elsewhere && {mounts} && exec "$@"', "sh"]

    def test_a_second_opening_by_any_path_is_refused_and_told_who_has_it(self):
        pool = self.pool
        device = self.loop()
        linear = f"onefold-test-{os.getpid()}"
        sectors = os.path.getsize(pool.path) // 512
        paths = [device]
        if run("dmsetup", "create", linear, "--table", f"0 {sectors} linear {self.loop()} 0", check=False).returncode == 0:
            self.undo.append(["dmsetup", "remove", linear])
            paths.append(f"/dev/mapper/{linear}")
        link = os.path.join(pool.folder, "link")
        os.link(pool.path, link)
        bound = os.path.join(pool.folder, "bound")
        open(bound, "w").close()
        run("mount", "--bind", pool.path, bound)
        self.undo.append(["umount", bound])
        pool.serve("--memory", "64M", create=False)
        write(pool.uri(), 1)
        for path in [*paths, link, bound]:
            commands = [["serve", path, "--listen", f"unix:{self.socket('second')}"]]
            if path == device:
                commands += [
                    ["check", path], ["status", path], ["repair", path, "--dry-run"], ["repair", path, "--yes"], ["scrub", path],
                    ["volume", "create", path, "more", "--size", "1M"], ["grow", path, "--capacity", "96M"],
                    ["create", path, "--capacity", "32M", "--force"], ["serve", path, "--read-only"],
                    # Whoever certainly runs is not robbed.
                    ["serve", path, "--take-over"],
                ]
            for command in commands:
                done = onefold(*command, check=False)
                self.assertEqual(done.returncode, 1, (command, done.stdout))
                self.assertIn(f"process {pool.server.pid} on host", done.stderr)
                self.assertIn(pool.path, done.stderr)
        write(pool.uri(), 2)
        pool.stop()
        pool.check()
        # By another path it is there, and by none is anybody asked to take it over.
        onefold("check", device)
        server = self.start(paths[-1], "mapped")
        self.until_ready(server, "mapped")
        self.assertTrue(holds(self.uri("mapped"), 2))

    def test_a_dead_owner_is_followed_without_a_word_by_any_path(self):
        pool, device = self.pool, self.loop()
        for number, path in enumerate([pool.path, pool.path, device, pool.path, device, device], 1):
            name = f"server{number}"
            server = self.start(path, name)
            self.until_ready(server, name)
            if number > 1:
                self.assertTrue(holds(self.uri(name), number - 1))
            write(self.uri(name), number)
            server.kill()
            if number % 2:
                server.wait()
            self.assertNotIn("WARN", self.said(name))
        self.servers[-1].wait()
        onefold("check", pool.path)

    def test_another_host_takes_it_over_only_when_told_to_and_the_former_owner_stops(self):
        pool, device = self.pool, self.loop()
        former = self.start(device, "former", prefix=self.other_host())
        self.until_ready(former, "former")
        write(self.uri("former"), 1)
        for command in (["serve", pool.path], ["check", pool.path], ["status", pool.path]):
            done = onefold(*command, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("on host elsewhere", done.stderr)
            self.assertIn(f"{command[0]} {pool.path} --take-over", done.stderr)
        heir = self.start(pool.path, "heir", "--take-over")
        self.until_ready(heir, "heir")
        self.assertIn("is taken over from process", self.said("heir"))
        self.assertTrue(holds(self.uri("heir"), 1), "what had been flushed is there")
        # It merges what was written a few seconds later, and looks.
        self.assertEqual(former.wait(timeout=PATIENCE), 1, self.said("former"))
        self.assertIn(f"was taken over by process {heir.pid} on host", self.said("former"))
        write(self.uri("heir"), 2, offset="8M")
        heir.send_signal(signal.SIGTERM)
        self.assertEqual(heir.wait(timeout=PATIENCE), 0, self.said("heir"))
        onefold("check", pool.path)

    def test_after_a_clean_close_another_host_needs_no_switch(self):
        pool, device = self.pool, self.loop()
        elsewhere = self.other_host()
        for number in range(3):
            name = f"server{number}"
            server = self.start(device if number == 1 else pool.path, name, prefix=elsewhere if number == 1 else ())
            self.until_ready(server, name)
            write(self.uri(name), number + 1, offset=f"{8 * number}M")
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(timeout=PATIENCE), 0, self.said(name))
        # A command is an opening like any other.
        onefold("volume", "create", pool.path, "more", "--size", "1M")
        run(*elsewhere, ONEFOLD, "check", device)

    def test_a_process_of_another_container_is_neither_followed_nor_robbed_unasked(self):
        pool, device = self.pool, self.loop()
        hidden = self.start(device, "hidden", prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
        self.until_ready(hidden, "hidden")
        done = onefold("serve", pool.path, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another container", done.stderr)
        self.assertIn("--take-over", done.stderr)
        hidden.kill()
        hidden.wait()
        self.assertIn("another container", onefold("status", pool.path, check=False).stderr)
        # To look takes nothing over; what writes does.
        onefold("status", pool.path, "--take-over")
        onefold("set", pool.path, "policy", "select", "--take-over")
        onefold("status", pool.path)

    def test_of_openings_that_race_one_wins_and_no_flush_is_lost(self):
        pool, device = self.pool, self.loop()
        link = os.path.join(pool.folder, "link")
        os.link(pool.path, link)
        chance = random.Random(os.environ.get("ONEFOLD_OWNER_SEED"))
        winners = {}
        for number in range(1, ROUNDS + 1):
            contenders = [("file", pool.path), ("loop", device), ("link", link)]
            chance.shuffle(contenders)
            started = []
            for name, path in contenders:
                started.append((name, self.start(path, name)))
                time.sleep(chance.choice([0, 0, 0.001, 0.005, 0.02]))
            deadline = time.time() + PATIENCE
            while not any(self.is_ready(name) for name, _ in started):
                alive = [name for name, server in started if server.poll() is None]
                self.assertTrue(alive, [self.said(name) for name, _ in started])
                self.assertLess(time.time(), deadline, [self.said(name) for name, _ in started])
                time.sleep(0.005)
            winner = next(name for name, _ in started if self.is_ready(name))
            winners[winner] = winners.get(winner, 0) + 1
            pattern = number % 250 + 1
            if number > 1:
                self.assertTrue(holds(self.uri(winner), (number - 1) % 250 + 1), f"round {number}: {winners}")
            write(self.uri(winner), pattern)
            owners = [name for name, server in started if self.is_ready(name) and server.poll() is None]
            self.assertEqual(owners, [winner], f"round {number}")
            for name, server in started:
                if name != winner:
                    server.kill()
                    server.wait()
            dict(started)[winner].send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            dict(started)[winner].wait()
            self.servers = []
            if number % 50 == 0:
                print(f"round {number}: {winners}", flush=True)
        onefold("check", pool.path)


if __name__ == "__main__":
    unittest.main()
