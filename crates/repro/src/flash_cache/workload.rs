//! Workload of stored files and their reads: files in containers, read whole, the popular ones more often (Zipf).
//!
//! Files are stored as in deduplication at ingest: containers are filled in the order of the files. A part of some files is a copy of a part of an earlier file
//! and takes no space. So a container holds pieces of files with different popularity, and a file may lie in several containers. A container has one reference
//! for each file that uses it.
//!
//! The unit below a container is the extent: 64 KiB of chunks that are always read together. A cache of chunks that treats the chunks of an extent one after
//! another is the same as one of extents: all of them enter and leave together (a test counts it chunk by chunk).

use sim::random::Random;

/// Bytes of an extent.
pub const EXTENT: u64 = 64 << 10;
/// Number of size classes of files: powers of two in extents, from 1 extent on, each equally likely.
const FILE_POWERS: u64 = 7;
/// One file in N has a copy of a part of an earlier one.
const COPIES_ONE_IN: u64 = 4;

/// Unit of reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Files of 64 KiB to 4 MiB, deduplicated.
    Files,
    /// Single containers.
    Containers,
}

/// Data and reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Bytes stored.
    pub bytes: u64,
    /// Bytes of a container: a multiple of [`EXTENT`].
    pub container_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Unit that is read.
    pub unit: Unit,
    /// The exponent of Zipf's law.
    pub alpha: f64,
    /// Mean number of files that share a container beside its own, of [`Unit::Containers`]. An exponential distribution draws it for each, independently of
    /// popularity. (In [`Unit::Files`] deduplication determines it.)
    pub others: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Shape {
    /// Shape of the slides: 200 GB of data, 520 GB of reads; 4 MiB a container, as Destor has. A GB is 2^30 bytes here.
    pub const SLIDES: Shape = Shape {
        bytes: 200 << 30,
        container_bytes: 4 << 20,
        read_bytes: 520 << 30,
        unit: Unit::Files,
        alpha: 1.0,
        others: 0.0,
        seed: 1,
    };
}

/// A part of a file that lies in one container in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Container of the piece.
    pub container: u32,
    /// The first extent within it.
    pub first: u32,
    /// Number of extents.
    pub extents: u32,
}

/// Stored containers and files.
#[derive(Clone, Debug)]
pub struct Data {
    /// Containers.
    pub containers: u32,
    /// Extents of a container.
    pub extents_per_container: u32,
    /// Pieces of all files, one file after another.
    pub pieces: Vec<Piece>,
    /// Number of the first piece of each file, and the end.
    files: Vec<u32>,
    /// Files that use each container.
    pub references: Vec<u16>,
    /// Files that use each extent; of [`Unit::Files`] only.
    pub extent_references: Vec<u16>,
}

impl Data {
    /// Fills containers.
    pub fn new(shape: &Shape) -> Data {
        let containers = (shape.bytes / shape.container_bytes).max(1) as u32;
        let extents_per_container = (shape.container_bytes / EXTENT) as u32;
        let mut data = Data {
            containers,
            extents_per_container,
            pieces: Vec::new(),
            files: vec![0],
            references: vec![0; containers as usize],
            extent_references: Vec::new(),
        };
        match shape.unit {
            Unit::Containers => {
                data = Data::of_containers(containers, shape.container_bytes);
                data.share(shape.others, &mut Random::new(shape.seed ^ 0x7368_6172_6564));
            }
            Unit::Files => data.ingest(&mut Random::new(shape.seed)),
        }
        data
    }

    /// Creates `containers` containers, each of which is a file.
    pub fn of_containers(containers: u32, container_bytes: u64) -> Data {
        let extents_per_container = (container_bytes / EXTENT) as u32;
        let piece = |container| Piece { container, first: 0, extents: extents_per_container };
        Data {
            containers,
            extents_per_container,
            pieces: (0..containers).map(piece).collect(),
            files: (0..=containers).collect(),
            references: vec![1; containers as usize],
            extent_references: Vec::new(),
        }
    }

    /// Draws the other files that share each container, from an exponential distribution with mean `others`.
    fn share(&mut self, others: f64, random: &mut Random) {
        for references in &mut self.references {
            // Above 0, up to 1.
            let chance = (random.below(1 << 32) + 1) as f64 / (1u64 << 32) as f64;
            *references = 1 + (-others * libm::log(chance)) as u16;
        }
    }

    fn ingest(&mut self, random: &mut Random) {
        let all = u64::from(self.containers) * u64::from(self.extents_per_container);
        self.extent_references = vec![0; all as usize];
        let mut next = 0;
        while next < all {
            let mut left = 1 << random.below(FILE_POWERS);
            let files = self.files.len() as u64 - 1;
            if files > 0 && left > 1 && random.one_in(COPIES_ONE_IN) {
                left -= self.copy(random.below(files) as usize, left / 2);
            }
            while left > 0 && next < all {
                let first = (next % u64::from(self.extents_per_container)) as u32;
                let extents = left.min(self.extents_per_container - first);
                let container = (next / u64::from(self.extents_per_container)) as u32;
                self.pieces.push(Piece { container, first, extents });
                left -= extents;
                next += u64::from(extents);
            }
            self.close_file();
        }
    }

    /// Starts the current file with at most `most` extents of another one; returns the number copied.
    fn copy(&mut self, file: usize, most: u32) -> u32 {
        let mut left = most;
        for at in self.files[file]..self.files[file + 1] {
            let piece = self.pieces[at as usize];
            let extents = piece.extents.min(left);
            if extents > 0 {
                self.pieces.push(Piece { extents, ..piece });
                left -= extents;
            }
        }
        most - left
    }

    fn close_file(&mut self) {
        let from = self.files.last().copied().unwrap_or_default() as usize;
        let pieces = &self.pieces[from..];
        for (at, piece) in pieces.iter().enumerate() {
            let first = piece.container * self.extents_per_container + piece.first;
            for extent in first..first + piece.extents {
                let references = &mut self.extent_references[extent as usize];
                *references = references.saturating_add(1);
            }
            if pieces[..at].iter().all(|earlier| earlier.container != piece.container) {
                let references = &mut self.references[piece.container as usize];
                *references = references.saturating_add(1);
            }
        }
        self.files.push(self.pieces.len() as u32);
    }

    /// Returns true if a piece is a small part of a larger file, away from the rest of it.
    pub fn is_fragment(&self, file: u32, piece: &Piece) -> bool {
        let extents: u32 = self.file(file).1.iter().map(|piece| piece.extents).sum();
        piece.extents * 4 <= self.extents_per_container.min(extents)
    }

    /// Returns the extents of a piece.
    pub fn extents_of(&self, piece: &Piece) -> std::ops::Range<u32> {
        let first = piece.container * self.extents_per_container + piece.first;
        first..first + piece.extents
    }

    /// Returns the number of files.
    pub fn files(&self) -> usize {
        self.files.len() - 1
    }

    /// Returns the number of the first piece of a file, and its pieces.
    pub fn file(&self, file: u32) -> (u32, &[Piece]) {
        let (from, to) = (self.files[file as usize], self.files[file as usize + 1]);
        (from, &self.pieces[from as usize..to as usize])
    }
}

/// The files that are read, one after another.
#[derive(Clone, Debug)]
pub struct Reads {
    /// Cumulative weights by rank.
    weights: Vec<u64>,
    /// The file of each rank.
    order: Vec<u32>,
    random: Random,
}

impl Reads {
    /// Reads of data. Which file is popular is up to chance.
    pub fn new(shape: &Shape, data: &Data) -> Reads {
        let mut random = Random::new(shape.seed ^ 0x5eed);
        let mut order: Vec<u32> = (0..data.files() as u32).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let mut sum = 0;
        let weight = |rank: usize| ((1u64 << 40) as f64 / libm::pow(rank as f64, shape.alpha)) as u64;
        let weights = (1..=order.len())
            .map(|rank| {
                sum += weight(rank).max(1);
                sum
            })
            .collect();
        Reads { weights, order, random }
    }

    /// Draws the next file.
    pub fn draw(&mut self) -> u32 {
        let all = self.weights.last().copied().expect("there is a file");
        let at = self.random.below(all);
        self.order[self.weights.partition_point(|&sum| sum <= at)]
    }
}

/// Draws files to read until `read_bytes` bytes are read.
pub fn reads(shape: &Shape, data: &Data) -> Vec<u32> {
    let mut source = Reads::new(shape, data);
    let mut left = shape.read_bytes;
    let mut files = Vec::new();
    while left > 0 {
        let file = source.draw();
        let extents: u64 = data.file(file).1.iter().map(|piece| u64::from(piece.extents)).sum();
        left = left.saturating_sub(extents * EXTENT);
        files.push(file);
    }
    files
}
