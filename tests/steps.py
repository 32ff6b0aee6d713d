"""The steps of ./test, from tests/steps.toml: for tests/run, which runs them, and tests/coverage, which runs the same with counts."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "steps.toml"
INTEROP = ROOT / "tests" / "interop"
PROGRAMS = ("sim", "repro")
SHIPPED, FAULTY = "target/release/onefold", "target/faults/onefold"


@dataclass
class Step:
    """What is run together, and passes or fails together."""

    name: str
    about: str
    # For bash, one after another, in the root of the checkout.
    commands: list[str]
    # Steps that have to pass before.
    needs: list[str] = field(default_factory=list)
    # Steps that have to end before, passed or not.
    after: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    # How many cores it has for itself.
    cores: int = 1
    # Whether it stays on these.
    pinned: bool = False
    # Cargo builds one thing at a time.
    is_build: bool = False
    # What is run of one of the programs that test and measure, and with which arguments, each a command.
    program: str = ""
    arguments: list[str] = field(default_factory=list)
    # How many lines at the end of what it prints are shown.
    shows: int = 1


def named_step(entry, which):
    """A step of the table; None if only --all has it, and this is not that."""
    entry = dict(entry)
    if entry.pop("only_all", False) and which != "all":
        return None
    longer = entry.pop("all", None)
    program = next((name for name in PROGRAMS if name in entry), "")
    arguments = entry.pop(program, [])
    if which == "all" and longer is not None:
        arguments = longer
    if program:
        commands = [f"target/release/{program} {one}" for one in arguments]
        entry = {"commands": commands, "needs": ["build/sim"], "pinned": True, **entry}
    return Step(program=program, arguments=arguments, **entry)


def interop_steps(rules, which):
    """A step for each file of tests/interop."""
    there = {path.stem.removeprefix("test_") for path in INTEROP.glob("test_*.py")}
    for rule, names in rules.items():
        assert there.issuperset(names), f"tests/steps.toml, interop, {rule}: {set(names) - there} is no test"
    for path in sorted(INTEROP.glob("test_*.py")):
        name = path.stem.removeprefix("test_")
        if name in rules["only_all"] and which != "all":
            continue
        # ./test --all has the shipped program everywhere: tests that need the other one take that by its own name.
        program = SHIPPED if name in rules["shipped"] or which == "all" else FAULTY
        yield Step(
            name=f"interop/{name}",
            about=path.read_text(encoding="utf-8").split('"""')[1].split(".")[0].split(":")[0].replace("\n", " "),
            commands=[f"/usr/bin/python3 -W error::SyntaxWarning {path.relative_to(ROOT)} -v"],
            needs=["build/sim", "build/onefold"],
            environment={"ONEFOLD": str(ROOT / program), "ONEFOLD_FAULTY": str(ROOT / FAULTY)},
            # Those that look at the clock or the processor go alone.
            cores=1000 if name in rules["alone"] else 1,
        )


def load(which):
    """The steps of ./test ("test") or of ./test --all ("all"), in the order in which they begin."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    steps = [step for entry in table["step"] if (step := named_step(entry, which))]
    interop = sorted(interop_steps(table["interop"], which), key=lambda step: step.cores)
    before = set()
    for step in steps:
        assert before.issuperset([*step.needs, *step.after]), f"tests/steps.toml, {step.name}: what it needs comes before it"
        assert step.name not in before, f"tests/steps.toml, {step.name}: a step has a name of its own"
        before.add(step.name)
    return steps + interop
