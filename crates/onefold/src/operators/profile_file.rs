//! File format of a profile of device reads (docs/papers/rededup.md): in a file it survives the end of the server.
//!
//! The file is text, a JSON value a line. The first line holds the version of the form, the pool, and the volumes that it had; then come names, parts and runs
//! as [`Row`] has them; the last line counts these, so that a file that was cut off is known.
//!
//! A command that loads one builds the whole profile first, as the server will: an error names the line, and the server gets no part of it. The server builds
//! the new profile beside its present one, which goes only when all rows have come.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use engine::relocation::Run;
use engine::relocation::objects::Part;
use engine::relocation::profiling::Profiling;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::operators::control::NOT_UNDERSTOOD;
use crate::operators::planning::{self, Asks, Taken};
use crate::operators::relocate::{Answer, Ask, OFF, Row, Step, may_be_counted};
use crate::store::probe;
use crate::store::replace::Replaceable;

/// The version of the form.
const VERSION: u32 = 1;
/// A saved profile replaces a saved profile, and nothing else.
const PROFILE: Replaceable = Replaceable { begins: br#"{"onefold-profile""#, what: "saved profile" };
/// The longest line: the first, with the names of all volumes.
const LINE_MAX: u64 = 32 << 20;
/// Number of rows that are sent at once.
const ROWS_AT_ONCE: usize = 500;
/// Bytes of names that are sent at once, not counting the last name.
const BYTES_AT_ONCE: usize = 8 << 10;
/// Advice for a file that cannot be loaded.
const SAVE_AGAIN: &str = "save the profile again, with 'onefold relocate profile save'";

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Head {
    onefold_profile: u32,
    pool: String,
    reads: u64,
    dropped: u64,
    volumes: Vec<(u32, String)>,
}

/// The last line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    rows: u64,
}

/// A profile, as it is in a file.
#[derive(Debug)]
pub struct ProfileFile {
    /// The pool's id.
    pool: String,
    /// Reads that it was made of.
    reads: u64,
    /// Runs of it that were forgotten.
    pub dropped: u64,
    /// Numbers of the volumes that there were, and their names.
    volumes: Vec<(u32, String)>,
    /// The profile itself.
    pub profiling: Profiling,
}

/// Takes the profile of a pool from its server.
pub fn take(pool: &Path, asks: Asks<'_>) -> anyhow::Result<ProfileFile> {
    let Taken { on, reads, dropped, slots, volumes, names, runs } = Taken::from(asks)?;
    ensure!(on, OFF);
    let objects = names.len() as u64 + u64::from(engine::relocation::objects::FIRST);
    let volumes = volumes.into_iter().collect();
    let mut saved = ProfileFile { pool: id(pool)?, reads, dropped, volumes, profiling: Profiling::default() };
    saved.profiling.profile.go_on_from(reads, dropped);
    let mut rows: Vec<Row> = names.into_iter().map(Row::Name).collect();
    let mut from = 0;
    loop {
        let Answer::Parts { parts } = planning::ask(asks, Ask::Parts { from })? else { bail!(NOT_UNDERSTOOD) };
        if parts.is_empty() {
            break;
        }
        from += parts.len();
        // Objects that got their names meanwhile are not of this profile.
        let known = parts.into_iter().filter(|&(.., object)| u64::from(object) < objects);
        rows.extend(known.map(|(volume, block, blocks, object)| Row::Part(volume, block, blocks, object)));
    }
    rows.extend(runs.iter().map(row_of_run));
    let put = rows.iter().try_for_each(|row| row.put(&mut saved.profiling, slots));
    put.map_err(anyhow::Error::msg).context("the profile was changed while it was saved: save it once more")?;
    Ok(saved)
}

/// Gives a saved profile to the server of a pool; how many runs it has, and how many parts were left out.
pub fn load(file: &Path, pool: &Path, asks: Asks<'_>) -> anyhow::Result<(u64, u64)> {
    let Answer::Summary { slots, .. } = planning::ask(asks, Ask::Summary)? else { bail!(NOT_UNDERSTOOD) };
    let volumes = planning::volumes(asks)?;
    let shown = file.display().to_string();
    let lines = BufReader::new(File::open(file).with_context(|| format!("cannot open {shown}"))?);
    let saved = ProfileFile::read(Lines { lines, shown, number: 0 }, &id(pool)?, slots)?;
    let is_same = |(number, name): &&(u32, String)| volumes.get(number) == Some(name);
    let same: BTreeSet<u32> = saved.volumes.iter().filter(is_same).map(|one| one.0).collect();
    let mut left_out = 0;
    let (by, mut rows, mut bytes) = (std::process::id(), Vec::new(), 0);
    let send = |step: Step| match planning::ask(asks, Ask::Load { by, step })? {
        Answer::Loading | Answer::Summary { .. } => Ok(()),
        _ => bail!(NOT_UNDERSTOOD),
    };
    send(Step::Begin { reads: saved.reads, dropped: saved.dropped })?;
    for row in saved.rows() {
        match &row {
            // The number may be another volume's by now.
            Row::Part(volume, ..) if !same.contains(&u32::from(*volume)) => {
                left_out += 1;
                continue;
            }
            Row::Name(name) => bytes += name.len(),
            _ => {}
        }
        rows.push(row);
        if rows.len() == ROWS_AT_ONCE || bytes >= BYTES_AT_ONCE {
            send(Step::Rows(std::mem::take(&mut rows)))?;
            bytes = 0;
        }
    }
    send(Step::Rows(rows))?;
    send(Step::End)?;
    Ok((saved.profiling.profile.ended() - saved.dropped, left_out))
}

fn id(pool: &Path) -> anyhow::Result<String> {
    let id = probe::id_without_lock(pool)?.with_context(|| format!("{} is no pool", pool.display()))?;
    Ok(format!("{:032x}", u128::from_be_bytes(id)))
}

fn row_of_run(run: &Run) -> Row {
    Row::Run(run.slot, run.blocks, run.object.0)
}

impl ProfileFile {
    /// Writes the profile to a file; an existing file is replaced when the new one is complete.
    pub fn write(&self, file: &Path) -> anyhow::Result<()> {
        PROFILE.replace(file, |made| {
            let mut writer = BufWriter::new(made);
            self.write_to(&mut writer)?;
            Ok(writer.flush()?)
        })
    }

    fn write_to(&self, writer: &mut impl Write) -> anyhow::Result<()> {
        let ProfileFile { pool, reads, dropped, volumes, .. } = self;
        let (pool, volumes) = (pool.clone(), volumes.clone());
        let head = Head { onefold_profile: VERSION, pool, reads: *reads, dropped: *dropped, volumes };
        writeln!(writer, "{}", serde_json::to_string(&head)?)?;
        let mut rows = 0;
        for row in self.rows() {
            writeln!(writer, "{}", serde_json::to_string(&row)?)?;
            rows += 1;
        }
        writeln!(writer, "{}", serde_json::to_string(&End { rows })?)?;
        Ok(())
    }

    /// Iterates over the rows in the order in which they can be put together: names, parts, runs.
    fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let Profiling { profile, objects } = &self.profiling;
        let part = |part: &Part| Row::Part(part.volume.0, part.block, part.blocks, part.object.0);
        let names = objects.names().iter().cloned().map(Row::Name);
        names.chain(objects.parts().iter().map(part)).chain(profile.runs_from(0).map(|(_, run)| row_of_run(&run)))
    }

    /// Reads a saved profile of the pool with this id and `slots` slots; an error names the line.
    fn read(mut lines: Lines<impl BufRead>, pool: &str, slots: u64) -> anyhow::Result<ProfileFile> {
        let head = lines.next()?;
        let value: Value = serde_json::from_slice(&head).unwrap_or_default();
        let place = lines.place();
        let Some(version) = value.get("onefold-profile") else {
            bail!("{place}: no saved profile begins so; {SAVE_AGAIN}");
        };
        ensure!(
            *version == VERSION,
            "{place}: it has version {version}, this program knows {VERSION}: load it with the program that saved it, or {SAVE_AGAIN}"
        );
        let head = serde_json::from_value(value).map_err(|error| error.to_string());
        let Head { pool: of, reads, dropped, volumes, .. } =
            head.map_err(|error| anyhow::anyhow!("{place}: {error}; {SAVE_AGAIN}"))?;
        ensure!(
            of == pool,
            "{place}: it is of the pool {of}, and this one is {pool}: slots of one say nothing about another; name that pool, or {SAVE_AGAIN}"
        );
        may_be_counted(reads, dropped).map_err(|error| anyhow::anyhow!("{place}: {error}; {SAVE_AGAIN}"))?;
        let mut saved = ProfileFile { pool: of, reads, dropped, volumes, profiling: Profiling::default() };
        saved.profiling.profile.go_on_from(reads, dropped);
        let mut rows = 0;
        loop {
            let line = lines.next()?;
            let place = lines.place();
            if let Ok(row) = serde_json::from_slice::<Row>(&line) {
                let put = row.put(&mut saved.profiling, slots);
                put.map_err(|error| anyhow::anyhow!("{place}: {error}; {SAVE_AGAIN}"))?;
                rows += 1;
                continue;
            }
            let end = serde_json::from_slice(&line);
            let End { rows: counted } =
                end.map_err(|_| anyhow::anyhow!("{place}: it is no row of a saved profile; {SAVE_AGAIN}"))?;
            ensure!(counted == rows, "{place}: {counted} rows were saved, and {rows} are here; {SAVE_AGAIN}");
            ensure!(lines.is_over()?, "{place}: more comes behind the last line; {SAVE_AGAIN}");
            return Ok(saved);
        }
    }
}

/// The lines of a file, with their numbers.
struct Lines<Reader> {
    lines: Reader,
    shown: String,
    number: u64,
}

impl<Reader: BufRead> Lines<Reader> {
    /// Reads the next line, which must be there, end with a newline, and have at most [`LINE_MAX`] bytes.
    fn next(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.number += 1;
        let read = (&mut self.lines).take(LINE_MAX).read_until(b'\n', &mut line);
        read.with_context(|| format!("cannot read {}", self.place()))?;
        let is_whole = line.last() == Some(&b'\n');
        ensure!(is_whole || line.len() as u64 != LINE_MAX, "{}: it is longer than {LINE_MAX} bytes", self.place());
        ensure!(is_whole, "{}: the file was cut off here; {SAVE_AGAIN}", self.place());
        Ok(line)
    }

    fn place(&self) -> String {
        format!("{}, line {}", self.shown, self.number)
    }

    fn is_over(&mut self) -> anyhow::Result<bool> {
        let rest = self.lines.fill_buf().with_context(|| format!("cannot read {}", self.shown))?;
        Ok(rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "0123456789abcdef0123456789abcdef";

    fn read(text: &str) -> anyhow::Result<ProfileFile> {
        ProfileFile::read(Lines { lines: text.as_bytes(), shown: "f".into(), number: 0 }, POOL, 100)
    }

    fn text() -> String {
        let profiling = Profiling::default();
        let volumes = vec![(1, "one".into())];
        let mut saved = ProfileFile { pool: POOL.into(), reads: 9, dropped: 2, volumes, profiling };
        saved.profiling.profile.go_on_from(9, 2);
        let first = engine::relocation::objects::FIRST;
        let rows = [
            Row::Name("/a \"b\"\n".into()),
            Row::Part(1, 5, 7, first),
            Row::Run(93, 7, first),
            Row::Run(100 - 7, 1, 1),
            Row::Run(0, 1, 1),
        ];
        rows.iter().for_each(|row| row.put(&mut saved.profiling, 100).unwrap());
        let mut bytes = Vec::new();
        saved.write_to(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_was_written_is_read() {
        let text = text();
        let saved = read(&text).unwrap();
        assert_eq!((saved.reads, saved.dropped, saved.profiling.profile.reads()), (9, 2, 9));
        assert_eq!(saved.profiling.profile.ended(), 5);
        let mut again = Vec::new();
        saved.write_to(&mut again).unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), text);
    }

    #[test]
    fn only_a_saved_profile_is_replaced() {
        let file = std::env::temp_dir().join(format!("onefold-saved-{}", std::process::id()));
        std::fs::write(&file, "ONEFOLD").unwrap();
        let saved = read(&text()).unwrap();
        assert!(saved.write(&file).unwrap_err().to_string().contains("name another file"));
        std::fs::remove_file(&file).unwrap();
        saved.write(&file).unwrap();
        saved.write(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text());
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let text = text();
        let without = |from: &str, to: &str| {
            assert!(text.contains(from), "{text}");
            text.replacen(from, to, 1)
        };
        for (bad, said) in [
            (String::new(), "f, line 1: the file was cut off"),
            ("hello\n".into(), "f, line 1: no saved profile begins so"),
            (without("profile\":1", "profile\":2"), "f, line 1: it has version 2"),
            (without("\"reads\":9", "\"reads\":-9"), "f, line 1: "),
            (without("012345", "999999"), "f, line 1: it is of the pool 999999"),
            (without("\"dropped\":2", "\"dropped\":18446744073709551615"), "f, line 1: nobody has noted so many"),
            (without("\"reads\":9", "\"reads\":18446744073709551615"), "f, line 1: nobody has noted so many"),
            (without("[93,7,", "[94,7,"), "f, line 4: it is a run of "),
            (without("[93,7,", "[18446744073709551615,7,"), "f, line 4: it is a run of "),
            (without("[93,7,", "[93,0,"), "f, line 4: it is a run of "),
            (without("[93,7,65536", "[93,7,65537"), "f, line 4: no name comes before"),
            (without("[1,5,7,", "[1,5,0,"), "f, line 3: it has no blocks"),
            (without("{\"run\":[0,", "{\"walk\":[0,"), "f, line 6: it is no row"),
            (without("{\"run\":[0,1,1]}\n", ""), "f, line 6: 5 rows were saved, and 4 are here"),
            (format!("{text}\n"), "f, line 7: more comes"),
        ] {
            let error = format!("{:#}", read(&bad).unwrap_err());
            assert!(error.starts_with(said), "{said}: {error}");
        }
        for end in 0..text.len() {
            assert!(read(&text[..end]).unwrap_err().to_string().contains("cut off"), "{end}");
        }
    }
}
