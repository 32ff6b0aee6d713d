"""What each block of a volume may hold: a writer that notes what was answered and what was flushed, and a judge."""

import errno
import random
import struct
import threading

import nbd

from server import BLOCK


def is_zero(version):
    """Whether this version of a block is zeroes: trimmed, or written as zeroes."""
    return version % 16 == 0


def content(block, version):
    """The bytes of a version of a block: some versions repeat, so that there is something to share."""
    if is_zero(version):
        return bytes(BLOCK)
    seed = version % 8 if version % 3 == 0 else block << 32 | version
    return struct.pack("<QQ", seed, 0x5EED).ljust(64, b"v") * (BLOCK // 64)


class Writer(threading.Thread):
    """Writes ever newer versions into blocks of its own until the server dies; notes what was answered and flushed.

    `known` is what the blocks hold; `after_flush` is called right after the answer to a flush, and ends it by returning true.
    """

    def __init__(self, uri, first, count, known, seed, after_flush=None, lengths=(1, 1, 2, 8), flushes=0.1):
        super().__init__(daemon=True)
        self.uri, self.first, self.count = uri, first, count
        self.flushed = dict(known)
        self.since = {}
        self.chance = random.Random(seed)
        self.next = max(known.values(), default=0) + 1
        self.after_flush, self.lengths, self.flushes = after_flush, lengths, flushes
        # Versions that got ENOSPC: each of their blocks may be written or not.
        self.refused = set()
        # What ended it, when it was neither the server's end nor a stop.
        self.failure = None
        self.stopped = False

    def run(self):
        client = nbd.NBD()
        try:
            client.connect_uri(self.uri)
            while not self.stopped:
                self.step(client)
        except nbd.Error as error:
            if client.aio_is_ready():
                self.failure = error

    def stop(self):
        """Ends it after the request that is in progress."""
        self.stopped = True
        self.join()
        if self.failure is not None:
            raise self.failure

    def step(self, client):
        choice = self.chance.random()
        if choice < self.flushes:
            # What is written while the flush runs is not covered: this thread writes nothing meanwhile.
            client.flush()
            if self.after_flush is not None and self.after_flush():
                self.stopped = True
            self.all_flushed()
            return
        try:
            self.write(client, self.chance.random())
        except nbd.Error as error:
            if error.errnum != errno.ENOSPC:
                raise
            self.refused.add(self.next - 1)

    def all_flushed(self):
        """What was answered is durable; what was refused may be there or not, as before."""
        for block, versions in list(self.since.items()):
            accepted = [at for at, version in enumerate(versions) if version not in self.refused]
            if accepted:
                self.flushed[block] = versions[accepted[-1]]
                self.since[block] = versions[accepted[-1] + 1:]
            if not self.since[block]:
                del self.since[block]

    def write(self, client, choice):
        block = self.first + self.chance.randrange(self.count)
        length = self.chance.choice(self.lengths)
        blocks = range(block, min(block + length, self.first + self.count))
        version, self.next = self.next, self.next + 1
        fua = nbd.CMD_FLAG_FUA if choice > 0.9 else 0
        for b in blocks:
            self.since.setdefault(b, []).append(version)
        if not is_zero(version):
            client.pwrite(b"".join(content(b, version) for b in blocks), block * BLOCK, fua)
        elif choice < 0.5:
            client.trim(len(blocks) * BLOCK, block * BLOCK, fua)
        else:
            client.zero(len(blocks) * BLOCK, block * BLOCK, fua)
        if fua:
            for b in blocks:
                self.flushed[b] = version
                del self.since[b]

    def judge(self, client):
        """What the blocks hold; each has to hold its flushed version or a later one."""
        now = {}
        for start in range(self.first, self.first + self.count, 256):
            count = min(256, self.first + self.count - start)
            data = bytes(client.pread(count * BLOCK, start * BLOCK))
            for at in range(count):
                block, found = start + at, data[at * BLOCK:(at + 1) * BLOCK]
                legal = [self.flushed.get(block, 0)] + self.since.get(block, [])
                version = next((version for version in legal if content(block, version) == found), None)
                if version is None:
                    raise AssertionError(f"block {block} holds none of the versions {legal}, but {describe(found)}")
                now[block] = version
        return now


def describe(data):
    """A block that is not as expected, in words."""
    parts = {data[at:at + 64] for at in range(0, BLOCK, 64)}
    if len(parts) > 1:
        return f"a mixture of {len(parts)} contents"
    seed, magic = struct.unpack("<QQ", data[:16])
    if magic != 0x5EED:
        return "zeroes" if data == bytes(BLOCK) else "something that was never written"
    return f"version {seed & 0xFFFFFFFF} of block {seed >> 32}" if seed > 8 else f"the shared content {seed}"
