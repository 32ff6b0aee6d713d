"""A disk with a volatile write cache, as a file: what was not flushed is lost, kept, reordered or torn when the power is cut.

`Disk` is an NBD server of one export, in threads of its own, over an image file. A write goes into its memory; a flush moves
what was answered before it into the image. Requests that wait together are carried out in any order, as disks do. `cut`
ends it in the middle of whatever goes on, and decides by chance what of the unflushed writes the image gets. nbdfuse shows the
export as a file (`File`).
"""

import os
import select
import socket
import struct
import subprocess
import threading
import time

from server import PATIENCE, run

CAN_PRESENT = os.access("/dev/fuse", os.R_OK | os.W_OK)
REASON = "/dev/fuse is missing, or not ours to use"

PAGE, SECTOR = 4096, 512
READ, WRITE, DISCONNECT, FLUSH = 0, 1, 2, 3
GO, INFO, ABORT = 7, 6, 2
HAS_FLAGS_AND_FLUSH = 1 | 4
# What a power cut does to writes that were not flushed.
WAYS = ("drop", "keep", "some", "torn")


class Disk:
    """The server; with `lies` it answers flushes and does nothing about them."""

    def __init__(self, image, address, chance, lies=False):
        self.image, self.address, self.chance, self.lies = os.open(image, os.O_RDWR), address, chance, lies
        self.size = os.fstat(self.image).st_size
        self.lock = threading.RLock()
        self.on = True
        self.off = threading.Event()
        # So many requests later the power goes by itself.
        self.countdown = None
        # Whether the next flush fails, and loses what it had.
        self.fails = False
        # Unflushed writes in the order of their answers, and what a reader sees because of them.
        self.unflushed, self.pages = [], {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(address)
        self.listener.listen(8)
        self.sockets = [self.listener]
        threading.Thread(target=self.accept, daemon=True).start()

    def uri(self):
        return f"nbd+unix:///?socket={self.address}"

    def cut(self, way=None):
        """Cuts the power; what the image holds then is what the disk holds for ever. Returns the way."""
        with self.lock:
            if not self.on:
                return None
            self.on = False
            way = way or self.chance.choice(WAYS)
            getattr(self, way)()
            os.close(self.image)
            for each in self.sockets:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                each.close()
            os.unlink(self.address)
            self.off.set()
            return way

    # ---- what is left of the unflushed writes ----

    def drop(self):
        pass

    def keep(self):
        for offset, data in self.unflushed:
            os.pwrite(self.image, data, offset)

    def some(self):
        """Some of the writes, in any order."""
        left = [write for write in self.unflushed if self.chance.random() < 0.5]
        self.chance.shuffle(left)
        for offset, data in left:
            os.pwrite(self.image, data, offset)

    def torn(self):
        """Of each sector what it was, or what any of the writes made of it."""
        versions = {}
        for offset, data in self.unflushed:
            for at in range(0, len(data), SECTOR):
                versions.setdefault(offset + at, []).append(data[at:at + SECTOR])
        for offset, datas in versions.items():
            choice = self.chance.randrange(len(datas) + 1)
            if choice < len(datas):
                os.pwrite(self.image, datas[choice], offset)

    # ---- the protocol ----

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.sockets.append(client)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            if self.negotiate(client):
                self.transmit(client)
        except (OSError, EOFError, ValueError):
            # The connection ended, here or there.
            pass
        client.close()

    def negotiate(self, client):
        client.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
        take(client, 4)
        while True:
            _, option, length = struct.unpack(">8sII", take(client, 16))
            take(client, length)

            def answer(kind, data=b""):
                client.sendall(struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data)) + data)

            if option in (GO, INFO):
                answer(3, struct.pack(">HQH", 0, self.size, HAS_FLAGS_AND_FLUSH))
                answer(1)
                if option == GO:
                    return True
            elif option == ABORT:
                answer(1)
                return False
            else:
                answer(0x80000001)

    def transmit(self, client):
        while True:
            requests = []
            while not requests or (len(requests) < 16 and select.select([client], [], [], 0)[0]):
                _, _, command, cookie, offset, length = struct.unpack(">IHHQQI", take(client, 28))
                if command == DISCONNECT:
                    return
                requests.append((command, cookie, offset, length, take(client, length) if command == WRITE else b""))
            self.chance.shuffle(requests)
            for command, cookie, offset, length, data in requests:
                with self.lock:
                    if not self.on:
                        return
                    error, reply = self.carry_out(command, offset, length, data)
                    if self.countdown is not None:
                        self.countdown -= 1
                        if self.countdown == 0:
                            self.cut()
                client.sendall(struct.pack(">IIQ", 0x67446698, error, cookie) + reply)

    def carry_out(self, command, offset, length, data):
        if command == READ:
            return 0, self.read(offset, length)
        if command == WRITE:
            assert offset % PAGE == 0 and len(data) % PAGE == 0, "the store is written in whole blocks"
            self.unflushed.append((offset, data))
            for at in range(0, len(data), PAGE):
                self.pages[offset + at] = data[at:at + PAGE]
            return 0, b""
        if command == FLUSH and self.fails:
            getattr(self, self.chance.choice(WAYS))()
            self.unflushed, self.pages, self.fails = [], {}, False
            return 5, b""
        if command == FLUSH:
            if not self.lies:
                self.keep()
                self.unflushed, self.pages = [], {}
            return 0, b""
        return 22, b""

    def read(self, offset, length):
        data = bytearray(os.pread(self.image, length, offset))
        for page in range(offset - offset % PAGE, offset + length, PAGE):
            if (cached := self.pages.get(page)) is not None:
                start, end = max(page, offset), min(page + PAGE, offset + length)
                data[start - offset:end - offset] = cached[start - page:end - page]
        return bytes(data)


def take(client, length):
    data = bytearray()
    while len(data) < length:
        part = client.recv(length - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


class File:
    """A disk as a file at `path`, until it is taken away."""

    def __init__(self, disk, path):
        self.path = path
        open(path, "w").close()
        self.fuse = subprocess.Popen(["nbdfuse", path, disk.uri()], stderr=subprocess.DEVNULL)
        deadline = time.time() + PATIENCE
        while os.path.getsize(path) == 0:
            assert time.time() < deadline and self.fuse.poll() is None, "nbdfuse does not present the disk"
            time.sleep(0.01)

    def take_away(self):
        deadline = time.time() + PATIENCE
        while self.is_mounted():
            # nbdfuse may do it itself, when its server is gone.
            run("fusermount3", "-u", self.path, check=False)
            assert time.time() < deadline, "the file of the disk is still in use"
        self.fuse.wait(timeout=PATIENCE)

    def is_mounted(self):
        with open("/proc/self/mounts") as mounts:
            return any(line.split()[1] == self.path for line in mounts)
