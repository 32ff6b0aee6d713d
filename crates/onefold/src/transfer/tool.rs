//! qemu-nbd and qemu-img: images of other formats than raw, as exports.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::frontend::nbd::listen::Address;
use crate::transfer::client::Client;
use crate::transfer::disk::Place;
use crate::transfer::folder::Folder;
use crate::transfer::format;

/// Time that qemu-nbd may take to open an image.
const PATIENCE: Duration = Duration::from_secs(30);
/// Exit codes of `qemu-img check`: nothing is wrong, space is lost and no data, it knows no check for the format.
const CHECK_GOOD: i32 = 0;
const CHECK_LEAKS: i32 = 3;
const CHECK_UNKNOWN: i32 = 63;
/// Clients that it serves: the workers of a transfer, and a few more.
const CLIENTS: u32 = 16;

/// An image that qemu-nbd serves as long as this lives. It ends with its last client, so it cannot outlive us.
pub struct Tool {
    child: Child,
    client: Option<Client>,
    socket: PathBuf,
    _folder: Folder,
}

impl Tool {
    /// Serves an image.
    pub fn serve(image: &Path, format: &str, writes: bool) -> anyhow::Result<Tool> {
        let folder = Folder::new()?;
        let socket = folder.join("image.sock");
        let image = absolute(image)?;
        let mut command = Command::new("qemu-nbd");
        command.arg(format!("--shared={CLIENTS}")).arg(format!("--format={format}"));
        command.arg("--socket").arg(&socket);
        if writes {
            command.arg("--discard=unmap");
        } else {
            command.arg("--read-only");
        }
        command.arg("--").arg(&image).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| missing(error, "qemu-nbd", format))?;
        let mut tool = Tool { child, client: None, socket, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(client) = Client::connect(&tool.address(), "") {
                tool.client = Some(client);
                return Ok(tool);
            }
            if tool.child.try_wait().context("cannot wait for qemu-nbd")?.is_some() {
                let mut said = String::new();
                if let Some(mut errors) = tool.child.stderr.take() {
                    let _ = errors.read_to_string(&mut said);
                }
                bail!("{} as {format}: {}", image.display(), said.trim());
            }
            if Instant::now() > deadline {
                bail!("qemu-nbd does not open {} within {} s", image.display(), PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    /// Returns the place at which the image is served.
    pub fn place(&self) -> Place {
        Place::Export(self.address(), String::new())
    }

    /// Lets it finish its writes, and waits for its end.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.client = None;
        let status = self.child.wait().context("cannot wait for qemu-nbd")?;
        anyhow::ensure!(status.success(), "qemu-nbd failed ({status})");
        Ok(())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if self.client.take().is_some() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Lists the names of other files that the header of an image references: a backing file, a data file, extents.
pub fn other_files(image: &Path, format: &str) -> anyhow::Result<Vec<String>> {
    let path = absolute(image)?;
    let mut command = Command::new("qemu-img");
    command.args(["info", "--force-share", "--output=json", "-f", format, "--"]).arg(&path).stdin(Stdio::null());
    let done = command.output().map_err(|error| missing(error, "qemu-img", format))?;
    if !done.status.success() {
        bail!("{} as {format}: {}", image.display(), String::from_utf8_lossy(&done.stderr).trim());
    }
    let info: Value = serde_json::from_slice(&done.stdout).context("qemu-img said something that is no JSON")?;
    let data = &info["format-specific"]["data"];
    let extents = data["extents"].as_array().into_iter().flatten().map(|extent| &extent["filename"]);
    let names = [&info["backing-filename"], &data["data-file"]].into_iter().chain(extents).filter_map(Value::as_str);
    Ok(names.filter(|name| Path::new(name) != path).map(String::from).collect())
}

/// Finds the damage of an image, by its own tables: data beyond its end, as of one that was cut short, which would read as zeroes.
pub fn damage(image: &Path, format: &str) -> anyhow::Result<Option<String>> {
    if format::is_cut_short(image, format)? {
        return Ok(Some("it ends before its last block".into()));
    }
    let path = absolute(image)?;
    let mut command = Command::new("qemu-img");
    command.args(["check", "--force-share", "-f", format, "--"]).arg(&path).stdin(Stdio::null());
    let done = command.output().map_err(|error| missing(error, "qemu-img", format))?;
    match done.status.code() {
        Some(CHECK_GOOD | CHECK_LEAKS | CHECK_UNKNOWN) => Ok(None),
        _ => {
            let said = [done.stderr, done.stdout].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
            Ok(Some(
                said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("qemu-img check failed").into(),
            ))
        }
    }
}

fn absolute(image: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(image).with_context(|| format!("cannot use the path {}", image.display()))
}

/// Makes an empty image.
pub fn create(image: &Path, format: &str, size: u64) -> anyhow::Result<()> {
    let path = absolute(image)?;
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", format, "--"]).arg(&path).arg(size.to_string()).stdin(Stdio::null());
    let done = command.output().map_err(|error| missing(error, "qemu-img", format))?;
    if !done.status.success() {
        bail!("cannot make {}: {}", image.display(), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}

/// Explains that a program cannot be started, with advice for its installation.
fn missing(error: std::io::Error, program: &str, format: &str) -> anyhow::Error {
    if error.kind() == ErrorKind::NotFound {
        return anyhow::anyhow!(
            "images of the format {format} need {program}, which is not installed: 'apt-get install qemu-utils' (or qemu-img), \
             or convert the image to raw elsewhere"
        );
    }
    anyhow::Error::new(error).context(format!("cannot start {program}"))
}
