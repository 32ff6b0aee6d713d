//! Tests of families against a plain table, whose parents are walked one by one.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Table of maps, by number: parent (0: none), born, gives.
#[derive(Clone, Default)]
struct Table(BTreeMap<u16, (u16, u64, bool)>);

impl Table {
    fn children(&self, of: u16) -> Vec<u16> {
        self.0.iter().filter(|(_, map)| map.0 == of).map(|(&number, _)| number).collect()
    }

    fn gives(&self, map: u16) -> bool {
        self.0.get(&map).is_some_and(|map| map.2)
    }

    /// Returns the epoch behind which the time of a map begins, as RFC 0020 defines it.
    fn lower(&self, map: u16) -> u64 {
        match self.0[&map].0 {
            0 => 0,
            parent if self.gives(parent) => self.lower(parent),
            parent => self.0[&parent].1,
        }
    }

    /// Returns the ancestors of a map, its parent first.
    fn ancestors(&self, map: u16) -> Vec<u16> {
        let parents = core::iter::successors(Some(map), |map| Some(self.0[map].0).filter(|&parent| parent > 0));
        parents.skip(1).collect()
    }

    fn ancestor_for(&self, map: u16, epoch: u64) -> Option<u16> {
        let nearest = self.ancestors(map).into_iter().find(|&ancestor| self.lower(ancestor) < epoch)?;
        (epoch <= self.0[&nearest].1).then_some(nearest)
    }

    fn members(&self) -> Vec<Member> {
        let member = |(&map, &(parent, born, gives)): (&u16, &(u16, u64, bool))| Member {
            map: VolumeId(map),
            parent: parent.into(),
            born,
            gives,
        };
        self.0.iter().map(member).collect()
    }

    fn check(&self, lineage: &Lineage, now: u64) {
        for &map in self.0.keys() {
            let id = VolumeId(map);
            assert_eq!(lineage.parent(id).map_or(0, |parent| parent.0), self.0[&map].0);
            let mut children: Vec<u16> = lineage.children(id).map(|child| child.0).collect();
            children.sort();
            assert_eq!(children, self.children(map));
            assert_eq!(usize::from(lineage.child_count(id)), children.len());
            assert_eq!(lineage.gives(id), self.gives(map));
            let ancestors = self.ancestors(map).into_iter();
            let ancestors =
                ancestors.map(|at| Covering { map: VolumeId(at), lower: self.lower(at), born: self.0[&at].1 });
            assert!(lineage.ancestors(id).eq(ancestors), "map {map}");
            for epoch in 0..=now + 1 {
                let found = lineage.ancestor_for(id, epoch).map(|found| found.0);
                assert_eq!(found, self.ancestor_for(map, epoch), "FROM({epoch}) in map {map}");
            }
        }
    }
}

/// Life of some families, beside a table of them.
struct Life {
    table: Table,
    lineage: Lineage,
    epoch: u64,
    next: u16,
}

impl Life {
    fn new() -> Life {
        Life { table: Table::default(), lineage: Lineage::default(), epoch: 1, next: 1 }
    }

    fn number(&mut self) -> u16 {
        // Numbers come round: those of removed maps are used again.
        let free = (0..).map(|step| (self.next + step) % 300).find(|map| *map > 0 && !self.table.0.contains_key(map));
        let map = free.expect("there are fewer maps");
        self.next = map + 1;
        map
    }

    fn pick(&self, choice: u16, filter: impl Fn(u16) -> bool) -> Option<u16> {
        let all: Vec<u16> = self.table.0.keys().copied().filter(|&map| filter(map)).collect();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn step(&mut self, what: u8, choice: u16) {
        let table = self.table.clone();
        let lives = |map: u16| table.0[&map].1 == 0;
        let gives = |map: u16| table.gives(map);
        match what {
            0 => {
                let map = self.number();
                self.table.0.insert(map, (0, 0, false));
                self.lineage.put(VolumeId(map), None, 0);
            }
            // A snapshot of a volume.
            1..=4 => {
                let Some(volume) = self.pick(choice, lives) else { return };
                let map = self.number();
                self.epoch += u64::from(choice % 3);
                let parent = table.0[&volume].0;
                // Snapshots of a group are born at one epoch; those of one volume are not.
                if parent > 0 && table.0[&parent].1 == self.epoch {
                    self.epoch += 1;
                }
                self.table.0.insert(map, (parent, self.epoch, false));
                self.table.0.insert(volume, (map, 0, false));
                self.lineage.snapshot(VolumeId(volume), VolumeId(map), self.epoch);
            }
            // A clone.
            5 | 6 => {
                let Some(parent) = self.pick(choice, |map| !lives(map) && !gives(map)) else { return };
                let map = self.number();
                self.table.0.insert(map, (parent, 0, false));
                self.lineage.put(VolumeId(map), Some(VolumeId(parent)), 0);
            }
            // Rollback, also to a snapshot of another volume.
            7 => {
                let Some(volume) = self.pick(choice, lives) else { return };
                let Some(parent) = self.pick(choice / 7, |map| !lives(map) && !gives(map)) else { return };
                self.table.0.insert(volume, (parent, 0, false));
                self.lineage.put(VolumeId(volume), Some(VolumeId(parent)), 0);
            }
            // Deletion of a map without children.
            8 | 9 => {
                let Some(map) = self.pick(choice, |map| table.children(map).is_empty()) else { return };
                self.table.0.remove(&map);
                self.lineage.remove(VolumeId(map));
            }
            // A snapshot begins to give.
            10 | 11 => {
                let may_give = |map: u16| {
                    let children = table.children(map);
                    !lives(map) && children.len() == 1 && !gives(children[0]) && !gives(table.0[&map].0)
                };
                let Some(map) = self.pick(choice, may_give) else { return };
                self.table.0.get_mut(&map).expect("picked").2 = true;
                self.lineage.set_gives(VolumeId(map));
            }
            // It has given all.
            _ => {
                let Some(map) = self.pick(choice, gives) else { return };
                let parent = table.0[&map].0;
                for child in table.children(map) {
                    let born = table.0[&child].1;
                    self.table.0.get_mut(&child).expect("a child").0 = parent;
                    self.lineage.put(VolumeId(child), (parent > 0).then_some(VolumeId(parent)), born);
                }
                self.table.0.remove(&map);
                self.lineage.remove(VolumeId(map));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_epoch_leads_to_the_ancestor_that_a_walk_of_the_parents_finds(
        steps in proptest::collection::vec((0u8..14, any::<u16>()), 1..150)
    ) {
        let mut life = Life::new();
        for (at, (what, choice)) in steps.into_iter().enumerate() {
            life.step(what, choice);
            if at % 8 == 0 {
                life.table.check(&life.lineage, life.epoch);
            }
        }
        life.table.check(&life.lineage, life.epoch);
        let opened = Lineage::new(life.table.members().into_iter().rev()).expect("a sound table");
        life.table.check(&opened, life.epoch);
    }

    /// Checks tables of any content: a table is refused, or each map has the ancestors that a walk finds.
    #[test]
    fn a_table_that_is_accepted_has_no_ring_and_each_map_is_younger_than_its_parent(
        members in proptest::collection::vec((1u16..12, 0u16..12, 0u64..6, 0u8..6), 1..12)
    ) {
        let mut table = Table::default();
        for (map, parent, born, gives) in members {
            table.0.insert(map, (parent, born, gives == 0));
        }
        if let Ok(lineage) = Lineage::new(table.members()) {
            for &map in table.0.keys() {
                let ancestors = table.ancestors(map);
                prop_assert!(ancestors.len() < table.0.len());
                let births = core::iter::once(&map).chain(&ancestors).map(|map| table.0[map].1);
                let births: Vec<u64> = births.map(|born| if born == 0 { u64::MAX } else { born }).collect();
                prop_assert!(births.windows(2).all(|pair| pair[0] > pair[1]));
            }
            table.check(&lineage, 6);
        }
    }
}

/// Checks the number of steps: each epoch of a chain as long as the snapshots of a volume may be.
#[test]
fn a_lookup_takes_few_steps_whatever_the_depth() {
    let mut lineage = Lineage::default();
    let volume = VolumeId(1);
    let depth = 4096;
    for born in 1..=depth {
        lineage.snapshot(volume, VolumeId(born as u16 + 1), born);
    }
    let mut most = 0;
    for epoch in 1..=depth {
        assert_eq!(lineage.ancestor_for(volume, epoch), Some(VolumeId(epoch as u16 + 1)));
        let mut at = lineage.at(lineage.node(volume).expect("it has a parent").parent);
        let mut steps = 0;
        while let Some(next) = lineage.towards(at, epoch) {
            (at, steps) = (next, steps + 1);
        }
        most = most.max(steps);
    }
    assert!(most <= 2 * depth.ilog2(), "{most} steps");
    assert_eq!(lineage.ancestor_for(volume, 0), None);
    assert_eq!(lineage.ancestor_for(volume, depth + 1), None);
}

#[test]
fn a_volume_without_parent_has_no_entry() {
    let member = |map, parent, born| Member { map: VolumeId(map), parent, born, gives: false };
    let lineage = Lineage::new((1..1000).map(|map| member(map, 0, 0))).expect("a sound table");
    assert_eq!((lineage.nodes.len(), lineage.node_of.len()), (0, 0));
    let mut lineage = Lineage::new([member(2, 0, 0), member(7, 5, 0), member(5, 0, 3)]).expect("a sound table");
    assert_eq!(lineage.nodes.len(), 2);
    assert_eq!(lineage.ancestor_for(VolumeId(2), 1), None);
    assert_eq!(lineage.parent(VolumeId(7)), Some(VolumeId(5)));
    lineage.put(VolumeId(7), None, 0);
    lineage.remove(VolumeId(5));
    assert_eq!((lineage.free.len(), lineage.children.len()), (2, 0));
}

#[test]
fn a_table_that_makes_no_sense_is_refused_by_name() {
    let member = |map, parent, born| Member { map: VolumeId(map), parent, born, gives: false };
    let gives = |map, parent, born| Member { gives: true, ..member(map, parent, born) };
    let error = |members: &[Member]| Lineage::new(members.iter().copied()).err();
    let map = VolumeId;
    assert_eq!(error(&[member(1, 0, 1), member(2, 1, 2), member(3, 2, 0)]), None);
    assert_eq!(error(&[member(0, 0, 1)]), Some(LineageError::Number(0)));
    assert_eq!(error(&[member(1, 65_536, 1)]), Some(LineageError::Number(65_536)));
    assert_eq!(error(&[member(1, 0, 1), member(1, 0, 2)]), Some(LineageError::Twice(map(1))));
    assert_eq!(error(&[member(1, 2, 1)]), Some(LineageError::NoParent(map(1))));
    assert_eq!(error(&[member(1, 2, 1), member(2, 0, 0)]), Some(LineageError::LivingParent(map(1))));
    for born in [2, 3] {
        let parent = member(2, 0, born);
        assert_eq!(error(&[member(1, 2, 2), parent]), Some(LineageError::BornBeforeParent(map(1))));
    }
    let ring = [member(1, 2, 1), member(2, 3, 3), member(3, 1, 2)];
    assert_eq!(error(&ring), Some(LineageError::BornBeforeParent(map(1))));
    assert_eq!(error(&[member(1, 1, 1)]), Some(LineageError::BornBeforeParent(map(1))));
    assert_eq!(error(&[member(1, 0, END_OF_BORN - 1)]), None);
    assert_eq!(error(&[member(1, 0, END_OF_BORN)]), Some(LineageError::Epoch(map(1))));
    assert_eq!(error(&[gives(1, 0, 1)]), None);
    assert_eq!(error(&[gives(1, 0, 1), member(2, 1, 0)]), None);
    assert_eq!(error(&[gives(1, 0, 0)]), Some(LineageError::Gives(map(1))));
    assert_eq!(error(&[gives(1, 0, 1), gives(2, 1, 2)]), Some(LineageError::Gives(map(2))));
    assert_eq!(error(&[gives(1, 0, 1), member(2, 1, 0), member(3, 1, 0)]), Some(LineageError::Gives(map(1))));
    assert!(LineageError::NoParent(map(7)).to_string().contains("map 7"));
}
