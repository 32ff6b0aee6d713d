//! Tests of every row of the tables.

use alloc::collections::BTreeSet;
use alloc::format;

use super::*;

/// Returns numbers that may be codes: all small ones, and powers of two with their neighbours.
fn numbers() -> BTreeSet<Code> {
    let powers = (0..Code::BITS).map(|power| 1 << power);
    let powers = powers.flat_map(|power: Code| [power - 1, power, power | 1, power | 0xff, power | power >> 1]);
    (0..0x1000).chain(powers).collect()
}

/// Returns every property of a pool with numbers that may be codes.
pub(crate) fn codes() -> impl Iterator<Item = (PoolProperty, Code)> {
    PoolProperty::ALL.iter().flat_map(move |&property| numbers().into_iter().map(move |code| (property, code)))
}

/// Returns every property of a volume with numbers that may be codes.
pub(crate) fn volume_codes() -> impl Iterator<Item = (VolumeProperty, Code)> {
    VolumeProperty::ALL.iter().flat_map(move |&property| numbers().into_iter().map(move |code| (property, code)))
}

/// Defines the tests of the properties of a scope, whose block has this number of bytes.
macro_rules! tests {
    ($scope:ident, $Property:ident, $Values:ident, $Change:ident, $codes:ident, $bytes:literal) => {
        mod $scope {
            use super::*;

            #[test]
            fn a_value_reads_back_from_its_code_its_field_and_its_text() {
                let mut values = 0;
                for (property, code) in $codes() {
                    let mut change = $Change::default();
                    if change.set_code(property, code).is_err() {
                        assert_eq!(change, $Change::default());
                        continue;
                    }
                    values += 1;
                    let (properties, text) = ($Values::default().with(&change), change.text(property).unwrap());
                    assert_eq!(properties.text(property), text);
                    assert_eq!(properties.is_default(property), change.code(property) == Some(0), "{text}");
                    let mut block = [0; $bytes];
                    properties.write(&mut block);
                    assert_eq!($Values::read(&block), Ok(properties), "{text}");
                    let mut again = $Change::default();
                    match again.set_text(property, &text) {
                        Ok(()) => assert_eq!(again, change, "{text}"),
                        // A size that only a number with a unit can give; a timing that no text resets.
                        Err(why) => assert!(why.contains("add a unit") || text == "default", "{why}"),
                    }
                    assert_eq!(properties.with(&$Change::default()), properties);
                }
                assert!(values > 3 * $Property::ALL.len(), "{values}");
            }

            #[test]
            fn another_text_is_refused_with_the_name_of_the_property() {
                for &property in $Property::ALL {
                    let mut change = $Change::default();
                    let why = change.set_text(property, "no value").unwrap_err();
                    assert!(why.starts_with(&format!("{}=no value is not possible: ", property.name())), "{why}");
                    assert_eq!(change, $Change::default());
                }
            }

            #[test]
            fn each_form_of_the_reference_is_a_value() {
                for &property in $Property::ALL {
                    assert!(property.summary().ends_with('.'), "{property:?}");
                    for form in property.forms() {
                        assert!(form.meaning.ends_with('.') && !form.meaning.starts_with(' '), "{form:?}");
                        let is_text = !form.text.contains(|sign: char| sign.is_uppercase() || "[`".contains(sign));
                        let taken = $Change::default().set_text(property, form.text);
                        assert!(!is_text || taken.is_ok(), "{taken:?}");
                    }
                }
            }

            #[test]
            fn each_property_has_a_name_a_help_and_bits_of_its_own() {
                let mut taken = [0; $bytes];
                for (at, &property) in $Property::ALL.iter().enumerate() {
                    assert_eq!(($Property::named(property.name()), property as usize), (Some(property), at));
                    assert!(!property.help().is_empty() && !property.help().ends_with('.'));
                    let (mut zeroes, mut ones) = ([0; $bytes], [0; $bytes]);
                    field::write(property.field(), 0, &mut zeroes);
                    field::write(property.field(), field::read(property.field(), &[255; $bytes]), &mut ones);
                    for (taken, bits) in
                        taken.iter_mut().zip(zeroes.into_iter().zip(ones).map(|(zero, one)| zero | one))
                    {
                        assert_eq!(*taken & bits, 0, "{property:?}");
                        *taken |= bits;
                    }
                }
                assert_eq!($Property::named("no property"), None);
            }
        }
    };
}

tests!(of_pools, PoolProperty, PoolProperties, PoolChange, codes, 512);
tests!(of_volumes, VolumeProperty, VolumeProperties, VolumePropertyChange, volume_codes, 256);

/// Checks the table of the published systems' values in the module's header.
#[test]
fn each_published_system_is_a_value_and_none_is_a_default() {
    let of_pools = [
        (PoolProperty::Throttle, "paper"),
        (PoolProperty::Throttle, "paper:0.001"),
        (PoolProperty::Cache, "adaptive:paper"),
        (PoolProperty::FlashPolicy, "paper"),
    ];
    for (property, text) in of_pools {
        let mut change = PoolChange::default();
        change.set_text(property, text).unwrap();
        assert_eq!(change.text(property).as_deref(), Some(text));
        assert!(!PoolProperties::default().with(&change).is_default(property), "{text}");
    }
    let mut change = VolumePropertyChange::default();
    change.set_text(VolumeProperty::Controller, "paper").unwrap();
    assert!(!VolumeProperties::default().with(&change).is_default(VolumeProperty::Controller));
}
