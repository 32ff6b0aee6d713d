//! Arbitrary numbers from outside: a computation of them before a change gives a result or a refusal, never a panic. (Results of commands with such
//! numbers are in `every_number_of_a_command...` of the simulator's regressions.)

use engine::{DigestFunction, Geometry, Limits, Parameters, PoolChange, PoolProperties, Superblock};
use proptest::prelude::*;

/// Generates any number, and more often those where arithmetic has its edges: near powers of two and near the ends.
fn number() -> impl Strategy<Value = u64> {
    let near_a_power = (0u32..64, -2i64..=2).prop_map(|(power, beside)| (1u64 << power).wrapping_add_signed(beside));
    let near_the_end = prop_oneof![0u64..4, 0u64..1 << 23].prop_map(|beside| u64::MAX - beside);
    prop_oneof![any::<u64>(), near_a_power, near_the_end]
}

/// Generates pools of all sizes, as they are made and as they have grown.
fn pool() -> impl Strategy<Value = Geometry> {
    (number(), proptest::collection::vec(number(), 0..4)).prop_filter_map("no pool", |(capacity, growths)| {
        let made = Geometry::for_capacity(capacity).ok()?;
        Some(growths.into_iter().fold(made, |pool, capacity| pool.grown(capacity).unwrap_or(pool)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_capacity_makes_a_pool_that_holds_it_or_is_refused(capacity in number()) {
        if let Ok(geometry) = Geometry::for_capacity(capacity) {
            prop_assert!(geometry.validate().is_ok() && geometry.capacity_bytes() >= capacity);
            prop_assert!(geometry.total_bytes() > geometry.capacity_bytes());
        }
    }

    #[test]
    fn any_capacity_is_grown_to_or_refused(pool in pool(), capacity in number()) {
        let greatest = pool.greatest_capacity();
        prop_assert!(greatest >= pool.capacity_bytes());
        match pool.grown(capacity) {
            Ok(grown) => {
                prop_assert!(grown.validate().is_ok() && grown.capacity_bytes() >= capacity.max(pool.capacity_bytes()));
                prop_assert!(grown.total_bytes() >= pool.total_bytes());
            }
            Err(_) => prop_assert!(capacity < pool.capacity_bytes() || capacity > greatest),
        }
    }

    #[test]
    fn any_memory_is_divided_within_it_or_refused_with_what_would_do(pool in pool(), memory in number()) {
        match Limits::for_memory(memory, &pool) {
            Ok(limits) => {
                let block = pool.block();
                let buffers = u64::from(limits.most_buffers(block));
                prop_assert!(u64::from(limits.buffers) * block + u64::from(limits.pages) * block <= memory);
                prop_assert!(buffers >= u64::from(limits.buffers) && limits.least_read_buffers(&pool) <= limits.buffers);
                prop_assert!(limits.replayable_entries(&pool) >= 4 * u64::from(limits.delta_entries));
                prop_assert!(limits.shared_bytes(block) <= memory);
            }
            Err(enough) => prop_assert!(enough > memory && Limits::for_memory(enough, &pool).is_ok()),
        }
    }

    #[test]
    fn any_setting_of_a_pool_is_kept_in_its_superblock(
        memory in number(),
        second_copies in number(),
        replicas in proptest::option::of(number()),
    ) {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        let parameters = Parameters::new(geometry, [7; 16], [9; 32], DigestFunction::Blake3);
        let mut superblock = Superblock::new(parameters);
        let second_copies = second_copies as u32;
        let (change, unchanged) = (PoolChange::default(), PoolProperties::default());
        let change =
            PoolChange { memory: Some(memory), second_copies: Some(second_copies), replicas: Some(replicas), ..change };
        superblock.properties = unchanged.with(&change);
        let mut block = [0; 4096];
        superblock.encode(&mut block);
        let read = Superblock::decode(&block).unwrap().properties;
        prop_assert_eq!((read.memory(), read.second_copies()), (memory, second_copies));
        // One number more than there are would be needed: the last two are the same.
        prop_assert_eq!(read.replicas(), replicas.map(|bytes| bytes.min(u64::MAX - 1)));
    }
}
