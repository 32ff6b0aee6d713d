"""`onefold connect`: what it prints is what the clients take. qemu-img, qemu-io, nbdfuse and the shell run it; libvirt's XML is parsed."""

import json
import os
import shlex
import shutil
import subprocess
import time
import unittest
import xml.etree.ElementTree as xml

from server import PATIENCE, Pool, onefold, run

TCP = "tcp:127.0.0.1:18129"


def connect(pool, volume="default", *arguments, check=True):
    return onefold("connect", pool.path, volume, *arguments, check=check)


def blockdev(pool, *arguments):
    """The options of the block device that QEMU would take."""
    words = shlex.split(connect(pool, *arguments, "--qemu").stdout.replace("\\\n", " "))
    assert words[0] == "-blockdev" and words[2] == "-device", words
    device = json.loads(words[3])
    options = json.loads(words[1])
    assert device["drive"] == options["node-name"] and len(options["node-name"]) <= 31
    return options


class Connect(unittest.TestCase):
    def test_what_is_printed_is_taken_by_qemu_and_libnbd(self):
        with Pool("64M") as pool:
            pool.serve("--memory", "64M", "--listen", f"unix:{pool.path}.sock", "--listen", TCP)
            uri = connect(pool).stdout.strip()
            self.assertEqual(uri, pool.uri())
            self.assertEqual(connect(pool, "default", "--tcp").stdout.strip(), "nbd://127.0.0.1:18129/default")
            run("qemu-io", "-f", "raw", "-c", "write -P 5 1M 64k", uri)
            for how in [[], ["--tcp"]]:
                options = blockdev(pool, "default", *how)
                self.assertEqual((options["discard"], options["read-only"]), ("unmap", False))
                self.assertGreater(options["reconnect-delay"], 0)
                # The same options, which qemu-img and qemu-io take as a name; they open it by themselves.
                del options["node-name"]
                name = "json:" + json.dumps(options)
                self.assertEqual(json.loads(run("qemu-img", "info", "--output=json", name).stdout)["virtual-size"], 64 << 20)
                self.assertNotIn("failed", run("qemu-io", "-c", "read -P 5 1M 64k", "-c", "discard 8M 1M", name).stdout)
            pool.stop()

    def test_libvirts_disk_is_xml_and_says_what_the_server_says(self):
        with Pool("64M") as pool:
            folder = os.path.join(pool.folder, "it's <here> & \"there\"")
            os.mkdir(folder)
            pool.serve("--memory", "64M", "--listen", f"unix:{folder}/s", "--listen", f"unix:{pool.path}.sock")
            disk = xml.fromstring(connect(pool, "default", "--libvirt").stdout)
            source = disk.find("source")
            self.assertEqual((disk.get("type"), source.get("protocol"), source.get("name")), ("network", "nbd", "default"))
            self.assertEqual(source.find("host").get("socket"), f"{folder}/s")
            self.assertEqual(disk.find("driver").get("discard"), "unmap")
            self.assertIsNone(disk.find("readonly"))
            onefold("volume", "set", pool.path, "default", "read-only=on")
            self.assertIsNotNone(xml.fromstring(connect(pool, "default", "--libvirt").stdout).find("readonly"))
            self.assertTrue(blockdev(pool, "default")["read-only"])
            # A path with everything in it, through a shell and through JSON.
            options = blockdev(pool, "default")
            self.assertEqual(options["server"], {"type": "unix", "path": f"{folder}/s"})
            done = subprocess.run(["sh", "-c", f"nbdinfo --size '{connect(pool).stdout.strip()}'"], capture_output=True, text=True)
            self.assertEqual(done.stdout.strip(), str(64 << 20), done.stderr)
            pool.stop()

    def test_nbdfuse_makes_it_a_file(self):
        if not os.path.exists("/dev/fuse"):
            self.skipTest("no /dev/fuse here")
        with Pool("64M").serve("--memory", "64M") as pool:
            lines = connect(pool, "default", "--nbdfuse").stdout
            client = subprocess.Popen(["sh", "-c", lines.replace(" &\n", "\n")], cwd=pool.folder, stderr=subprocess.PIPE, text=True)
            file = os.path.join(pool.folder, "mnt", "default")
            deadline = time.time() + PATIENCE
            while time.time() < deadline and not (os.path.exists(file) and os.path.getsize(file)):
                if client.poll() is not None:
                    error = client.stderr.read()
                    if "fusermount" in error or "fuse" in error:
                        self.skipTest(f"FUSE does not work here: {error.strip()}")
                    self.fail(error)
                time.sleep(0.05)
            self.assertEqual(os.path.getsize(file), 64 << 20)
            with open(file, "r+b") as disk:
                disk.write(b"hello")
            end = [line for line in lines.splitlines() if line.startswith("# The end: ")][0]
            run("sh", "-c", end.removeprefix("# The end: "), cwd=pool.folder)
            client.wait(timeout=PATIENCE)
            client.stderr.close()
            self.assertIn("68 65 6c 6c 6f", run("qemu-io", "-f", "raw", "-c", "read -v 0 16", pool.uri()).stdout.lower())
            pool.stop()

    def test_the_kernels_client_takes_its_words(self):
        with Pool("64M").serve("--memory", "64M") as pool:
            words = shlex.split(connect(pool, "default", "--nbd-client").stdout.splitlines()[1])
            self.assertEqual(words[:4], ["sudo", "nbd-client", "-unix", pool.path + ".sock"])
            self.assertEqual(words[words.index("-name") + 1], "default")
            table, mount = [line for line in connect(pool, "default", "--fstab").stdout.splitlines() if line[0] != "#"]
            self.assertEqual(table.split()[:3], ["nbd0", pool.path + ".sock", "default"])
            self.assertIn("unix", table.split()[3].split(","))
            fields = mount.split()
            self.assertEqual((fields[0], len(fields)), ("/dev/nbd0", 6))
            self.assertIn("x-systemd.requires=nbd@nbd0.service", fields[3].split(","))
            self.assertIn("discard", fields[3].split(","))
            if not shutil.which("nbd-client"):
                self.skipTest("nbd-client is not installed: its words are not tried")
            # As far as it comes without a device: it understands its words and negotiates.
            words = ["/dev/null" if word == "/dev/nbd0" else word for word in words[1:]]
            done = subprocess.run(words, capture_output=True, text=True, timeout=20)
            self.assertIn("Negotiation: ..size = 64MB", done.stdout + done.stderr)
            pool.stop()

    def test_text_from_outside_reaches_no_terminal_as_it_is(self):
        """A path with what a terminal obeys, a line break, and what turns the direction of text: escaped in all that is printed and logged."""
        evil = "a\x1b]0;owned\x07\u202eb\n/dev/nbd0 /etc auto"
        with Pool("64M") as pool:
            pool.path = os.path.join(pool.folder, evil.replace("/", "_"))
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "16M")
            socket = os.path.join(pool.folder, "s\nnbd1 evil.sock")
            plain = os.path.join(pool.folder, "plain")
            pool.uri = lambda volume="default": f"nbd+unix:///{volume}?socket={plain}"
            pool.serve("--memory", "64M", "--listen", f"unix:{socket}", "--listen", f"unix:{plain}", create=False)
            for arguments in [["status"], ["status", "--json"], ["status", "--prometheus"], ["get"], ["get", "--json"], ["volume", "list"],
                              ["volume", "get", "missing"], ["scrub", "--wait"], ["connect", "default"], ["connect", "default", "--fstab"],
                              ["connect", "default", "--libvirt"], ["connect", "missing"], ["top", "--once"], ["check"], ["export", "default", pool.path]]:
                words = 2 if arguments[0] == "volume" else 1
                done = onefold(*arguments[:words], pool.path, *arguments[words:], check=False)
                said = done.stdout + done.stderr
                for character in "\x1b\x07\u202e":
                    self.assertNotIn(character, said, arguments)
                for line in said.splitlines():
                    self.assertFalse(line.startswith(("_dev_nbd0", "nbd1 evil")), (arguments, said))
            refused = onefold("connect", pool.path, "default", "--fstab", check=False)
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn("control characters", refused.stderr)
            pool.stop()
            log = pool.said()
            self.assertNotIn("\x1b", log)
            self.assertNotIn("\u202e", log)
            self.assertFalse([line for line in log.splitlines() if line.startswith(("_dev_nbd0", "nbd1"))], log)

    def test_what_cannot_be_connected_is_said(self):
        with Pool("64M") as pool:
            onefold("create", pool.path, "--capacity", "64M")
            onefold("volume", "create", pool.path, "default", "--size", "64M")
            done = connect(pool, "default", check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("is not being served", done.stderr)
            pool.serve("--memory", "64M")
            done = connect(pool, "nothing", check=False)
            self.assertIn("there is no volume 'nothing'", done.stderr)
            onefold("volume", "create", pool.path, "db", "--size", "1M")
            done = connect(pool, "db", "--tcp", check=False)
            self.assertIn("does not listen on TCP", done.stderr)
            self.assertEqual(connect(pool, "db", "--qemu", "--fstab", check=False).returncode, 2)
            pool.stop()


if __name__ == "__main__":
    unittest.main()
