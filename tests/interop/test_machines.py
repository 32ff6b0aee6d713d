"""QEMU itself on volumes, by its own protocol (QMP): a disk that grows under it, clones as overlays in volumes, and a consistent backup of a running machine."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import time
import unittest

import nbd

from server import BLOCK, PATIENCE, Pool, onefold, run

MIB = 1 << 20


def options(pool, volume):
    """The options for QEMU that `connect` prints."""
    return shlex.split(onefold("connect", pool.path, volume, "--qemu").stdout.replace("\\\n", " "))


class Machine:
    """A machine with a disk and no processor that runs: what its guest would do, `io` does."""

    def __init__(self, pool, volume):
        words = options(pool, volume)
        self.node = json.loads(words[1])["node-name"]
        path = os.path.join(pool.folder, "qmp")
        self.process = subprocess.Popen([
            "qemu-system-x86_64", "-accel", "tcg", "-S", "-display", "none", "-nodefaults", "-m", "64", "-qmp", f"unix:{path},server=on,wait=off", *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + PATIENCE
        self.socket = socket.socket(socket.AF_UNIX)
        while self.socket.connect_ex(path) != 0:
            assert self.process.poll() is None and time.time() < deadline, "QEMU does not begin"
            time.sleep(0.05)
        self.stream, self.events = self.socket.makefile("rw"), []
        self.stream.readline()
        self.ask("qmp_capabilities")
        self.device, = [each["qdev"] for each in self.ask("query-block") if each.get("inserted")]

    def next(self):
        return json.loads(self.stream.readline())

    def ask(self, command, **arguments):
        self.stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.stream.flush()
        while True:
            answer = self.next()
            if "event" in answer:
                self.events.append(answer)
            elif "error" in answer:
                raise AssertionError(answer["error"]["desc"])
            else:
                return answer["return"]

    def wait_for(self, event):
        while not (found := [each for each in self.events if each["event"] == event]):
            self.events.append(self.next())
        return found[0]["data"]

    def io(self, command):
        said = self.ask("human-monitor-command", **{"command-line": f'qemu-io -d {self.device} "{command}"'})
        assert said == "", said

    def size(self):
        return [each["inserted"]["image"]["virtual-size"] for each in self.ask("query-block") if each.get("inserted")][0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.stream.close()
        self.socket.close()


def connect(pool, volume="default"):
    client = nbd.NBD()
    client.connect_uri(pool.uri(volume))
    return client


@unittest.skipUnless(shutil.which("qemu-system-x86_64"), "there is no qemu-system-x86_64 here")
class Machines(unittest.TestCase):
    def test_a_disk_grows_under_a_machine(self):
        with Pool("64M").serve("--memory", "64M") as pool, Machine(pool, "default") as machine:
            machine.io("write -P 5 0 64k")
            # What it says without the new size: this is why it has to connect again.
            said = onefold("volume", "resize", pool.path, "default", "128M").stdout
            self.assertIn("--reconnect asks for one", said)
            with self.assertRaisesRegex(AssertionError, "Cannot grow NBD nodes"):
                machine.ask("block_resize", **{"node-name": machine.node, "size": 128 * MIB})
            onefold("volume", "resize", pool.path, "default", "128M", "--reconnect")
            # It connects again with its next request, of which the guest notices nothing.
            machine.io("read -P 5 0 64k")
            machine.ask("block_resize", **{"node-name": machine.node, "size": 128 * MIB})
            self.assertEqual(machine.size(), 128 * MIB)
            machine.io("write -P 6 100M 64k")
            machine.io("read -P 6 100M 64k")
            machine.process.kill()
            pool.stop()

    def test_reconnect_answers_what_came_and_leaves_other_volumes_alone(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "other", "--size", "16M")
            client, other = connect(pool), connect(pool, "other")
            client.pwrite(b"\1" * MIB, 0)
            onefold("volume", "resize", pool.path, "default", "32M", "--force", "--reconnect")
            with self.assertRaises(nbd.Error):
                client.pread(BLOCK, 0)
            other.pwrite(b"\2" * BLOCK, 0)
            again = connect(pool)
            self.assertEqual((again.get_size(), again.pread(MIB, 0)), (32 * MIB, b"\1" * MIB))
            # A handshake that is going on is not one of its clients.
            self.assertEqual(sum(volume["clients"] for volume in pool.status()["volumes"]), 2)
            pool.stop()

    def test_the_disk_has_blocks_as_the_server_does(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            device = json.loads(options(pool, "default")[3])
            preferred = connect(pool).get_block_size(nbd.SIZE_PREFERRED)
            self.assertEqual((device["physical_block_size"], device["discard_granularity"]), (preferred, preferred))
            self.assertEqual(device["logical_block_size"], 512)
            libvirt = onefold("connect", pool.path, "default", "--libvirt").stdout
            self.assertIn(f"<blockio logical_block_size='512' physical_block_size='{preferred}'/>", libvirt)
            pool.stop()

    def test_a_backup_is_of_the_moment_at_which_it_began(self):
        with Pool("256M").serve("--memory", "64M") as pool:
            for name in ("web1", "web1-backup"):
                onefold("volume", "create", pool.path, name, "--size", "64M")
            onefold("volume", "set", pool.path, "web1-backup", "policy=full")
            data = os.urandom(32 * MIB)
            client = connect(pool, "web1")
            for at in range(0, len(data), MIB):
                client.pwrite(data[at:at + MIB], at)
            client.shutdown()
            before = pool.settled()["data_blocks_used"]
            with Machine(pool, "web1") as machine:
                target = json.loads(options(pool, "web1-backup")[1]) | {"node-name": "backup", "detect-zeroes": "unmap"}
                machine.ask("blockdev-add", **target)
                machine.ask("blockdev-backup", **{"job-id": "backup", "device": machine.node, "target": "backup", "sync": "full", "speed": 4 * MIB})
                # The guest goes on, over what is not copied yet.
                machine.io("write -P 9 8M 16M")
                machine.ask("block-job-set-speed", device="backup", speed=0)
                self.assertNotIn("error", machine.wait_for("BLOCK_JOB_COMPLETED"))
                machine.ask("blockdev-del", **{"node-name": "backup"})
                machine.io("read -P 9 8M 16M")
            client = connect(pool, "web1-backup")
            for at in range(0, len(data), MIB):
                self.assertEqual(client.pread(MIB, at), data[at:at + MIB])
            self.assertEqual(client.pread(32 * MIB, 32 * MIB), bytes(32 * MIB))
            client.shutdown()
            # It takes no space but for its map: what the guest has overwritten is the block of nines.
            self.assertLess(pool.settled()["data_blocks_used"], before + 64)
            image = os.path.join(pool.folder, "web1.qcow2")
            onefold("export", pool.path, "web1-backup", image)
            run("qemu-img", "compare", image, pool.uri("web1-backup"))
            pool.stop()

    def test_an_overlay_in_a_volume_is_a_clone(self):
        with Pool("256M").serve("--memory", "64M") as pool:
            golden, clone = pool.uri("golden"), pool.uri("clone")
            data = os.urandom(32 * MIB)
            onefold("volume", "create", pool.path, "golden", "--size", "32M")
            onefold("volume", "create", pool.path, "clone", "--size", "40M")
            client = connect(pool, "golden")
            client.pwrite(data, 0)
            client.shutdown()
            onefold("volume", "set", pool.path, "golden", "read-only=on")
            before = pool.settled()["data_blocks_used"]
            run("qemu-img", "create", "-q", "-f", "qcow2", "-b", golden, "-F", "raw", clone, "32M")
            run("qemu-img", "compare", "-f", "raw", "-F", "qcow2", golden, clone)
            self.assertLess(pool.settled()["data_blocks_used"] - before, 8)
            run("qemu-io", "-f", "qcow2", "-c", "write -P 9 4M 1M", "-c", "flush", clone)
            run("qemu-img", "check", "-f", "qcow2", clone)
            changed = subprocess.run(["qemu-img", "compare", "-f", "raw", "-F", "qcow2", golden, clone], capture_output=True)
            self.assertEqual(changed.returncode, 1)
            pool.stop()


if __name__ == "__main__":
    unittest.main()
