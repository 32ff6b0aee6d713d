"""What pages for users say of the program is what its sources, its switches and its files say."""

import os
import re
import unittest

from server import ROOT, Pool, onefold

USER_PAGES = ["README.md"] + [f"docs/{name}.md" for name in (
    "operations", "promises", "memory", "sizing", "images", "estimate", "devices", "flash-cache", "hostile-clients", "policies", "timing",
    "guides/qemu", "guides/file-system", "guides/vhost-user-blk", "guides/iscsi")]
BLOCK, MIB, GIB = 4096, 1 << 20, 1 << 30
# What a page may not say once the program has what stands first: a switch of 'onefold serve', or a word of its reference.
DENIALS = {
    "--tls <": [r"no TLS: STARTTLS", r"without TLS \(the specification", r"Encryption, authentication, TLS:"],
    "dedup-verify": [r"no switch for it yet", r"Comparing bytes before sharing, as an option"],
    "onefold dedup": [r"nothing joins them later"],
    "onefold import": [r"there is no client here"],
    "--metadata <": [r"If the metadata region is full \(docs/disk-format"],
}


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def least_kernel():
    return re.search(r'const LEAST_KERNEL: &str = "([\d.]+)"', read("crates/onefold/src/io/ring.rs"))[1]


class Statements(unittest.TestCase):
    def test_every_page_names_the_same_least_kernel(self):
        """README asked for 5.19 where the program asked for 5.11."""
        named = {page: found for page in USER_PAGES if (found := re.findall(r"Linux (\d+\.\d+) or newer", read(page)))}
        self.assertIn("README.md", named)
        for page, found in named.items():
            self.assertEqual(set(found), {least_kernel()}, page)
        message = read("crates/onefold/src/io/ring.rs")
        self.assertEqual(re.findall(r"Linux \d+\.\d+ or newer", message), [], "messages take it from the constant")

    def test_no_page_denies_what_is_there(self):
        reference = read("docs/reference.md")
        sources = USER_PAGES + ["crates/nbd/src/handshake.rs", "docs/disk-format.md"]
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

        table = re.findall(r"^\| \**(\d+) (GiB|TiB)\**(?: \|[^|]*){6} \| ([\d,]+) \|", read("docs/disk-format.md"), re.M)
        self.assertEqual(len(table), 3)
        for number, unit, bytes_ in table:
            self.assertEqual(length(int(number) * (GIB if unit == "GiB" else 1024 * GIB)), int(bytes_.replace(",", "")))
        with Pool() as pool:
            onefold("create", pool.path, "--capacity", "1G")
            self.assertEqual(os.path.getsize(pool.path), length(GIB))
        said = re.search(r"A pool of 10 GiB is ([\d.]+) GiB long, one of 1 TiB ([\d.]+) TiB", read("README.md"))
        self.assertEqual(said.groups(), (f"{length(10 * GIB) / GIB:.1f}", f"{length(1024 * GIB) / (1024 * GIB):.2f}"))

    def test_the_number_of_mutants_is_not_exaggerated(self):
        enum = re.search(r"pub enum Canary \{(.*?)^\}", read("crates/engine/src/canary.rs"), re.S | re.M)[1]
        count = len(re.findall(r"^    \w+,", enum, re.M))
        self.assertIn("in more than fifty ways", read("README.md"))
        self.assertGreater(count, 50)


if __name__ == "__main__":
    unittest.main()
