//! Properties of pools and volumes in text form: `KEY=VALUE` in, a table with the source of each value out.

use engine::byte_size::exact;
use engine::{PoolChange, PoolProperty, VolumeProperty, VolumePropertyChange};
use serde::Serialize;

use crate::operators::command::inheritable;
use crate::operators::control::Request;
use crate::operators::settings::{PoolSettings, VolumeSettings};
use crate::report::status::{Report, VolumeReport};
use crate::size;

/// A row of `get`.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct Property {
    /// Name of the volume, or of the pool.
    pub name: String,
    /// Key of the property, as in `KEY=VALUE`.
    pub property: &'static str,
    /// Value in the syntax of the command line.
    pub value: String,
    /// Origin of the value: `default`, `pool`, `volume` or `command line`.
    pub source: &'static str,
}

/// Lists all properties of a volume, each with the source of its value.
pub fn of_volume(volume: &VolumeReport) -> Vec<Property> {
    let property = |&property: &VolumeProperty| {
        let (value, source) = volume.property(property)?;
        Some(Property { name: volume.name.clone(), property: property.name(), value, source })
    };
    VolumeProperty::ALL.iter().filter_map(property).collect()
}

/// Lists all properties of a pool, each with the source of its value.
pub fn of_pool(name: &str, report: &Report) -> Vec<Property> {
    let property = |&property: &PoolProperty| {
        let (value, source) = report.property(property)?;
        Some(Property { name: name.into(), property: property.name(), value, source })
    };
    PoolProperty::ALL.iter().filter_map(property).collect()
}

/// Returns true if a request sets the budget of replicas.
pub fn sets_replicas(request: &Request) -> bool {
    matches!(request, Request::SetPool(PoolSettings(PoolChange { replicas: Some(_), .. })))
}

/// Describes the replicas that a budget and the memory allow. `None` without a budget.
pub fn replicas_fit(report: &Report) -> Option<String> {
    let replicas = &report.replicas;
    let set = replicas.set_bytes.filter(|&bytes| bytes > 0)?;
    let copies = replicas.popular_blocks_most * u64::from(engine::ZONES) * 4096;
    let (in_order, least) = (replicas.budget_bytes.saturating_sub(copies), set.min(replicas.budget_bytes));
    let copied = match replicas.popular_blocks_most {
        0 => "no copies of popular blocks (these are for device=hdd)".into(),
        blocks => format!("ten copies each of {blocks} popular blocks ({})", size::show(copies)),
    };
    let memory = if least < set {
        format!("; with memory={} there is space for no more", exact(report.memory_cap_bytes))
    } else {
        String::new()
    };
    Some(format!(
        "replicas take at most {}: {copied}, and {} in order{memory}",
        size::show(least),
        size::show(in_order)
    ))
}

/// Selects the property with this key, or all without one; the error for an unknown key names the choices.
pub fn select(properties: Vec<Property>, key: Option<&str>) -> Result<Vec<Property>, String> {
    let Some(key) = key else { return Ok(properties) };
    let known: Vec<&str> = properties.iter().map(|property| property.property).collect();
    if !known.contains(&key) {
        return Err(unknown_key(key, &known));
    }
    Ok(properties.into_iter().filter(|property| property.property == key).collect())
}

fn unknown_key(key: &str, known: &[&str]) -> String {
    format!("there is no property '{key}': it is {}", known.join(" or "))
}

/// Splits words into keys and values, written `KEY=VALUE` or as two words; a missing value or a repeated key is an error.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, String> {
    let (mut found, mut words) = (Vec::<(&str, &str)>::new(), words.iter());
    while let Some(word) = words.next() {
        let (key, value) = match word.split_once('=') {
            Some(pair) => pair,
            None => match words.next() {
                Some(value) => (word.as_str(), value.as_str()),
                None => return Err(format!("'{word}' is not of the form KEY=VALUE, such as policy=native")),
            },
        };
        if found.iter().any(|(known, _)| *known == key) {
            return Err(format!("'{key}' is set twice"));
        }
        found.push((key, value));
    }
    Ok(found)
}

/// Builds the request of `volume set` from its words, with values checked; the error for an unknown key names the choices.
pub fn volume_request(name: &str, words: &[String]) -> Result<Request, String> {
    let mut change = VolumePropertyChange::default();
    for (key, value) in pairs(words)? {
        let names = || VolumeProperty::ALL.iter().map(|property| property.name()).collect::<Vec<_>>();
        let property = VolumeProperty::named(key).ok_or_else(|| unknown_key(key, &names()))?;
        change.set_text(property, value)?;
    }
    Ok(Request::SetVolume { name: name.into(), settings: VolumeSettings(change) })
}

/// Builds the request of `set` from its words, with values checked; the error for an unknown key names the choices.
pub fn pool_request(words: &[String]) -> Result<Request, String> {
    let mut change = PoolChange::default();
    for (key, value) in pairs(words)? {
        let names = || PoolProperty::ALL.iter().map(|property| property.name()).collect::<Vec<_>>();
        let property = PoolProperty::named(key).ok_or_else(|| unknown_key(key, &names()))?;
        change.set_text(property, value)?;
    }
    Ok(Request::SetPool(PoolSettings(change)))
}

/// Returns the help of the properties that `set` takes.
pub fn pool_help() -> String {
    let rows = PoolProperty::ALL.iter().map(|property| format!("{}: {}", property.name(), property.help()));
    format!("Properties to set, such as memory=2G. {}", rows.collect::<Vec<_>>().join("; "))
}

/// Returns the help of the property that `get` takes.
pub fn pool_key_help() -> String {
    key_help(&PoolProperty::ALL.iter().map(|property| property.name()).collect::<Vec<_>>())
}

/// Returns the line about `volume set`.
pub fn volume_help() -> String {
    let rows = VolumeProperty::ALL.iter().map(|property| format!("{}={}", property.name(), property.help()));
    format!("Set properties of a volume: {}", rows.collect::<Vec<_>>().join(", "))
}

/// Returns the help of the property that `volume get` takes.
pub fn volume_key_help() -> String {
    key_help(&VolumeProperty::ALL.iter().map(|property| property.name()).collect::<Vec<_>>())
}

fn key_help(names: &[&str]) -> String {
    let (last, others) = names.split_last().expect("there are properties");
    format!("Only this property: {} or {last}", others.join(", "))
}

/// Checks a policy, or `inherit`, and returns it as written.
pub fn policy_value(value: &str) -> Result<String, String> {
    inheritable(value).map(|_| value.into())
}

/// Formats properties as a table with a heading and aligned columns.
pub fn table(properties: &[Property]) -> String {
    let width = |heading: &str, text: &dyn Fn(&Property) -> usize| {
        properties.iter().map(text).max().unwrap_or(0).max(heading.len()) + 2
    };
    let name = width("NAME", &|property| property.name.len());
    let key = width("PROPERTY", &|property| property.property.len());
    let value = width("VALUE", &|property| property.value.len());
    let mut text = format!("{:<name$}{:<key$}{:<value$}SOURCE\n", "NAME", "PROPERTY", "VALUE");
    for property in properties {
        let Property { name: of, property, value: set, source } = property;
        text.push_str(&format!("{of:<name$}{property:<key$}{set:<value$}{source}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Controller, Goal, KeepRuns, PassThrottle, Policy, Timing};

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    fn pool(key: &str, value: &str) -> Result<Request, String> {
        let [one, two] = [pool_request(&words(&[&format!("{key}={value}")])), pool_request(&words(&[key, value]))];
        assert_eq!(one, two, "both spellings are one");
        one
    }

    #[test]
    fn a_key_and_its_value_are_one_word_or_two() {
        let settings = PoolSettings(PoolChange {
            policy: Some(Some(Policy::Full)),
            memory: Some(1 << 31),
            ..PoolChange::default()
        });
        for text in ["policy=full memory=2G", "policy full memory 2G", "policy full memory=2G"] {
            let given: Vec<&str> = text.split(' ').collect();
            assert_eq!(pool_request(&words(&given)), Ok(Request::SetPool(settings)), "{text}");
        }
        for (text, problem) in
            [("memory", "KEY=VALUE"), ("policy=full policy native", "'policy' is set twice"), ("memory=512", "512G")]
        {
            let given: Vec<&str> = text.split(' ').collect();
            assert!(pool_request(&words(&given)).unwrap_err().contains(problem), "{text}");
        }
        assert!(volume_request("v", &words(&["read-only", "on", "policy"])).unwrap_err().contains("KEY=VALUE"));
    }

    #[test]
    fn pairs_are_read_and_wrong_ones_name_the_choices() {
        let set = |pairs: &[&str]| volume_request("v", &words(pairs));
        let policy = Some(Some(Policy::Native));
        let change = VolumePropertyChange {
            read_only: Some(true),
            exclusive: Some(true),
            timing: Some(Some(Timing::Hybrid)),
            goal: Some(Goal::P99(2_000_000)),
            keep_runs: Some(KeepRuns::Off),
            controller: Some(Controller::Paper),
            ..VolumePropertyChange { policy, ..VolumePropertyChange::default() }
        };
        let request = Request::SetVolume { name: "v".into(), settings: VolumeSettings(change) };
        assert_eq!(
            set(&[
                "policy=native",
                "read-only=on",
                "exclusive=on",
                "timing=hybrid",
                "goal=p99=2ms",
                "keep-runs=off",
                "controller=paper"
            ]),
            Ok(request)
        );
        let known =
            ["policy=select:4", "policy=select:3,request", "policy=idedup:8", "policy=observe", "policy=inherit"];
        assert!(known.iter().all(|pair| set(&[pair]).is_ok()));
        for (pair, choice) in [
            ("policy=some", "full, select or idedup"),
            ("policy=some", "inherit"),
            ("policy=select:0", "1 to 255"),
            ("read-only=1", "on or off"),
            ("exclusive=1", "on or off"),
            ("x=1", "policy or read-only or exclusive or timing or goal or keep-runs or controller"),
            ("timing=later", "inline, offline or hybrid"),
            ("goal=0iops", "20000iops"),
            ("goal=fast", "none, or a number"),
            ("keep-runs=yes", "on, off or auto"),
            ("controller=ours", "forecast or paper"),
        ] {
            assert!(set(&[pair]).unwrap_err().contains(choice), "{pair}");
        }
        assert!(set(&["policy"]).unwrap_err().contains("KEY=VALUE"));
        let error = pool("size", "1").unwrap_err();
        assert!(
            error.contains(
                "second-copies or replicas or index-copy or defrag or cache or cache-key or device or dedup-verify or relocate or throttle or flash-policy"
            ),
            "{error}"
        );
        let set = |memory, second_copies| {
            Ok(Request::SetPool(PoolSettings(PoolChange { memory, second_copies, ..PoolChange::default() })))
        };
        assert!(pool("index-copy", "oldest").is_ok());
        assert!(pool("index-copy", "both").unwrap_err().contains("sequential, oldest or newest"));
        assert!(["content", "sector", "off"].iter().all(|value| pool("cache-key", value).is_ok()));
        assert!(pool("cache-key", "digest").unwrap_err().contains("content, sector or off"));
        assert!(["auto", "hdd", "ssd"].iter().all(|value| pool("device", value).is_ok()));
        assert!(pool("device", "tape").unwrap_err().contains("device=tape is not possible: it is auto, hdd or ssd"));
        assert!(pool("replicas", "1G").is_ok() && pool("replicas", "off").is_ok());
        assert!(pool("replicas", "many").unwrap_err().contains("off or default"));
        assert!(["auto", "off", "50G"].iter().all(|value| pool("defrag", value).is_ok()));
        assert!(pool("defrag", "0").unwrap_err().contains("defrag=off"));
        assert!(pool("defrag", "much").unwrap_err().contains("auto, or off"));
        assert!(["kept", "both", "off"].iter().all(|value| pool("dedup-verify", value).is_ok()));
        assert!(pool("dedup-verify", "yes").unwrap_err().contains("kept, both or off"));
        assert!(["auto", "off", "22-06", "1-24"].iter().all(|value| pool("relocate", value).is_ok()));
        for value in ["on", "6", "06-06", "22-25"] {
            let error = pool("relocate", value).unwrap_err();
            assert!(error.contains(&format!("relocate={value} is not possible: it is auto, off, or")), "{error}");
            assert!(error.contains("22-06"), "{error}");
        }
        let throttle = |value| pool("throttle", value);
        let set_throttle = |throttle: PassThrottle| {
            Ok(Request::SetPool(PoolSettings(PoolChange { throttle: Some(throttle), ..PoolChange::default() })))
        };
        let (listing, experiment) = (set_throttle(PassThrottle::Listing), set_throttle(PassThrottle::Experiment));
        assert_eq!((throttle("paper"), throttle("paper:0.15")), (listing.clone(), listing));
        assert_eq!((throttle("share"), throttle("paper:0.001")), (set_throttle(PassThrottle::Share), experiment));
        let policy = |value: &str| {
            let flash_policy = Some(value.parse().unwrap());
            Ok(Request::SetPool(PoolSettings(PoolChange { flash_policy, ..PoolChange::default() })))
        };
        assert_eq!(pool("flash-policy", "paper:filter=5"), policy("paper"));
        assert_eq!(pool("flash-policy", "paper:delay=off"), policy("paper:filter=5,delay=off,comparison=1.5"));
        assert!(
            pool("flash-policy", "paper:filter=0")
                .unwrap_err()
                .contains("flash-policy=paper:filter=0 is not possible: it is budget, paper")
        );
        assert!(throttle("paper:1").unwrap_err().contains("throttle=paper:1 is not possible: it is share, paper or"));
        let memory = |memory_bytes| set(Some(memory_bytes), None);
        let copies = |above| pool("second-copies", above);
        assert_eq!((copies("16"), copies("off")), (set(None, Some(16)), set(None, Some(0))));
        for value in ["0", "-1", "many", "4294967296"] {
            assert!(copies(value).unwrap_err().contains("second-copies="));
        }
        assert_eq!((pool("memory", "2G"), pool("memory", "default")), (memory(2 << 30), memory(0)));
        for value in ["adaptive", "fixed:30,lru", "read", "default"] {
            let cache = Some(value.parse().ok());
            let request = Request::SetPool(PoolSettings(PoolChange { cache, ..PoolChange::default() }));
            assert_eq!(pool("cache", value), Ok(request));
        }
        let wrong = pool("cache", "fixed:101").unwrap_err();
        assert!(wrong.contains("cache=fixed:101") && wrong.contains("fixed:PERCENT"), "{wrong}");
        for value in ["0", "much", "2X"] {
            assert!(pool("memory", value).unwrap_err().contains("memory="));
        }
    }

    #[test]
    fn the_table_lines_up() {
        let row = |name: &str, value: &str| Property {
            name: name.into(),
            property: "policy",
            value: value.into(),
            source: "pool",
        };
        let text = table(&[row("a", "full"), row("a-long-name", "native")]);
        let columns: Vec<_> = text.lines().skip(1).map(|line| line.find("pool")).collect();
        assert_eq!(columns[0], columns[1]);
    }
}
