"""The Debian package: built, installed, used, upgraded under a server, and removed. Units that systemd takes as they are."""

import os
import shutil
import subprocess
import tempfile
import unittest

import nbd

from server import BLOCK, ROOT, Pool, run

PROGRAM = "/usr/bin/onefold"
BUILD = os.path.join(ROOT, "contrib", "debian", "build")
TOOLS = os.path.join(ROOT, "target", "tools")


def why_not():
    """Why this machine does not show it, or nothing."""
    if shutil.which("dpkg") is None:
        return "no dpkg: not a Debian"
    if os.geteuid() != 0:
        return "installing a package needs root"
    if os.path.exists(PROGRAM):
        return f"{PROGRAM} is there already: not touched"
    return None


def environment():
    return {**os.environ, "PATH": os.path.join(TOOLS, "bin") + ":" + os.environ["PATH"]}


def has_cargo_deb():
    return subprocess.run(["cargo", "deb", "--version"], env=environment(), capture_output=True, check=False).returncode == 0


class Installed(Pool):
    """A pool whose server is the program of the package."""

    def __init__(self, folder):
        super().__init__(folder=folder)
        self.program = PROGRAM


@unittest.skipIf(why_not(), why_not())
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_cargo_deb():
            run("cargo", "install", "cargo-deb", "--locked", "--debug", "--quiet", "--root", TOOLS, timeout=None)
        cls.folder = tempfile.mkdtemp(prefix="onefold-package-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.packages = []
        for version in ["0.1.0-1", "0.1.0-2"]:
            path = os.path.join(cls.folder, f"onefold_{version}.deb")
            # It compiles: how long that takes says nothing about the package.
            run(BUILD, "--deb-version", version, "--output", path, env=environment(), timeout=None)
            cls.packages.append(path)

    def tearDown(self):
        run("dpkg", "--purge", "onefold", check=False)

    def listed(self):
        return set(run("dpkg", "-L", "onefold").stdout.splitlines())

    def test_it_is_installed_upgraded_under_a_server_and_removed_and_the_pool_stays(self):
        first, second = self.packages
        run("dpkg", "-i", first)
        for path in ["/usr/lib/systemd/system/onefold@.service", "/usr/lib/systemd/system/onefold@.socket",
                     "/usr/lib/sysusers.d/onefold.conf", "/usr/share/man/man1/onefold.1.gz", "/usr/share/man/man1/onefold-serve.1.gz",
                     "/usr/share/bash-completion/completions/onefold"]:
            self.assertIn(path, self.listed())
        self.assertRegex(run(PROGRAM, "--version").stdout, r"^onefold \d")

        pool = Installed(tempfile.mkdtemp(dir=self.folder))
        self.addCleanup(pool.__exit__)
        pool.serve()
        client = nbd.NBD()
        client.connect_uri(pool.uri())
        client.pwrite(b"\x5a" * BLOCK, 0)
        client.flush()

        run("dpkg", "-i", second)
        self.assertEqual(run("dpkg-query", "-W", "-f", "${Version}", "onefold").stdout, "0.1.0-2")
        self.assertEqual(client.pread(BLOCK, 0), b"\x5a" * BLOCK, "a server goes on while its program is replaced")
        client.shutdown()
        pool.stop()
        pool.serve(create=False)
        client = nbd.NBD()
        client.connect_uri(pool.uri())
        self.assertEqual(client.pread(BLOCK, 0), b"\x5a" * BLOCK)
        client.shutdown()
        pool.stop()

        run("dpkg", "-r", "onefold")
        self.assertFalse(os.path.exists(PROGRAM))
        run("dpkg", "--purge", "onefold")
        self.assertTrue(os.path.exists(pool.path))

    def test_systemd_takes_the_units_and_bash_the_completions(self):
        run("dpkg", "-i", self.packages[0])
        if shutil.which("systemd-analyze"):
            done = run("systemd-analyze", "verify", "onefold@test.service", "onefold@test.socket")
            self.assertNotIn("onefold", done.stderr, "verify has nothing to say of them")
        else:
            print("   not run: systemd-analyze is missing")
        found = run("bash", "-c", "source /usr/share/bash-completion/completions/onefold; COMP_WORDS=(onefold sta); COMP_CWORD=1; "
                    "_onefold onefold sta onefold; printf '%s\\n' \"${COMPREPLY[@]}\"").stdout
        self.assertEqual(found.split(), ["status"])


if __name__ == "__main__":
    unittest.main()
