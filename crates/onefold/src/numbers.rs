//! Fuzz tests of numbers and words from the command line, the control socket and the environment: parsers and checks return a value or a refusal. (For the
//! effect of commands in the engine: the simulator's `every_number_of_a_command_is_refused_or_carried_out_and_kept`.)

use clap::Parser;
use engine::{DigestFunction, Engine, Geometry, Limits, Parameters, PoolChange, PoolProperty};
use proptest::prelude::*;

use crate::commands::cli::{Cli, Command};
use crate::commands::estimate;
use crate::frontend::nbd::listen::Address;
use crate::memory::MemoryPartition;
use crate::operators::command;
use crate::operators::control::{Request, Response};
use crate::operators::properties::{pool_request, volume_request};
use crate::operators::settings::PoolSettings;
use crate::size;
use crate::store::grow;

/// Generates any number, more often one at an edge.
fn number() -> impl Strategy<Value = u64> {
    let near_a_power = (0u32..64, -2i64..=2).prop_map(|(power, beside)| (1u64 << power).wrapping_add_signed(beside));
    prop_oneof![any::<u64>(), near_a_power, (0u64..4).prop_map(|beside| u64::MAX - beside)]
}

/// Generates a number as a user may write it: with a unit, a sign, a fraction, too long; or no number at all.
fn written() -> impl Strategy<Value = String> {
    let unit = prop_oneof![Just(""), "[kKmMgGtTpPeE](i?[bB])?".prop_map(|unit| &*unit.leak())];
    let with_unit = (number(), unit).prop_map(|(number, unit)| format!("{number}{unit}"));
    let signed = any::<i64>().prop_map(|number| number.to_string());
    let fraction = (number(), number()).prop_map(|(whole, part)| format!("{whole}.{part}G"));
    let beyond = number().prop_map(|number| format!("{number}{number}"));
    let word = "(select|idedup|fixed|adaptive|full)?:?[0-9]{0,20}(,lru|,request)?";
    prop_oneof![with_unit, signed, fraction, beyond, word, ".{0,12}"]
}

/// Command lines, with a number each.
const LINES: [&str; 28] = [
    "create p --capacity @",
    "grow p --capacity @",
    "grow p --metadata @",
    "grow p --capacity @ --memory @",
    "volume create p v --size @",
    "volume create p v --size 1G --policy @",
    "volume resize p v @",
    "volume set p v policy=@",
    "volume set p v read-only=@",
    "set p memory @",
    "set p second-copies @",
    "set p replicas @",
    "set p index-copy @",
    "set p defrag @",
    "set p cache @",
    "set p policy @",
    "serve p --create --size @",
    "serve p --memory @",
    "serve p --max-connections @",
    "serve p --poll @",
    "serve p --stop-timeout @",
    "serve p --record f --record-size @",
    "serve p --listen tcp:127.0.0.1:@",
    "serve p --log @",
    "estimate p --memory @",
    "estimate p --request-size @",
    "status p --memory @",
    "check p --memory @",
];

/// Generates a command line with a number in it.
fn command_line() -> impl Strategy<Value = Vec<String>> {
    (proptest::sample::select(&LINES[..]), written()).prop_map(|(line, value)| {
        let words = line.split(' ').map(|word| word.replace('@', &value));
        ["onefold".into()].into_iter().chain(words).collect()
    })
}

/// Generates any command for a pool or a volume, with any numbers.
fn request() -> impl Strategy<Value = Request> {
    let name = prop_oneof![Just("v".to_string()), ".{0,80}"];
    let numbers = (proptest::option::of(number()), proptest::option::of(any::<u32>()), proptest::option::of(number()));
    let texts = proptest::collection::vec((proptest::sample::select(PoolProperty::ALL), written()), 0..4);
    let settings = (numbers, texts).prop_map(|((memory, second_copies, replicas), texts)| {
        let replicas = replicas.map(Some);
        let mut change = PoolChange { memory, second_copies, replicas, ..PoolChange::default() };
        for (property, text) in texts {
            let before = change;
            if change.set_text(property, &text).is_err() {
                assert_eq!(change, before);
            }
        }
        Request::SetPool(PoolSettings(change))
    });
    prop_oneof![
        settings,
        (number(), number())
            .prop_map(|(capacity_bytes, metadata_bytes)| Request::Grow { capacity_bytes, metadata_bytes }),
        (name.clone(), number(), written()).prop_map(|(name, size_bytes, policy)| Request::CreateVolume {
            name,
            size_bytes,
            policy
        }),
        (name, number(), any::<bool>(), any::<bool>()).prop_map(|(name, size_bytes, force, reconnect)| {
            Request::ResizeVolume { name, size_bytes, force, reconnect }
        }),
    ]
}

thread_local! {
    /// Engine of the tests, which they only read.
    static ENGINE: Engine = {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [1; 16], [2; 32], DigestFunction::Blake3);
        Engine::open(parameters, Limits::for_memory(64 << 20, &geometry).unwrap(), 0)
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_command_line_is_understood_or_refused(line in command_line()) {
        let Ok(cli) = Cli::try_parse_from(line) else { return Ok(()) };
        match cli.command {
            Command::Set { properties, .. } => drop(pool_request(&properties)),
            Command::Volume(crate::commands::cli::VolumeCommand::Set { name, properties, .. }) => drop(volume_request(&name, &properties)),
            Command::Volume(crate::commands::cli::VolumeCommand::Resize { size, .. }) => drop(crate::wrong_size(size.bytes())),
            Command::Volume(crate::commands::cli::VolumeCommand::Create { size, .. }) => {
                prop_assert!(crate::wrong_size(size).is_none() || !size.is_multiple_of(4096) || size == 0);
            }
            Command::Create(arguments) => drop(crate::commands::create::geometry_for(arguments.capacity, arguments.metadata.unwrap_or(0))),
            _ => {}
        }
    }

    #[test]
    fn any_word_is_a_value_or_refused(word in written()) {
        let _ = (size::parse(&word), Address::parse(&word), Address::parse(&format!("tcp:h:{word}")));
        let _ = (estimate::parse_memory(&word), estimate::parse_request_size(&word), estimate::parse_policy(&word));
        let _ = command::inheritable(&word);
        for &property in PoolProperty::ALL {
            let _ = PoolChange::default().set_text(property, &word);
        }
    }

    #[test]
    fn any_request_is_judged_and_its_success_can_be_told(request in request()) {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        ENGINE.with(|engine| drop(command::wanted(&request, engine, |_| usize::MAX)));
        let grows = matches!(request, Request::Grow { .. });
        prop_assert_eq!(command::done(&request).is_none(), grows);
        if let Request::Grow { capacity_bytes, metadata_bytes } = request {
            let memory = |bytes, taken, clients| Some(grow::ServerMemory { bytes, taken, clients });
            for memory in [None, memory(0, 1, 0), memory(64 << 20, 12 << 20, 1024), memory(u64::MAX, u64::MAX, u32::MAX)] {
                let wanted = grow::Wanted { capacity: capacity_bytes, metadata: metadata_bytes };
                let _ = grow::plan(&geometry, wanted, memory);
            }
        }
        // As it goes over the control socket.
        let line = serde_json::to_string(&request).unwrap();
        prop_assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
    }

    #[test]
    fn any_memory_for_any_clients_is_divided_or_refused_with_what_would_do(memory in number(), clients: u32, capacity in number()) {
        let Ok(geometry) = Geometry::for_capacity(capacity) else { return Ok(()) };
        match MemoryPartition::new(memory, &geometry, clients) {
            Ok(partition) => prop_assert!(partition.connections.most <= clients && partition.connections.memory_bytes() <= memory),
            Err(enough) => prop_assert!(enough > memory && MemoryPartition::new(enough, &geometry, clients).is_ok()),
        }
    }

    #[test]
    fn any_number_can_be_shown(number in number()) {
        let second_copies = Some(number as u32);
        let change = PoolChange { memory: Some(number), second_copies, replicas: Some(Some(number)), ..PoolChange::default() };
        let _ = (size::show(number), PoolProperty::ALL.iter().filter_map(|&property| change.text(property)).count());
    }

    #[test]
    fn any_line_on_the_control_socket_is_a_request_or_refused(
        line in prop_oneof![".{0,200}", r#"\{"command":"[a-z-]{0,14}","[a-z_]{0,14}":-?[0-9]{1,40}(e[0-9]{1,9})?[,}]{0,3}"#]
    ) {
        let _ = serde_json::from_str::<Request>(&line);
        let _ = serde_json::from_str::<Response>(&line);
    }
}
