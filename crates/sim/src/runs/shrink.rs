//! Shortening of a sequence that ends in a violation, by delta debugging (Zeller and Hildebrandt, 2002). Parts of the sequence are left out, large ones
//! first, as long as the rest still ends in a violation. Then operations are made simpler.
//!
//! A removal shifts all later random draws, so another violation may take the place of the first. It is as good.

use engine::{CacheLimits, Limits};

use crate::Violation;
use crate::runs::workload::Operation;
use crate::world::disk::Cut;

/// Result of [`shrink`]: a sequence as short as the runs allowed.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The sequence.
    pub sequence: Vec<Operation>,
    /// Violation that it ends in.
    pub violation: Violation,
    /// Runs that were tried.
    pub runs: usize,
}

/// Shortens `sequence`, which ends in `violation`, in a bounded number of runs. `fails` runs a sequence.
pub fn shrink(
    sequence: Vec<Operation>,
    violation: Violation,
    most_runs: usize,
    mut fails: impl FnMut(&[Operation]) -> Option<Violation>,
) -> Shrunk {
    let mut shrunk = Shrunk { sequence, violation, runs: 0 };
    let mut size = shrunk.sequence.len().div_ceil(2);
    while size > 0 && shrunk.runs < most_runs {
        let left_out = leave_out(&mut shrunk, size, most_runs, &mut fails);
        // Once more with single operations, as long as that helps.
        if size > 1 || !left_out {
            size /= 2;
        }
    }
    simplify(&mut shrunk, most_runs, &mut fails);
    shrunk
}

/// Removes parts of `size` operations that are not needed, from the end on. Returns true if any was removed.
fn leave_out(
    shrunk: &mut Shrunk,
    size: usize,
    most_runs: usize,
    fails: &mut impl FnMut(&[Operation]) -> Option<Violation>,
) -> bool {
    let before = shrunk.sequence.len();
    let mut end = before;
    while end > 0 && shrunk.runs < most_runs {
        let start = end.saturating_sub(size);
        let mut shorter = shrunk.sequence[..start].to_vec();
        shorter.extend_from_slice(&shrunk.sequence[end..]);
        try_operations(shrunk, shorter, fails);
        end = start;
    }
    shrunk.sequence.len() < before
}

fn simplify(shrunk: &mut Shrunk, most_runs: usize, fails: &mut impl FnMut(&[Operation]) -> Option<Violation>) {
    for at in 0..shrunk.sequence.len() {
        for simpler in simpler(&shrunk.sequence[at]) {
            if shrunk.runs < most_runs && simpler != shrunk.sequence[at] {
                let mut sequence = shrunk.sequence.clone();
                sequence[at] = simpler;
                try_operations(shrunk, sequence, fails);
            }
        }
    }
}

fn try_operations(
    shrunk: &mut Shrunk,
    sequence: Vec<Operation>,
    fails: &mut impl FnMut(&[Operation]) -> Option<Violation>,
) {
    shrunk.runs += 1;
    if let Some(violation) = fails(&sequence) {
        (shrunk.sequence, shrunk.violation) = (sequence, violation);
    }
}

/// Returns operations that are simpler than this one.
fn simpler(operation: &Operation) -> Vec<Operation> {
    match operation {
        Operation::Crash { cut, again, .. } => {
            let crash = |cut: Cut, again: &[(u64, Cut)]| Operation::Crash { cut, again: again.to_vec(), verify: true };
            vec![crash(*cut, again), crash(*cut, &[]), crash(Cut::Kept, &[]), crash(Cut::Lost, &[])]
        }
        Operation::Write { place, contents, fua } => {
            let write = |fua| Operation::Write { place: *place, contents: contents.clone(), fua };
            vec![write(*fua), write(false)]
        }
        Operation::WriteTogether { place, contents, .. } => {
            vec![Operation::Write { place: *place, contents: contents.clone(), fua: false }]
        }
        _ => Vec::new(),
    }
}

/// Formats a sequence as the source of a test: the imports, and the operations as an array.
pub fn source(seed: u64, sequence: &[Operation]) -> String {
    let mut text = String::from(
        "    use engine::{CacheLimits, Limits};\n    use sim::runs::workload::{Operation::*, Place, cache, policy};\n    use sim::world::disk::Cut::*;\n    let sequence = [\n",
    );
    for operation in sequence {
        let mut shown = format!("{operation:?}");
        if let Operation::CreateVolume { policy: Some(policy), .. }
        | Operation::SetVolume { policy: Some(Some(policy)), .. }
        | Operation::SetPool { policy: Some(policy) } = operation
        {
            shown = shown.replace(&format!("{policy:?}"), &format!("policy({:?})", policy.to_string()));
        }
        if let Operation::SetCache(Some(setting))
        | Operation::SetLimits(Limits { cache: CacheLimits { setting: Some(setting), .. }, .. }) = operation
        {
            shown = shown.replace(&format!("{setting:?}"), &format!("cache({:?})", setting.to_string()));
        }
        if let Operation::CacheKey(key) = operation {
            shown = format!("CacheKey(engine::CacheKey::{key:?})");
        }
        let lists = ["contents: [", "again: [", "lengths: ["];
        let operation = lists.iter().fold(shown, |shown, list| shown.replace(list, &list.replace('[', "vec![")));
        text.push_str(&format!("        {operation},\n"));
    }
    text.push_str(&format!(
        "    ];\n    run_operations(&Config::swarm({seed}), &sequence, Trace::new(false)).unwrap();"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_shrinks_to_the_operations_that_matter() {
        let mut sequence: Vec<Operation> = (0..500).map(Operation::Idle).collect();
        sequence[77] = Operation::Flush;
        sequence[400] = Operation::Crash { cut: Cut::Torn, again: vec![(3, Cut::Lost)], verify: false };
        let fails = |sequence: &[Operation]| {
            let flush = sequence.iter().position(|operation| *operation == Operation::Flush)?;
            let crash = sequence.iter().position(|operation| matches!(operation, Operation::Crash { .. }))?;
            (flush < crash).then(|| Violation("a flush before a crash".to_string()))
        };
        let shrunk = shrink(sequence, Violation("found".to_string()), 1000, fails);
        let simple = Operation::Crash { cut: Cut::Lost, again: vec![], verify: true };
        assert_eq!(shrunk.sequence, [Operation::Flush, simple]);
        assert!(shrunk.runs < 200, "{}", shrunk.runs);
    }

    #[test]
    fn shrinking_is_bounded() {
        let sequence: Vec<Operation> = (0..500).map(Operation::Idle).collect();
        let shrunk = shrink(sequence, Violation(String::new()), 20, |_| None);
        assert_eq!((shrunk.sequence.len(), shrunk.runs), (500, 20));
    }

    #[test]
    fn a_sequence_is_shown_as_source() {
        let crash = Operation::Crash { cut: Cut::Lost, again: vec![(3, Cut::Kept)], verify: true };
        let set = Operation::SetPool { policy: "select:2".parse().ok() };
        let share = Operation::SetCache("fixed:30".parse().ok());
        let text = source(5, &[set, share, Operation::Flush, crash]);
        assert!(text.contains("        SetCache(Some(cache(\"fixed:30\"))),\n"), "{text}");
        assert!(text.contains("        SetPool { policy: Some(policy(\"select:2\")) },\n"), "{text}");
        assert!(
            text.contains("        Flush,\n        Crash { cut: Lost, again: vec![(3, Kept)], verify: true },\n"),
            "{text}"
        );
    }
}
