//! An independent model of the policies: a store of blocks in lists and maps, with the papers' rules in their order.

use std::collections::BTreeMap;

/// Counts computed for a series of writes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Requests by category: nothing known; I, II, III.
    pub categories: [u64; 4],
    /// Blocks that were not written, and requests without any written block.
    pub blocks: u64,
    pub requests: u64,
    pub written: u64,
    pub zero: u64,
    pub unchanged: u64,
}

/// A store that appends every block that it writes.
pub struct Naive {
    name: String,
    threshold: usize,
    by_request: bool,
    /// The place of each block of the volume.
    map: BTreeMap<u64, usize>,
    /// The content of each place, and the number of blocks that refer to it.
    places: Vec<(u32, u32)>,
    /// The known place of each content.
    known: BTreeMap<u32, usize>,
    /// The rule that chooses between the known copy and a new one.
    pub index_copy: &'static str,
    pub counts: Counts,
}

#[derive(Clone, Copy, PartialEq)]
enum Found {
    Zero,
    Unknown,
    /// Equal to the block of the request with this number.
    Again(usize),
    At(usize),
    Here(usize),
}

impl Naive {
    pub fn new(policy: &str) -> Naive {
        let (name, parameters) = policy.split_once(':').unwrap_or((policy, ""));
        let digits: String = parameters.chars().take_while(char::is_ascii_digit).collect();
        let threshold = digits.parse().unwrap_or(if name == "idedup" { 4 } else { 3 });
        Naive {
            name: name.to_string(),
            threshold,
            by_request: parameters.ends_with("request"),
            map: BTreeMap::new(),
            places: Vec::new(),
            known: BTreeMap::new(),
            index_copy: "sequential",
            counts: Counts::default(),
        }
    }

    pub fn write(&mut self, first: u64, contents: &[u32]) {
        let found: Vec<Found> = (0..contents.len()).map(|at| self.find(first, contents, at)).collect();
        let place = |at: usize| match found[at] {
            Found::At(place) | Found::Here(place) => Some(place),
            _ => None,
        };
        // The length of the longest run that each block is in.
        let mut runs = vec![0; contents.len()];
        let may_repeat = self.name != "idedup";
        for start in (0..contents.len()).filter(|&at| place(at).is_some()) {
            let follows = |at: usize| {
                let (before, now) = (place(at - 1), place(at));
                now == before.map(|before| before + 1) || may_repeat && now == before
            };
            let end = (start + 1..contents.len()).find(|&at| !follows(at)).unwrap_or(contents.len());
            (start..end).for_each(|at| runs[at] = runs[at].max(end - start));
        }
        // The block of the request where a repetition of this unknown block begins.
        let mut repeats = vec![None; contents.len()];
        for start in (0..contents.len()).filter(|&at| matches!(found[at], Found::Unknown | Found::Again(_))) {
            let end = (start..contents.len()).find(|&at| contents[at] != contents[start]).unwrap_or(contents.len());
            if end - start >= self.threshold.max(2) && self.name == "select" {
                (start + 1..end).for_each(|at| repeats[at] = repeats[at].or(Some(start)));
            }
        }
        let redundant = (0..contents.len()).filter(|&at| place(at).is_some()).count();
        let longest = runs.iter().copied().max().unwrap_or(0);
        let category = self.category(contents.len(), redundant, longest);
        self.counts.categories[category] += 1;
        let shares: Vec<bool> = (0..contents.len())
            .map(|at| match (self.name.as_str(), found[at]) {
                ("native" | "observe", _) | (_, Found::Zero | Found::Unknown) => false,
                (_, Found::Here(_)) | ("full", _) => true,
                (_, Found::Again(_)) => repeats[at].is_some(),
                ("idedup", _) => runs[at] >= self.threshold,
                _ => category == 1 || category == 3 && (self.by_request || runs[at] >= self.threshold),
            })
            .collect();
        let found: Vec<Found> =
            (found.iter().zip(&repeats)).map(|(&found, repeats)| repeats.map_or(found, Found::Again)).collect();
        self.perform(first, contents, &found, &shares);
    }

    fn find(&self, first: u64, contents: &[u32], at: usize) -> Found {
        let content = contents[at];
        if content == 0 {
            return Found::Zero;
        }
        if self.name == "native" {
            return Found::Unknown;
        }
        match self.map.get(&(first + at as u64)) {
            Some(&place) if self.places[place].0 == content => return Found::Here(place),
            _ => {}
        }
        match self.known.get(&content) {
            Some(&place) if self.places[place].1 > 0 => return Found::At(place),
            _ => {}
        }
        let is_unknown =
            |&earlier: &usize| contents[earlier] == content && self.find(first, contents, earlier) == Found::Unknown;
        (0..at).find(is_unknown).map_or(Found::Unknown, Found::Again)
    }

    /// Returns the category. Policies other than `select` use its default. A run of `idedup` is a sequence on disk.
    fn category(&self, blocks: usize, redundant: usize, longest: usize) -> usize {
        let (threshold, by_request) =
            if self.name == "select" { (self.threshold, self.by_request) } else { (3, false) };
        if redundant == 0 {
            0
        } else if longest == blocks {
            1
        } else if (if by_request { redundant } else { longest }) < threshold {
            2
        } else {
            3
        }
    }

    fn perform(&mut self, first: u64, contents: &[u32], found: &[Found], shares: &[bool]) {
        let written_before = self.counts.written;
        let blocks_before = self.counts.blocks;
        let before: Vec<Option<usize>> =
            (0..contents.len()).map(|at| self.map.get(&(first + at as u64)).copied()).collect();
        let mut after = before.clone();
        for at in 0..contents.len() {
            after[at] = match found[at] {
                Found::Zero => {
                    self.counts.zero += 1;
                    None
                }
                Found::Here(place) if shares[at] => {
                    self.counts.unchanged += 1;
                    self.known.entry(contents[at]).or_insert(place);
                    Some(place)
                }
                Found::At(place) if shares[at] => Some(place),
                Found::Again(earlier) if shares[at] => after[earlier],
                _ => {
                    self.places.push((contents[at], 0));
                    self.counts.written += 1;
                    Some(self.places.len() - 1)
                }
            };
            self.counts.blocks += u64::from(shares[at]);
        }
        for (at, place) in (first..).zip(&after) {
            if let Some(place) = *place {
                self.places[place].1 += 1;
                self.map.insert(at, place);
            } else {
                self.map.remove(&at);
            }
        }
        for place in before.into_iter().flatten() {
            self.places[place].1 -= 1;
        }
        self.name_copies(contents, found, shares, &after);
        let removed = self.counts.blocks > blocks_before && self.counts.written == written_before;
        self.counts.requests += u64::from(removed);
    }

    /// Updates the known places of the written contents.
    fn name_copies(&mut self, contents: &[u32], found: &[Found], shares: &[bool], after: &[Option<usize>]) {
        for at in 0..contents.len() {
            let Some(new) = after[at].filter(|_| !shares[at]) else { continue };
            // Length of the run around the block, on both sides together.
            let run = |places: &dyn Fn(usize) -> Option<usize>, place: usize| {
                let back = (1..=at.min(place)).take_while(|&i| places(at - i) == Some(place - i));
                let on = (1..contents.len() - at).take_while(|&i| places(at + i) == Some(place + i));
                back.count() + on.count()
            };
            let is_better = match found[at] {
                Found::Unknown | Found::Here(_) => true,
                Found::Zero | Found::Again(_) => false,
                Found::At(old) => {
                    let was = |at: usize| match found[at] {
                        Found::At(place) | Found::Here(place) => Some(place),
                        _ => None,
                    };
                    let is_longer = run(&|at| after[at], new) > run(&was, old);
                    self.places[old].1 == 0
                        || match self.index_copy {
                            "oldest" => false,
                            "newest" => true,
                            _ => is_longer,
                        }
                }
            };
            if is_better {
                self.known.insert(contents[at], new);
            }
        }
    }
}
