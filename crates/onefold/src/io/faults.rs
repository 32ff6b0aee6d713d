//! Fault injection on the store, for tests: only in builds with the feature `faults`, between the disk and the ring.
//!
//! Owns the plan and the I/O that it holds back. The plan is a file named by `ONEFOLD_FAULTS`, read again whenever it has been replaced, so that a test can let
//! faults begin and end while the pool is served. A rule is a line:
//!
//! ```text
//! [flash] OPERATION [from=BYTE] [to=BYTE] [first=N] [every=N] EFFECT
//! ```
//!
//! A rule that begins with `flash` is for the flash in front of the store, all others are for the store. An operation is `read`, `write`, `sync`, `reserve` or `discard`;
//! `from` and `to` are the bytes of the store that it must touch. Of the matching operations, the N-th and all later ones count (`first`), and of these each
//! N-th (`every`). The first rule that counts decides. Effects:
//!
//! - `error=EIO` (or `ENOSPC`, `EDQUOT`, `EFBIG`): nothing is done, and the error comes back;
//! - `short=UNIT`: only the first bytes are read or written, a multiple of UNIT that grows from one time to the next;
//! - `slow=MILLISECONDS`: the operation begins later by this time;
//! - `seek=MILLISECONDS`: a disk with one head, one operation after another. Each begins later by this time than the previous one of this rule, unless it
//!   begins at the byte where that ended;
//! - `stuck`: it begins when the plan has been replaced.
//!
//! Invariant: a held operation has a slot and nothing on the ring.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, bail};
use engine::Nanos;
use tracing::{error, warn};

use crate::io::arena::Span;

const MILLISECOND: Nanos = 1_000_000;
/// Interval of the checks for a new plan, while the plan holds an operation back.
const LOOK_AGAIN: Nanos = 50 * MILLISECOND;

/// Kind of operation on the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Makes durable.
    Sync,
    /// Reserves space.
    Reserve,
    /// Gives space back.
    Discard,
}

/// The fault plan and the operations that it holds back.
pub struct Faults {
    path: Option<PathBuf>,
    is_flash: bool,
    /// The file that the rules are from: its number, and when it was changed.
    seen: Option<(u64, i64, i64)>,
    rules: Vec<Rule>,
    held: Vec<Held>,
    /// Held back once, it goes to the ring now.
    passing: Option<u32>,
    /// Maximum of bytes of the operation that goes to the ring now.
    limit: Option<usize>,
}

struct Rule {
    operation: Operation,
    from: u64,
    to: u64,
    first: u64,
    every: u64,
    effect: Effect,
    /// Operations that matched.
    met: u64,
    /// End of the operation before, and the time at which the next may begin.
    head: (u64, Nanos),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effect {
    Error(i32),
    Short(usize),
    Slow(Nanos),
    Seek(Nanos),
    Stuck,
}

impl Rule {
    /// Returns the effect on an operation that covers bytes `offset` to `end`. A seek also waits for the seeks before it.
    fn effect_at(&mut self, offset: u64, end: u64, now: Nanos) -> Effect {
        let Effect::Seek(time) = self.effect else { return self.effect };
        let (head, free) = self.head;
        let begins = free.max(now) + if offset == head { 0 } else { time };
        self.head = (end, begins);
        Effect::Seek(begins - now)
    }
}

struct Held {
    slot: u32,
    /// `None` until the plan is replaced.
    until: Option<Nanos>,
    /// Result that the operation ends with; `None` if it goes to the ring.
    result: Option<i32>,
}

/// Operation that is not held back any longer.
pub enum Due {
    /// An operation that ends.
    Ends(u32, i32),
    /// An operation that begins.
    Begins(u32),
}

impl Faults {
    /// Takes the path of the plan from `ONEFOLD_FAULTS`, for the store or for the flash.
    pub fn from_environment(is_flash: bool) -> Faults {
        let path = std::env::var_os("ONEFOLD_FAULTS").map(PathBuf::from);
        Faults { path, is_flash, seen: None, rules: Vec::new(), held: Vec::new(), passing: None, limit: None }
    }

    /// Returns true if the operation of a slot is held back instead of going to the ring.
    pub fn hold(&mut self, slot: u32, operation: Operation, offset: u64, length: usize, now: Nanos) -> bool {
        self.read_plan();
        self.limit = None;
        if self.passing.take() == Some(slot) {
            return false;
        }
        let end = offset.saturating_add(length as u64);
        let matches = |rule: &Rule| {
            rule.operation == operation && (operation == Operation::Sync || (offset < rule.to && rule.from < end))
        };
        let mut effect = None;
        for rule in self.rules.iter_mut().filter(|rule| matches(rule)) {
            rule.met += 1;
            if rule.met >= rule.first && (rule.met - rule.first).is_multiple_of(rule.every) {
                effect = effect.or_else(|| Some((rule.effect_at(offset, end, now), rule.met)));
            }
        }
        let (until, result) = match effect {
            None => return false,
            Some((Effect::Short(unit), met)) => {
                let steps = length.saturating_sub(1) / unit;
                if steps > 0 {
                    self.limit = Some(unit * (1 + met as usize % steps));
                }
                return false;
            }
            Some((Effect::Error(number), _)) => (Some(now), Some(-number)),
            Some((Effect::Slow(time) | Effect::Seek(time), _)) => (Some(now + time), None),
            Some((Effect::Stuck, _)) => (None, None),
        };
        self.held.push(Held { slot, until, result });
        true
    }

    /// Cuts off the bytes beyond the limit of a short operation.
    pub fn shorten(&mut self, spans: &mut Vec<Span>) {
        let Some(mut left) = self.limit.take() else { return };
        spans.retain_mut(|span| {
            *span = span.first(span.length.min(left));
            left -= span.length;
            span.length > 0
        });
    }

    /// Takes the next operation that is not held back any longer.
    pub fn next_due(&mut self, now: Nanos) -> Option<Due> {
        self.read_plan();
        let at = self.held.iter().position(|held| held.until.is_some_and(|until| until <= now))?;
        let Held { slot, result, .. } = self.held.remove(at);
        match result {
            Some(result) => Some(Due::Ends(slot, result)),
            None => {
                self.passing = Some(slot);
                Some(Due::Begins(slot))
            }
        }
    }

    /// Returns the time of the next check; `None` if no operation is held back.
    pub fn next_look(&self, now: Nanos) -> Option<Nanos> {
        self.held.iter().map(|held| held.until.unwrap_or(now + LOOK_AGAIN)).min()
    }

    fn read_plan(&mut self) {
        let Some(path) = &self.path else { return };
        let seen = std::fs::metadata(path).ok().map(|file| (file.ino(), file.mtime(), file.mtime_nsec()));
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        for held in &mut self.held {
            held.until = held.until.or(Some(0));
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let own = |line: &&str| !line.trim().is_empty() && line.trim().starts_with("flash ") == self.is_flash;
        let lines = text.lines().filter(own).map(|line| line.trim().trim_start_matches("flash "));
        match lines.map(|line| rule(line).with_context(|| format!("'{line}'"))).collect() {
            Ok(rules) => {
                self.rules = rules;
                let device = if self.is_flash { "flash" } else { "store" };
                warn!("{} rules for faults of the {device}", self.rules.len());
            }
            Err(error) => error!("{}: no rule for faults: {error:#}", path.display()),
        }
    }
}

fn errno(name: &str) -> anyhow::Result<i32> {
    match name {
        "EIO" => Ok(libc::EIO),
        "ENOSPC" => Ok(libc::ENOSPC),
        "EDQUOT" => Ok(libc::EDQUOT),
        "EFBIG" => Ok(libc::EFBIG),
        _ => bail!("the error {name} is not known"),
    }
}

fn rule(line: &str) -> anyhow::Result<Rule> {
    let mut words = line.split_whitespace();
    let operation = match words.next() {
        Some("read") => Operation::Read,
        Some("write") => Operation::Write,
        Some("sync") => Operation::Sync,
        Some("reserve") => Operation::Reserve,
        Some("discard") => Operation::Discard,
        _ => bail!("it begins with read, write, sync, reserve or discard"),
    };
    let (mut from, mut to, mut first, mut every, mut effect) = (0, u64::MAX, 1, 1, None);
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, "0"));
        let number = || value.parse::<u64>().with_context(|| format!("{key}: '{value}' is no number"));
        match key {
            "from" => from = number()?,
            "to" => to = number()?,
            "first" => first = number()?.max(1),
            "every" => every = number()?.max(1),
            "short" => effect = Some(Effect::Short(number()?.max(1) as usize)),
            "slow" => effect = Some(Effect::Slow(number()?.saturating_mul(MILLISECOND))),
            "seek" => effect = Some(Effect::Seek(number()?.saturating_mul(MILLISECOND))),
            "stuck" => effect = Some(Effect::Stuck),
            "error" => effect = Some(Effect::Error(errno(value)?)),
            _ => bail!("'{word}' is not known"),
        }
    }
    let effect = effect.context("it has no effect")?;
    Ok(Rule { operation, from, to, first, every, effect, met: 0, head: (0, 0) })
}
