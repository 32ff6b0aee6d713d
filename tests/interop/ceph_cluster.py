"""A Ceph cluster of one monitor, one manager and one OSD on a file, with everything in a folder: nothing is read from /etc/ceph."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid

from server import PATIENCE, run

# Command, and the Debian package that has it.
CEPH_TOOLS = {
    "ceph": "ceph-common", "rbd": "ceph-common", "ceph-authtool": "ceph-common", "monmaptool": "ceph-common", "ceph-mon": "ceph-mon", "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
}
IMAGE = "rbd/store"


def until(condition, what, seconds=None):
    """Waits until the condition returns something true, and returns it."""
    end = time.monotonic() + (seconds or PATIENCE)
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds or PATIENCE} s: {what}")
        time.sleep(0.2)
    return found


def ended(process):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Cluster:
    """The daemons, and the configuration of each client in a file of its own."""

    def __init__(self, folder, undo):
        self.folder, self.undo = folder, undo
        os.makedirs(folder)
        try:
            os.close(os.open(self.path("direct"), os.O_CREAT | os.O_RDWR | os.O_DIRECT))
        except OSError:
            sys.exit(f"the OSD needs O_DIRECT, which {folder} does not have: name a folder on a disk, TMPDIR=/var/tmp")
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(("127.0.0.1", 0))
            self.monitors = "[" + ",".join(f"v{version}:127.0.0.1:{port.getsockname()[1]}" for version, port in ((2, first), (1, second))) + "]"
        self.identity = str(uuid.uuid4())
        self.admin = self.configuration("admin", self.path("keyring"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def configuration(self, name, keyring):
        settings = {
            "fsid": self.identity, "mon host": self.monitors, "public addr": "127.0.0.1", "keyring": keyring, "run dir": self.folder, "crash dir": self.folder,
            "osd pool default size": 1, "osd pool default min size": 1, "osd crush chooseleaf type": 0, "mon allow pool size one": "true",
            "mon cluster log file": self.path("cluster.log"), "log file": self.path("$name.log"), "pid file": "", "admin socket": "",
            "mon data": self.path("mon"), "mgr data": self.path("mgr"), "osd data": self.path("osd"), "bluestore block size": 8 << 30,
        }
        with open(self.path(f"{name}.conf"), "w") as file:
            file.write("[global]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))
        return file.name

    def command(self, *arguments, check=True):
        return run(*arguments, "--conf", self.admin, timeout=PATIENCE, check=check).stdout

    def json(self, *arguments):
        return json.loads(self.command(*arguments, "--format", "json"))

    def daemon(self, *arguments):
        with open(self.path("daemons.log"), "a") as log:
            daemon = subprocess.Popen([*arguments, "-f", "--conf", self.admin], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        self.undo.callback(ended, daemon)

    def start(self):
        for name, caps in {
            "mon.": ["mon", "allow *"],
            "client.admin": ["mon", "allow *", "osd", "allow *", "mgr", "allow *"],
            "mgr.a": ["mon", "allow profile mgr", "osd", "allow *"],
            "osd.0": ["mon", "allow profile osd", "osd", "allow *", "mgr", "allow profile osd"],
        }.items():
            create = [] if os.path.exists(self.path("keyring")) else ["--create-keyring"]
            granted = [word for at in range(0, len(caps), 2) for word in ("--cap", caps[at], caps[at + 1])]
            run("ceph-authtool", *create, self.path("keyring"), "--gen-key", "-n", name, *granted)
        run("monmaptool", "--create", "--addv", "a", self.monitors, "--fsid", self.identity, self.path("monmap"))
        for name in ("mon", "mgr", "osd"):
            os.mkdir(self.path(name))
        self.command("ceph-mon", "--mkfs", "-i", "a", "--monmap", self.path("monmap"), "--keyring", self.path("keyring"))
        self.daemon("ceph-mon", "-i", "a")
        self.daemon("ceph-mgr", "-i", "a")
        osd = str(uuid.uuid4())
        self.command("ceph", "osd", "new", osd)
        self.command("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.daemon("ceph-osd", "-i", "0")
        until(lambda: self.json("ceph", "osd", "stat")["num_up_osds"] == 1, "the OSD is up")
        self.command("ceph", "config", "set", "mon", "auth_allow_insecure_global_id_reclaim", "false")
        self.command("ceph", "osd", "pool", "create", "rbd", "32")
        self.command("rbd", "pool", "init", "rbd")
        self.command("rbd", "create", IMAGE, "--size", "3G")

    def client(self, name):
        """Makes a Ceph client, as each host has one; returns its configuration."""
        keyring = self.path(f"{name}.keyring")
        self.command("ceph", "auth", "get-or-create", f"client.{name}", "mon", "profile rbd", "osd", "profile rbd", "-o", keyring)
        return self.configuration(name, keyring)

    def image_bytes(self):
        return self.json("rbd", "du", IMAGE)["images"][0]["used_size"]

    def stored_bytes(self):
        return next(pool for pool in self.json("ceph", "df")["pools"] if pool["name"] == "rbd")["stats"]["stored"]

    def watchers(self):
        found = self.json("rbd", "status", IMAGE)["watchers"]
        return [watcher["address"] for watcher in (found.values() if isinstance(found, dict) else found)]
