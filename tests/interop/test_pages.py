"""What pages for users say of the program is what its sources, its switches and its files say."""

import os
import re
import tomllib
import unittest

from server import ROOT, Pool, onefold

USER_PAGES = ["README.md"] + [f"docs/{name}.md" for name in (
    "guide/quickstart", "guide/install", "guide/operate", "guide/monitor", "reference/guarantees", "guide/memory", "guide/sizing", "guide/images",
    "guide/disks", "papers/plc-cache", "internals/fault-model", "internals/client-limits", "guide/policies", "guide/timing",
    "guide/troubleshooting", "guide/faq", "guide/clients", "guide/backup")]
BLOCK, MIB, GIB = 4096, 1 << 20, 1 << 30
# What a page may not say once the program has what stands first: a switch of 'onefold serve', or a word of its reference.
DENIALS = {
    "--tls <": [r"no TLS: STARTTLS", r"without TLS \(the specification", r"Encryption, authentication, TLS:"],
    "dedup-verify": [r"no switch for it yet", r"Comparing bytes before sharing, as an option"],
    "onefold dedup": [r"nothing joins them later"],
    "onefold import": [r"there is no client here"],
    "--metadata <": [r"If the metadata region is full \(docs/reference/disk-format"],
}

SERVER, TLS, CONTROL = (f"crates/onefold/src/{name}.rs" for name in ("frontend/nbd/server/mod", "frontend/nbd/tls/mod", "operators/control"))
NBD = "crates/nbd/src/"
# What a page says of a limit: the page, the words with the number in its unit, and the constants that it is.
LIMITS = [
    ("internals/client-limits", "| handshakes at a time | {}, or half of the connections", [(SERVER, "HALF_OPEN_MAX", 1)]),
    ("internals/client-limits", "| time for a handshake | {} s; {} s while all connections are taken", [(SERVER, "HANDSHAKE_NANOS", 10**9), (SERVER, "CROWDED_NANOS", 10**9)]),
    ("internals/client-limits", "| {} of the {} places for TLS |", [(TLS, "HANDSHAKES_MAX", 1), (TLS, "CLIENTS_MAX", 1)]),
    ("internals/client-limits", "| options in a handshake | {}, and {} for each volume", [(NBD + "handshake.rs", "MAXIMUM_OPTIONS", 1), (NBD + "handshake.rs", "MAXIMUM_OPTIONS_PER_EXPORT", 1)]),
    ("internals/client-limits", "| data of an option | {} KiB |", [(NBD + "handshake.rs", "MAXIMUM_OPTION_BYTES", 1024)]),
    ("internals/client-limits", "| the list of exports (`test_volumes.py`) | {} KiB at a time", [(NBD + "handshake.rs", "MAXIMUM_LIST_PART_BYTES", 1024)]),
    ("internals/client-limits", "| names | {} bytes, UTF-8 |", [(NBD + "wire.rs", "MAXIMUM_STRING_BYTES", 1)]),
    ("internals/client-limits", "| metadata queries in an option | {} |", [(NBD + "options.rs", "MAXIMUM_META_QUERIES", 1)]),
    ("internals/client-limits", "| payload of a request | {} MiB | EINVAL; a WRITE that claims more than {} MiB", [(NBD + "wire.rs", "MAXIMUM_PAYLOAD_BYTES", MIB), (NBD + "transmission.rs", "MAXIMUM_SWALLOWED_BYTES", MIB)]),
    ("internals/client-limits", "| holding what others wait for | {} s for a piece", [(SERVER, "STALL_NANOS", 10**9)]),
    ("internals/client-limits", "| {} s without taking anything, {} s in all;", [("crates/onefold/src/frontend/nbd/tls/relay.rs", "LAST_REPLIES", 1), ("crates/onefold/src/frontend/nbd/tls/relay.rs", "LAST_REPLIES_IN_ALL", 1)]),
    ("internals/client-limits", "keepalive: {} s, then six questions {} s apart", [(SERVER, "KEEPALIVE_IDLE", 1), (SERVER, "KEEPALIVE_INTERVAL", 1)]),
    ("internals/client-limits", "| {}, of these {} commands beside those that only look; silent for {} s |", [(CONTROL, "CLIENTS_MAX", 1), (CONTROL, "COMMANDS_MAX", 1), (CONTROL, "SILENCE", 1)]),
    ("internals/client-limits", "| {} for a connection (a step of a handshake counts for {}); of those who have sent more, {} go on", [
        ("crates/onefold/src/frontend/nbd/budget.rs", name, 1) for name in ("BEGUN_AT_ONCE", "HANDSHAKE_STEP", "LATER_AT_ONCE")]),
    ("guide/operate", "while a server stops waits for its end, for up to {} s", [(CONTROL, "STOP_PATIENCE", 1)]),
    ("guide/operate", "At most {} clients have TLS at a", [(TLS, "CLIENTS_MAX", 1)]),
    ("guide/monitor", "server does not answer within {} s.", [("crates/onefold/src/http/figures.rs", "PATIENCE", 1)]),
    ("guide/monitor", "At most {} connections are open, each for one request", [("crates/onefold/src/http/mod.rs", "CONNECTIONS_MAX", 1)]),
    ("reference/guarantees", "or {} MiB plus what arrived while the sync ran", [("crates/engine/src/data_path/commit.rs", "SELF_SYNC_BYTES", MIB)]),
    ("reference/guarantees", "Commands that wait for it are answered after {} s", [("crates/onefold/src/reactor/pending_commands.rs", "SPACE_NANOS", 10**9)]),
]


def constant(source, name):
    """The value of a constant of the sources: a number, a shift, or a duration in seconds."""
    text = re.search(rf"const {name}: [\w:]+ = ([^;]+);", read(source))[1]
    number = re.fullmatch(r"(?:Duration::from_secs\()?([\d_]+)(?: << (\d+))?\)?", text)
    return int(number[1].replace("_", "")) << int(number[2] or 0)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def mutants():
    enum = re.search(r"pub enum Mutant \{(.*?)^\}", read("crates/engine/src/mutant.rs"), re.S | re.M)[1]
    return re.findall(r"^    (\w+),", enum, re.M)


def least_kernel():
    return re.search(r'const LEAST_KERNEL: &str = "([\d.]+)"', read("crates/onefold/src/io/ring/setup.rs"))[1]


def messages():
    """Parts of messages on the page of troubleshooting: each that a row begins with, without what differs."""
    for line in read("docs/guide/troubleshooting.md").splitlines():
        if line.startswith("| ") and not line.startswith("| message"):
            for quoted in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                yield quoted, [part.strip() for part in quoted.split("…") if part.strip()]


def said_by_the_program():
    """The sources as the compiler reads their strings: a line that is continued is one."""
    text = []
    for crate in ("onefold", "engine", "nbd"):
        for folder, _, names in os.walk(os.path.join(ROOT, "crates", crate, "src")):
            text += [read(os.path.join(folder, name)) for name in names if name.endswith(".rs")]
    return re.sub(r"\\\n\s*", "", "\n".join(text))


class Troubleshooting(unittest.TestCase):
    def test_every_message_on_the_page_is_one_of_the_program(self):
        sources, seen = said_by_the_program(), 0
        for quoted, parts in messages():
            seen += 1
            for part in parts:
                # What stands in the place of a name or number is no part of it.
                self.assertIn(part, sources, quoted)
        self.assertGreater(seen, 60)

    def test_the_log_of_a_server_that_is_full_is_on_the_page(self):
        """As somebody would look for it: the line as it is, by a part that the page has."""
        from test_full import overcommitted
        from test_alerts import await_, connect, fill
        with overcommitted("64M") as pool:
            pool.serve("--memory", "64M", create=False)
            fill(connect(pool), 200)
            await_(lambda: "are refused" in pool.said())
            warned = [line for line in pool.said().splitlines() if re.search(r"\b(WARN|ERROR)\b", line) and "registered" not in line]
            self.assertTrue(warned)
            known = [parts for _, parts in messages()]
            for line in warned:
                self.assertTrue(any(all(part in line for part in parts) for parts in known), line)


class Statements(unittest.TestCase):
    def test_a_clone_costs_what_the_page_says(self):
        said = re.search(r"\| blocks of data \| 0 \|\n\| blocks of metadata \| (\d+) to (\d+)", read("docs/guide/sizing.md"))
        least, most = map(int, said.groups())
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "1G")
            image = os.path.join(pool.folder, "image")
            with open(image, "wb") as file:
                for _ in range(256):
                    file.write(os.urandom(MIB))
            used = []
            for name in ("first", "second", "third"):
                onefold("import", pool.path, name, image)
                status = pool.settled()
                used.append((status["data_blocks_used"], status["overhead_blocks_used"]))
            self.assertEqual({data for data, _ in used}, {256 * MIB // BLOCK})
            for before, after in zip(used, used[1:]):
                self.assertTrue(least <= after[1] - before[1] <= most, used)

    def test_every_page_names_the_same_least_kernel(self):
        """README asked for 5.19 where the program asked for 5.11."""
        named = {page: found for page in USER_PAGES if (found := re.findall(r"Linux (\d+\.\d+) or newer", read(page)))}
        self.assertIn("README.md", named)
        for page, found in named.items():
            self.assertEqual(set(found), {least_kernel()}, page)
        message = "".join(read(f"crates/onefold/src/io/ring/{name}.rs") for name in ("mod", "setup"))
        self.assertEqual(re.findall(r"Linux \d+\.\d+ or newer", message), [], "messages take it from the constant")

    def test_limits_on_pages_are_the_constants_of_the_sources(self):
        for page, words, constants in LIMITS:
            said = words.format(*(constant(source, name) // unit for source, name, unit in constants))
            self.assertIn(said, " ".join(read(f"docs/{page}.md").split()))

    def test_no_page_denies_what_is_there(self):
        reference = read("docs/reference/commands.md")
        sources = USER_PAGES + ["crates/nbd/src/handshake.rs", "docs/reference/disk-format.md"]
        for there, denials in DENIALS.items():
            self.assertIn(there, reference)
            for source in sources:
                for denial in denials:
                    self.assertNotRegex(read(source), denial, source)

    def test_sizes_of_pools_are_those_of_the_format_and_of_a_file(self):
        """README said 6 %, where the format's page said 18.9 %."""
        def length(capacity):
            wanted = -(-capacity // (4 * MIB))
            slots = 1024 * (wanted + min(max(wanted // 8, 8), 1024))
            journal, metadata = min(max(slots // 32, 4096), 65536), slots // 32 + 8192
            begin = 256 + 2 + journal + 2 * (257 + -(-metadata // 32768)) + metadata
            return (-(-begin // 1024) * 1024 + slots) * BLOCK

        table = re.findall(r"^\| \**(\d+) (GiB|TiB)\**(?: \|[^|]*){6} \| ([\d,]+) \|", read("docs/reference/disk-format.md"), re.M)
        self.assertEqual(len(table), 3)
        for number, unit, bytes_ in table:
            self.assertEqual(length(int(number) * (GIB if unit == "GiB" else 1024 * GIB)), int(bytes_.replace(",", "")))
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "1G")
            self.assertEqual(os.path.getsize(pool.path), length(GIB))
        said = re.search(r"A pool of 10 GiB is ([\d.]+) GiB long, one of 1 TiB ([\d.]+) TiB", read("README.md"))
        rows = re.findall(r"^\| (\d+) (GiB|TiB) \| ([\d,.]+) GiB \| ([\d,]+) MiB \|$", read("docs/guide/sizing.md"), re.M)
        self.assertEqual(len(rows), 4)
        for number, unit, long, more in rows:
            capacity = int(number) * (GIB if unit == "GiB" else 1024 * GIB)
            self.assertEqual((long, more), (f"{length(capacity) / GIB:,.1f}", f"{(length(capacity) - capacity) // MIB:,}"))
        self.assertEqual(said.groups(), (f"{length(10 * GIB) / GIB:.1f}", f"{length(1024 * GIB) / (1024 * GIB):.2f}"))

    def test_the_number_of_mutants_is_not_exaggerated(self):
        self.assertIn("more than fifty mutants", read("README.md"))
        self.assertGreater(len(mutants()), 50)

    def test_the_page_of_testing_has_the_parts_of_the_mutants(self):
        enum = re.search(r"pub enum Mutant \{\n(.*?)^\}", read("crates/engine/src/mutant.rs"), re.S | re.M)[1]
        self.assertRegex(enum, r"\A    // ----", "each mutant is in a part")
        table = re.search(r"^\| part \| what its mutants break \|\n\|---\|---\|\n(.*?)\n\n", read("docs/internals/testing.md"), re.S | re.M)[1]
        self.assertEqual([row.split("|")[1].strip() for row in table.splitlines()], re.findall(r"^    // ---- (.*) ----$", enum, re.M))

    def test_the_page_of_background_jobs_has_the_rules_of_the_scheduler(self):
        rules = re.search(r"^const RULES: .*?^\];$", read("crates/engine/src/jobs/mod.rs"), re.S | re.M)[0]
        expected = []
        for row in re.findall(r"JobRules \{(.*?)\n    \},", re.sub(r"//.*", "", rules), re.S):
            value = dict(re.findall(r"^\s*(\w+): (.*),$", row, re.M))
            bursts = re.search(r"least: (\w+)", value["runs"])
            share = {"QUARTER": "25 %", "LEAST": "2 %"}[bursts[1]] if bursts else ""
            says = {"true": "yes", "false": "no"}
            expected.append([
                value["job"].removeprefix("JobId::"), "in bursts" if bursts else "when idle", share, says[value["between_checkpoints"]],
                ", ".join(re.findall(r"JobId::(\w+)", value["after"])), says[value["also_unwritten"]],
                ", ".join(value[name].removeprefix("PumpPhase::") for name in ("advances", "steps"))])
        rows = re.findall(r"^\| ([A-Z][a-zA-Z]+ \| (?:in bursts|when idle) .*) \|$", read("docs/internals/background-jobs.md"), re.M)
        self.assertEqual([[cell.strip() for cell in row.split("|")] for row in rows], expected)
        self.assertGreaterEqual(len(expected), 10)

    def test_the_page_of_dependencies_has_every_direct_one_with_its_version_and_users(self):
        """Two versions of a crate may be in the lock file; the fuzzers have one of their own."""
        users, crates = {}, ["engine", "nbd", "onefold", "sim", "repro", "benches", "fuzz"]
        for crate in crates:
            manifest = tomllib.loads(read("fuzz/Cargo.toml" if crate == "fuzz" else f"crates/{crate}/Cargo.toml"))
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                for name in set(manifest.get(kind, {})) - set(crates):
                    users.setdefault(name, set()).add(crate)
        locked = {(package["name"], package["version"]) for path in ("Cargo.lock", "fuzz/Cargo.lock") for package in tomllib.loads(read(path))["package"]}
        rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| ([^|]+) \|", read("docs/internals/dependencies.md"), re.M)
        self.assertEqual({name: {crate for crate in crates if re.search(rf"\b{crate}\b", said)} for name, _, said in rows}, users)
        self.assertEqual({(name, version) for name, version, _ in rows} - locked, set())

    def test_the_number_of_scenarios_is_that_of_the_simulator(self):
        fixed = re.search(r"pub const FIXED: u64 = (\d+);", read("crates/sim/src/runs/scenario.rs"))[1]
        self.assertIn(f"({fixed} fixed, then seeded ones)", read("docs/internals/testing.md"))


if __name__ == "__main__":
    unittest.main()
