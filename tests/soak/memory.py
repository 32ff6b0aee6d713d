#!/usr/bin/env python3
"""Whether a server keeps to its memory: random writes over a large thin volume, for as long as wanted.

    tests/soak/memory.py --minutes 60 --memory 64M,512M,4G --dir /somewhere/with/40/GiB

One server for each amount of memory, all at the same time, each on a sparse pool of --capacity with a volume of the same
size. Clients write 4 KiB at random over the whole volume and over its first GiB, read there, and discard, on several
connections; every few minutes the server is stopped or killed, and opened again. Prints a line a minute, and at the end the
greatest resident memory of each server, as the kernel counted it (VmHWM). Exits with 1 if one had more than its cap and
32 MiB, or did not come back.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ONEFOLD = os.environ.get("ONEFOLD", os.path.join(ROOT, "target", "release", "onefold"))
MIB = 1 << 20
# What a process may have beyond its cap: program text, C library, stacks, the kernel's side.
ALLOWANCE = 32 * MIB
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text):
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size: 64M, 4T")
    return int(match.group(1)) * UNITS.get(match.group(2), 1)


class Instance:
    """A server with so much memory, and its load."""

    def __init__(self, arguments, memory):
        self.arguments, self.memory = arguments, memory
        self.cap = size(memory)
        self.folder = os.path.join(arguments.dir, f"memory-{memory}")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        self.pool = os.path.join(self.folder, "pool")
        self.log = open(os.path.join(self.folder, "server.log"), "a")
        self.server, self.fio = None, None
        self.peak, self.opened, self.closing = 0, 0, 0.0
        self.problem = None

    def start(self):
        made = [] if os.path.exists(self.pool) else ["--create", "--size", self.arguments.capacity]
        command = [ONEFOLD, "serve", self.pool, *made, "--memory", self.memory]
        before = os.path.getsize(self.log.name)
        self.server = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.time() + 300
        while not self.serves(before):
            self.watch()
            if self.server.poll() is not None or time.time() > deadline:
                raise RuntimeError(f"the server with {self.memory} does not open: see {self.log.name}")
            time.sleep(0.1)
        self.opened += 1

    def serves(self, since):
        with open(self.log.name) as log:
            log.seek(since)
            return "INFO serving the pool" in log.read()

    def status(self):
        # Without a server, 'status' would open the pool itself, and keep the next server waiting.
        if self.server is None or self.server.poll() is not None:
            return None
        done = subprocess.run([ONEFOLD, "status", self.pool, "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def load(self, seconds, seed):
        """Starts the clients: the writes are limited in rate, so that they do not fill the disk."""
        rate = self.arguments.rate
        uri = f"nbd+unix:///default?socket={self.pool}.sock"
        jobs = f"""
            [global]
            ioengine=nbd
            uri={uri}
            time_based=1
            runtime={seconds}
            bs=4k
            randrepeat=0
            norandommap=1
            random_generator=tausworthe64
            refill_buffers=1
            dedupe_percentage={self.arguments.duplicates}
            [all]
            rw=randrw
            rwmixread=30
            iodepth=32
            numjobs=3
            randseed={seed}
            rate_iops={rate // 6},{rate // 6}
            [hot]
            rw=randrw
            rwmixread=70
            size=1g
            iodepth=32
            rate_iops={rate},{rate // 2}
            [long]
            rw=randrw
            bs=256k-1m
            size=4g
            iodepth=4
            rate=2m,1m
            [discard]
            rw=randtrim
            bs=64k-64m
            bsrange=64k-64m
            blockalign=64k
            iodepth=2
            rate_iops=2,2,2
        """
        path = os.path.join(self.folder, "load.fio")
        with open(path, "w") as file:
            file.write("\n".join(line.strip() for line in jobs.splitlines()))
        out = open(os.path.join(self.folder, "fio.log"), "a")
        # A session of its own: its jobs end with it, also those that wait for a server that is gone.
        self.fio = subprocess.Popen(
            ["fio", "--minimal", path], stdout=out, stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True)

    def watch(self):
        """Notes the resident memory: now, of it anonymous, and at most."""
        try:
            with open(f"/proc/{self.server.pid}/status") as file:
                text = file.read()
        except FileNotFoundError:
            return 0, 0
        figures = {name: int(kib) * 1024 for name, kib in re.findall(r"^(Vm\w+|Rss\w+):\s+(\d+) kB", text, re.M)}
        self.peak = max(self.peak, figures.get("VmHWM", 0))
        return figures.get("VmRSS", 0), figures.get("RssAnon", 0)

    def reopen(self, kill):
        self.watch()
        self.end_load()
        began = time.time()
        self.server.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        while self.server.poll() is None:
            self.watch()
            time.sleep(0.05)
        if not kill:
            self.closing = max(self.closing, time.time() - began)
            if self.server.returncode != 0:
                raise RuntimeError(f"the server with {self.memory} exited with {self.server.returncode}")
        self.start()

    def end_load(self):
        if self.fio is not None and self.fio.poll() is None:
            self.fio.terminate()
            try:
                self.fio.wait(timeout=20)
            except subprocess.TimeoutExpired:
                os.killpg(self.fio.pid, signal.SIGKILL)
        if self.fio is not None:
            self.fio.wait()
        self.fio = None

    def run(self, until):
        """Rounds of load; between two of them the server is opened again, after a stop or a kill."""
        number = 0
        while time.time() < until and self.problem is None:
            seconds = max(1, int(min(self.arguments.round, until - time.time())))
            self.load(seconds, number * 1000 + 1)
            end = time.time() + seconds
            while time.time() < end:
                self.watch()
                if self.server.poll() is not None:
                    raise RuntimeError(f"the server with {self.memory} ended: see {self.log.name}")
                if self.fio.poll() not in (None, 0):
                    raise RuntimeError(f"fio ended with {self.fio.returncode}: see {self.folder}/fio.log")
                time.sleep(1)
            number += 1
            self.reopen(kill=number % 2 == 0)

    def run_noting(self, until):
        try:
            self.run(until)
        except Exception as error:  # Told in the summary; the other instances go on.
            self.problem = str(error)

    def line(self):
        resident, anonymous = self.watch()
        status = self.status() or {}
        used = os.stat(self.pool).st_blocks * 512
        return (
            f"{self.memory:>5}: rss {resident / MIB:7.1f}  anon {anonymous / MIB:7.1f}  peak {self.peak / MIB:7.1f}  "
            f"own {status.get('memory_bytes', 0) / MIB:7.1f}  pool {used / (1 << 30):5.1f} GiB  opened {self.opened}"
        )

    def end(self):
        self.end_load()
        if self.server is not None and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        self.log.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--memory", default="64M,512M,4G", help="amounts of memory, each for a server of its own")
    parser.add_argument("--capacity", default="4T", help="of the pool, and size of its volume")
    parser.add_argument("--dir", default=".", help="a folder for the pools, on a file system with sparse files")
    parser.add_argument("--rate", type=int, default=600, help="about how many random writes a second")
    parser.add_argument("--duplicates", type=int, default=50, help="percentage of written blocks that are known")
    parser.add_argument("--round", type=float, default=240, help="seconds between two openings")
    parser.add_argument("--disk", type=size, default=size("40G"), help="the most that all pools together may take")
    parser.add_argument("--keep", action="store_true", help="do not remove the pools at the end")
    arguments = parser.parse_args()
    arguments.dir = os.path.abspath(arguments.dir)
    instances = [Instance(arguments, memory) for memory in arguments.memory.split(",")]
    until = time.time() + arguments.minutes * 60
    try:
        for instance in instances:
            instance.start()
        threads = [threading.Thread(target=each.run_noting, args=(until,), daemon=True) for each in instances]
        for thread in threads:
            thread.start()
        began = time.time()
        said = began
        while any(thread.is_alive() for thread in threads):
            time.sleep(1)
            minute = (time.time() - began) / 60
            if time.time() < said + 60:
                continue
            said = time.time()
            for instance in instances:
                print(f"{minute:6.1f} min  {instance.line()}", flush=True)
            if sum(os.stat(each.pool).st_blocks * 512 for each in instances) > arguments.disk:
                for instance in instances:
                    instance.problem = instance.problem or "the pools have grown beyond --disk: ended early"
    finally:
        for instance in instances:
            instance.end()
    good = True
    print(f"\n{'memory':>8} {'allowed MiB':>12} {'peak MiB':>10} {'openings':>9} {'slowest stop s':>15}")
    for instance in instances:
        allowed = instance.cap + ALLOWANCE
        fits = instance.peak <= allowed and instance.problem is None
        good &= fits
        verdict = "" if fits else f"  {instance.problem or 'TOO MUCH'}"
        print(
            f"{instance.memory:>8} {allowed / MIB:12.1f} {instance.peak / MIB:10.1f} {instance.opened:9} "
            f"{instance.closing:15.1f}{verdict}"
        )
        if not arguments.keep:
            shutil.rmtree(instance.folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
