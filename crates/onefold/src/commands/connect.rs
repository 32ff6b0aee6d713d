//! `onefold connect`: text to paste, so that a client finds a volume of the running server.
//!
//! Everything is taken from the server's own report: its addresses, the name of the export, and the right to write. Names and paths are quoted as each place
//! wants it: for the shell, as JSON, in XML, in a URI.

use std::process::ExitCode;

use anyhow::{Context, bail};
use nbd::wire::PREFERRED_BLOCK_BYTES;
use serde_json::{Value, json};

use crate::commands::cli::{ConnectArgs, Form};
use crate::frontend::nbd::listen::{Address, with_tls};
use crate::operators::control::{self, Request};
use crate::operators::selection::Selection;
use crate::print::{outside, print};
use crate::report::status::{Report, no_volume};

/// Seconds for which a client keeps requests and tries again when its server is restarted.
const RECONNECT_SECONDS: u32 = 300;
/// Sector size that a guest sees: firmware and images with partitions expect 512 bytes.
const LOGICAL_BLOCK_BYTES: u32 = 512;
/// Folder of a client's certificate and of that of the server's signer, under the names that qemu and nbdkit use.
const CERTIFICATES: &str = "/etc/pki/onefold";

/// Device name used in examples; the reader may choose another.
const DEVICE: &str = "nbd0";

/// Prints how to connect.
pub fn connect(arguments: &ConnectArgs) -> anyhow::Result<ExitCode> {
    let (pool, name) = (arguments.target.pool.display(), &arguments.volume);
    let asked = control::call_server_of(
        &arguments.target.pool,
        arguments.target.control.as_deref(),
        &Request::status(Selection::one(name)),
    )?;
    let Some(report) = asked else {
        bail!("{pool} is not being served: start 'onefold serve {pool}', then ask again");
    };
    report.require_opened()?;
    let place = Place::of(&report, name, arguments.tcp)
        .with_context(|| format!("{pool} cannot be connected to in this way"))?;
    place.refuse_control_characters(arguments.form())?;
    print(format_args!("{}", place.text(arguments.form())));
    Ok(ExitCode::SUCCESS)
}

/// Address and export of a volume, and the access that a client has.
#[derive(Clone, Debug)]
pub struct Place {
    address: Address,
    export: String,
    read_only: bool,
    /// True if a client has to encrypt.
    tls: bool,
}

impl Place {
    /// Finds the place of a volume in a server's report. A Unix socket goes before TCP, unless TCP is requested.
    pub fn of(report: &Report, name: &str, tcp: bool) -> anyhow::Result<Place> {
        let volume = report.volumes.iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| anyhow::Error::msg(no_volume(name)))?;
        let read = |address: &String| Address::parse(address).map_err(anyhow::Error::msg);
        let mut addresses = report.addresses.iter().map(read).collect::<anyhow::Result<Vec<_>>>()?;
        addresses.sort_by_key(|address| matches!(address, Address::Tcp { .. }) != tcp);
        let address = addresses.into_iter().next().context("its server does not say where it listens")?;
        if tcp && !matches!(address, Address::Tcp { .. }) {
            bail!("its server does not listen on TCP: start it with --listen tcp:127.0.0.1:10809 as well");
        }
        let read_only = volume.read_only || report.mode == "read-only";
        let tls = report.tls == "require" && matches!(address, Address::Tcp { .. });
        Ok(Place { address: reachable(address), export: name.into(), read_only, tls })
    }

    /// Refuses a place that would be more than one line, or would look like another one, where it is pasted. A URI and JSON have escapes for that.
    fn refuse_control_characters(&self, form: Form) -> anyhow::Result<()> {
        let place = self.address.to_string();
        let is_pasted_raw = matches!(form, Form::Libvirt | Form::NbdClient | Form::Fstab);
        if is_pasted_raw && outside(&place) != place {
            bail!(
                "the server listens on {}: a path with control characters cannot be written there. Serve with --listen unix:PATH elsewhere",
                outside(&place)
            );
        }
        Ok(())
    }

    /// Formats the NBD URI, with the folder of certificates if a client has to encrypt.
    pub fn uri(&self) -> String {
        let uri = self.address.uri(&self.export);
        if !self.tls {
            return uri;
        }
        format!("{}?tls-certificates={CERTIFICATES}", with_tls(uri))
    }

    /// Formats the text to paste for this kind of client.
    pub fn text(&self, form: Form) -> String {
        match form {
            Form::Uri => format!("{}\n", self.uri()),
            Form::Qemu => self.qemu(),
            Form::Libvirt => self.libvirt(),
            Form::NbdClient => self.nbd_client(),
            Form::Fstab => self.fstab(),
            Form::Nbdfuse => self.nbdfuse(),
        }
    }

    /// Derives QEMU's node name from the export: at most 31 characters, only letters, digits, `-` and `_`, a letter first.
    fn node(&self) -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' };
        let name: String = self.export.chars().map(allowed).take(28).collect();
        format!("of-{name}")
    }

    /// Builds the block device of QEMU's `-blockdev`.
    fn blockdev(&self) -> Value {
        let server = match &self.address {
            Address::Unix(path) => json!({ "type": "unix", "path": path.to_string_lossy() }),
            Address::Tcp { host, port } => json!({ "type": "inet", "host": host, "port": port.to_string() }),
        };
        let mut device = json!({
            "driver": "nbd",
            "node-name": self.node(),
            "server": server,
            "export": self.export,
            "reconnect-delay": RECONNECT_SECONDS,
            "discard": "unmap",
            "cache": { "direct": true, "no-flush": false },
            "read-only": self.read_only,
        });
        if self.tls {
            device["tls-creds"] = "of-tls".into();
        }
        device
    }

    fn qemu(&self) -> String {
        let mut device = json!({
            "driver": "virtio-blk-pci",
            "drive": self.node(),
            "logical_block_size": LOGICAL_BLOCK_BYTES,
            "physical_block_size": PREFERRED_BLOCK_BYTES,
            "discard": !self.read_only,
            "write-zeroes": !self.read_only,
        });
        if !self.read_only {
            device["discard_granularity"] = PREFERRED_BLOCK_BYTES.into();
        }
        let credentials = if self.tls {
            format!("-object tls-creds-x509,id=of-tls,endpoint=client,dir={CERTIFICATES} \\\n")
        } else {
            String::new()
        };
        format!(
            "{credentials}-blockdev {} \\\n-device {}\n",
            for_shell(&self.blockdev().to_string()),
            for_shell(&device.to_string())
        )
    }

    fn libvirt(&self) -> String {
        let host = match &self.address {
            Address::Unix(path) => format!("<host transport='unix' socket='{}'/>", for_xml(&path.to_string_lossy())),
            Address::Tcp { host, port } => format!("<host name='{}' port='{port}'/>", for_xml(host)),
        };
        let locked = if self.read_only { "\n  <readonly/>" } else { "" };
        let tls = if self.tls { " tls='yes'" } else { "" };
        format!(
            "<disk type='network' device='disk'>\n  \
               <driver name='qemu' type='raw' cache='none' discard='unmap'/>\n  \
               <source protocol='nbd' name='{}'{tls}>\n    {host}\n    <!-- Needs a libvirt newer than 9.0; older ones leave it out. -->\n    <reconnect delay='{RECONNECT_SECONDS}'/>\n  </source>\n  \
               <target dev='vda' bus='virtio'/>\n  \
               <blockio logical_block_size='{LOGICAL_BLOCK_BYTES}' physical_block_size='{PREFERRED_BLOCK_BYTES}'/>{locked}\n\
             </disk>\n",
            for_xml(&self.export)
        )
    }

    fn nbd_client(&self) -> String {
        let place = match &self.address {
            Address::Unix(path) => format!("-unix {}", for_shell(&path.to_string_lossy())),
            Address::Tcp { host, port } => format!("{} {port}", for_shell(host)),
        };
        let locked = if self.read_only { " -readonly" } else { "" };
        let tls = if self.tls {
            format!(
                " -certfile {CERTIFICATES}/client-cert.pem -keyfile {CERTIFICATES}/client-key.pem -cacertfile {CERTIFICATES}/ca-cert.pem"
            )
        } else {
            String::new()
        };
        let export = for_shell(&self.export);
        format!(
            "sudo modprobe nbd\n\
             sudo nbd-client {place} /dev/{DEVICE} -name {export} -block-size 4096 -timeout {RECONNECT_SECONDS} \
             -nonetlink -persist{locked}{tls}\n\
             # The end: sudo nbd-client -d /dev/{DEVICE}\n"
        )
    }

    fn fstab(&self) -> String {
        let (place, how) = match &self.address {
            Address::Unix(path) => (path.to_string_lossy().into_owned(), "unix".to_string()),
            Address::Tcp { host, port } => (host.clone(), format!("port={port}")),
        };
        let locked = if self.read_only { ",ro" } else { ",discard" };
        let tls = if self.tls {
            format!(
                ",certfile={CERTIFICATES}/client-cert.pem,keyfile={CERTIFICATES}/client-key.pem,cacertfile={CERTIFICATES}/ca-cert.pem"
            )
        } else {
            String::new()
        };
        let blank = |text: &str| text.contains(|c: char| c.is_whitespace() || c == '#');
        let warning = if blank(&place) {
            "# The path has a blank, which /etc/nbdtab cannot hold: serve with --listen unix:PATH elsewhere.\n"
        } else {
            ""
        };
        format!(
            "{warning}\
             # /etc/nbdtab\n\
             {DEVICE} {place} {} {how},bs=4096,timeout={RECONNECT_SECONDS},persist{tls}\n\
             # /etc/fstab, after: sudo systemctl enable --now nbd@{DEVICE} && sudo mkdir -p /srv/{}\n\
             /dev/{DEVICE} /srv/{} auto defaults,nofail,_netdev,x-systemd.requires=nbd@{DEVICE}.service{locked} 0 0\n",
            self.export, self.export, self.export
        )
    }

    fn nbdfuse(&self) -> String {
        let file = for_shell(&format!("mnt/{}", self.export));
        let locked = if self.read_only { "-r " } else { "" };
        format!(
            "mkdir -p mnt && touch {file}\nnbdfuse {locked}{file} {} &\n# The end: fusermount3 -u {file}\n",
            for_shell(&self.uri())
        )
    }
}

/// Replaces an address that no client can name: a server that listens on every address of its machine is found by the machine's name.
fn reachable(address: Address) -> Address {
    match address {
        Address::Tcp { host, port } if host == "0.0.0.0" || host == "::" => {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Address::Tcp { host: name, port }
        }
        other => other,
    }
}

/// Quotes text as one word of a shell, if that is needed.
fn for_shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Escapes text for the value of an XML attribute in single quotes.
fn for_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\'' => escaped.push_str("&apos;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, read_only: bool) -> Place {
        Place { address: Address::parse(address).unwrap(), export: "db".into(), read_only, tls: false }
    }

    #[test]
    fn words_are_quoted_where_they_are_pasted() {
        assert_eq!(for_shell("/run/a.sock"), "/run/a.sock");
        assert_eq!(for_shell("it's"), r"'it'\''s'");
        assert_eq!(for_shell(""), "''");
        assert_eq!(for_xml("a<'b'>&\""), "a&lt;&apos;b&apos;&gt;&amp;&quot;");
    }

    #[test]
    fn a_read_only_volume_is_connected_read_only() {
        let (open, locked) = (place("unix:/run/a.sock", false), place("unix:/run/a.sock", true));
        for (form, word) in [
            (Form::Qemu, "\"read-only\":true"),
            (Form::Libvirt, "<readonly/>"),
            (Form::NbdClient, "-readonly"),
            (Form::Fstab, ",ro "),
            (Form::Nbdfuse, "nbdfuse -r "),
        ] {
            assert!(locked.text(form).contains(word), "{}", locked.text(form));
            assert!(!open.text(form).contains(word), "{}", open.text(form));
        }
    }

    #[test]
    fn a_path_with_a_line_break_is_pasted_nowhere_as_it_is() {
        let evil = place("unix:/run/a\nnbd1 evil.sock", false);
        for form in [Form::Fstab, Form::NbdClient, Form::Libvirt] {
            let refused = evil.refuse_control_characters(form).unwrap_err().to_string();
            assert!(refused.contains("\\u000a") && !refused.contains('\n'), "{refused}");
        }
        for form in [Form::Uri, Form::Qemu, Form::Nbdfuse] {
            evil.refuse_control_characters(form).unwrap();
            assert!(!evil.text(form).contains("\nnbd1"), "{}", evil.text(form));
        }
    }

    #[test]
    fn tcp_says_host_and_port() {
        let tcp = place("tcp:[::1]:10809", false);
        assert_eq!(tcp.uri(), "nbd://[::1]:10809/db");
        assert!(
            tcp.text(Form::Qemu).contains(r#""host":"::1","port":"10809","type":"inet""#),
            "{}",
            tcp.text(Form::Qemu)
        );
        assert!(tcp.text(Form::Libvirt).contains("<host name='::1' port='10809'/>"));
        assert!(tcp.text(Form::NbdClient).contains("nbd-client ::1 10809 /dev/nbd0"));
        assert!(tcp.text(Form::Fstab).contains("nbd0 ::1 db port=10809,"));
    }

    #[test]
    fn a_server_on_every_address_is_found_by_the_name_of_its_machine() {
        let found = reachable(Address::parse("tcp:0.0.0.0:1").unwrap());
        assert!(!found.to_string().contains("0.0.0.0"), "{found}");
        assert_eq!(reachable(Address::parse("tcp:127.0.0.1:1").unwrap()).to_string(), "tcp:127.0.0.1:1");
    }
}
