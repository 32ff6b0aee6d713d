"""A pool on a block device."""

import os
import shutil
import subprocess
import unittest

from server import ONEFOLD, Pool, onefold, run


@unittest.skipUnless(os.geteuid() == 0 and os.path.exists("/dev/loop-control"), "loop devices need root")
class Devices(unittest.TestCase):
    def setUp(self):
        self.pool = Pool("64M")
        self.file = os.path.join(self.pool.folder, "store.raw")
        run("truncate", "-s", "512M", self.file)
        self.device = run("losetup", "--show", "-f", self.file).stdout.strip()

    def tearDown(self):
        self.pool.__exit__()
        run("losetup", "-d", self.device, check=False)

    def test_a_device_holds_a_pool(self):
        pool = self.pool
        pool.path = self.device
        socket = os.path.join(pool.folder, "sock")
        pool.uri = lambda volume="default": f"nbd+unix:///{volume}?socket={socket}"
        onefold("create", self.device, "--capacity", "128M")
        onefold("volume", "create", self.device, "default", "--size", "64M", "--policy", "full")
        pool.serve("--listen", f"unix:{socket}", "--memory", "64M", create=False)
        run("qemu-io", "-f", "raw", "-c", "write -P 5 0 16M", "-c", "flush", pool.uri())
        self.assertEqual(pool.settled()["data_blocks_used"], 1)
        self.assertNotEqual(onefold("check", self.device, check=False).returncode, 0)
        pool.kill()
        pool.serve("--listen", f"unix:{socket}", "--memory", "64M", create=False)
        self.assertNotIn("failed", run("qemu-io", "-f", "raw", "-c", "read -P 5 0 16M", pool.uri()).stdout)
        pool.stop()
        pool.check()

    def test_a_server_with_another_environment_is_found(self):
        onefold("create", self.device, "--capacity", "128M")
        self.pool.path = self.device
        runtime = os.path.join(self.pool.folder, "runtime")
        session = {**os.environ, "XDG_RUNTIME_DIR": runtime}
        system = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
        for environment in (system, session):
            command = [ONEFOLD, "serve", self.device, "--memory", "64M", "--json"]
            self.pool.server = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
            self.pool.server.stdout.readline()
            run(ONEFOLD, "volume", "list", self.device, env=session)
            self.pool.server.stdout.close()
            self.pool.stop()

    def test_a_device_that_holds_something_else_or_is_too_small_is_refused(self):
        run("mkfs.ext4", "-q", "-F", self.device)
        done = onefold("create", self.device, "--capacity", "128M", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("ext", done.stderr)
        done = onefold("create", self.device, "--capacity", "4G", "--force", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(self.device, done.stderr)
        run("fsck.ext4", "-f", "-n", self.device)

    def test_a_pool_made_over_something_else_shows_nothing_of_it(self):
        """The story: after `create --force` a btrfs was still there, and an old line of fstab mounted it over the pool."""
        makers = {"btrfs": ["mkfs.btrfs", "-q", "-f"], "ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "swap": ["mkswap", "-f"],
                  "gpt": ["sh", "-c", 'echo label:gpt | sfdisk -q --wipe always "$0"'], "vfat": ["mkfs.vfat", "-I"], "LVM2_member": ["pvcreate", "-qff", "-y"],
                  "linux_raid_member": ["mdadm", "--zero-superblock"]}
        tried = 0
        for kind, maker in makers.items():
            if shutil.which(maker[0]) is None or run(*maker, self.device, check=False).returncode:
                continue
            found = run("blkid", "-p", self.device, check=False).stdout
            if kind not in found:
                continue
            tried += 1
            self.assertEqual(onefold("create", self.device, "--capacity", "128M", check=False).returncode, 1, kind)
            onefold("create", self.device, "--capacity", "128M", "--force")
            self.assertEqual(run("blkid", "-p", self.device, check=False).stdout, "", kind)
            self.assertEqual(run("wipefs", self.device).stdout, "", kind)
            folder = os.path.join(self.pool.folder, "mount")
            os.makedirs(folder, exist_ok=True)
            self.assertNotEqual(run("mount", "-o", "ro", self.device, folder, check=False).returncode, 0, kind)
            onefold("check", self.device)
        if tried < 2:
            self.skipTest("too few tools that make file systems are installed")

    def test_both_ends_and_copies_of_superblocks_are_cleared(self):
        size = os.path.getsize(self.file)
        places = [0, 512, 4096, 64 << 10, (2 << 20) + 4096, (4 << 20) - 512, 64 << 20, size - (4 << 20), size - 3087 * 512, size - (64 << 10), size - 512]
        with open(self.device, "r+b") as device:
            for place in places:
                device.seek(place)
                device.write(b"an old signature")
        onefold("create", self.device, "--capacity", "128M", "--force")
        with open(self.device, "rb") as device:
            for place in places:
                device.seek(place)
                self.assertNotEqual(device.read(16), b"an old signature", place)


if __name__ == "__main__":
    unittest.main()
