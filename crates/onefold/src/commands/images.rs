//! `onefold import` and `onefold export`: images into volumes and volumes into images.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail, ensure};
use engine::{ControlError, is_snapshot_name};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::cli::{Allow, ExportArgs, ImportArgs};
use crate::commands::ephemeral_server::{SendRequest, Work, with_pool};
use crate::commands::error_text::explain_control;
use crate::frontend::nbd::listen::Address;
use crate::io::locks;
use crate::operators::command;
use crate::operators::control::Request;
use crate::print::{complain, outside, print, print_json, shown};
use crate::report::status::{Report, VERSION, VolumeReport, no_volume};
use crate::size;
use crate::store::backing::{self, Kind, Store};
use crate::store::guard::{self, Allowed};
use crate::transfer::copy::{self, Before, Interrupted, Outcome, Transfer};
use crate::transfer::disk::Place;
use crate::transfer::format;
use crate::transfer::tool::{self, Tool};

/// A block, as the figures count them.
const BLOCK: u64 = 4096;
/// Bytes of which the size of an image is a multiple.
const SECTOR: u64 = 512;

/// Blocks of writes since the pool was opened: those that got a slot, and those that were known already.
#[derive(Clone, Copy, Default)]
struct Written {
    new: u64,
    known: u64,
}

impl Written {
    fn of(volume: &VolumeReport) -> Written {
        let writes = &volume.writes;
        Written { new: writes.written_blocks, known: writes.removed_blocks + writes.unchanged_blocks }
    }
}

/// Destination of an import as it was found, to plan the transfer.
struct Plan {
    before: Before,
    size: u64,
    written: Written,
}

/// Brings an image into a volume.
pub fn import(arguments: &ImportArgs) -> anyhow::Result<ExitCode> {
    let ImportArgs { target, volume, image, snapshot, .. } = arguments;
    if let Some(name) = snapshot {
        ensure!(is_snapshot_name(name), "--snapshot {name}: {}", explain_control(ControlError::BadName));
    }
    let snapshot = snapshot.as_ref().map(|name| (name, format!("{volume}@{name}")));
    let stop = stop_flag()?;
    let file = guard::open_source(image, &target.pool, arguments.format.as_deref() == Some("raw"))?;
    let format = match &arguments.format {
        Some(format) => format.as_str(),
        None => format::of_content(image)?,
    };
    require_good(image, &file, format, &arguments.allow)?;
    let tool = (format != "raw").then(|| Tool::serve(image, format, false)).transpose()?;
    let source = tool.as_ref().map_or_else(|| Place::File(file.into(), image.clone()), Tool::place);
    let length = source.open(false)?.size();
    ensure!(length > 0, "the image {} is empty", image.display());
    let needed = length.checked_next_multiple_of(BLOCK).context("the image is too large")?;
    let prepare = |report: &Report| {
        let find = |name: &String| report.volumes.iter().find(|known| known.name == *name);
        if let Some((_, name)) = snapshot.as_ref().filter(|(_, name)| find(name).is_some()) {
            bail!("the snapshot '{name}' exists: choose another name, or delete it first");
        }
        let Some(known) = find(volume) else {
            ensure!(
                !volume.contains('@'),
                "'{volume}' is the name of a snapshot, and an image goes into a volume: name a volume"
            );
            let request = Request::CreateVolume { name: volume.clone(), size_bytes: needed, policy: "inherit".into() };
            let plan = Plan { before: Before::Empty, size: needed, written: Written::default() };
            return Ok((plan, Some(request)));
        };
        let before = check_destination(known, needed, arguments)?;
        Ok((Plan { before, size: known.size_bytes, written: Written::of(known) }, None))
    };
    let job = |address: &Address, plan: Plan, send: SendRequest<'_>| {
        let destination = &Place::Export(address.clone(), volume.clone());
        let Plan { before, size, written } = plan;
        ensure!(
            before != Before::Empty || copy::is_empty(destination, size)?,
            "the volume '{volume}' holds data already: --resume goes on with an import that was interrupted, --overwrite replaces \
             everything in it"
        );
        let transfer = Transfer { source: &source, destination, size, before, what: "importing", stop: &stop };
        let outcome = transfer.run()?;
        if let Some((name, full)) = &snapshot {
            let request = Request::CreateSnapshots { volumes: vec![volume.clone()], name: (*name).clone() };
            let made = send(&request);
            made.with_context(|| {
                format!("the image is in the volume '{volume}', but the snapshot '{full}' was not made")
            })?;
        }
        Ok((outcome, size, written))
    };
    let names = [volume.clone()].into_iter().chain(snapshot.iter().map(|(_, full)| full.clone())).collect();
    let result = with_pool(target, Work { stop: &stop, names, writes: true, prepare, job });
    let ((outcome, size, before), report) = result.map_err(|error| {
        let again = format!("onefold import {} {volume} {} --resume", target.pool.display(), image.display());
        let snapshot = snapshot.as_ref().map_or(String::new(), |(name, _)| format!(" --snapshot {name}"));
        explain(error, &(again + &snapshot))
    })?;
    let after = report.volumes.iter().find(|known| known.name == *volume).map_or(before, Written::of);
    let new = after.new.saturating_sub(before.new);
    let known = after.known.saturating_sub(before.known);
    let zeroes = length.saturating_sub(outcome.data);
    if arguments.json {
        print_json(&json!({
            "version": VERSION, "volume": volume, "image": image.display().to_string(), "format": format,
            "size_bytes": size, "data_bytes": outcome.data, "zero_bytes": zeroes,
            "in_place_bytes": outcome.in_place, "sent_bytes": outcome.written, "new_blocks": new, "known_blocks": known, "verified": true,
            "snapshot": snapshot.as_ref().map(|(_, full)| full),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    print(format_args!("imported {} ({format}) into the volume '{volume}': {}\n", shown(image), size::show(length)));
    print(format_args!(
        "data:      {}; {} are zeroes or holes, which take no space\n",
        size::show(outcome.data),
        size::show(zeroes)
    ));
    if needed > length {
        print(format_args!(
            "rounded:   {length} bytes are no whole blocks: the volume has {} bytes of zeroes behind them\n",
            needed - length
        ));
    }
    if outcome.in_place > 0 {
        print(format_args!("in place:  {} of the data were in this volume already\n", size::show(outcome.in_place)));
    }
    let percent = (known * 100).checked_div(new + known).unwrap_or(0);
    print(format_args!(
        "stored:    {} new; {} ({percent} %) needed no space, because the pool had it\n\
         verified:  every block was read back and compared\n",
        size::show(new * BLOCK),
        size::show(known * BLOCK)
    ));
    if let Some((_, full)) = &snapshot {
        let pool = shown(&target.pool);
        print(format_args!("snapshot:  {full}; 'onefold clone {pool} {full} NAME' makes a volume of it\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses an image that QEMU may write, whose header names other files, or that is damaged, unless that is allowed.
pub fn require_good(image: &Path, file: &File, format: &str, allow: &[Allow]) -> anyhow::Result<()> {
    let shown = image.display();
    if !locks::is_written(file) {
        // A file system that has no such locks has no QEMU that keeps them.
        let _ = locks::read(file);
    } else {
        ensure!(
            allow.contains(&Allow::InUse) && format == "raw",
            "{shown} is open in QEMU, which may write it while it is read: stop the guest, or take a copy of a snapshot; --allow in-use \
             takes a raw image as it is"
        );
    }
    if format == "raw" {
        return Ok(());
    }
    if !allow.contains(&Allow::OtherFiles) {
        let others = tool::other_files(image, format)?;
        ensure!(
            others.is_empty(),
            "the header of {shown} names other files of this host ({}), and they would be read as part of the image: \
             'qemu-img convert' makes one file of them, or --allow other-files takes them if you trust the image",
            outside(&others.join(", "))
        );
    }
    if !allow.contains(&Allow::Damaged)
        && let Some(what) = tool::damage(image, format)?
    {
        bail!(
            "{shown} is damaged, or was cut short: {}. The missing part would be zeroes; copy the image once more, or add --allow damaged",
            outside(&what)
        );
    }
    Ok(())
}

/// Checks that a volume can take an image of this size: large enough, writable, without clients. Returns its possible contents before.
fn check_destination(volume: &VolumeReport, needed: u64, arguments: &ImportArgs) -> anyhow::Result<Before> {
    let (name, pool) = (&volume.name, arguments.target.pool.display());
    ensure!(
        volume.size_bytes >= needed,
        "the volume '{name}' has {}, and the image needs {}: 'onefold volume resize {pool} {name} {needed}' makes it larger",
        size::show(volume.size_bytes),
        size::show(needed)
    );
    ensure!(
        volume.snapshot.is_none(),
        "'{name}' is a snapshot, which never changes: import into a volume, or into a clone of it ('onefold clone')"
    );
    ensure!(
        !volume.read_only,
        "the volume '{name}' is read-only: 'onefold volume set {pool} {name} read-only=off' lifts it"
    );
    ensure!(
        volume.clients == 0,
        "the volume '{name}' is in use by {}: disconnect first, or import into another volume",
        command::plural(volume.clients)
    );
    Ok(match (arguments.overwrite, arguments.resume) {
        (true, _) => Before::Anything,
        (_, true) => Before::Part,
        _ => Before::Empty,
    })
}

/// Makes an image of a volume.
pub fn export(arguments: &ExportArgs) -> anyhow::Result<ExitCode> {
    let ExportArgs { target, volume, image, .. } = arguments;
    let stop = stop_flag()?;
    let format = match &arguments.format {
        Some(format) => format.as_str(),
        None => format::of_name(image).map_err(anyhow::Error::msg)?,
    };
    let (before, claimed) = check_image(image, arguments)?;
    let prepare = |report: &Report| {
        let known = report.volumes.iter().find(|known| known.name == *volume);
        let known = known.ok_or_else(|| anyhow::Error::msg(no_volume(volume)))?;
        if known.clients > 0 {
            complain(format_args!(
                "note: '{volume}' is in use by {}: concurrent writes may be in the image or not",
                command::plural(known.clients)
            ));
        }
        let (size, wanted) = (known.size_bytes, arguments.size.unwrap_or(known.size_bytes));
        ensure!(
            wanted >= size,
            "--size send for {}, and the volume '{volume}' has {}: a part of a volume is no image of it. Name at least {size}, or leave --size out",
            size::show(wanted),
            size::show(size)
        );
        ensure!(
            wanted.is_multiple_of(SECTOR),
            "--size send for {wanted} bytes: the size of an image is a multiple of {SECTOR}"
        );
        Ok((wanted, None))
    };
    let job = |address: &Address, size: u64, _: SendRequest<'_>| {
        let source = &Place::Export(address.clone(), volume.clone());
        let (tool, destination) = make_image(image, format, size, before, claimed)?;
        let destination = &destination;
        let space = destination.open(true)?.size();
        ensure!(
            space >= size,
            "{} has {}, and the image needs {}",
            image.display(),
            size::show(space),
            size::show(size)
        );
        let outcome = Transfer { source, destination, size, before, what: "exporting", stop: &stop }.run()?;
        tool.map_or(Ok(()), Tool::finish)?;
        Ok((outcome, size, space - size))
    };
    let names = vec![volume.clone()];
    let result = with_pool(target, Work { stop: &stop, names, writes: false, prepare, job });
    let ((outcome, size, behind), _): ((Outcome, u64, u64), _) = result.map_err(|error| {
        explain(error, &format!("onefold export {} {volume} {} --resume", target.pool.display(), image.display()))
    })?;
    if arguments.json {
        print_json(&json!({
            "version": VERSION, "volume": volume, "image": image.display().to_string(), "format": format,
            "size_bytes": size, "data_bytes": outcome.data, "sent_bytes": outcome.written, "untouched_bytes": behind,
            "verified": true,
        }));
    } else {
        print(format_args!(
            "exported the volume '{volume}' to {} ({format}): {}, {} of it data\n\
             verified:  every block was read back and compared\n",
            shown(image),
            size::show(size),
            size::show(outcome.data)
        ));
        if behind > 0 {
            print(format_args!(
                "untouched: {} behind the image keep what they held; --size {} makes them zeroes\n",
                size::show(behind),
                size + behind
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the image may be overwritten. Returns its contents before, and its store, locked, if it exists.
fn check_image(image: &Path, arguments: &ExportArgs) -> anyhow::Result<(Before, Option<Store>)> {
    let Some(kind) = backing::kind_of(image)? else {
        ensure!(!arguments.resume, "{} does not exist: there is nothing to go on with", image.display());
        return Ok((Before::Empty, None));
    };
    let before = match (arguments.resume, arguments.overwrite, kind) {
        (true, ..) => Before::Part,
        (_, true, Kind::File) => Before::Empty,
        (_, true, Kind::Device) => Before::Anything,
        _ => bail!(
            "{} exists: --overwrite replaces it, --resume goes on with an export that was interrupted",
            image.display()
        ),
    };
    Ok((before, guard::claim(image, Allowed::Foreign)?))
}

/// Makes the file that the volume goes to, unless it is there, and returns its place; for a format other than raw, with the tool that serves it.
fn make_image(
    image: &Path,
    format: &str,
    size: u64,
    before: Before,
    claimed: Option<Store>,
) -> anyhow::Result<(Option<Tool>, Place)> {
    if format != "raw" {
        // QEMU has locks of its own, and checks for those of others. On some network file systems ours would conflict with them.
        drop(claimed);
        if before == Before::Empty {
            tool::create(image, format, size)?;
        }
        let tool = Tool::serve(image, format, true)?;
        let place = tool.place();
        return Ok((Some(tool), place));
    }
    let file = match claimed {
        Some(store) => store.file().try_clone(),
        // A file that appeared meanwhile is not ours.
        None => OpenOptions::new().read(true).write(true).create_new(true).open(image),
    };
    let file = file.with_context(|| format!("cannot make {}", image.display()))?;
    locks::write(&file).with_context(|| format!("cannot lock {}", image.display()))?;
    if before == Before::Empty {
        let emptied = file.set_len(0).and_then(|()| file.set_len(size));
        emptied.with_context(|| format!("cannot make {} {size} bytes long", image.display()))?;
    }
    Ok((None, Place::File(file.into(), image.into())))
}

/// Creates the flag that a signal sets to ask for the end.
fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// Adds the way to resume after an interruption.
fn explain(error: anyhow::Error, again: &str) -> anyhow::Error {
    if error.is::<Interrupted>() {
        return anyhow::anyhow!("interrupted; the copied part is kept. Continue with: {again}");
    }
    error
}
