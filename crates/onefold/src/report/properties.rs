//! Report of the properties of a pool and of its volumes. Most have fields of their own in [`Report`] and [`VolumeReport`], beside the figures that they
//! rule; the others are by their names.

use std::collections::BTreeMap;

use engine::byte_size::exact;
use engine::{DefragSetting, PoolChange, PoolProperties, PoolProperty, VolumeProperties, VolumeProperty};
use serde::{Deserialize, Serialize};

use crate::report::status::{Report, VolumeReport};

/// Source of a property that neither pool, volume nor command line sets.
const DEFAULT: &str = "default";

/// Value of a property without a field of its own.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyReport {
    /// Value as it is written on the command line.
    pub value: String,
    /// True if it is not the default.
    pub is_set: bool,
}

/// Properties that have fields of their own in [`Report`]: those of before the table of properties.
const OWN_FIELDS: [PoolProperty; 13] = [
    PoolProperty::Policy,
    PoolProperty::Memory,
    PoolProperty::SecondCopies,
    PoolProperty::Replicas,
    PoolProperty::IndexCopy,
    PoolProperty::Defrag,
    PoolProperty::Cache,
    PoolProperty::CacheKey,
    PoolProperty::Device,
    PoolProperty::DedupVerify,
    PoolProperty::Relocate,
    PoolProperty::Throttle,
    PoolProperty::FlashPolicy,
];

/// Collects the properties that have no fields of their own.
pub fn others(properties: &PoolProperties) -> BTreeMap<String, PropertyReport> {
    let others = PoolProperty::ALL.iter().filter(|property| !OWN_FIELDS.contains(property));
    let other =
        |&property| PropertyReport { value: properties.text(property), is_set: !properties.is_default(property) };
    others.map(|property| (property.name().to_string(), other(property))).collect()
}

impl Report {
    /// Returns the value of a property and its source; `None` if the server is older than the property.
    pub fn property(&self, property: PoolProperty) -> Option<(String, &'static str)> {
        let other = || self.properties.get(property.name()).map(|other| sourced(other.value.clone(), other.is_set));
        own_field(property, self).or_else(other)
    }

    /// Lists the properties without fields of their own as `KEY=VALUE`.
    pub fn other_properties(&self) -> String {
        let others: Vec<_> = self.properties.iter().map(|(name, other)| format!("{name}={}", other.value)).collect();
        others.join(", ")
    }
}

/// Properties that have fields of their own in [`VolumeReport`]: those of before the table of properties.
const OWN_FIELDS_OF_VOLUME: [VolumeProperty; 7] = [
    VolumeProperty::Policy,
    VolumeProperty::ReadOnly,
    VolumeProperty::Exclusive,
    VolumeProperty::Timing,
    VolumeProperty::Goal,
    VolumeProperty::KeepRuns,
    VolumeProperty::Controller,
];

/// Collects the properties of a volume that have no fields of their own.
pub fn others_of_volume(properties: &VolumeProperties) -> BTreeMap<String, PropertyReport> {
    let others = VolumeProperty::ALL.iter().filter(|property| !OWN_FIELDS_OF_VOLUME.contains(property));
    let other =
        |&property| PropertyReport { value: properties.text(property), is_set: !properties.is_default(property) };
    others.map(|property| (property.name().to_string(), other(property))).collect()
}

impl VolumeReport {
    /// Returns the value of a property and its source; `None` if the server is older than the property.
    pub fn property(&self, property: VolumeProperty) -> Option<(String, &'static str)> {
        let other = || self.properties.get(property.name()).map(|other| sourced_of(other.value.clone(), other.is_set));
        own_field_of(property, self).or_else(other)
    }
}

fn sourced(value: String, is_set: bool) -> (String, &'static str) {
    (value, if is_set { "pool" } else { DEFAULT })
}

fn sourced_of(value: String, is_set: bool) -> (String, &'static str) {
    (value, if is_set { "volume" } else { DEFAULT })
}

/// Returns a value of a volume and its source, if the report has a field for the property.
fn own_field_of(property: VolumeProperty, report: &VolumeReport) -> Option<(String, &'static str)> {
    let chosen = |value: &String| sourced_of(value.clone(), *value != VolumeProperties::default().text(property));
    let switch = |is_on: bool| sourced_of(if is_on { "on" } else { "off" }.into(), is_on);
    Some(match property.name() {
        "policy" => match report.policy_source.as_str() {
            "pool" => sourced(report.policy.clone(), true),
            source => sourced_of(report.policy.clone(), source == "volume"),
        },
        "read-only" => switch(report.read_only),
        "exclusive" => switch(report.exclusive),
        "timing" => sourced_of(report.timing.clone(), report.timing_source == "volume"),
        "goal" => sourced_of(report.goal.clone(), report.timing_state.setpoint.is_some()),
        "keep-runs" => chosen(&report.keep_runs),
        "controller" => chosen(&report.controller),
        _ => return None,
    })
}

/// Returns a value and its source, if the report has a field for the property.
fn own_field(property: PoolProperty, report: &Report) -> Option<(String, &'static str)> {
    let text = |change: PoolChange| change.text(property).unwrap_or_default();
    let chosen = |value: &String| sourced(value.clone(), *value != PoolProperties::default().text(property));
    let change = PoolChange::default();
    Some(match property.name() {
        "policy" => match &report.pool_policy {
            Some(policy) => sourced(policy.clone(), true),
            None => sourced(engine::Policy::default().to_string(), false),
        },
        "memory" => match report.memory_source.as_str() {
            "command line" => (exact(report.memory_cap_bytes), "command line"),
            source => sourced(exact(report.memory_cap_bytes), source == "pool"),
        },
        "second-copies" => {
            let above = report.second_copies_above;
            sourced(text(PoolChange { second_copies: Some(above), ..change }), above > 0)
        }
        "replicas" => {
            let (set, budget) = (report.replicas.set_bytes, report.replicas.budget_bytes);
            sourced(text(PoolChange { replicas: Some(set.or(Some(budget))), ..change }), set.is_some())
        }
        "index-copy" => chosen(&report.index_copy),
        "defrag" => {
            let defrag = match report.defrag.bytes_per_day {
                None => DefragSetting::Auto,
                Some(0) => DefragSetting::Off,
                Some(bytes) => DefragSetting::PerDay(bytes),
            };
            sourced(text(PoolChange { defrag: Some(defrag), ..change }), defrag != DefragSetting::Auto)
        }
        "cache" => sourced(report.cache.setting.clone(), report.cache.is_set),
        "cache-key" => chosen(&report.cache.key),
        "device" => chosen(&report.device.set),
        "dedup-verify" => chosen(&report.dedup.verify),
        "relocate" => sourced(report.relocate.by_itself.clone(), report.relocate.is_by_itself()),
        "throttle" => sourced(report.throttle.policy.clone(), report.throttle.is_throttle_set()),
        "flash-policy" => chosen(&report.flash.policy),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_property_is_in_one_place_of_a_report() {
        let report = crate::report::text::tests::report(1);
        for &property in PoolProperty::ALL {
            assert_eq!(own_field(property, &report).is_some(), OWN_FIELDS.contains(&property), "{property:?}");
            assert_eq!(
                report.properties.contains_key(property.name()),
                !OWN_FIELDS.contains(&property),
                "{property:?}"
            );
            assert_eq!(report.property(property).map(|(_, source)| source), Some(DEFAULT));
        }
        let volume = &report.volumes[0];
        for &property in VolumeProperty::ALL {
            let has_own = OWN_FIELDS_OF_VOLUME.contains(&property);
            assert_eq!(own_field_of(property, volume).is_some(), has_own, "{property:?}");
            assert_eq!(volume.property(property).map(|(_, source)| source), Some(DEFAULT));
        }
    }
}
