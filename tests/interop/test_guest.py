"""A guest, booted under QEMU, whose disk's server is stopped, killed and upgraded under it.

The guest is the distribution's kernel and an archive made here: busybox, fio and the modules for a virtio disk. Its disk is what `onefold connect --qemu`
prints, with `write-cache=off`: so nothing that was answered is lost with a server that is killed (docs/guide/operate.md). fio writes and verifies in it, round after
round. A request that failed would end fio, or the kernel would say so.
"""

import glob
import gzip
import json
import os
import platform
import random
import re
import shlex
import shutil
import subprocess
import tempfile
import time
import unittest

from server import ONEFOLD, ROOT, onefold, run
from test_service import Service, listening

TIMES = 10
SIZE = "64M"
BEGIN = ("--create", "--size", SIZE, "--memory", "64M")
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk")
# The package is kept here, so that it is fetched once.
KEPT = os.path.join(ROOT, "target", "guest")
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mkdir -p /tmp /dev/shm
for module in {modules}; do insmod /modules/$module.ko; done
while [ ! -b /dev/vda ]; do sleep 0.1; done
echo GUEST BEGINS
round=0
while round=$((round + 1)); do
    fio --name=verify --filename=/dev/vda --size=2M --offset=$((round % 7))M --ioengine=psync --direct=1 --rw=randwrite --bs=4k --randseed=$round \\
        --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/tmp/out || {{ cat /tmp/out; echo GUEST FAILED; poweroff -f; }}
    echo GUEST ROUND $round
done
"""


def kernel():
    """Where the distribution's kernel lies, unpacked; fetched when it is not there. Or why there is none."""
    found = glob.glob(os.path.join(KEPT, "boot", "vmlinuz-*"))
    if found:
        return found[0], None
    os.makedirs(KEPT, exist_ok=True)
    shown = run("apt-cache", "depends", "linux-image-cloud-amd64", check=False).stdout
    name = re.search(r"Depends: (linux-image-\S+)", shown)
    if not name or run("apt-get", "download", name[1], check=False, cwd=KEPT).returncode != 0:
        return None, "apt-get has no linux-image-cloud-amd64"
    run("dpkg", "-x", glob.glob(os.path.join(KEPT, "*.deb"))[0], KEPT)
    return glob.glob(os.path.join(KEPT, "boot", "vmlinuz-*"))[0], None


def initial_memory(folder):
    """The archive that the kernel unpacks and starts."""
    root = os.path.join(folder, "root")
    for name in ("bin", "modules", "proc", "sys", "dev"):
        os.makedirs(os.path.join(root, name))
    shutil.copy(shutil.which("busybox"), os.path.join(root, "bin", "busybox"))
    fio = shutil.which("fio")
    for path in [fio] + re.findall(r"(/\S+) \(0x", run("ldd", fio).stdout):
        to = os.path.join(root, "bin", "fio") if path == fio else root + path
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(path, to)
    for module in MODULES:
        path, = glob.glob(os.path.join(KEPT, "lib", "modules", "*", "kernel", "**", module + ".ko*"), recursive=True)
        shutil.copy(path, os.path.join(root, "modules", module + ".ko"))
    with open(os.path.join(root, "init"), "w", encoding="utf-8") as file:
        file.write(INIT.format(modules=" ".join(MODULES)))
    os.chmod(os.path.join(root, "init"), 0o755)
    packed = subprocess.run("find . | busybox cpio -o -H newc", shell=True, cwd=root, capture_output=True, check=True).stdout
    path = os.path.join(folder, "initrd")
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(packed)
    return path


class Guest(unittest.TestCase):
    def setUp(self):
        missing = [name for name in ("qemu-system-x86_64", "busybox", "fio", "apt-get") if not shutil.which(name)]
        if missing or platform.machine() != "x86_64":
            self.skipTest(f"not there: {missing}" if missing else "the guest is for x86-64")
        image, why_not = kernel()
        if why_not:
            self.skipTest(why_not)
        self.folder = tempfile.mkdtemp(prefix="onefold-guest-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.pool, self.program = os.path.join(self.folder, "disk.onefold"), os.path.join(self.folder, "onefold")
        self.install()
        self.listener = listening(path=os.path.join(self.folder, "server.sock"))
        self.addCleanup(self.listener.close)
        self.server = self.start()
        self.console = os.path.join(self.folder, "console")
        open(self.console, "w").close()
        blockdev, device = self.disk()
        self.machine = subprocess.Popen([
            "qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-display", "none", "-nodefaults", "-no-reboot",
            "-serial", "file:" + self.console, "-kernel", image, "-initrd", initial_memory(self.folder),
            "-append", "console=ttyS0 quiet panic=-1", "-blockdev", blockdev, "-device", device])
        self.addCleanup(self.machine.wait)
        self.addCleanup(self.machine.kill)

    def install(self):
        """Puts the program in place, as a package does: another file under the same name."""
        shutil.copy(ONEFOLD, self.program + ".new")
        os.replace(self.program + ".new", self.program)

    def start(self):
        server = Service(self, BEGIN, [self.listener.fileno()], pool=self.pool, program=self.program)
        server.wait_until_told("READY=1")
        return server

    def disk(self):
        """The disk as `connect` prints it, but that it writes through."""
        words = shlex.split(onefold("connect", self.pool, "default", "--qemu").stdout.replace("\\\n", " "))
        device = json.loads(words[3])
        return words[1], json.dumps({**device, "write-cache": "off"})

    def said(self):
        with open(self.console, encoding="utf-8", errors="replace") as file:
            return file.read()

    def rounds(self):
        """How many rounds the guest has done. It must not have seen an error."""
        said = self.said()
        for wrong in ("GUEST FAILED", "I/O error", "Kernel panic", "verify:"):
            self.assertNotIn(wrong, said, said[-3000:])
        self.assertIsNone(self.machine.poll(), said[-3000:])
        return said.count("GUEST ROUND")

    def wait_for_rounds(self, more, seconds=120):
        goal, deadline = self.rounds() + more, time.time() + seconds
        while self.rounds() < goal:
            self.assertLess(time.time(), deadline, self.said()[-3000:])
            time.sleep(0.05)

    def test_a_guest_sees_no_error_while_its_server_is_stopped_killed_and_upgraded(self):
        self.wait_for_rounds(1)
        began = time.time()
        self.wait_for_rounds(1)
        seconds = time.time() - began
        for turn in range(TIMES):
            # Anywhere in a round.
            time.sleep(random.uniform(0, seconds))
            if turn % 3 == 0:
                self.server.process.kill()
                self.server.process.wait()
            else:
                if turn % 3 == 1:
                    self.install()
                self.assertEqual(self.server.stop(), 0)
            self.server = self.start()
            self.wait_for_rounds(1)
        self.wait_for_rounds(1)
        self.machine.kill()
        self.machine.wait()
        self.assertEqual(self.server.stop(), 0)
        onefold("check", self.pool)


if __name__ == "__main__":
    unittest.main()
