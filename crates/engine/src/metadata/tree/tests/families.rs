//! Tests of trees that name their ancestors against arrays: chains of snapshots, fans of clones, growth, cuts, moves.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::api::Digest;
use crate::format::bytes::put_u64;
use crate::format::entry::Slot;

/// Entries of a leaf of 512 bytes.
const PER_LEAF: u64 = 64;
/// Slots with the same remainder have the same content.
const CONTENTS: u64 = 1000;

/// Map with the content of its blocks, as a reader finds it; blocks that are not there are unmapped.
#[derive(Clone)]
struct Map {
    parent: Option<usize>,
    /// Epoch of a snapshot's birth; 0: a volume.
    born: u64,
    gives: bool,
    root: Root,
    view: BTreeMap<u64, u64>,
}

/// Returns the content of an entry, as the arrays have it: its state, or the content of its slot.
fn content(entry: Entry) -> u64 {
    entry.slot().map_or(entry.0, |slot| 16 + slot.0 % CONTENTS)
}

/// Maps on a store, beside their arrays.
struct TestFamily {
    metadata: Metadata,
    disk: Disk,
    maps: Vec<Option<Map>>,
    epoch: u64,
    slots: u64,
    /// True if all pages are dropped from memory before each step: each page that it needs is missing once.
    is_cold: bool,
}

impl TestFamily {
    fn new(is_cold: bool) -> TestFamily {
        let volume = Map { parent: None, born: 0, gives: false, root: Root::default(), view: BTreeMap::new() };
        TestFamily { metadata: metadata(), disk: Disk::new(), maps: vec![Some(volume)], epoch: 1, slots: 0, is_cold }
    }

    fn map(&self, at: usize) -> &Map {
        self.maps[at].as_ref().expect("it is there")
    }

    fn map_mut(&mut self, at: usize) -> &mut Map {
        self.maps[at].as_mut().expect("it is there")
    }

    fn lower(&self, map: usize) -> u64 {
        let Some(parent) = self.map(map).parent else { return 0 };
        if self.map(parent).gives { self.lower(parent) } else { self.map(parent).born }
    }

    fn parents(&self, map: usize) -> Vec<usize> {
        core::iter::successors(self.map(map).parent, |&at| self.map(at).parent).collect()
    }

    fn children(&self, map: usize) -> Vec<usize> {
        let is_child = |at: &usize| self.maps[*at].as_ref().is_some_and(|child| child.parent == Some(map));
        (0..self.maps.len()).filter(is_child).collect()
    }

    fn ancestors(&self, map: usize) -> Vec<Ancestor> {
        let ancestor = |at| Ancestor { root: self.map(at).root, lower: self.lower(at), born: self.map(at).born };
        self.parents(map).into_iter().map(ancestor).collect()
    }

    fn ancestor_for(&self, map: usize, epoch: u64) -> usize {
        let found = self.parents(map).into_iter().find(|&at| self.lower(at) < epoch).expect("an ancestor");
        assert!(epoch <= self.map(found).born);
        found
    }

    /// Drops all pages from memory.
    fn chill(&mut self) {
        perform(&mut self.metadata, &mut self.disk);
        let first = self.metadata.offset(PageKey { region: Region::Metadata, location: 1 });
        for &offset in self.disk.keys().filter(|&&offset| offset >= first) {
            let location = ((offset - first) / self.metadata.geometry.block()) as u32 + 1;
            self.metadata.pages.forget(PageKey { region: Region::Metadata, location });
        }
    }

    fn done<T>(&mut self, step: impl FnMut(&mut Metadata) -> Result<T, Stop>) -> T {
        if self.is_cold {
            self.chill();
        }
        done(&mut self.metadata, &mut self.disk, step)
    }

    /// Returns the entry of a block as a reader finds it, and the map that it stands in.
    fn stands(&mut self, map: usize, lba: u64) -> (Entry, usize) {
        let (mut at, mut hops) = (map, 0);
        loop {
            let root = self.map(at).root;
            let found = self.done(|metadata| match lookup(metadata, Region::Metadata, root, lba / PER_LEAF) {
                Walk::Leaf(page) => {
                    let entry = Entry(u64_at(metadata.pages.bytes(page), (lba % PER_LEAF) as usize * 8));
                    Ok(entry.inherited_from().ok_or(entry))
                }
                Walk::Absent(_) => Ok(Err(Entry::UNMAPPED)),
                Walk::From { epoch, .. } => Ok(Ok(epoch)),
                Walk::Missing(missing) if missing.pointer.is_lost() => Ok(Err(Entry::LOST)),
                Walk::Missing(missing) => Err(Stop::Missing(missing)),
            });
            match found {
                Err(entry) => return (entry, at),
                Ok(epoch) => at = self.ancestor_for(at, epoch),
            }
            // The child of a map that gives has FROM it until its turn comes: a hop at the same level.
            hops += u8::from(!self.map(at).gives);
            assert!(hops <= self.map(map).root.height + 2, "{hops} hops");
        }
    }

    fn write(&mut self, at: usize, changes: &[MapChange]) {
        let mut writer = Writer::with_ancestors(self.map(at).root, self.ancestors(at));
        for &change in changes {
            match change {
                MapChange::Set(lba, entry) => {
                    let page = self.done(|metadata| writer.leaf(metadata, lba / PER_LEAF, true)).expect("created");
                    put_u64(self.metadata.pages.bytes_mut(page), (lba % PER_LEAF) as usize * 8, entry.0);
                    self.map_mut(at).view.insert(lba, content(entry));
                }
                MapChange::Clear(first, end) => {
                    let page = self.done(|metadata| writer.leaf(metadata, first / PER_LEAF, false));
                    if let Some(page) = page {
                        let bytes = (first % PER_LEAF) as usize * 8..((end - 1) % PER_LEAF + 1) as usize * 8;
                        self.metadata.pages.bytes_mut(page)[bytes].fill(0);
                    }
                    self.map_mut(at).view.retain(|lba, _| !(first..end).contains(lba));
                }
                MapChange::Cut(first, end) => {
                    let (mut from, mut cut) = (first, Vec::new());
                    self.done(|metadata| writer.cut(metadata, &mut from, end, &mut cut));
                    perform(&mut self.metadata, &mut self.disk);
                    for CutOff { pointer, level, index } in cut {
                        if pointer.has_page() {
                            self.release(pointer, level);
                            continue;
                        }
                        let span = self.metadata.geometry.fanout().pow(level.into());
                        let leaves = index * span..(index + 1) * span;
                        assert!(pointer.inherited_from().is_some() && first <= leaves.start && leaves.end <= end);
                        let blocks = leaves.start * PER_LEAF..leaves.end * PER_LEAF;
                        assert!(
                            self.map(at).view.range(blocks).any(|(_, &content)| content != 0),
                            "FROM leads to a page"
                        );
                    }
                    let range = first * PER_LEAF..end * PER_LEAF;
                    self.map_mut(at).view.retain(|lba, _| !range.contains(lba));
                }
            }
        }
        let root = self.done(|metadata| writer.finish(metadata));
        perform(&mut self.metadata, &mut self.disk);
        self.map_mut(at).root = root;
        self.metadata.free_replaced(usize::MAX);
        assert_eq!(self.metadata.pages.private_pages(), 0);
    }

    fn page(&self, pointer: Pointer) -> Vec<u8> {
        let key = PageKey { region: Region::Metadata, location: pointer.location };
        self.disk[&self.metadata.offset(key)].clone()
    }

    /// Frees the pages of a subtree that was cut off.
    fn release(&mut self, pointer: Pointer, level: u8) {
        let page = self.page(pointer);
        self.metadata.free_later(pointer.location);
        if level > 0 {
            let children = (0..page.len()).step_by(16).map(|at| Pointer::read(&page, at));
            children.filter(|child| child.has_page()).for_each(|child| self.release(child, level - 1));
        }
    }

    /// Adds a snapshot of a volume.
    fn snapshot(&mut self, volume: usize) {
        self.epoch += 1;
        let at = self.maps.len();
        let snapshot = Map { born: self.epoch, ..self.map(volume).clone() };
        self.maps.push(Some(snapshot));
        let root = self.inherited_root(at);
        let volume = self.map_mut(volume);
        (volume.parent, volume.root) = (Some(at), root);
    }

    /// Returns the root of a map that has all from its parent.
    fn inherited_root(&self, parent: usize) -> Root {
        let Map { root, born, .. } = *self.map(parent);
        let pointer = if root.pointer.has_page() { Pointer::inherited(born) } else { root.pointer };
        Root { pointer, ..root }
    }

    /// Adds a clone of a snapshot.
    fn clone_of(&mut self, parent: usize) {
        let clone =
            Map { parent: Some(parent), born: 0, root: self.inherited_root(parent), ..self.map(parent).clone() };
        self.maps.push(Some(clone));
    }

    /// Moves a mapped block to another slot, where its entry stands.
    fn relocate(&mut self, map: usize, lba: u64) {
        let (entry, at) = self.stands(map, lba);
        let Some(slot) = entry.slot() else { return };
        let moved = Entry::whole(Slot(slot.0 + CONTENTS), Digest([3; 16]));
        self.write(at, &[MapChange::Set(lba, moved)]);
    }

    /// Lets a snapshot with one child begin to give, or end that where the child can take its whole tree.
    fn give(&mut self, map: usize) {
        let children = self.children(map);
        let Map { parent, born, gives, root, .. } = *self.map(map);
        let may_give = |family: &TestFamily| {
            children.len() == 1 && !family.map(children[0]).gives && parent.is_none_or(|at| !family.map(at).gives)
        };
        if born == 0 || !gives && !may_give(self) {
            return;
        }
        self.map_mut(map).gives = true;
        let lower = self.lower(map);
        let child = self.map_mut(children[0]);
        let takes = child.root.pointer.inherited_from().is_some_and(|epoch| (lower + 1..=born).contains(&epoch));
        if gives && takes && child.root.height == root.height {
            (child.root, child.parent) = (root, parent);
            self.maps[map] = None;
        }
    }

    /// Checks what every map reads, and the pages.
    fn check(&mut self, probes: &BTreeSet<u64>) {
        for at in (0..self.maps.len()).filter(|&at| self.maps[at].is_some()).collect::<Vec<_>>() {
            for &lba in probes {
                let expected = self.map(at).view.get(&lba).copied().unwrap_or(0);
                assert_eq!(content(self.stands(at, lba).0), expected, "block {lba} of map {at}");
            }
        }
        perform(&mut self.metadata, &mut self.disk);
        let mut reached = BTreeSet::new();
        for at in (0..self.maps.len()).filter(|&at| self.maps[at].is_some()) {
            let Root { pointer, height } = self.map(at).root;
            self.check_pointer(at, pointer, height, 0, &mut reached);
        }
        let used = self.metadata.geometry.metadata_blocks - self.metadata.allocator.free();
        assert_eq!(used as usize, reached.len(), "no page is leaked");
    }

    /// Checks that each page of a subtree has one parent, and that all that is FROM an ancestor is a page or a mapped block there.
    fn check_pointer(&self, map: usize, pointer: Pointer, level: u8, index: u64, reached: &mut BTreeSet<u32>) {
        if let Some(epoch) = pointer.inherited_from() {
            let found = self.own(self.ancestor_for(map, epoch), level, index);
            assert!(found.has_page() || found.is_lost() || self.is_given(map, epoch, found), "FROM leads to {found:?}");
        }
        if !pointer.has_page() {
            return;
        }
        assert!(reached.insert(pointer.location), "a page has one parent");
        let page = self.page(pointer);
        if level > 0 {
            for at in 0..self.metadata.geometry.fanout() {
                let child = child(&page, at);
                self.check_pointer(map, child, level - 1, index * self.metadata.geometry.fanout() + at, reached);
            }
            return;
        }
        for (at, bytes) in page.chunks_exact(8).enumerate() {
            let entry = Entry(u64_at(bytes, 0));
            assert!(entry.may_stand(self.map(map).parent.is_some()));
            if let Some(epoch) = entry.inherited_from() {
                let pointer = self.own(self.ancestor_for(map, epoch), 0, index);
                let found = pointer.has_page().then(|| Entry(u64_at(&self.page(pointer), at * 8)));
                let leads_on = found.map_or(pointer, |found| match found.inherited_from() {
                    Some(epoch) => Pointer::inherited(epoch),
                    None => Pointer::NONE,
                });
                let is_mapped = found.is_some_and(|found| found.slot().is_some());
                assert!(is_mapped || self.is_given(map, epoch, leads_on), "FROM leads to {found:?}");
            }
        }
    }

    /// Returns true if a map names an ancestor that has FROM its parent, which gives.
    fn is_given(&self, map: usize, epoch: u64, found: Pointer) -> bool {
        let parent = self.map(self.ancestor_for(map, epoch)).parent;
        found.inherited_from().is_some() && parent.is_some_and(|parent| self.map(parent).gives)
    }

    /// Returns the pointer that a map itself has at a place, or above it.
    fn own(&self, map: usize, level: u8, index: u64) -> Pointer {
        let Root { mut pointer, height } = self.map(map).root;
        let fanout = self.metadata.geometry.fanout();
        for at in (level..height).rev() {
            if !pointer.has_page() {
                break;
            }
            pointer = child(&self.page(pointer), index / fanout.pow(u32::from(at - level)) % fanout);
        }
        pointer
    }
}

#[derive(Clone, Copy, Debug)]
enum MapChange {
    Set(u64, Entry),
    /// Clears blocks of one leaf.
    Clear(u64, u64),
    /// Cuts off leaves.
    Cut(u64, u64),
}

#[derive(Clone, Debug)]
enum Step {
    Write(u8, Vec<(u8, u64, u64)>),
    Snapshot(u8),
    Clone(u8),
    Relocate(u8, u64),
    Give(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let change = (0u8..16, any::<u64>(), any::<u64>());
    prop_oneof![
        6 => (any::<u8>(), proptest::collection::vec(change, 1..12)).prop_map(|(map, changes)| Step::Write(map, changes)),
        3 => any::<u8>().prop_map(Step::Snapshot),
        2 => any::<u8>().prop_map(Step::Clone),
        2 => (any::<u8>(), any::<u64>()).prop_map(|(map, lba)| Step::Relocate(map, lba)),
        2 => any::<u8>().prop_map(Step::Give),
    ]
}

/// Returns a leaf near the beginning, or of a tree of any height up to three.
fn leaf(choice: u64) -> u64 {
    match choice % 8 {
        0..5 => choice / 8 % 4,
        5 => choice / 8 % 40,
        6 => 30 + choice / 8 % 4,
        _ => choice / 8 % 1100,
    }
}

fn block(choice: u64) -> u64 {
    leaf(choice) * PER_LEAF + [0, 5, 63][(choice / 100_000 % 3) as usize]
}

impl TestFamily {
    fn change(&mut self, (what, at, more): (u8, u64, u64), probes: &mut BTreeSet<u64>) -> MapChange {
        let lba = block(at);
        probes.insert(lba);
        match what {
            0..9 => {
                self.slots += 1;
                MapChange::Set(lba, Entry::whole(Slot(self.slots % CONTENTS), Digest([2; 16])))
            }
            9 => MapChange::Set(lba, Entry::ZERO),
            10 => MapChange::Set(lba, Entry::LOST),
            11 => MapChange::Set(lba, Entry::UNMAPPED),
            12 | 13 => MapChange::Clear(lba, (lba + 1 + more % 64).min((lba / PER_LEAF + 1) * PER_LEAF)),
            _ => MapChange::Cut(leaf(at), leaf(at) + 1 + more % [3, 40, 1200][(more / 1200 % 3) as usize]),
        }
    }

    fn pick(&self, choice: u8, filter: impl Fn(&Map) -> bool) -> Option<usize> {
        let is_fit = |at: &usize| self.maps[*at].as_ref().is_some_and(&filter);
        let all: Vec<usize> = (0..self.maps.len()).filter(is_fit).collect();
        (!all.is_empty()).then(|| all[usize::from(choice) % all.len()])
    }

    fn step(&mut self, step: Step, probes: &mut BTreeSet<u64>) {
        let count = self.maps.iter().flatten().count();
        match step {
            Step::Write(choice, changes) => {
                let Some(volume) = self.pick(choice, |map| map.born == 0) else { return };
                let changes: Vec<MapChange> = changes.into_iter().map(|change| self.change(change, probes)).collect();
                self.write(volume, &changes);
            }
            Step::Snapshot(choice) if count < 14 => {
                let volume = self.pick(choice, |map| map.born == 0).expect("volumes stay");
                self.snapshot(volume);
            }
            Step::Clone(choice) if count < 14 => {
                if let Some(snapshot) = self.pick(choice, |map| map.born > 0 && !map.gives) {
                    self.clone_of(snapshot);
                }
            }
            Step::Snapshot(_) | Step::Clone(_) => {}
            Step::Relocate(choice, lba) => {
                let map = self.pick(choice, |_| true).expect("volumes stay");
                self.relocate(map, block(lba));
            }
            Step::Give(choice) => {
                if let Some(snapshot) = self.pick(choice, |map| map.born > 0) {
                    self.give(snapshot);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn families_of_maps_agree_with_arrays(
        steps in proptest::collection::vec(step(), 1..40),
        is_cold in any::<bool>(),
    ) {
        let mut family = TestFamily::new(is_cold);
        let mut probes = BTreeSet::from([0, 100_000]);
        for step in steps {
            family.step(step, &mut probes);
            family.check(&probes);
        }
    }
}

fn whole(slot: u64) -> Entry {
    Entry::whole(Slot(slot), Digest([2; 16]))
}

/// Checks a chain far longer than trees are high: a block at the bottom is found in two trees, and a block of any snapshot in one more hop than levels.
#[test]
fn a_long_chain_of_snapshots_is_read_in_few_hops() {
    let mut family = TestFamily::new(false);
    let mut probes = BTreeSet::new();
    family.write(0, &[MapChange::Set(0, whole(1)), MapChange::Set(70 * PER_LEAF, whole(2))]);
    for round in 0..60 {
        family.snapshot(0);
        let lba = round * 3 % 8 * PER_LEAF + round;
        probes.extend([0, lba, 70 * PER_LEAF]);
        family.write(0, &[MapChange::Set(lba, whole(round + 3))]);
    }
    family.check(&probes);
    assert_eq!(family.stands(0, 70 * PER_LEAF).1, 1, "the oldest snapshot has it");
    assert_eq!(family.ancestors(0).len(), 60);
}

/// Checks a fan of clones: each writes a leaf and its path, and shares all other pages.
#[test]
fn a_clone_has_pages_of_its_own_only_where_it_writes() {
    let mut family = TestFamily::new(true);
    let far = 1000 * PER_LEAF;
    family.write(0, &[0, 1, 40, 1000].map(|leaf| MapChange::Set(leaf * PER_LEAF, whole(leaf))));
    family.snapshot(0);
    let before = family.metadata.allocator.free();
    for clone in 2..10 {
        family.clone_of(1);
        assert_eq!(family.metadata.allocator.free(), before, "clone {clone} takes no page");
    }
    for clone in 2..10 {
        let before = family.metadata.allocator.free();
        family.write(clone, &[MapChange::Set(far + 1, whole(100 + clone as u64))]);
        assert_eq!(before - family.metadata.allocator.free(), 3, "a leaf and its path");
    }
    family.check(&BTreeSet::from([0, PER_LEAF, 40 * PER_LEAF, far, far + 1]));
}

/// Checks maps that no sound pool has: a writer refuses them, and takes no page from elsewhere.
#[test]
fn pointers_and_entries_from_where_no_ancestor_has_a_page_are_contradictions() {
    let mut family = TestFamily::new(false);
    family.write(0, &[MapChange::Set(0, whole(1)), MapChange::Set(40 * PER_LEAF, whole(2))]);
    family.snapshot(0);
    let (root, ancestors) = (family.map(0).root, family.ancestors(0));
    let Root { height, .. } = root;
    let mut stop = |root: Root, ancestors: Vec<Ancestor>, leaf: u64| {
        let mut writer = Writer::with_ancestors(root, ancestors);
        loop {
            match writer.leaf(&mut family.metadata, leaf, true) {
                Err(Stop::Missing(missing)) => family.metadata.load(missing, None),
                result => {
                    writer.abandon(&mut family.metadata);
                    break result.err();
                }
            }
            perform(&mut family.metadata, &mut family.disk);
        }
    };
    let from = |epoch| Root { pointer: Pointer::inherited(epoch), height };
    assert_eq!(stop(root, ancestors.clone(), 0), None);
    let parent = ancestors[0];
    let contradictions = [
        (root, vec![]),
        (from(parent.born + 1), ancestors.clone()),
        // The ancestor has no page there, nor is its tree as high.
        (root, vec![Ancestor { root: Root { pointer: Pointer::NONE, height }, ..parent }]),
        (root, vec![Ancestor { root: Root { height: height - 1, ..parent.root }, ..parent }]),
        // Two ancestors name each other's epochs.
        (from(2), vec![Ancestor { root: from(1), lower: 1, born: 2 }, Ancestor { root: from(2), lower: 0, born: 1 }]),
        (Root { pointer: Pointer { birth: 1, ..root.pointer }, height }, ancestors.clone()),
    ];
    for (root, ancestors) in contradictions {
        assert_eq!(stop(root, ancestors, 0), Some(Stop::Contradiction));
    }
    let lost = Ancestor { root: Root { pointer: Pointer::LOST, height }, ..parent };
    assert_eq!(stop(root, vec![lost], 0), None, "what an ancestor has lost is lost");
    let mut writer = Writer::new(Region::Metadata, root);
    let (mut first, mut cut) = (0, Vec::new());
    let result = writer.cut(&mut family.metadata, &mut first, u64::MAX, &mut cut);
    assert_eq!(result, Err(Stop::Contradiction), "a map without ancestors");
}
