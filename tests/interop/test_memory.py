"""--memory is a cap on everything: the process keeps to it, pools that need more are refused, and it can be changed."""

import os
import re
import signal
import subprocess
import time
import unittest

from server import ONEFOLD, PATIENCE, Pool, onefold

MIB = 1 << 20
# What a process may have beyond its cap.
ALLOWANCE = 32 * MIB


def fio(pool, seconds):
    """Random writes and reads of 4 KiB over the whole volume on two connections, and discards on a third."""
    common = ["--ioengine=nbd", f"--uri={pool.uri()}", "--time_based", f"--runtime={seconds}", "--thread", "--norandommap",
              "--random_generator=tausworthe64", "--minimal"]
    load = ["--name=all", "--rw=randrw", "--rwmixread=30", "--bs=4k", "--iodepth=32", "--numjobs=2", "--refill_buffers",
            "--dedupe_percentage=50", "--rate_iops=400,400"]
    discards = ["--name=discard", "--rw=randtrim", "--bs=1m", "--iodepth=2", "--rate_iops=5,5,5"]
    command = ["fio", *common, *load, *discards]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)


class Memory(unittest.TestCase):
    def finish(self, clients):
        self.assertEqual(clients.wait(timeout=300), 0, clients.stderr.read())
        clients.stderr.close()

    def test_64_mebibytes_are_enough_for_a_volume_of_4_tebibytes(self):
        with Pool("4T") as pool:
            pool.serve("--memory", "64M")
            self.finish(fio(pool, 12))
            self.assertLess(pool.resident_bytes(), 64 * MIB + ALLOWANCE)
            # A crash: what the journal has is replayed in the same memory.
            clients = fio(pool, 60)
            time.sleep(5)
            pool.kill()
            # A job of fio whose server is gone may wait for ever.
            os.killpg(clients.pid, signal.SIGKILL)
            clients.wait()
            clients.stderr.close()
            pool.serve("--memory", "64M", create=False)
            self.finish(fio(pool, 6))
            self.assertLess(pool.resident_bytes(), 64 * MIB + ALLOWANCE)
            status = pool.status()
            self.assertLessEqual(status["memory_bytes"], 64 * MIB)
            self.assertEqual(status["memory_cap_bytes"], 64 * MIB)
            pool.stop()

    def test_a_pool_that_needs_more_is_refused_with_what_would_do(self):
        with Pool("12T") as pool:
            begin = ["serve", pool.path, "--create", "--size", "12T", "--memory"]
            refused = onefold(*begin, "64M", check=False)
            self.assertEqual(refused.returncode, 1)
            enough = re.search(r"(\d+)M would do", refused.stderr)
            self.assertIsNotNone(enough, refused.stderr)
            self.assertLess(int(enough.group(1)), 80)
            less = onefold("serve", pool.path, "--memory", f"{int(enough.group(1)) - 4}M", check=False)
            self.assertEqual(less.returncode, 1)
            onefold("volume", "create", pool.path, "default", "--size", "12T")
            pool.serve("--memory", f"{enough.group(1)}M", create=False)
            pool.stop()

    def test_memory_is_changed_while_clients_are_served(self):
        with Pool("16G") as pool:
            pool.serve("--memory", "512M")
            clients = fio(pool, 30)
            for memory in ("64M", "1G", "96M", "256M", "64M"):
                onefold("set", pool.path, "memory", memory)
                deadline = time.time() + PATIENCE
                while (status := pool.status())["memory_resizing"]:
                    self.assertLess(time.time(), deadline, f"{memory}: it does not come to an end")
                    time.sleep(0.1)
                cap = status["memory_cap_bytes"]
                self.assertLessEqual(pool.resident_bytes(peak=False), cap + ALLOWANCE, memory)
                # Clients fill what there is.
                time.sleep(1)
                self.assertLessEqual(pool.resident_bytes(peak=False), cap + ALLOWANCE, memory)
            self.assertIsNone(clients.poll(), "the clients go on")
            self.finish(clients)
            refused = onefold("set", pool.path, "memory", "32M", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertRegex(refused.stderr, r"\d+M would do")
            pool.stop()
            # It is kept with the pool; the command line comes first.
            pool.serve(create=False)
            self.assertEqual(pool.status()["memory_cap_bytes"], 64 * MIB)
            self.assertIn("pool", onefold("get", pool.path, "memory").stdout)
            pool.stop()
            pool.serve("--memory", "128M", create=False)
            self.assertEqual(pool.status()["memory_cap_bytes"], 128 * MIB)
            self.assertIn("command line", onefold("get", pool.path, "memory").stdout)
            pool.stop()
            pool.check()

    def test_the_default_is_half_of_what_a_control_group_allows(self):
        """In a group of 300 MiB a server took 512 MiB, and was killed."""
        group = f"/sys/fs/cgroup/memory/onefold-test-{os.getpid()}"
        inner, limit = f"{group}/inner", "memory.limit_in_bytes"
        try:
            if not os.path.exists("/sys/fs/cgroup/memory"):
                group, inner, limit = (path.replace("/memory/", "/") for path in (group, inner, "memory.max"))
            os.makedirs(inner)
            with open(f"{group}/{limit}", "w") as file:
                file.write(str(300 * MIB))
        except OSError as error:
            self.skipTest(f"no control group can be made here: {error}")
        try:
            with Pool("1G") as pool:
                pool.program = pool.path + ".sh"
                with open(pool.program, "w") as file:
                    file.write(f'#!/bin/sh\necho $$ >{inner}/cgroup.procs && exec {ONEFOLD} "$@"\n')
                os.chmod(pool.program, 0o755)
                pool.serve()
                self.assertEqual(pool.status()["memory_cap_bytes"], 150 * MIB)
                onefold("set", pool.path, "memory", "200M")
                self.assertIn("this process may have 300 MiB", pool.said())
                pool.stop()
                pool.serve("--memory", "160M", create=False)
                self.assertIn("--memory asks for 160 MiB of memory, and this process may have 300 MiB", pool.said())
                pool.stop()
        finally:
            os.rmdir(inner)
            os.rmdir(group)


if __name__ == "__main__":
    unittest.main()
