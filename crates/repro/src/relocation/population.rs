//! Population of files, with the content of their blocks.
//!
//! Files are made one after another. Some are derived from an earlier file: they have its length, copy stretches of it at the same positions, and have
//! stretches of their own in between. So no file has a content twice. Later a small part of all blocks is overwritten; those have new content, which was
//! written last.

use sim::random::Random;

/// Parameters of a population of files and its reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Name of the population.
    pub name: &'static str,
    /// Scale: one part in N of the paper's sizes is made.
    pub part: u64,
    /// Number of 4 KiB blocks of all files together, before the part is taken. The paper does not give it; it fits on the simulator's disk.
    pub blocks: u64,
    /// Megabytes read in a week (Table I).
    pub read_mb: u64,
    /// Blocks that are copies, in percent (Table I).
    pub copies_percent: u64,
    /// The exponent of Zipf's law (Fig. 2a).
    pub alpha: f64,
    /// Blocks of the median file.
    pub median_blocks: f64,
    /// Files that are derived from others, in percent.
    pub derived_percent: u64,
    /// Blocks of a copied stretch in the mean.
    pub stretch_blocks: u64,
    /// Number of files from which a derived file's parent is drawn; 0: all earlier files.
    pub parents: u64,
    /// Blocks that were overwritten later, in percent.
    pub overwritten_percent: u64,
    /// Percentage of files whose popularity follows their age: the newest are read most. The popularity of the others is random.
    pub newest_percent: u64,
    /// Files that are read at the same time.
    pub streams: usize,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Shape {
    /// The mail server.
    pub const MAIL: Shape = Shape {
        name: "mail",
        part: 16,
        blocks: 24 << 20,
        read_mb: 778_125,
        copies_percent: 37,
        alpha: 0.8,
        median_blocks: 12.0,
        derived_percent: 70,
        stretch_blocks: 8,
        parents: 0,
        overwritten_percent: 3,
        newest_percent: 100,
        streams: 4,
        seed: 1,
    };
    /// The research server.
    pub const RESEARCH: Shape = Shape {
        name: "research",
        part: 4,
        blocks: 12 << 20,
        read_mb: 46_547,
        copies_percent: 46,
        median_blocks: 24.0,
        streams: 2,
        seed: 2,
        ..Shape::MAIL
    };

    /// Shrinks the population to one part in `by`.
    pub fn shortened(self, by: u64) -> Shape {
        Shape { part: self.part * by, ..self }
    }
}

/// The files.
#[derive(Clone, Debug)]
pub struct Population {
    /// Index in `content` of the first block of each file, and the end.
    pub firsts: Vec<u32>,
    /// The content of each block, numbered in the order in which it was first written.
    pub content: Vec<u32>,
    /// Content of each block before any was overwritten.
    pub first_content: Vec<u32>,
    /// First content number of the overwritten blocks.
    pub overwritten_from: u32,
    /// Contents.
    pub contents: u32,
}

impl Population {
    /// Makes them.
    pub fn new(shape: &Shape) -> Population {
        let mut random = Random::new(shape.seed);
        let all = (shape.blocks / shape.part).max(1024) as usize;
        let mut made = Population {
            firsts: vec![0],
            content: Vec::new(),
            first_content: Vec::new(),
            overwritten_from: 0,
            contents: 0,
        };
        let mut copies = 0u64;
        while made.content.len() < all {
            copies += made.add(shape, copies, &mut random);
            made.firsts.push(made.content.len() as u32);
        }
        made.overwritten_from = made.contents;
        made.first_content = made.content.clone();
        made.overwrite(shape, &mut random);
        made
    }

    /// Adds a file, and returns the number of its blocks that are copies.
    fn add(&mut self, shape: &Shape, copies: u64, random: &mut Random) -> u64 {
        let is_derived = self.files() > 0 && random.below(100) < shape.derived_percent;
        let parent = is_derived.then(|| {
            let parents = if shape.parents == 0 { u64::MAX } else { shape.parents };
            self.blocks(random.below(parents.min(self.files() as u64)) as u32)
        });
        let blocks = match &parent {
            Some(parent) => parent.len() as u64,
            None => file_blocks(random, shape.median_blocks),
        };
        // The probability of a copy corrects the share of copies so far.
        let wanted = (self.content.len() as u64 + blocks) * shape.copies_percent / 100;
        let usual = 1000 * shape.copies_percent / shape.derived_percent.max(1);
        let chance = if copies < wanted { (usual + 300).min(950) } else { usual.saturating_sub(300) };
        let (mut done, mut copied) = (0, 0);
        while done < blocks {
            let stretch = random.between(1, 2 * shape.stretch_blocks - 1).min(blocks - done);
            let copied_from = parent.as_ref().filter(|_| random.below(1000) < chance);
            for at in done..done + stretch {
                let content = match copied_from {
                    Some(parent) => self.content[parent.start + at as usize],
                    None => {
                        self.contents += 1;
                        self.contents - 1
                    }
                };
                self.content.push(content);
            }
            copied += if copied_from.is_some() { stretch } else { 0 };
            done += stretch;
        }
        copied
    }

    fn overwrite(&mut self, shape: &Shape, random: &mut Random) {
        let wanted = self.content.len() as u64 * shape.overwritten_percent / 100;
        let mut done = 0;
        while done < wanted {
            let first = random.below(self.content.len() as u64);
            let end = (first + random.between(1, 8)).min(self.content.len() as u64);
            for at in first..end {
                self.content[at as usize] = self.contents;
                self.contents += 1;
            }
            done += end - first;
        }
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Returns the blocks of a file, as places in `content`.
    pub fn blocks(&self, file: u32) -> std::ops::Range<usize> {
        self.firsts[file as usize] as usize..self.firsts[file as usize + 1] as usize
    }

    /// Counts the files that have each content, up to 255. A file that has it twice counts once.
    pub fn holders(&self) -> Vec<u8> {
        let (mut holders, mut last) = (vec![0u8; self.contents as usize], vec![u32::MAX; self.contents as usize]);
        for file in 0..self.files() as u32 {
            for &content in &self.content[self.blocks(file)] {
                if std::mem::replace(&mut last[content as usize], file) != file {
                    holders[content as usize] = holders[content as usize].saturating_add(1);
                }
            }
        }
        holders
    }

    /// Returns for each file whether it shares content with others.
    pub fn shared_files(&self) -> Vec<bool> {
        let holders = self.holders();
        let is_shared = |file: u32| self.content[self.blocks(file)].iter().any(|&one| holders[one as usize] > 1);
        (0..self.files() as u32).map(is_shared).collect()
    }

    /// Returns the share of blocks that need no space of their own, in percent.
    pub fn copies_percent(&self) -> f64 {
        let mut seen = vec![false; self.contents as usize];
        let copy = |&&content: &&u32| std::mem::replace(&mut seen[content as usize], true);
        100.0 * self.content.iter().filter(copy).count() as f64 / self.content.len() as f64
    }
}

/// Draws the blocks of a file, from 1 to 4096: lognormal, e to the power of 1.5 is one standard deviation.
fn file_blocks(random: &mut Random, median: f64) -> u64 {
    // Twelve uniform numbers have a variance of 1.
    let normal = (0..12).map(|_| random.below(1 << 32) as f64 / (1u64 << 32) as f64).sum::<f64>() - 6.0;
    (median * libm::exp(1.5 * normal)).clamp(1.0, 4096.0) as u64
}
