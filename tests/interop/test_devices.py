"""A pool on a block device."""

import os
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


if __name__ == "__main__":
    unittest.main()
