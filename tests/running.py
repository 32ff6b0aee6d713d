"""Runs steps side by side, as many as there are cores: for tests/run and tests/coverage."""

import os
import signal
import subprocess
import time

from steps import ROOT, Step

CORES = sorted(os.sched_getaffinity(0))
# Seconds in which a step that is told to end may undo what it has done: mounts, servers, a package half installed.
GRACE = 15


class Running:
    """A step whose commands are being run, one after another, on some of the cores."""

    def __init__(self, step: Step, cores, logs):
        self.step, self.cores, self.began = step, cores, time.monotonic()
        self.log = logs / (step.name.replace("/", "-") + ".log")
        self.commands = list(step.commands)
        self.log.write_text("")
        self.next()

    def next(self):
        command, self.commands = self.commands[0], self.commands[1:]
        with self.log.open("a") as log:
            log.write(f"$ {command}\n")
            log.flush()
            # Its own group, so that it can be ended with all that it has started. A step that computes stays on its cores, and starts as many
            # threads as these are.
            pin = (lambda: os.sched_setaffinity(0, self.cores)) if self.step.pinned else None
            self.process = subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **self.step.environment}, start_new_session=True, preexec_fn=pin)

    def ended(self):
        """Whether it has passed, or None while it runs."""
        status = self.process.poll()
        if status is None:
            return None
        if status == 0 and self.commands:
            self.next()
            return None
        return status == 0

    def seconds(self):
        return time.monotonic() - self.began

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def show(self, passed):
        lines = self.log.read_text(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith("$ ")]
        if not passed:
            shown = lines
        elif self.step.name.startswith("interop/"):
            shown = [line for line in said if "skipped" in line]
        else:
            shown = [line for line in said if line.strip()][-self.step.shows:] if self.step.shows else []
        for line in shown:
            print(f"   {line}")
        print(f"{'passed' if passed else 'FAILED'} in {self.seconds():.0f} s: {self.step.name}", flush=True)


def stop(running):
    """Ends steps as Ctrl-C would end them, and by force what is left of them after a while."""
    for one in running:
        one.signal(signal.SIGINT)
    until = time.monotonic() + GRACE
    while any(one.process.poll() is None for one in running) and time.monotonic() < until:
        time.sleep(0.05)
    for one in running:
        one.signal(signal.SIGKILL)
        one.process.wait()


def may_begin(step, steps, ended, running, free):
    """Whether what a step needs, or comes after, has ended, and cores are free. Cargo builds one thing at a time."""
    if any(name in steps and name not in ended for name in [*step.needs, *step.after]):
        return False
    return len(free) >= min(step.cores, len(CORES)) and not (step.is_build and any(other.step.is_build for other in running))


def run(steps, logs):
    """Runs the steps; gives the seconds of each, and whether it passed, by name. Those that need all cores are the last ones: nothing overtakes
    them for ever."""
    steps = {step.name: step for step in steps}
    waiting, running, ended, free = list(steps.values()), [], {}, list(CORES)
    try:
        while waiting or running:
            for step in list(waiting):
                if any(not ended.get(need, (0, True))[1] for need in step.needs):
                    waiting.remove(step)
                    ended[step.name] = (0.0, False)
                    print(f"FAILED: {step.name}: what it needs failed", flush=True)
                elif may_begin(step, steps, ended, running, free):
                    waiting.remove(step)
                    print(f"== {step.name}: {step.about}", flush=True)
                    cores = min(step.cores, len(CORES))
                    running.append(Running(step, free[:cores], logs))
                    del free[:cores]
            for one in list(running):
                passed = one.ended()
                if passed is None:
                    continue
                running.remove(one)
                # Nothing that it has started outlives it.
                one.signal(signal.SIGKILL)
                free += one.cores
                ended[one.step.name] = (one.seconds(), passed)
                one.show(passed)
            time.sleep(0.05)
    finally:
        stop(running)
    return ended
