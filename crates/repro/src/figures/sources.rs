//! Sources of a trace's days: a stand-in, or a user's files.
//!
//! The last day is the one that is measured; those before it fill index and contents.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Nanos;

use super::Data;
use super::runs::Stopped;
use crate::traces::stat::{Figures as Stated, Stat};
use crate::traces::synthetic::{self, Profile};
use crate::traces::{Options, Request, open};

/// Seed of the random numbers in the stand-ins of figures.
pub const SEED: u64 = 1;
/// The day of a stand-in that is measured (POD, section 4.1).
pub const DAY: u32 = 15;
/// Measured day in the short form, after a day of the same small size. The days before it are not even made.
const QUICK_DAY: u32 = 2;
/// Number of a user's files before the last that the short form reads.
const QUICK_FILES: usize = 1;
/// Number of recent days among the days before the measured one.
const RECENT_DAYS: u32 = 1;
const DAY_NANOS: Nanos = 24 * 3600 * 1_000_000_000;
/// Maximum overlap of the last day with the day before it, as within a trace.
const CUT: Nanos = 1_000_000_000;

/// A user's files for one of the traces: its days in the order of their time, the last of them measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Trace that the files replace.
    pub trace: Profile,
    /// The files.
    pub files: Vec<PathBuf>,
}

/// `mail=FILE[,FILE...]`.
impl FromStr for Given {
    type Err = String;

    fn from_str(text: &str) -> Result<Given, String> {
        const FORM: &str = "expected NAME=FILE[,FILE...], such as mail=day14.blkparse.gz,day15.blkparse.gz";
        let (name, files) = text.split_once('=').ok_or(FORM)?;
        let trace = [Profile::WebVm, Profile::Homes, Profile::Mail].into_iter().find(|trace| trace.name() == name);
        let trace = trace.ok_or_else(|| format!("there is no trace {name:?}: they are web-vm, homes and mail"))?;
        let files: Vec<PathBuf> = files.split(',').filter(|file| !file.is_empty()).map(PathBuf::from).collect();
        if files.is_empty() {
            return Err(format!("{name} has no file: {FORM}"));
        }
        match files.iter().find(|file| !file.is_file()) {
            Some(missing) => Err(format!("there is no file {}", missing.display())),
            None => Ok(Given { trace, files }),
        }
    }
}

/// Traces that replace the stand-ins.
#[derive(Clone, Debug, Default)]
pub struct Sources(Vec<Given>);

/// Period of a trace in which a request came, relative to the measured day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Day before the recent ones.
    Before,
    /// Last of the days before the measured one.
    Recent,
    /// Measured day.
    Measured,
}

impl Sources {
    /// Checks that each trace is given at most once, and takes them.
    pub fn new(given: Vec<Given>) -> Result<Sources, String> {
        for (at, one) in given.iter().enumerate() {
            if given[..at].iter().any(|other| other.trace == one.trace) {
                return Err(format!(
                    "{} is given twice: give its days as one list, with commas between them",
                    one.trace.name()
                ));
            }
        }
        Ok(Sources(given))
    }

    /// Returns the traces that are given.
    pub fn given(&self) -> &[Given] {
        &self.0
    }

    fn files(&self, trace: Profile) -> Option<&[PathBuf]> {
        self.0.iter().find(|given| given.trace == trace).map(|given| &given.files[..])
    }

    /// Returns the kind of data that rows about a trace are measured of: real if its files are given.
    pub fn data(&self, trace: Profile) -> Data {
        if self.files(trace).is_some() { Data::Real } else { Data::Synthetic }
    }

    /// Goes through all days of a trace.
    pub fn days(
        &self,
        trace: Profile,
        quick: bool,
        stop: &AtomicBool,
        mut each: impl FnMut(When, Request),
    ) -> Result<(), Stopped> {
        let mut each = |when, request| {
            each(when, request);
            if stop.load(Ordering::Relaxed) { Err(Stopped::Interrupted) } else { Ok(()) }
        };
        let Some((last, before)) = self.files(trace).and_then(<[PathBuf]>::split_last) else {
            let day = if quick { QUICK_DAY } else { DAY };
            let begin = |day: u32| u64::from(day - 1) * DAY_NANOS;
            let made = if quick { synthetic::quiet_days } else { synthetic::days };
            return made(trace, SEED, 1..=day).try_for_each(|request| {
                let when = match request.at {
                    at if at >= begin(day) => When::Measured,
                    at if at >= begin(day - RECENT_DAYS) => When::Recent,
                    _ => When::Before,
                };
                each(when, request)
            });
        };
        let before = if quick { &before[before.len().saturating_sub(QUICK_FILES)..] } else { before };
        let (early, recent) = before.split_at(before.len().saturating_sub(RECENT_DAYS as usize));
        let mut end = 0;
        for (files, when) in [(early, When::Before), (recent, When::Recent)] {
            for request in read(files)? {
                let request = request?;
                end = request.at;
                each(when, request)?;
            }
        }
        let (mut requests, mut has_contents) = (0, false);
        for request in read(std::slice::from_ref(last))? {
            let request = request?;
            if requests == 0 && request.at + CUT < end {
                return Err(about(last, "it begins before the end of the day before: give days in their order"));
            }
            requests += 1;
            has_contents |= request.writes && !request.contents.is_empty();
            each(When::Measured, request)?;
        }
        match (requests, has_contents) {
            (0, _) => Err(about(last, "no request is in it, and it is the day to measure: give one that has some")),
            (_, false) => Err(about(last, "it has no contents: give a trace with digests, as FIU's are")),
            _ => Ok(()),
        }
    }

    /// Computes the statistics of the measured day.
    pub fn stated(&self, trace: Profile, quick: bool, stop: &AtomicBool) -> Result<Stated, Stopped> {
        let mut stat = Stat::default();
        self.days(trace, quick, stop, |when, request| {
            if when == When::Measured {
                stat.add(&request);
            }
        })?;
        Ok(stat.finish(None))
    }

    /// Returns one more than the last block of a trace.
    pub fn span(&self, trace: Profile, quick: bool, stop: &AtomicBool) -> Result<u64, Stopped> {
        if self.files(trace).is_none() {
            return Ok(synthetic::span(trace));
        }
        let mut span = 0;
        self.days(trace, quick, stop, |_, request| span = span.max(request.block + u64::from(request.blocks)))?;
        Ok(span)
    }
}

fn about(file: &Path, what: &str) -> Stopped {
    Stopped::Trace(format!("{}: {what}", file.display()))
}

fn read(files: &[PathBuf]) -> Result<Box<dyn Iterator<Item = Result<Request, Stopped>>>, Stopped> {
    if files.is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let options = Options { progress: true, ..Options::default() };
    let wrong = |error: crate::traces::TraceError| Stopped::Trace(error.to_string());
    Ok(Box::new(open(files, &options).map_err(wrong)?.map(move |request| request.map_err(wrong))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_names_a_trace_and_files_that_are_there() {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let given: Given = format!("mail={here},{here}").parse().expect("both are there");
        assert_eq!((given.trace, given.files.len()), (Profile::Mail, 2));
        assert!(Sources::new(vec![given.clone(), given]).expect_err("twice").contains("mail is given twice"));
        for (text, part) in [
            ("mail", "NAME=FILE"),
            ("post=x", "web-vm, homes and mail"),
            ("mail=", "mail has no file"),
            ("mail=none-such", "no file none-such"),
        ] {
            let error = text.parse::<Given>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn the_last_file_is_measured_and_must_be_one_that_can_be() {
        let directory = std::env::temp_dir().join(format!("repro-sources-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).expect("space for a file");
            path
        };
        let line = |at: u64, digest: &str| format!("{at} 7 nfsd 8 8 W 6 0 {digest}\n");
        let digest = "2c4787c7671c2f638777c4ab72859ce1";
        let files = ["1", "2", "3"].map(|name| {
            let day: u64 = name.parse().expect("a number");
            file(name, &line(day * 5_000_000_000, digest))
        });
        let days = |files: &[PathBuf], quick| {
            let sources = Sources(vec![Given { trace: Profile::Homes, files: files.to_vec() }]);
            let mut seen = Vec::new();
            let done = sources.days(Profile::Homes, quick, &AtomicBool::new(false), |when, _| seen.push(when));
            done.map(|()| seen)
        };
        let all = [When::Before, When::Recent, When::Measured];
        assert_eq!(days(&files, false).as_deref(), Ok(&all[..]));
        assert_eq!(days(&files, true).as_deref(), Ok(&all[1..]), "the short form reads one before");
        assert_eq!(days(&files[..1], false).as_deref(), Ok(&all[2..]));
        let wrong = [
            (vec![files[2].clone(), files[0].clone()], "1: it begins before the end"),
            (vec![file("without", &line(1, ""))], "it has no contents"),
            (vec![file("bad", &(line(1, digest) + "what is this\n"))], "bad, line 2: expected"),
        ];
        for (files, part) in wrong {
            let error = days(&files, false).expect_err(part).to_string();
            assert!(error.contains(part), "{part}: {error}");
        }
        let _ = std::fs::remove_dir_all(&directory);
    }
}
