//! Changes of properties in a recording.
//!
//! The properties that version 7 began with have the forms that it gave them, so that older recordings are read. The bits of a byte say which of them are
//! there, and one says that others follow: each with its name, and its code in two numbers.

use alloc::vec::Vec;

use super::read::{ReadStop, Reader};
use super::write::{number, put_policy_change, text};
use crate::properties::{Code, PoolChange, PoolProperty, VolumeProperty, VolumePropertyChange};

/// Bit of [`PoolProperty::Memory`], whose number is always there.
const MEMORY: u8 = 1;
/// First of the two bits of [`PoolProperty::DedupVerify`], which are [`VERIFIES`] less its code; 0: it is not changed.
const VERIFY_SHIFT: u8 = 1;
const VERIFIES: Code = 3;
/// Properties with a number that is always there: the code plus one, 0 if it is not changed. In this order.
const NUMBERED: [PoolProperty; 7] = [
    PoolProperty::SecondCopies,
    PoolProperty::IndexCopy,
    PoolProperty::Cache,
    PoolProperty::Replicas,
    PoolProperty::Defrag,
    PoolProperty::CacheKey,
    PoolProperty::Device,
];
/// Properties with a number, the code, only if their bit is set. In this order.
const FLAGGED: [(PoolProperty, u8); 3] =
    [(PoolProperty::Relocate, 1 << 3), (PoolProperty::Throttle, 1 << 4), (PoolProperty::FlashPolicy, 1 << 5)];
/// Bit that says that other properties follow.
const OTHERS: u8 = 1 << 6;

/// Returns true if a property has a form of its own.
fn has_form(property: PoolProperty) -> bool {
    let others = [PoolProperty::Policy, PoolProperty::Memory, PoolProperty::DedupVerify];
    others.contains(&property)
        || NUMBERED.contains(&property)
        || FLAGGED.iter().any(|(flagged, _)| *flagged == property)
}

/// Writes a change.
pub(super) fn put(out: &mut Vec<u8>, change: &PoolChange) {
    let flag = |property, bit: u8| change.code(property).map_or(0, |_| bit);
    let others = PoolProperty::ALL.iter().filter(|property| !has_form(**property));
    let others: Vec<_> = others.filter_map(|&property| Some((property.name(), change.code(property)?))).collect();
    let verify = change.code(PoolProperty::DedupVerify).map_or(0, |code| (VERIFIES - code) as u8);
    put_policy_change(out, change.policy);
    let mut bits = flag(PoolProperty::Memory, MEMORY) | verify << VERIFY_SHIFT;
    bits |= FLAGGED.iter().fold(0, |bits, &(property, bit)| bits | flag(property, bit));
    out.push(bits | if others.is_empty() { 0 } else { OTHERS });
    number(out, change.memory.unwrap_or(0));
    for property in NUMBERED {
        number(out, change.code(property).map_or(0, |code| (code as u64).saturating_add(1)));
    }
    for code in FLAGGED.iter().filter_map(|(property, _)| change.code(*property)) {
        number(out, code as u64);
    }
    put_others(out, &others);
}

/// Writes the codes of other properties, if there are any.
fn put_others(out: &mut Vec<u8>, others: &[(&str, Code)]) {
    if !others.is_empty() {
        number(out, others.len() as u64);
    }
    for (name, code) in others {
        text(out, name);
        number(out, *code as u64);
        number(out, (code >> 64) as u64);
    }
}

/// Reads the codes of other properties.
fn read_others(
    reader: &mut Reader<'_>,
    mut set: impl FnMut(&str, Code) -> Option<Result<(), &'static str>>,
) -> Result<(), ReadStop> {
    for _ in 0..reader.count()? {
        let name = reader.text()?;
        let (low, high) = (reader.number()?, reader.number()?);
        let code = Code::from(low) | Code::from(high) << 64;
        set(&name, code).ok_or(ReadStop::Damaged)?.map_err(|_| ReadStop::Damaged)?;
    }
    Ok(())
}

/// Reads a change.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<PoolChange, ReadStop> {
    let mut change = PoolChange { policy: reader.policy_change()?, ..PoolChange::default() };
    let mut set = |property, code| change.set_code(property, code).map_err(|_| ReadStop::Damaged);
    let bits = reader.byte()?;
    if bits & !(MEMORY | 3 << VERIFY_SHIFT | FLAGGED.iter().fold(OTHERS, |bits, (_, bit)| bits | bit)) != 0 {
        return Err(ReadStop::Damaged);
    }
    if let verify @ 1.. = bits >> VERIFY_SHIFT & 3 {
        set(PoolProperty::DedupVerify, VERIFIES - Code::from(verify))?;
    }
    let memory = reader.number()?;
    if bits & MEMORY != 0 {
        set(PoolProperty::Memory, memory.into())?;
    }
    for property in NUMBERED {
        if let Some(code) = reader.number()?.checked_sub(1) {
            set(property, code.into())?;
        }
    }
    for (property, bit) in FLAGGED {
        if bits & bit != 0 {
            set(property, reader.number()?.into())?;
        }
    }
    if bits & OTHERS != 0 {
        read_others(reader, |name, code| PoolProperty::named(name).map(|property| change.set_code(property, code)))?;
    }
    Ok(change)
}

/// Bit of a change of a volume that says that other properties follow.
const VOLUME_OTHERS: u8 = 1 << 4;

/// Returns true if a change of a volume has a form for this code of a property. There is none for a timing that is reset.
fn has_volume_form(property: VolumeProperty, code: Code) -> bool {
    use VolumeProperty::*;
    [Policy, ReadOnly, Exclusive, Goal, KeepRuns, Controller].contains(&property) || property == Timing && code > 0
}

/// Writes a change of a volume: a byte with two bits each for `read-only` and `exclusive`, one for `timing`, `controller` and `keep-runs`, and the goal.
pub(super) fn put_of_volume(out: &mut Vec<u8>, change: &VolumePropertyChange) {
    use VolumeProperty::*;
    let others = VolumeProperty::ALL.iter().filter_map(|&property| Some((property, change.code(property)?)));
    let others = others.filter(|&(property, code)| !has_volume_form(property, code));
    let others: Vec<_> = others.map(|(property, code)| (property.name(), code)).collect();
    let choice = |property| change.code(property).map_or(0, |code| 1 + code as u8);
    put_policy_change(out, change.policy);
    out.push(choice(ReadOnly) | choice(Exclusive) << 2 | if others.is_empty() { 0 } else { VOLUME_OTHERS });
    out.push(change.code(Timing).map_or(0, |code| code as u8) | choice(Controller) << 2 | choice(KeepRuns) << 4);
    let goal = change.code(Goal).unwrap_or(NO_GOAL);
    out.push(goal as u8);
    number(out, (goal >> 8) as u64);
    put_others(out, &others);
}

/// Kind of a goal that is not changed.
const NO_GOAL: Code = 255;

/// Reads a change of a volume.
pub(super) fn read_of_volume(reader: &mut Reader<'_>) -> Result<VolumePropertyChange, ReadStop> {
    use VolumeProperty::*;
    let mut change = VolumePropertyChange { policy: reader.policy_change()?, ..VolumePropertyChange::default() };
    let mut choose = |property, number: u8| match number.checked_sub(1) {
        None => Ok(()),
        Some(code) => change.set_code(property, code.into()).map_err(|_| ReadStop::Damaged),
    };
    let bits = reader.byte()?;
    choose(ReadOnly, bits & 3)?;
    choose(Exclusive, (bits & !VOLUME_OTHERS) >> 2)?;
    let choices = reader.byte()?;
    choose(Controller, choices >> 2 & 3)?;
    choose(KeepRuns, choices >> 4)?;
    let goal = Code::from(reader.byte()?) | Code::from(reader.number()?) << 8;
    for (property, code, none) in [(Timing, Code::from(choices & 3), 0), (Goal, goal, NO_GOAL)] {
        if code != none {
            change.set_code(property, code).map_err(|_| ReadStop::Damaged)?;
        }
    }
    if bits & VOLUME_OTHERS != 0 {
        read_others(reader, |name, code| VolumeProperty::named(name).map(|property| change.set_code(property, code)))?;
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::properties::tests::{codes, volume_codes};

    fn read_all(bytes: &[u8]) -> Option<PoolChange> {
        let mut reader = Reader::new(bytes);
        let change = read(&mut reader).ok()?;
        reader.byte().is_err().then_some(change)
    }

    #[test]
    fn a_change_of_any_property_reads_back() {
        for (property, code) in codes() {
            let (mut change, mut bytes) = (PoolChange::default(), Vec::new());
            if change.set_code(property, code).is_err() {
                continue;
            }
            put(&mut bytes, &change);
            // The greatest budget is one more than a number holds, and counts as the one before.
            let replicas = change.replicas.map(|budget| budget.map(|bytes| bytes.min(u64::MAX - 2)));
            assert_eq!(read_all(&bytes), Some(PoolChange { replicas, ..change }), "{property:?} {code:x}");
        }
    }

    #[test]
    fn a_change_of_any_property_of_a_volume_reads_back() {
        for (property, code) in volume_codes() {
            let (mut change, mut bytes) = (VolumePropertyChange::default(), Vec::new());
            if change.set_code(property, code).is_ok() {
                put_of_volume(&mut bytes, &change);
                let mut reader = Reader::new(&bytes);
                assert_eq!(read_of_volume(&mut reader).ok(), Some(change), "{property:?} {code:x}");
                assert!(reader.byte().is_err());
            }
        }
    }

    #[test]
    fn properties_of_later_rows_follow_by_name() {
        let others = |names: &[&str]| {
            let mut bytes = Vec::new();
            put(&mut bytes, &PoolChange { memory: Some(5), ..PoolChange::default() });
            bytes[1] |= OTHERS;
            number(&mut bytes, names.len() as u64);
            for name in names {
                text(&mut bytes, name);
                bytes.extend([2, 0]);
            }
            bytes
        };
        let mut expected = PoolChange { memory: Some(5), ..PoolChange::default() };
        expected.set_text(PoolProperty::IndexCopy, "newest").unwrap();
        expected.set_text(PoolProperty::CacheKey, "off").unwrap();
        assert_eq!(read_all(&others(&["index-copy", "cache-key"])), Some(expected));
        assert_eq!(read_all(&others(&["no-property"])), None);
        let cut = others(&["index-copy"]);
        assert!((0..cut.len()).all(|end| read_all(&cut[..end]).is_none()));
    }
}
