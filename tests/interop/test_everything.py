"""Everything at once, from outside: several volumes with all policies and timings, written without a pause, while all background jobs run, properties
change, the server is killed and stopped, and the flash rots, is swapped for an older one or goes away. Nothing that was flushed is lost, and every
read is right.

`EVERYTHING_SECONDS` says how long, `EVERYTHING_SEED` which run: `tests/slow/everything` takes an hour. What happens is drawn from the seed; when it
happens is up to the machine.
"""

import os
import random
import shutil
import subprocess
import threading
import time
import unittest

import nbd

from model import Writer
from server import ONEFOLD, PATIENCE, Pool, onefold

SECONDS = float(os.environ.get("EVERYTHING_SECONDS", "45"))
SEED = int(os.environ.get("EVERYTHING_SEED", str(random.randrange(1 << 30))))
BLOCKS = 2048
LEAST_FLASH = 16 << 20
POLICIES = ["native", "observe", "select", "select:1", "full", "idedup:2", "select:2,request"]
TIMINGS = ["inline", "offline", "hybrid"]
VOLUMES = [f"v{number}" for number in range(7)]
POOL_PROPERTIES = {
    "dedup-verify": ["kept", "both", "off"],
    "cache": ["adaptive", "adaptive,lru", "fixed:50", "index", "read"],
    "cache-key": ["sector", "content", "off"],
    "index-copy": ["sequential", "oldest", "newest"],
    "memory": ["64M", "80M", "128M"],
    "replicas": ["default", "off", "4M"],
    "second-copies": ["off", "1", "4"],
    "throttle": ["share", "paper"],
    "defrag": ["auto", "off"],
    "device": ["auto", "hdd", "ssd"],
    "flash-policy": ["budget", "paper", "paper:filter=1,delay=1", "paper:filter=off,delay=off,comparison=off"],
}


class Everything:
    def __init__(self, pool):
        self.pool, self.chance = pool, random.Random(SEED)
        self.flash, self.older = os.path.join(pool.folder, "flash"), os.path.join(pool.folder, "older")
        self.known = {name: {} for name in VOLUMES}
        self.writers, self.ended = {}, threading.Event()
        onefold("create", pool.path, "--capacity", "192M")
        for name in VOLUMES:
            onefold("volume", "create", pool.path, name, "--size", "32M")
        onefold("cache", "attach", pool.path, self.flash, "--size", "32M")
        self.harms = {"left": 0, "rotten": 0, "older": 0, "gone": 0, "cut short": 0}

    def command(self):
        """Any command, while clients write. It may be refused; the server must survive it."""
        pick, pool = self.chance.choice, self.pool.path
        volume = pick(VOLUMES)
        key = pick(sorted(POOL_PROPERTIES))
        return pick([
            ["volume", "set", pool, volume, f"policy={pick(POLICIES)}"],
            ["volume", "set", pool, volume, f"timing={pick(TIMINGS)}"],
            ["volume", "set", pool, volume, f"keep-runs={pick(['on', 'off', 'auto'])}"],
            ["volume", "set", pool, volume, f"goal={pick(['none', '2000iops', 'p99=5ms'])}"],
            ["set", pool, key, pick(POOL_PROPERTIES[key])],
            ["dedup", pool], ["dedup", pool], ["dedup", pool, "--pause"], ["dedup", pool, "--stop"],
            ["scrub", pool], ["scrub", pool, "--pause"], ["scrub", pool, "--stop"],
            ["status", pool, "--json"], ["status", pool, "--settle"],
            ["cache", "status", pool], ["get", pool],
        ])

    def run_commands(self):
        while not self.ended.wait(self.chance.random() / 2):
            done = subprocess.run([ONEFOLD, *self.command()], capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
            if done.returncode not in (0, 1) or "panicked" in done.stderr:
                raise AssertionError(f"{done.args} exited with {done.returncode}: {done.stderr}")

    def start(self):
        flash = ["--flash", self.flash] if self.chance.random() < 0.8 and os.path.exists(self.flash) else []
        self.pool.serve("--memory", self.chance.choice(["64M", "96M"]), *flash, create=False)

    def judge(self):
        for name in VOLUMES:
            client = nbd.NBD()
            client.connect_uri(self.pool.uri(name))
            if name in self.writers:
                try:
                    self.known[name] = self.writers[name].judge(client)
                except AssertionError as error:
                    raise AssertionError(f"volume {name}: {error}\n{self.pool.said()}") from error
            client.shutdown()

    def write(self):
        seeds = [self.chance.randrange(1 << 30) for _ in VOLUMES]
        for name, seed in zip(VOLUMES, seeds):
            self.writers[name] = Writer(self.pool.uri(name), 0, BLOCKS, self.known[name], seed, lengths=(1, 2, 8, 64), flushes=0.05)
            self.writers[name].start()

    def end(self):
        """Ends the server, with or without a word, while clients write."""
        self.ended.set()
        if self.chance.random() < 0.7:
            self.pool.kill()
        else:
            for writer in self.writers.values():
                writer.stop()
            self.pool.stop()
        for name, writer in self.writers.items():
            writer.join(timeout=PATIENCE)
            if writer.failure is not None:
                raise AssertionError(f"volume {name}: {writer.failure}\n{self.pool.said()}")

    def harm(self):
        """Something happens to the flash, which is never the only copy."""
        how = self.chance.choice(sorted(self.harms))
        if how != "left" and not os.path.exists(self.flash):
            how = "left"
        self.harms[how] += 1
        if how == "rotten":
            with open(self.flash, "r+b") as file:
                size = os.path.getsize(self.flash)
                for _ in range(200):
                    file.seek(self.chance.randrange(size))
                    file.write(b"rotten")
        elif how == "older" and os.path.exists(self.older):
            shutil.copyfile(self.older, self.flash)
        elif how == "gone":
            os.rename(self.flash, self.older)
        elif how == "cut short":
            # Shorter ones are no caches, and a server that is given one says so and ends.
            os.truncate(self.flash, max(LEAST_FLASH, os.path.getsize(self.flash) // 2))
        if self.chance.random() < 0.3 and os.path.exists(self.flash):
            shutil.copyfile(self.flash, self.older)
        if not os.path.exists(self.flash) and self.chance.random() < 0.7:
            onefold("cache", "attach", self.pool.path, self.flash, "--size", "32M", "--force", check=False)

    def round(self, seconds):
        self.ended.clear()
        self.start()
        self.judge()
        self.write()
        failures = []

        def commands():
            try:
                self.run_commands()
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=commands)
        thread.start()
        self.ended.wait(seconds)
        alive = self.pool.server.poll() is None
        self.end() if alive else self.ended.set()
        thread.join(timeout=PATIENCE)
        if failures or not alive or "panicked" in self.pool.said():
            raise AssertionError(f"{failures}: the server said\n{self.pool.said()}")


class TestEverything(unittest.TestCase):
    def test_a_random_workload_loses_nothing(self):
        print(f"EVERYTHING_SEED={SEED} EVERYTHING_SECONDS={SECONDS:.0f}", flush=True)
        with Pool("192M") as pool:
            everything = Everything(pool)
            end, rounds = time.time() + SECONDS, 0
            while time.time() < end or rounds < 3:
                everything.round(everything.chance.uniform(0.5, 5))
                everything.harm()
                rounds += 1
            everything.start()
            everything.judge()
            pool.stop()
            onefold("check", pool.path)
            written = sum(writer.next for writer in everything.writers.values())
            print(f"{rounds} rounds, {written} writes, flash: {everything.harms}")


if __name__ == "__main__":
    unittest.main()
