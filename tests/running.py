"""Runs steps side by side, as many as there are cores: for tests/run and tests/coverage."""

import os
import signal
import subprocess
import time

from steps import ROOT, Step

LOGS = ROOT / "target" / "test"
CORES = sorted(os.sched_getaffinity(0))


class Running:
    """A step whose commands are being run, one after another, on some of the cores."""

    def __init__(self, step: Step, cores):
        self.step, self.cores, self.began = step, cores, time.monotonic()
        self.log = LOGS / (step.name.replace("/", "-") + ".log")
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
                ["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
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

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

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


def run(steps):
    """Runs the steps; gives what became of each, in seconds and whether it passed, in the order of their ends."""
    waiting, running, ended, free = list(steps), [], {}, list(CORES)
    try:
        while waiting or running:
            for step in list(waiting):
                needs = [ended.get(need) for need in step.needs if need in {step.name for step in steps}]
                if any(need and not need[1] for need in needs):
                    waiting.remove(step)
                    ended[step.name] = (0.0, False)
                    print(f"FAILED: {step.name}: what it needs failed", flush=True)
                    continue
                cores = min(step.cores, len(CORES))
                if not all(needs) or len(free) < cores or step.is_build and any(other.step.is_build for other in running):
                    # Who needs all cores is not overtaken for ever: such steps are last in the table.
                    continue
                waiting.remove(step)
                print(f"== {step.name}: {step.about}", flush=True)
                running.append(Running(step, free[:cores]))
                del free[:cores]
            for one in list(running):
                passed = one.ended()
                if passed is None:
                    continue
                running.remove(one)
                free += one.cores
                ended[one.step.name] = (one.seconds(), passed)
                one.show(passed)
            time.sleep(0.05)
    finally:
        for one in running:
            one.kill()
    return ended
