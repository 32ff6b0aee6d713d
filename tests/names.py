"""Names in Markdown pages, beside those of the sources: types, functions, properties, metrics, files and options. For tests/pages, which runs the examples.

Names of others are in tests/foreign.toml, each group with its reason.
"""
import fnmatch
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict

import prose
from ratchet import ROOT
from steps import load

# Comments, strings and characters of Rust, in the order in which they hide each other.
RUST = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>b?r(?P<hashes>#*)\".*?\"(?P=hashes)|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^u]|\\u\{\w+\}|\\x\w\w|[^'\\])')", re.S
)
DEFINITION = re.compile(r"\b(?:struct|enum|trait|union|impl(?:<(?:[^<>]|<[^<>]*>)*>)?)\s[^;{}()=]*?\{")
SIGN = re.compile(r"[^{}()]+|.", re.S)
MEMBER = re.compile(r"\b(?:fn|type|const(?!\s+(?:fn|unsafe)\b))\s+(\w+)|^\s*(?:pub(?:\([^)]*\))?\s+)?(?:r#)?([a-z_]\w*)\s*:|(?:^|[,{])\s*([A-Z]\w*)\s*(?=[{(,=}]|$)", re.M)
# Names in code of a line.
TYPE = re.compile(r"[A-Z][a-z0-9]+(?:[A-Z]\w*)+|[A-Z][a-z]\w*(?=\s*(?:$|\{|\())")
PATH = re.compile(r"(?:[A-Za-z_]\w*::)+[A-Za-z_]\w*")
CALL = re.compile(r"(?:\w+(?:::|\.))*([a-z_]\w*)\((?:[\w, ]*)\)")
# Figures, properties, constants, tests: several words with lines, dots or hyphens between them.
WORDS = re.compile(r"\.?\w[\w-]*(?:\[\])?(?:\.[\w-]+(?:\[\])?)*")
# A `*` behind it stands for the rest of several.
METRIC = re.compile(r"\bonefold_[a-z][a-z_0-9]*(?:\*|\b)(?![\w-]|\.\w|::|/)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
COMMAND = re.compile(r"(?:(?<![\w./@-])|(?<=/bin/)|(?<=/release/)|(?<=/faults/))(onefold|sim|repro)(?: +--)? +(?!\|)([^\n]*)")
# Folders of the repository: a path that begins with one is a name of a file wherever it stands.
FOLDERS = "docs|tests|bench|crates|contrib|fuzz"
ANYWHERE = re.compile(rf"(?<![\w/.@-])(?:{FOLDERS})/(?:(?:[\w*<>.-]|\{{[\w,]+\}})+/)*(?:[\w*<>@-]|\{{[\w,]+\}})+(?:\.[\w-]+)*/?")
# What stands for a name.
PLACEHOLDER = re.compile(r"(?<![a-z])[A-Z]{2,}(?![a-z])|…|\.\.\.|[<>]|^\d+$")

# A page with a name of each sort that is not there, and one that is: a check that cannot fail is no check.
EXAMPLE = """
`Engine::handle`, `Engine::no_such`; `NoSuchType`, `PageCache`; `no_such_call()`; `cache.no_such`, `cache.read_hits`; `no-such=on`, `policy=full`; onefold_no_such_total, onefold_no_such_*, onefold_defrag_*.
`no_such.rs`, `jobs/gc.rs`, tests/no_such, tests/layers, `sim/no-such`, `sim/crash`, `status --no-such`, `status --json`, `--no-such`, `sim crash --no-such`, `sim crash --seeds 3`.

```sh
sudo onefold serve disk.onefold \\
    --no-such --memory 64M
```
"""
EXPECTED = {"names": 7, "files": 3, "options": 4}
# Files whose words are no names of ours.
LISTS = ("tests/foreign.toml", "tests/names.py")


def tracked():
    """Files of the repository, those that are not committed yet among them."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for path in listed.splitlines() if (ROOT / path).is_file()]


def bodies(code):
    """Type and body of each definition and implementation, with what is nested deeper left out.

    >>> [(name, body.split()) for name, body in bodies("impl<T> Job for Scrub<T> { fn step(&self) { if x { y } } }")]
    [('Scrub', ['fn', 'step()', '{}'])]
    """
    for match in DEFINITION.finditer(code):
        head = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", match[0][:-1])).split(" where ")[0].split(" for ")[-1].split(":")
        found = re.findall(r"\w+", head[-1] if match[0].startswith("impl") else head[0])
        depth, end, kept = 1, match.end(), []
        while depth and end < len(code):
            sign = SIGN.match(code, end)[0]
            depth -= sign in (")", "}")
            if depth == 1:
                kept.append(sign)
            depth += sign in ("(", "{")
            end += len(sign)
        if found:
            yield found[-1], "".join(kept)


def options_of(text):
    """Long options of a program's arguments, as clap derives them.

    >>> sorted(options_of('#[arg(long = "trace")]\\ntraces: u8,\\n#[arg(long, default_value_t = 1)]\\npub bad_lines: u64,'))
    ['--bad-lines', '--trace']
    """
    found = set()
    for argument in re.finditer(r"#\[arg\((.*?)\)\]\s*(?:///[^\n]*\s*|#\[.*?\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(\w+):", text, re.S):
        long = re.search(r"\blong\b(?:\s*=\s*\"([\w-]+)\")?", argument[1])
        if long:
            found.add("--" + (long[1] or argument[2].replace("_", "-")))
    return found


class Sources:
    """What there is to name."""

    def __init__(self):
        self.files = tracked()
        self.tails = {tail for path in self.files for tail in tails(path)}
        self.endings = {path.rpartition(".")[2] for path in self.files if "." in path.rpartition("/")[2]}
        # Identifiers of the code, by file; words of all that is no page, strings included; members by type.
        self.identifiers, self.words, self.members, self.options = {}, set(), defaultdict(set), defaultdict(set)
        for path in self.files:
            self.words.update(re.split(r"[/.]", path))
            if path.endswith((".md", ".svg", ".csv", ".lock")) or path.startswith("fuzz/corpus/") or path in LISTS:
                continue
            text = (ROOT / path).read_text(encoding="utf-8", errors="ignore")
            if not path.endswith(".rs"):
                self.words.update(re.findall(r"[\w-]+", text), re.findall(r"\w+", text))
                if path.startswith(("tests/", "bench/")) or path == "test":
                    self.options[path] = set(OPTION.findall(text))
                continue
            commented = RUST.sub(lambda match: "" if match["comment"] else match[0], text)
            code = RUST.sub(lambda match: "" if match["comment"] else '""', text)
            self.words.update(re.findall(r"[\w-]+", commented), re.findall(r"\w+", commented))
            self.identifiers[path] = set(re.findall(r"\w+", code))
            for name, body in bodies(code):
                self.members[name].update(word for match in MEMBER.findall(body) for word in match if word)
            program = path.split("/")[1]
            if program in ("sim", "repro"):
                # Each takes arguments of the other's runs.
                self.options["sim"] |= options_of(commented)
                self.options["repro"] = self.options["sim"]
        self.code = set().union(*self.identifiers.values())
        # `./test` hands its arguments on.
        self.options["test"] |= self.options["tests/run"]
        self.steps = {step.name for step in load("all")}
        self.read_pages()
        self.foreign = foreign()
        self.is_foreign = re.compile("|".join(fnmatch.translate(name) for name in self.foreign)).match

    def read_pages(self):
        """Options of each command of the program, and metrics: from the pages that are made of its tables."""
        self.commands, self.metrics, shared = {}, set(), set()
        for path in self.files:
            if path.endswith(".md") and path.startswith("docs/"):
                text = (ROOT / path).read_text(encoding="utf-8")
                for command, body in re.findall(r"^## onefold ([\w -]+)\n(.*?)(?=^## |\Z)", text, re.M | re.S):
                    self.commands[command] = set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", body, re.M)) | {"--help"}
                for body in re.findall(r"^## Options of every command\n(.*?)(?=^## |\Z)", text, re.M | re.S):
                    shared.update(re.findall(r"^\| `(--[\w-]+)", body, re.M))
                self.metrics.update(re.findall(r"^\| `(onefold_\w+)` \| (?:gauge|counter|histogram)", text, re.M))
        for options in self.commands.values():
            options |= shared
        if len(self.commands) < 20 or len(self.metrics) < 100 or not shared:
            sys.exit("tests/pages: the pages of commands and of metrics have another form than tests/names.py reads")
        self.options["onefold"] = set().union(*self.commands.values(), {"--version", "--help"})
        for program in ("sim", "repro"):
            self.options[program] |= {"--version", "--help"}
        self.all_options = set().union(*self.options.values())

    def has_file(self, name):
        """Whether a file or folder is there, by its path or the end of that; `*` stands for any name, `{a,b}` for either, and a source may do without `.rs`."""
        either = re.search(r"\{([^{}]*)\}", name)
        if either:
            return all(self.has_file(name[: either.start()] + one + name[either.end() :]) for one in either[1].split(","))
        name = re.sub(r"^\./", "", name.rstrip("/"))
        # RFCs are named by their number alone.
        if re.fullmatch(r"(?:docs/)?rfc/\d{4}", name):
            name += "-*"
        if "*" in name:
            return bool(fnmatch.filter(self.tails, name))
        return name in self.tails or name + ".rs" in self.tails

    def has_metrics(self, start):
        """Whether a metric begins so."""
        return any(name.startswith(start) for name in self.metrics)

    def has_path(self, path):
        """Whether a type has a member, or a module a name: `Type::member`, `module::name`, `crate::module::Type`."""
        *parents, name = path.split("::")
        parent = parents[-1]
        if parent in self.members:
            return name in self.members[parent]
        if parent[0].isupper():
            # A type of a macro, or of a library.
            return parent in self.code and name in self.code
        within = [file for file in self.identifiers if parent in re.split(r"[/.]", file)]
        return any(name in self.identifiers[file] or name in re.split(r"[/.]", file) for file in within)

    def lacks(self, span):
        """Names in a code that are not there, each with its kind: `names` or `files`."""
        if self.is_foreign(span) or span in self.steps:
            return
        path = re.fullmatch(r"[\w.*{},/-]+", span)
        if path and ("/" in span or span.rpartition(".")[2] in self.endings and re.match(r"[\w*-]", span)):
            if not span.startswith(("/", "../", "target/", "~")) and not PLACEHOLDER.search(span) and not self.has_file(span):
                yield "files", span
            return
        for found in PATH.finditer(span):
            if not self.is_foreign(found[0]) and not self.has_path(found[0]):
                yield "names", found[0]
        rest = PATH.sub("", span)
        for found in TYPE.findall(rest) if re.fullmatch(r"[A-Z]\w*(?:[ {(].*)?", rest) else re.findall(r"\b[A-Z][a-z0-9]+[A-Z]\w*", rest):
            if found not in self.code and found not in self.words and not self.is_foreign(found):
                yield "names", found
        call = CALL.fullmatch(rest)
        if call:
            if call[1] not in self.words and not self.is_foreign(call[1]):
                yield "names", call[0]
            return
        key = rest.split("=")[0].split(":")[0] if re.fullmatch(r"[\w-]+[=:]\S*", rest) else rest
        if WORDS.fullmatch(key) and re.search(r"[a-zA-Z0-9][_.-][a-zA-Z]|\[\]|=", rest) and not METRIC.fullmatch(key):
            for word in re.split(r"\.|\[\]", key):
                if word not in self.words and not re.fullmatch(r"[A-Z]*|[\d-]+|.*-[A-Z]+", word) and not self.is_foreign(word):
                    yield "names", span
                    break

    def lacks_options(self, text):
        """Offset and name of each option in commands that their program does not have. A command ends with its line or at a sign of the shell."""
        for match in COMMAND.finditer(text.replace("\\\n", "  ")):
            program, arguments = match[1], re.split(r" [|&]|&&|;|\s#|[`)]", match[2])[0]
            words = arguments.split()
            command = " ".join(words[:3])
            while command and command not in self.commands:
                command = command.rpartition(" ")[0]
            known = self.commands[command] if program == "onefold" and command else self.options[program]
            for option in OPTION.finditer(arguments):
                if option[0] not in known:
                    yield match.start(2) + option.start(), " ".join(filter(None, (program, program == "onefold" and command, option[0])))

    def lacks_bare_options(self, span):
        """Options of a code that does not begin with a program: of one of ours."""
        words = span.split()
        if span.startswith("--"):
            for option in OPTION.findall(span):
                if option not in self.all_options and not self.is_foreign(option):
                    yield option
            return
        for length in (3, 2, 1):
            command = " ".join(words[:length])
            if command in self.commands:
                yield from (f"{command} {option}" for option in OPTION.findall(span) if option not in self.commands[command])
                return
        program = re.sub(r"^\./", "", words[0])
        if program in self.options:
            yield from (f"{program} {option}" for option in OPTION.findall(span) if option not in self.options[program])


def tails(path):
    """A path, its folders, and the ends of each.

    >>> sorted(tails("a/b.rs"))
    ['a', 'a/b.rs', 'b.rs']
    """
    parts = path.split("/")
    return {"/".join(parts[first:last]) for last in range(1, len(parts) + 1) for first in range(last)}


def foreign():
    """Names that are not ours: patterns, from tests/foreign.toml."""
    groups = tomllib.loads((ROOT / "tests" / "foreign.toml").read_text(encoding="utf-8"))
    return [name for group in groups["group"] for name in group["names"]]


def excused(text):
    """Names that an RFC says are not in the code: of its time, or of what it rejects.

    >>> sorted(excused("Names not in the code: `Old`,\\n`old.rs`.\\n\\n`New`"))
    ['Old', 'old.rs']
    """
    paragraphs = re.findall(r"^Names not in the code: .*?(?=\n\s*\n|\Z)", text, re.M | re.S)
    return {code for paragraph in paragraphs for code in re.findall(r"`([^`\n]+)`", paragraph)}


def lacking(text, sources, is_rfc=False):
    """Kind, offset and name of all in a page that are not there."""
    found = set()
    for start, code in prose.inline_code(text):
        found |= {(kind, start, name) for kind, name in sources.lacks(code)}
        wrong = [name for _, name in sources.lacks_options(code)] if COMMAND.match(code) else sources.lacks_bare_options(code)
        found |= {("options", start, name) for name in wrong}
    for start, block in prose.blocks_of_code(text):
        found |= {("options", start + at, name) for at, name in sources.lacks_options(block)}
    for match in METRIC.finditer(text):
        base = re.sub(r"_(bucket|sum|count)$", "", match[0])
        is_there = match[0] in sources.metrics | sources.code or base in sources.metrics or (match[0].endswith("*") and sources.has_metrics(match[0][:-1]))
        if not is_there and not sources.is_foreign(match[0]):
            found.add(("names", match.start(), match[0]))
    found |= {("files", start, name) for start, name in lacking_files(text, sources)}
    past = excused(text) if is_rfc else ()
    return sorted(item for item in found if item[2] not in past)


def lacking_files(text, sources):
    """Offset and name of each path in a text that begins with a folder of the repository and is not there."""
    for match in ANYWHERE.finditer(text):
        if not sources.has_file(match[0]) and not PLACEHOLDER.search(match[0]) and not sources.is_foreign(match[0]):
            yield match.start(), match[0]


def lacking_in_sources(sources):
    """File, offset and name of the files that sources name and that are not there, in comments and messages: `file.rs`, and pages that people are sent to."""
    for path in sources.files:
        if path.endswith((".rs", ".toml")) or path in ("test", "CHANGELOG.md") or path.startswith(("bench/", "contrib/", ".ci/")):
            text = (ROOT / path).read_text(encoding="utf-8", errors="ignore")
            found = set(lacking_files(text, sources))
            if path.endswith(".rs"):
                found |= {(match.start(1), match[1]) for match in re.finditer(r"`([a-z_0-9/]+\.rs)`", text) if not sources.has_file(match[1])}
            yield from ((path, start, name) for start, name in sorted(found))


def check_example(sources):
    """Ends the program if the example's names are not found."""
    found = lacking(EXAMPLE, sources)
    if Counter(kind for kind, *_ in found) != EXPECTED:
        sys.exit(f"tests/pages: the example in tests/names.py lacks {EXPECTED}, but found are {found}")
