"""The command line: served or not, for people and for programs."""

import json
import os
import signal
import subprocess
import tomllib
import unittest

from server import ONEFOLD, PATIENCE, ROOT, SHIPPED, Pool, faulty, onefold, run

FIELDS = {
    "version", "capacity_bytes", "logical_blocks_used", "data_blocks_used", "overhead_blocks_used", "pending_blocks",
    "unmerged_entries", "saving_percent", "memory_bytes", "memory_cap_bytes", "mode", "volumes",
}


class Commands(unittest.TestCase):
    def test_the_version_says_what_only_a_build_for_tests_has(self):
        """Cargo unifies features: built beside the simulator, the program gets an engine that can be broken. What is shipped is built by itself."""
        with open(os.path.join(ROOT, "Cargo.toml"), "rb") as file:
            version = tomllib.load(file)["workspace"]["package"]["version"]
        self.assertEqual(run(SHIPPED, "--version").stdout, f"onefold {version}\n")
        self.assertEqual(run(faulty(), "--version").stdout, f"onefold {version} (for tests: built with mutants and faults)\n")

    def test_pools_and_volumes_without_a_server(self):
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "128MiB")
            onefold("volume", "create", pool.path, "db", "--size", "10G")
            onefold("volume", "create", pool.path, "scratch", "--size", "1M", "--policy", "native")
            volumes = pool.status()["volumes"]
            self.assertEqual([(v["name"], v["size_bytes"], v["policy"]) for v in volumes],
                             [("db", 10 << 30, "select"), ("scratch", 1 << 20, "native")])
            self.assertIn("scratch", onefold("volume", "list", pool.path).stdout)
            pool.check()

    def test_status_has_every_field_served_or_not(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            served = pool.settled()
            self.assertLessEqual(FIELDS, set(served))
            self.assertEqual((served["mode"], served["capacity_bytes"]), ("normal", 64 << 20))
            self.assertEqual(served["volumes"][0]["name"], "default")
            pool.stop()
            self.assertLessEqual(FIELDS, set(pool.status()))

    def test_a_volume_made_while_serving_can_be_used_at_once(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            onefold("volume", "create", pool.path, "late", "--size", "16M")
            run("qemu-io", "-f", "raw", "-c", "write -P 9 0 1M", "-c", "read -P 9 0 1M", pool.uri("late"))
            pool.stop()

    def test_serve_says_how_to_connect_and_tcp_works(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--listen", f"unix:{pool.path}.sock", "--listen", "tcp:127.0.0.1:18099")
            run("nbdinfo", "nbd://127.0.0.1:18099/default")
            text = pool.said()
            self.assertIn("nbd+unix://", text)
            self.assertIn("nbd://127.0.0.1:18099", text)
            pool.stop()
            self.assertFalse(os.path.exists(pool.path + ".sock"), "a clean stop removes its socket")

    def test_a_link_leads_to_the_server(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            link = os.path.join(pool.folder, "link")
            os.symlink(pool.path, link)
            onefold("volume", "create", link, "late", "--size", "16M")
            run("nbdinfo", pool.uri("late"))
            pool.stop()

    def test_an_empty_file_becomes_a_pool(self):
        with Pool("64M") as pool:
            run("truncate", "-s", "10M", pool.path)
            pool.serve("--memory", "64M")
            self.assertIn("made the pool", pool.said())
            pool.stop()
            pool.check()

    def test_interrupt_stops_cleanly_with_a_client_connected(self):
        import nbd

        with Pool("64M").serve("--memory", "64M") as pool:
            client = nbd.NBD()
            client.connect_uri(pool.uri())
            client.pwrite(b"x" * 65536, 0)
            pool.server.send_signal(signal.SIGINT)
            self.assertEqual(pool.server.wait(timeout=PATIENCE), 0)
            pool.server = None
            pool.check()
            pool.serve(create=False)
            self.assertNotIn("failed", run("qemu-io", "-f", "raw", "-c", "read -P 120 0 64k", pool.uri()).stdout)
            pool.stop()

    def test_help_and_json_errors(self):
        self.assertIn("serve", onefold("--help").stdout)
        done = subprocess.run([ONEFOLD, "status", "/nonexistent/pool", "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent/pool", done.stderr)

    def test_check_reports_as_json(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            run("qemu-io", "-f", "raw", "-c", "write -P 3 0 4M", pool.uri())
            pool.stop()
            report = json.loads(onefold("check", pool.path, "--json").stdout)
            self.assertTrue(report)


if __name__ == "__main__":
    unittest.main()
