"""Calls between the files of the engine, as the compiler resolves them: its MIR names each callee with the type that it belongs to.

`rustc` prints MIR on a stable toolchain only with RUSTC_BOOTSTRAP, and does not promise its form. If known calls are missing, or there are too few of them, this ends with an error.
"""
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "crates/engine/src/"
# Calls that the engine had when this was written: 6,100. A form of MIR that is not understood loses many of them.
LEAST_CALLS = 5000
# One call of each form, by (file that calls, file and name of the callee): a method of a type in its module, one in another module, one of a trait, a function.
KNOWN = {
    ("jobs/gc.rs", "jobs/mover.rs", "Mover.is_in_progress"),
    ("data_path/admission.rs", "pool/metadata_reservation.rs", "Pool.space_where"),
    ("jobs/mod.rs", "jobs/dedup/mod.rs", "Dedup.step"),
    ("metadata/tree.rs", "metadata/tree.rs", "shift"),
}
# `fn module::<impl at FILE:line..>::name(..)`, `fn module::Trait::name(..)`, `fn module::name(..)`, and closures in them.
DEFINITION = re.compile(r"^(?:fn|const|static) ((?:[a-z_]\w*::)*)(?:<impl at ([^:>]+):(\d+)[^>]*>::|([A-Z]\w*)::)?(\w+)")
# Arguments of generics, innermost first; not `<impl Type>` and `<Type as Trait>`.
ARGUMENTS = re.compile(r"(?:::|(?<=\w))<(?!impl )[^<>]*>")
# `module::<impl Type>::name`, `module::Type::name` and `module::name`, without arguments of generics.
CALLEE = re.compile(r"(?<![\w:])((?:[a-z_]\w*::)+)(?:<impl (?:[^<>]*[^\w<>])?(\w+)>::|([A-Z]\w*)::)?([a-z_]\w*)\b(?!::)")
# `<module::Type as module::Trait>::name`, of a reference, a trait object or a type parameter as well.
TRAIT_CALLEE = re.compile(r"<(?:[^<>]*?[^\w:])?((?:\w+::)*)([A-Z]\w*) as ((?:[a-z_]\w*::)*)([A-Z]\w*)>::(\w+)")
TRAIT_IMPL = re.compile(r"impl(?:<.*?>)? (?:[\w:]+::)?(\w+)(?:<.*?>)? for (?:[\w:]+::)?(\w+)")
# A block of a function.
BLOCK = re.compile(r"^ +bb\d+(?: \(cleanup\))?: \{$")
# The type of methods.
IMPL = re.compile(r"impl(?:<.*?>)? (?:[\w:]+::)?(\w+)(?:<.*?>)? (?:where.*)?\{")


def mir():
    """The engine's MIR, with nothing inlined and all paths in full."""
    options = ["-Zunpretty=mir", "-Zmir-opt-level=0", "-Ztrim-diagnostic-paths=false"]
    environment = os.environ | {"RUSTC_BOOTSTRAP": "1", "CARGO_TARGET_DIR": str(ROOT / "target" / "mir")}
    command = ["cargo", "rustc", "--quiet", "--package", "engine", "--lib", "--", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"tests/layers: the engine's MIR: {done.stderr}")
    return done.stdout


class Calls:
    """Functions of the engine, each as (file, name or Type.name), and those that they call."""

    def __init__(self, text, files):
        """Reads MIR. `files`: path in the crate by module."""
        self.files = files
        self.callees = defaultdict(set)
        # (module, type, name) of what a path names; (type, trait, name) of what a trait's call names.
        self.named, self.of_traits = {}, defaultdict(set)
        bodies, blocks_of = [], defaultdict(int)
        for line in text.splitlines():
            definition = DEFINITION.match(line)
            if definition:
                function = self.define(*definition.groups())
                bodies.append((function, []))
            elif bodies and BLOCK.match(line):
                blocks_of[bodies[-1][0]] += 1
            elif bodies and "(" in line and not line.lstrip().startswith(("let ", "debug ", "scope ")):
                bodies[-1][1].append(line)
        # Functions of one block: a field under a name, with no way on from there. A field that is read directly is no file to open either.
        self.accessors = {function for function, blocks in blocks_of.items() if blocks == 1}
        for function, lines in bodies:
            for line in lines:
                self.callees[function].update(callee for callee in self.named_in(line) if callee != function)
        found = {(caller, *callee) for (caller, _), callees in self.callees.items() for callee in callees}
        if sum(map(len, self.callees.values())) < LEAST_CALLS or not found >= KNOWN:
            missing = ", ".join(map(str, KNOWN - found))
            sys.exit(f"tests/layers: rustc prints MIR in another form than tests/calls.py reads, or a known call is gone: {missing}")

    def define(self, module, file, line, kind, name):
        """Notes a function."""
        module, kind = module.rstrip(":"), kind or ""
        if file is None:
            file = self.file_of(module)
        else:
            file = file.removeprefix(SOURCE)
            head = (ROOT / SOURCE / file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
            of_trait, own = TRAIT_IMPL.search(head), IMPL.search(head)
            if of_trait:
                kind = of_trait[2]
                self.of_traits[kind, of_trait[1], name].add((file, f"{kind}.{name}"))
            elif own:
                kind = own[1]
        function = file, f"{kind}.{name}" if kind else name
        self.named[module, kind, name] = function
        return function

    def file_of(self, module):
        """The file of a module, which may be inside of another one's."""
        parts = module.split("::")
        return next((self.files[path] for length in range(len(parts), 0, -1) if (path := "::".join(parts[:length])) in self.files), "lib.rs")

    def named_in(self, line):
        """Functions of the engine that a line of MIR names."""
        line, before = line.replace("->", ""), None
        while line != before:
            line, before = ARGUMENTS.sub("", line), line
        for module, within, kind, name in CALLEE.findall(line):
            function = self.named.get((module.rstrip(":"), within or kind, name))
            if function:
                yield function
        for _, kind, module, trait, name in TRAIT_CALLEE.findall(line):
            # A method that the type leaves out is the trait's own.
            own = self.named.get((module.rstrip(":"), trait, name))
            yield from self.of_traits.get((kind, trait, name), {own} if own else ())

    def between_files(self):
        """Files that each file calls, others than itself."""
        calls = defaultdict(set)
        for (file, _), callees in self.callees.items():
            calls[file].update(callee for callee, _ in callees if callee != file)
        return calls

    def reached(self, *start):
        """Files that are reached from a function, except those of which only a field is read or set."""
        seen, left = {start}, [start]
        while left:
            for callee in self.callees.get(left.pop(), ()):
                if callee not in seen and callee not in self.accessors:
                    seen.add(callee)
                    left.append(callee)
        return sorted({file for file, _ in seen})
