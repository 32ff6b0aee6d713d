"""ext4 and xfs live on a served volume."""

import os
import subprocess
import time
import unittest

from server import PATIENCE, Pool, run, system_tree


CAN_MOUNT = os.geteuid() == 0 and all(map(os.path.exists, ("/dev/fuse", "/dev/loop-control")))


class Mounted:
    """A served volume as a loop device: nbdfuse presents it as a file."""

    def __init__(self, pool):
        self.file = os.path.join(pool.folder, "volume.raw")
        open(self.file, "w").close()
        self.fuse = subprocess.Popen(["nbdfuse", self.file, pool.uri()], stderr=subprocess.DEVNULL)
        deadline = time.time() + PATIENCE
        while os.path.getsize(self.file) == 0:
            assert time.time() < deadline, "nbdfuse does not present the volume"
            time.sleep(0.05)
        self.device = run("losetup", "--show", "-f", self.file).stdout.strip()

    def close(self):
        run("losetup", "-d", self.device)
        for _ in range(100):
            if run("fusermount3", "-u", self.file, check=False).returncode == 0:
                break
            time.sleep(0.1)
        self.fuse.wait(timeout=PATIENCE)


class FileSystems(unittest.TestCase):
    def live_on(self, make, check):
        tree = system_tree()
        with Pool("1G") as pool:
            pool.serve("--memory", "128M")
            mount = os.path.join(pool.folder, "mount")
            os.mkdir(mount)
            volume = Mounted(pool)
            run(*make, volume.device)
            run("mount", volume.device, mount)
            run("cp", "-a", tree, os.path.join(mount, "one"))
            run("cp", "-a", tree, os.path.join(mount, "two"))
            run("umount", mount)
            run(*check, volume.device)
            volume.close()
            pool.stop()
            pool.check()

            pool.serve(create=False)
            volume = Mounted(pool)
            run("mount", volume.device, mount)
            run("diff", "-r", "--no-dereference", tree, os.path.join(mount, "one"))
            run("diff", "-r", "--no-dereference", tree, os.path.join(mount, "two"))
            run("rm", "-rf", os.path.join(mount, "one"))
            run("fstrim", mount, check=False)
            run("umount", mount)
            run(*check, volume.device)
            volume.close()
            pool.stop()
            pool.check()

    @unittest.skipUnless(CAN_MOUNT, "mounting needs root, FUSE and loop devices")
    def test_ext4(self):
        self.live_on(["mkfs.ext4", "-q", "-F"], ["fsck.ext4", "-f", "-n"])

    @unittest.skipUnless(CAN_MOUNT, "mounting needs root, FUSE and loop devices")
    def test_xfs(self):
        with open("/proc/filesystems") as known:
            if "xfs" not in known.read() and run("modprobe", "xfs", check=False).returncode != 0:
                self.skipTest("this kernel has no xfs")
        self.live_on(["mkfs.xfs", "-q", "-f"], ["xfs_repair", "-n"])


if __name__ == "__main__":
    unittest.main()
