//! Examples of every command, and its related commands, for its manual page. The tests parse each example as a command line.

/// A manual page's own part.
pub struct Page {
    /// Its command, without `onefold`; empty for the program itself.
    pub command: &'static str,
    /// Examples: the effect of each, and its command line without `onefold`.
    pub examples: &'static [(&'static str, &'static str)],
    /// Other pages, by their commands.
    pub see: &'static [&'static str],
}

/// Every page, in the order of the command line.
pub const PAGES: &[Page] = &[
    Page {
        command: "",
        examples: &[
            ("Make a pool of 10 GiB with one volume, and serve it", "serve --create --size 10G disk.onefold"),
            ("Show a pool's contents and savings", "status disk.onefold"),
            ("Add a volume while the pool is served", "volume create disk.onefold web1 --size 20G"),
        ],
        see: &["serve", "status", "volume", "connect", "import", "estimate"],
    },
    Page {
        command: "create",
        examples: &[
            ("Make a pool for 100 GiB of distinct data in a file", "create vms.onefold --capacity 100G"),
            ("Make a pool on a block device, whatever that holds", "create /dev/vg0/pool --capacity 1T --force"),
            (
                "Reserve more for maps, for many clones of one image",
                "create vms.onefold --capacity 100G --metadata 10%",
            ),
        ],
        see: &["serve", "grow", "volume-create"],
    },
    Page {
        command: "grow",
        examples: &[
            ("Let the pool hold 200 GiB", "grow vms.onefold --capacity 200G"),
            ("Make more metadata space", "grow vms.onefold --metadata 8G"),
        ],
        see: &["create", "status"],
    },
    Page {
        command: "volume",
        examples: &[("List the volumes", "volume list vms.onefold")],
        see: &["create", "connect", "import", "export"],
    },
    Page {
        command: "volume create",
        examples: &[
            ("Make a volume of 20 GiB", "volume create vms.onefold web1 --size 20G"),
            ("Share every block that the pool knows", "volume create vms.onefold backup --size 1T --policy full"),
        ],
        see: &["volume-set", "connect", "import"],
    },
    Page {
        command: "volume delete",
        examples: &[("Delete a volume without a question", "volume delete vms.onefold web1 --yes")],
        see: &["volume-list", "export"],
    },
    Page {
        command: "volume resize",
        examples: &[
            ("Make a volume larger", "volume resize vms.onefold web1 40G"),
            ("Shrink it, and lose the data beyond the new end", "volume resize vms.onefold web1 10G --force"),
        ],
        see: &["volume-create", "grow"],
    },
    Page {
        command: "volume rename",
        examples: &[
            ("Rename a volume and its snapshots", "volume rename vms.onefold web1 www"),
            ("Rename a snapshot", "volume rename vms.onefold web1@monday web1@before-upgrade"),
        ],
        see: &["volume-list", "snapshot-list"],
    },
    Page {
        command: "volume set",
        examples: &[
            ("Share every known block from now on", "volume set vms.onefold web1 policy=full"),
            ("Let one client at a time in, and only to read", "volume set vms.onefold web1 exclusive=on read-only=on"),
            ("Keep a volume from deletion and rollback", "volume set vms.onefold web1 protected=on"),
        ],
        see: &["volume-get", "set"],
    },
    Page {
        command: "volume get",
        examples: &[("Show where the policy of a volume comes from", "volume get vms.onefold web1 policy")],
        see: &["volume-set", "get"],
    },
    Page {
        command: "volume list",
        examples: &[("List the volumes for a program", "volume list vms.onefold --json")],
        see: &["status", "volume-create"],
    },
    Page {
        command: "snapshot",
        examples: &[("List the snapshots", "snapshot list vms.onefold")],
        see: &["clone", "volume", "connect", "export"],
    },
    Page {
        command: "snapshot create",
        examples: &[
            ("Keep the state of a volume", "snapshot create vms.onefold web1@before-upgrade"),
            ("Keep the state of two volumes at one moment", "snapshot create vms.onefold db-data@monday db-log@monday"),
        ],
        see: &["clone", "snapshot-list", "export"],
    },
    Page {
        command: "snapshot list",
        examples: &[("List the snapshots of a volume for a program", "snapshot list vms.onefold web1 --json")],
        see: &["snapshot-create", "volume-list"],
    },
    Page {
        command: "snapshot hold",
        examples: &[("Keep a snapshot from deletion", "snapshot hold vms.onefold golden@v1")],
        see: &["snapshot-release", "snapshot-list", "volume-set"],
    },
    Page {
        command: "snapshot release",
        examples: &[("Let a snapshot be deleted again", "snapshot release vms.onefold golden@v1")],
        see: &["snapshot-hold", "snapshot-delete"],
    },
    Page {
        command: "snapshot rollback",
        examples: &[
            ("Undo all that was written since", "snapshot rollback vms.onefold web1@before-upgrade"),
            ("Delete the newer snapshots, too", "snapshot rollback vms.onefold web1@before-upgrade -r --yes"),
        ],
        see: &["snapshot-list", "clone", "snapshot-delete"],
    },
    Page {
        command: "snapshot delete",
        examples: &[("Delete a snapshot without a question", "snapshot delete vms.onefold web1@before-upgrade --yes")],
        see: &["snapshot-list", "volume-delete"],
    },
    Page {
        command: "clone",
        examples: &[
            ("Make a volume of a snapshot", "clone vms.onefold golden@v1 web2"),
            ("Make a thousand: runner-1 to runner-1000", "clone vms.onefold golden@v1 runner --count 1000"),
        ],
        see: &["snapshot-create", "volume-delete", "connect"],
    },
    Page {
        command: "relocate",
        examples: &[
            ("Profile reads from the device", "relocate profile start vms.onefold"),
            ("Show the planned moves", "relocate plan vms.onefold"),
            ("Move it", "relocate run vms.onefold --wait"),
        ],
        see: &["objects", "set"],
    },
    Page {
        command: "relocate profile",
        examples: &[("Begin to note reads", "relocate profile start vms.onefold")],
        see: &["relocate-plan", "objects-import"],
    },
    Page {
        command: "relocate profile start",
        examples: &[("Begin to note reads", "relocate profile start vms.onefold")],
        see: &["relocate-profile-stop", "relocate-plan"],
    },
    Page {
        command: "relocate profile stop",
        examples: &[("End that", "relocate profile stop vms.onefold")],
        see: &["relocate-profile-save"],
    },
    Page {
        command: "relocate profile save",
        examples: &[("Save the profile", "relocate profile save vms.onefold vms.profile")],
        see: &["relocate-profile-load"],
    },
    Page {
        command: "relocate profile load",
        examples: &[("Load a saved profile", "relocate profile load vms.onefold vms.profile")],
        see: &["relocate-profile-save"],
    },
    Page {
        command: "relocate profile show",
        examples: &[("Show the profile", "relocate profile show vms.onefold")],
        see: &["relocate-plan"],
    },
    Page {
        command: "relocate plan",
        examples: &[("Show the planned moves, and the reads that they save", "relocate plan vms.onefold")],
        see: &["relocate-run", "relocate-profile-start"],
    },
    Page {
        command: "relocate run",
        examples: &[
            ("Move at most 10 GiB, and wait for the end", "relocate run vms.onefold --budget 10G --wait"),
            ("Let the run rest", "relocate run vms.onefold --pause"),
        ],
        see: &["relocate-plan", "status"],
    },
    Page {
        command: "objects",
        examples: &[("Take a manifest of a guest's files", "objects import vms.onefold web1 files.txt --offset 1M")],
        see: &["relocate"],
    },
    Page {
        command: "objects import",
        examples: &[
            (
                "Take a manifest of a file system in the first partition",
                "objects import vms.onefold web1 files.txt --offset 1M",
            ),
            ("Take it from the input", "objects import vms.onefold web1 -"),
        ],
        see: &["relocate-profile-start", "relocate-plan"],
    },
    Page {
        command: "cache",
        examples: &[("Show the hits and wear of a flash cache", "cache status vms.onefold")],
        see: &["serve"],
    },
    Page {
        command: "cache attach",
        examples: &[(
            "Use 50 GiB of a flash device, and write at most 20 GiB a day to it",
            "cache attach vms.onefold /dev/nvme0n1 --size 50G --write-budget 20G/day",
        )],
        see: &["cache-status", "cache-detach", "serve"],
    },
    Page {
        command: "cache detach",
        examples: &[("Take the cache away", "cache detach vms.onefold")],
        see: &["cache-attach"],
    },
    Page {
        command: "cache status",
        examples: &[("Show hits, writes and lifetime", "cache status vms.onefold")],
        see: &["cache-attach", "status"],
    },
    Page {
        command: "serve",
        examples: &[
            ("Make a pool with one volume, and serve it", "serve --create --size 10G disk.onefold"),
            (
                "Serve with 2 GiB of memory and a page for browsers",
                "serve vms.onefold --memory 2G --http 127.0.0.1:8080",
            ),
            (
                "Serve other machines, encrypted, with certificates of clients",
                "serve vms.onefold --listen tcp:0.0.0.0:10809 --allow-remote --tls require --tls-verify-peer --tls-certificates /etc/onefold/pki",
            ),
        ],
        see: &["create", "connect", "status", "top"],
    },
    Page {
        command: "set",
        examples: &[
            ("Give the pool more memory, also while it is served", "set vms.onefold memory=2G"),
            ("Share every known block, in all volumes without a policy of their own", "set vms.onefold policy=full"),
        ],
        see: &["get", "volume-set"],
    },
    Page {
        command: "get",
        examples: &[("Show all properties and where they come from", "get vms.onefold")],
        see: &["set", "volume-get"],
    },
    Page {
        command: "import",
        examples: &[
            ("Bring an image into a volume, which is made", "import vms.onefold web1 debian.qcow2"),
            ("Go on after an interruption", "import vms.onefold web1 debian.qcow2 --resume"),
        ],
        see: &["export", "volume-create", "estimate"],
    },
    Page {
        command: "export",
        examples: &[
            ("Make an image of a volume", "export vms.onefold web1 web1.qcow2"),
            (
                "Write a volume to a device, and zeroes up to 64 GiB",
                "export vms.onefold web1 /dev/sdb --overwrite --size 64G",
            ),
        ],
        see: &["import"],
    },
    Page {
        command: "status",
        examples: &[
            ("Show a pool's contents and savings", "status vms.onefold"),
            ("Print metrics for Prometheus", "status vms.onefold --prometheus"),
        ],
        see: &["top", "get", "volume-list"],
    },
    Page { command: "top", examples: &[("Print one frame", "top vms.onefold --once")], see: &["status"] },
    Page {
        command: "connect",
        examples: &[
            ("Print the NBD URI of a volume", "connect vms.onefold web1"),
            ("Print options for QEMU", "connect vms.onefold web1 --qemu"),
        ],
        see: &["serve", "volume-list"],
    },
    Page {
        command: "scrub",
        examples: &[
            ("Verify everything, and wait for the result", "scrub vms.onefold --wait"),
            ("Let the scrub rest", "scrub vms.onefold --pause"),
        ],
        see: &["check", "repair", "status"],
    },
    Page {
        command: "dedup",
        examples: &[("Find all duplicates, and wait for the end", "dedup vms.onefold --wait")],
        see: &["estimate", "status"],
    },
    Page {
        command: "check",
        examples: &[("Audit a pool without a server", "check vms.onefold")],
        see: &["scrub", "repair"],
    },
    Page {
        command: "repair",
        examples: &[
            ("Print a repair and its losses", "repair vms.onefold --dry-run"),
            ("Do it, and read all data too", "repair vms.onefold --yes --data"),
        ],
        see: &["check", "scrub"],
    },
    Page {
        command: "estimate",
        examples: &[
            ("Estimate the savings for images", "estimate /var/lib/libvirt/images"),
            ("Only one policy, and writes of 64 KiB", "estimate /dev/vg0/web1 --policy full --request-size 64K"),
        ],
        see: &["import", "status"],
    },
    Page { command: "completions", examples: &[("Print completions for bash", "completions bash")], see: &["man"] },
    Page {
        command: "man",
        examples: &[("Write the manual pages", "man /usr/local/share/man/man1")],
        see: &["completions"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cli::Cli;
    use clap::{Command, CommandFactory, Parser};

    fn commands(command: &Command, name: &str, found: &mut Vec<String>) {
        found.push(name.to_owned());
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            commands(command, format!("{name} {}", command.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_command_has_examples_that_are_command_lines_of_it() {
        let (mut cli, mut found) = (Cli::command(), Vec::new());
        cli.build();
        commands(&cli, "", &mut found);
        let mut pages: Vec<String> = PAGES.iter().map(|page| page.command.to_owned()).collect();
        let known: Vec<String> = pages.iter().map(|page| page.replace(' ', "-")).collect();
        for page in PAGES {
            assert!(!page.examples.is_empty() && !page.see.is_empty(), "{}", page.command);
            assert!(
                page.see.iter().all(|other| known.contains(&(*other).to_owned())),
                "{}: {:?}",
                page.command,
                page.see
            );
            for (what, line) in page.examples {
                assert!(line.starts_with(page.command) && !what.is_empty(), "{}: {line}", page.command);
                let words = ["onefold"].into_iter().chain(line.split(' '));
                assert!(Cli::try_parse_from(words).is_ok(), "{line}");
            }
        }
        found.sort();
        pages.sort();
        assert_eq!(found, pages);
    }
}
