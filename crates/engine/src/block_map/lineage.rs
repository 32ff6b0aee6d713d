//! Families of maps: the parent of each map, and the epoch at which each snapshot was born.
//!
//! Map *m* with parent *p* covers the epochs (born(p), born(m)]; a volume has no end yet. FROM(g) in *m* names the nearest proper ancestor *a* with
//! lower(a) < g. lower(a) is born(parent(a)), or lower of the parent while the parent gives: its pages are then on their way to *a* (RFC 0020).
//!
//! Owned here: parents, epochs, and one jump pointer for each map, with which a lookup takes O(log depth) steps. Where the jump of the parent and the jump
//! after it are equally long, a map jumps as far as both; otherwise, to its parent (E. W. Myers, An applicative random-access stack, 1983). Roots belong to
//! the volume table.
//!
//! Invariants: a parent is a snapshot of the table; born(parent) < born(child), so there is no ring; a map that gives has one child at most, and its parent
//! does not give.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use crate::api::VolumeId;
use crate::format::superblock::END_OF_BORN;

/// Member of a family, as in the volume table on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub map: VolumeId,
    /// Number of its parent; 0: none.
    pub parent: u32,
    /// Epoch at which a snapshot stopped to change; 0: a volume.
    pub born: u64,
    /// True if its pages are on their way to its only child.
    pub gives: bool,
}

/// Ancestor of a map: it covers the epochs behind `lower` up to `born`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Covering {
    pub map: VolumeId,
    pub lower: u64,
    pub born: u64,
}

/// Reason why a table of maps makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LineageError {
    /// Number that no map can have: 0, or one beyond 16 bits.
    Number(u32),
    /// Number of two maps.
    Twice(VolumeId),
    /// Map whose parent is not in the table.
    NoParent(VolumeId),
    /// Map whose parent is a volume: it still changes.
    LivingParent(VolumeId),
    /// Map that was not born after its parent; each ring has one.
    BornBeforeParent(VolumeId),
    /// Snapshot that was born at an epoch that no pool reaches.
    Epoch(VolumeId),
    /// Snapshot of a volume that is not there.
    NoVolume(VolumeId),
    /// Map that gives although it is no snapshot, has several children, or its parent gives.
    Gives(VolumeId),
}

impl fmt::Display for LineageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineageError::Number(number) => write!(f, "no map can have number {number}"),
            LineageError::Twice(map) => write!(f, "two maps have number {}", map.0),
            LineageError::NoParent(map) => write!(f, "the parent of map {} is not there", map.0),
            LineageError::LivingParent(map) => write!(f, "the parent of map {} is no snapshot", map.0),
            LineageError::BornBeforeParent(map) => write!(f, "map {} is not younger than its parent", map.0),
            LineageError::Epoch(map) => write!(f, "map {} was born at an impossible epoch", map.0),
            LineageError::NoVolume(map) => write!(f, "snapshot {} is of no volume", map.0),
            LineageError::Gives(map) => write!(f, "map {} cannot give its pages away", map.0),
        }
    }
}

#[derive(Clone, Copy)]
struct FamilyNode {
    map: VolumeId,
    /// FamilyNode of the parent; its own if there is none.
    parent: u16,
    /// FamilyNode of an ancestor; its own if there is none.
    jump: u16,
    /// Number of ancestors.
    depth: u16,
    children: u16,
    gives: bool,
    /// Epoch of a snapshot's birth; 0: a volume.
    born: u64,
    /// Epoch behind which its time begins.
    lower: u64,
}

/// Families of a pool. A volume without parent has no entry.
#[derive(Default)]
pub(crate) struct Lineage {
    nodes: Vec<FamilyNode>,
    /// Nodes without a map.
    free: Vec<u16>,
    /// Number of each map's node plus one, by the number of the map; 0: it has no entry.
    node_of: Vec<u16>,
    /// Pairs of the nodes of a parent and of a child.
    children: BTreeSet<(u16, u16)>,
}

impl Lineage {
    /// Makes the families of a table of maps, in any order, after a check of it.
    pub(crate) fn new(members: impl IntoIterator<Item = Member>) -> Result<Lineage, LineageError> {
        let mut members: Vec<Member> = members.into_iter().collect();
        members.sort_by_key(|member| member.map);
        check(&members)?;
        // Parents first.
        members.sort_by_key(|member| (member.born == 0, member.born));
        let mut lineage = Lineage::default();
        for member in members {
            let parent = (member.parent > 0).then_some(VolumeId(member.parent as u16));
            lineage.put(member.map, parent, member.born);
            if member.gives {
                lineage.set_gives(member.map);
            }
        }
        Ok(lineage)
    }

    /// Returns true if any map has a parent, or had one.
    #[inline]
    pub(crate) fn has_maps(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Returns the nearest proper ancestor of a map whose time covers an epoch; `None` if there is none: FROM with this epoch is damage.
    pub(crate) fn ancestor_for(&self, map: VolumeId, epoch: u64) -> Option<VolumeId> {
        let node = self.node(map).filter(|node| node.depth > 0 && epoch > 0)?;
        let mut at = self.at(node.parent);
        while let Some(next) = self.towards(at, epoch) {
            at = next;
        }
        (epoch <= at.born).then_some(at.map)
    }

    /// Returns an ancestor of a map whose time begins too late for an epoch, none farther than the one that covers it; `None` if the map's begins early enough.
    fn towards(&self, at: &FamilyNode, epoch: u64) -> Option<&FamilyNode> {
        let jump = self.at(at.jump);
        // A map without parent begins before all epochs.
        (at.lower >= epoch).then(|| if jump.lower < epoch { self.at(at.parent) } else { jump })
    }

    /// Returns the ancestors of a map, its parent first.
    pub(crate) fn ancestors(&self, map: VolumeId) -> impl Iterator<Item = Covering> {
        let mut at = self.node(map);
        core::iter::from_fn(move || {
            let node = at.filter(|node| node.depth > 0)?;
            let FamilyNode { map, lower, born, .. } = *self.at(node.parent);
            at = Some(self.at(node.parent));
            Some(Covering { map, lower, born })
        })
    }

    /// Returns the parent of a map.
    pub(crate) fn parent(&self, map: VolumeId) -> Option<VolumeId> {
        let node = self.node(map).filter(|node| node.depth > 0)?;
        Some(self.at(node.parent).map)
    }

    /// Returns the number of a map's children.
    pub(crate) fn child_count(&self, map: VolumeId) -> u16 {
        self.node(map).map_or(0, |node| node.children)
    }

    /// Returns the children of a map, in no order.
    pub(crate) fn children(&self, map: VolumeId) -> impl Iterator<Item = VolumeId> {
        self.find(map).into_iter().flat_map(move |at| self.children_of(at)).map(move |child| self.at(child).map)
    }

    /// Returns true if the pages of a map are on their way to its child.
    pub(crate) fn gives(&self, map: VolumeId) -> bool {
        self.node(map).is_some_and(|node| node.gives)
    }

    /// Enters a snapshot of a volume: it takes the volume's parent, and becomes its parent.
    pub(crate) fn snapshot(&mut self, volume: VolumeId, map: VolumeId, born: u64) {
        let parent = self.parent(volume);
        // Its parent may give, and has no second child then.
        self.put(volume, None, 0);
        self.put(map, parent, born);
        self.put(volume, Some(map), 0);
    }

    /// Puts a map below a parent: a new map, or one that has had another parent. `born` of a map stays; 0: a volume.
    pub(crate) fn put(&mut self, map: VolumeId, parent: Option<VolumeId>, born: u64) {
        assert!(map.0 > 0 && born < END_OF_BORN);
        if parent.is_none() && born == 0 {
            return self.remove(map);
        }
        let at = match self.find(map) {
            Some(at) => at,
            None => self.add(map, born),
        };
        self.unlink(at);
        let parent = parent.map_or(at, |parent| self.find(parent).expect("a parent is in the table"));
        let FamilyNode { born: parent_born, gives, children, .. } = *self.at(parent);
        assert_eq!(self.at(at).born, born, "an epoch of birth stays");
        if parent != at {
            assert!(parent_born > 0 && (born == 0 || parent_born < born), "children of snapshots are younger");
            assert!(!gives || children == 0, "a map gives to an only child");
            self.children.insert((parent, at));
            self.nodes[usize::from(parent)].children += 1;
        }
        self.nodes[usize::from(at)].parent = parent;
        self.settle(at);
    }

    /// Notes that the pages of a snapshot are on their way to its only child. That ends with its removal.
    pub(crate) fn set_gives(&mut self, map: VolumeId) {
        let at = self.find(map).expect("it is in the table");
        let node = *self.at(at);
        assert!(node.born > 0 && node.children <= 1, "a snapshot gives to an only child");
        assert!(node.depth == 0 || !self.at(node.parent).gives, "a map does not give while it is given to");
        self.nodes[usize::from(at)].gives = true;
        self.settle(at);
    }

    /// Removes a map without children, if it has an entry.
    pub(crate) fn remove(&mut self, map: VolumeId) {
        let Some(at) = self.find(map) else { return };
        assert_eq!(self.at(at).children, 0, "nothing names it");
        self.unlink(at);
        self.node_of[usize::from(map.0)] = 0;
        self.free.push(at);
    }

    // ---- nodes ----

    fn find(&self, map: VolumeId) -> Option<u16> {
        self.node_of.get(usize::from(map.0))?.checked_sub(1)
    }

    fn at(&self, node: u16) -> &FamilyNode {
        &self.nodes[usize::from(node)]
    }

    fn node(&self, map: VolumeId) -> Option<&FamilyNode> {
        Some(self.at(self.find(map)?))
    }

    fn children_of(&self, at: u16) -> impl Iterator<Item = u16> {
        self.children.range((at, 0)..=(at, u16::MAX)).map(|&(_, child)| child)
    }

    /// Adds a node without parent.
    fn add(&mut self, map: VolumeId, born: u64) -> u16 {
        let at = self.free.pop().unwrap_or(self.nodes.len() as u16);
        let node = FamilyNode { map, parent: at, jump: at, depth: 0, children: 0, gives: false, born, lower: 0 };
        match self.nodes.get_mut(usize::from(at)) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        let number = usize::from(map.0);
        self.node_of.resize(self.node_of.len().max(number + 1), 0);
        self.node_of[number] = at + 1;
        at
    }

    /// Takes a node from its parent, if it has one.
    fn unlink(&mut self, at: u16) {
        let parent = self.at(at).parent;
        if self.children.remove(&(parent, at)) {
            self.nodes[usize::from(parent)].children -= 1;
        }
    }

    /// Computes depth, lower and jump pointer of a node and its descendants again.
    fn settle(&mut self, at: u16) {
        let mut left = Vec::from([at]);
        while let Some(at) = left.pop() {
            let parent = self.at(self.at(at).parent);
            let (depth, lower, jump) = if self.at(at).parent == at {
                (0, 0, at)
            } else {
                let jump = self.at(parent.jump);
                let is_far = parent.depth - jump.depth == jump.depth - self.at(jump.jump).depth;
                let lower = if parent.gives { parent.lower } else { parent.born };
                (parent.depth + 1, lower, if is_far { jump.jump } else { self.at(at).parent })
            };
            let node = &mut self.nodes[usize::from(at)];
            (node.depth, node.lower, node.jump) = (depth, lower, jump);
            left.extend(self.children_of(at));
        }
    }
}

/// Checks a table of maps in the order of their numbers.
fn check(members: &[Member]) -> Result<(), LineageError> {
    let find = |map: u16| members.binary_search_by_key(&VolumeId(map), |member| member.map).ok().map(|at| &members[at]);
    let mut parents = Vec::new();
    for (at, &Member { map, parent, born, gives }) in members.iter().enumerate() {
        let parent_number = u16::try_from(parent).map_err(|_| LineageError::Number(parent))?;
        if map.0 == 0 {
            return Err(LineageError::Number(0));
        }
        if at > 0 && members[at - 1].map == map {
            return Err(LineageError::Twice(map));
        }
        if born >= END_OF_BORN {
            return Err(LineageError::Epoch(map));
        }
        if gives && born == 0 {
            return Err(LineageError::Gives(map));
        }
        if parent_number == 0 {
            continue;
        }
        let parent = find(parent_number).ok_or(LineageError::NoParent(map))?;
        if parent.born == 0 {
            return Err(LineageError::LivingParent(map));
        }
        if born > 0 && born <= parent.born {
            return Err(LineageError::BornBeforeParent(map));
        }
        if gives && parent.gives {
            return Err(LineageError::Gives(map));
        }
        if parent.gives {
            parents.push(parent.map);
        }
    }
    parents.sort();
    match parents.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(LineageError::Gives(pair[0])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
