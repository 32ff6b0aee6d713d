//! Tests of every row of the tables.

use alloc::collections::BTreeSet;

use super::*;

/// Returns every property with numbers that may be codes: all small ones, and powers of two with their neighbours.
pub(crate) fn codes() -> impl Iterator<Item = (PoolProperty, Code)> {
    let powers = (0..Code::BITS).map(|power| 1 << power);
    let powers = powers.flat_map(|power: Code| [power - 1, power, power | 1, power | 0xff, power | power >> 1]);
    let codes: BTreeSet<Code> = (0..0x1000).chain(powers).collect();
    PoolProperty::ALL.iter().flat_map(move |&property| codes.clone().into_iter().map(move |code| (property, code)))
}

#[test]
fn a_value_reads_back_from_its_code_and_its_text() {
    let mut values = 0;
    for (property, code) in codes() {
        let mut change = PoolChange::default();
        if change.set_code(property, code).is_err() {
            assert_eq!(change, PoolChange::default());
            continue;
        }
        values += 1;
        let properties = PoolProperties::default().with(&change);
        let text = change.text(property).expect("it is set");
        assert_eq!(
            (properties.text(property), properties.is_default(property)),
            (text.clone(), change.code(property) == Some(0)),
            "{text}"
        );
        let mut again = PoolChange::default();
        match again.set_text(property, &text) {
            Ok(()) => assert_eq!(again, change, "{text}"),
            // A size that only a number with a unit can give.
            Err(why) => assert!(why.contains("add a unit"), "{why}"),
        }
        let kept = PoolChange::default();
        assert_eq!(properties.with(&kept), properties);
    }
    assert!(values > 3 * PoolProperty::ALL.len(), "{values}");
}

#[test]
fn another_text_is_refused_with_the_name_of_the_property() {
    for &property in PoolProperty::ALL {
        let mut change = PoolChange::default();
        let why = change.set_text(property, "no value").unwrap_err();
        assert!(why.starts_with(&alloc::format!("{}=no value is not possible: ", property.name())), "{why}");
        assert_eq!(change, PoolChange::default());
    }
}

#[test]
fn each_property_has_a_name_a_help_and_bits_of_its_own() {
    let mut taken = [0; 512];
    for (at, &property) in PoolProperty::ALL.iter().enumerate() {
        assert_eq!((PoolProperty::named(property.name()), property as usize), (Some(property), at));
        assert!(!property.help().is_empty() && !property.help().ends_with('.'));
        let mut bits = [0; 512];
        field::write(property.field(), field::read(property.field(), &[255; 512]), &mut bits);
        for (taken, bits) in taken.iter_mut().zip(bits) {
            assert_eq!(*taken & bits, 0, "{property:?}");
            *taken |= bits;
        }
    }
    assert_eq!(PoolProperty::named("no property"), None);
}
