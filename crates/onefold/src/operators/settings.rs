//! Changes of properties as they cross the control socket: an object with a field for each property that is changed, of its text form.
//!
//! A field has the name of its property, with `_` for `-`. Servers of before the table of properties expect three of them as numbers.

use std::collections::BTreeMap;

use engine::{PoolChange, PoolProperty, VolumeProperty, VolumePropertyChange};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, from_value};

use crate::size;

/// Changes of properties of the pool; a missing property stays unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings(pub PoolChange);

/// Upper bound on the bytes that something may take.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
enum Budget {
    /// Default of the engine.
    Default,
    /// N bytes; 0 allows nothing.
    Bytes(u64),
}

/// Returns the field of a property.
fn field(property: PoolProperty) -> String {
    match property {
        PoolProperty::Memory => "memory_bytes".into(),
        _ => property.name().replace('-', "_"),
    }
}

impl Serialize for PoolSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let PoolSettings(change) = self;
        let mut map = serializer.serialize_map(None)?;
        for &property in PoolProperty::ALL {
            let Some(text) = change.text(property) else { continue };
            let key = field(property);
            match property {
                PoolProperty::Memory => map.serialize_entry(&key, &change.memory)?,
                PoolProperty::SecondCopies => map.serialize_entry(&key, &change.second_copies)?,
                PoolProperty::Replicas => {
                    let budget = change.replicas.map(|bytes| bytes.map_or(Budget::Default, Budget::Bytes));
                    map.serialize_entry(&key, &budget)?;
                }
                _ => map.serialize_entry(&key, &text)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for PoolSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PoolSettings, D::Error> {
        let mut change = PoolChange::default();
        for (key, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            // Clients of before the table send all properties.
            if value.is_null() {
                continue;
            }
            let property = PoolProperty::ALL.iter().copied().find(|&property| field(property) == key);
            let property = property.ok_or_else(|| D::Error::custom(format!("there is no property '{key}'")))?;
            match property {
                PoolProperty::Memory => change.memory = from_value(value).map_err(D::Error::custom)?,
                PoolProperty::SecondCopies => change.second_copies = from_value(value).map_err(D::Error::custom)?,
                PoolProperty::Replicas => {
                    let budget = from_value(value).map_err(D::Error::custom)?;
                    change.replicas = Some(if let Budget::Bytes(bytes) = budget { Some(bytes) } else { None });
                }
                _ => {
                    let text: String = from_value(value).map_err(D::Error::custom)?;
                    change.set_text(property, &text).map_err(D::Error::custom)?;
                }
            }
        }
        Ok(PoolSettings(change))
    }
}

impl PoolSettings {
    /// Lists the changes as `KEY=VALUE`, as the log has them.
    pub fn shown(&self) -> Vec<String> {
        let PoolSettings(change) = self;
        let value = |property| match (property, change.memory) {
            (PoolProperty::Memory, Some(bytes @ 1..)) => Some(size::show(bytes)),
            _ => change.text(property),
        };
        PoolProperty::ALL.iter().filter_map(|&p| value(p).map(|value| format!("{}={value}", p.name()))).collect()
    }
}

/// Changes of properties of a volume; a missing property stays unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings(pub VolumePropertyChange);

impl Serialize for VolumeSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let VolumeSettings(change) = self;
        let mut map = serializer.serialize_map(None)?;
        for &property in VolumeProperty::ALL {
            let Some(text) = change.text(property) else { continue };
            let key = property.name().replace('-', "_");
            match property {
                VolumeProperty::ReadOnly => map.serialize_entry(&key, &change.read_only)?,
                VolumeProperty::Exclusive => map.serialize_entry(&key, &change.exclusive)?,
                _ => map.serialize_entry(&key, &text)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for VolumeSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<VolumeSettings, D::Error> {
        let mut change = VolumePropertyChange::default();
        for (key, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            // Clients of before the table send all properties.
            if value.is_null() {
                continue;
            }
            let property = VolumeProperty::named(&key.replace('_', "-"));
            let property = property.ok_or_else(|| D::Error::custom(format!("there is no property '{key}'")))?;
            match property {
                VolumeProperty::ReadOnly => change.read_only = from_value(value).map_err(D::Error::custom)?,
                VolumeProperty::Exclusive => change.exclusive = from_value(value).map_err(D::Error::custom)?,
                _ => {
                    let text: String = from_value(value).map_err(D::Error::custom)?;
                    change.set_text(property, &text).map_err(D::Error::custom)?;
                }
            }
        }
        Ok(VolumeSettings(change))
    }
}

impl VolumeSettings {
    /// Lists the changes as `KEY=VALUE`, as the log has them.
    pub fn shown(&self) -> Vec<String> {
        let VolumeSettings(change) = self;
        let value = |property| match (property, change.read_only) {
            (VolumeProperty::ReadOnly, Some(is_on)) => Some(is_on.to_string()),
            _ => change.text(property),
        };
        VolumeProperty::ALL.iter().filter_map(|&p| value(p).map(|value| format!("{}={value}", p.name()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the form that servers and clients of before the table have.
    #[test]
    fn changes_of_the_pool_cross_the_socket_as_before_the_table() {
        let old = r#"{"policy":"inherit","memory_bytes":2147483648,"second_copies":16,"replicas":{"bytes":77},"index_copy":"oldest",
            "defrag":"off","cache":"fixed:40,lru","cache_key":null,"device":"hdd","dedup_verify":null,"relocate":"22-06",
            "throttle":"paper:0.001","flash_policy":null}"#;
        let settings: PoolSettings = serde_json::from_str(old).unwrap();
        let expected = PoolChange {
            policy: Some(None),
            memory: Some(2 << 30),
            second_copies: Some(16),
            replicas: Some(Some(77)),
            index_copy: Some(engine::IndexCopy::Oldest),
            defrag: Some(engine::DefragSetting::Off),
            cache: Some("fixed:40,lru".parse().ok()),
            device: Some(engine::DeviceKind::Hdd),
            relocate: "22-06".parse().ok(),
            throttle: Some(engine::PassThrottle::Experiment),
            ..PoolChange::default()
        };
        assert_eq!(settings, PoolSettings(expected));
        let mut given: BTreeMap<String, Value> = serde_json::from_str(old).unwrap();
        given.retain(|_, value| !value.is_null());
        assert_eq!(serde_json::to_value(settings).unwrap(), serde_json::to_value(given).unwrap());
        let default = serde_json::from_str::<PoolSettings>(r#"{"replicas":"default","memory_bytes":0}"#).unwrap();
        assert_eq!((default.0.replicas, default.0.memory), (Some(None), Some(0)));
        assert_eq!(default.shown(), ["memory=default", "replicas=default"]);
        for wrong in [r#"{"colour":"red"}"#, r#"{"device":"tape"}"#, r#"{"device":1}"#, r#"{"memory_bytes":"2G"}"#] {
            assert!(serde_json::from_str::<PoolSettings>(wrong).is_err(), "{wrong}");
        }
    }

    /// Checks the form that servers and clients of before the table have.
    #[test]
    fn changes_of_a_volume_cross_the_socket_as_before_the_table() {
        let old = r#"{"policy":"inherit","read_only":true,"exclusive":false,"timing":"hybrid","goal":"p99=2ms","keep_runs":"off","controller":null}"#;
        let settings: VolumeSettings = serde_json::from_str(old).unwrap();
        let expected = VolumePropertyChange {
            policy: Some(None),
            read_only: Some(true),
            exclusive: Some(false),
            timing: Some(Some(engine::Timing::Hybrid)),
            goal: "p99=2ms".parse().ok(),
            keep_runs: Some(engine::KeepRuns::Off),
            ..VolumePropertyChange::default()
        };
        assert_eq!(settings, VolumeSettings(expected));
        let mut given: BTreeMap<String, Value> = serde_json::from_str(old).unwrap();
        given.retain(|_, value| !value.is_null());
        assert_eq!(serde_json::to_value(settings).unwrap(), serde_json::to_value(given).unwrap());
        let shown = "policy=inherit read-only=true exclusive=off timing=hybrid goal=p99=2ms keep-runs=off";
        assert_eq!(settings.shown().join(" "), shown);
        assert!(serde_json::from_str::<VolumeSettings>(r#"{"read_only":"on"}"#).is_err());
    }
}
