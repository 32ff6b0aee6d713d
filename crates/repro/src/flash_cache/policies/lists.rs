//! Linked lists of numbers: each number is in at most one list and can be removed from any position.

/// List number of a number in no list.
const NOWHERE: u32 = u32::MAX;

/// N lists over the numbers from 0.
#[derive(Clone, Debug)]
pub struct Lists {
    /// Links of each number, and then of the head of each list: towards the front, towards the back.
    links: Vec<[u32; 2]>,
    list_of: Vec<u32>,
    lengths: Vec<u32>,
    numbers: u32,
}

impl Lists {
    /// Creates empty lists.
    pub fn new(numbers: u32, lists: u32) -> Lists {
        let links = (0..numbers + lists).map(|node| [node, node]).collect();
        let list_of = vec![NOWHERE; numbers as usize];
        Lists { links, list_of, lengths: vec![0; lists as usize], numbers }
    }

    /// Returns the list that a number is in, if any.
    pub fn list_of(&self, number: u32) -> Option<u32> {
        let list = self.list_of[number as usize];
        (list != NOWHERE).then_some(list)
    }

    /// Returns the length of a list.
    pub fn len(&self, list: u32) -> usize {
        self.lengths[list as usize] as usize
    }

    /// Puts a number at the front of a list, wherever it was.
    pub fn push_front(&mut self, list: u32, number: u32) {
        self.remove(number);
        let head = self.numbers + list;
        let next = self.links[head as usize][1];
        self.links[number as usize] = [head, next];
        self.links[head as usize][1] = number;
        self.links[next as usize][0] = number;
        self.list_of[number as usize] = list;
        self.lengths[list as usize] += 1;
    }

    /// Returns the last number of a list.
    pub fn back(&self, list: u32) -> Option<u32> {
        let head = self.numbers + list;
        let last = self.links[head as usize][0];
        (last != head).then_some(last)
    }

    /// Removes and returns the last number of a list.
    pub fn pop_back(&mut self, list: u32) -> Option<u32> {
        let last = self.back(list)?;
        self.remove(last);
        Some(last)
    }

    /// Removes a number from its list, if it is in one.
    pub fn remove(&mut self, number: u32) {
        let Some(list) = self.list_of(number) else { return };
        let [before, after] = self.links[number as usize];
        self.links[before as usize][1] = after;
        self.links[after as usize][0] = before;
        self.list_of[number as usize] = NOWHERE;
        self.lengths[list as usize] -= 1;
    }
}
