//! Content distributions from files, and draws from them. A distribution gives the frequency of each content, as in DEDISbench.
//!
//! A line of the file is `<duplicates> <contents>`: the number of contents, each of which comes `duplicates` times more than once. The order of lines matters,
//! because DEDISbench takes 32 random bits modulo the number of blocks. So the first blocks are a little more likely than the last ones. Contents that come
//! once have no identity: each draw of one is a new content.

use std::path::{Path, PathBuf};

use sim::random::Random;

/// Values of a draw: 32 bits.
const VALUES: u64 = 1 << 32;

/// Contents that come equally often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Class {
    /// The blocks of all classes before.
    first_block: u64,
    /// The contents of all classes before.
    first_content: u64,
    /// Frequency of each content, at least two.
    copies: u64,
    contents: u64,
}

/// Distribution of contents: each with the number of times that it comes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    /// Name of the file.
    pub name: String,
    /// Contents that come more than once, in the order of the file.
    classes: Vec<Class>,
    /// Blocks of the contents that come more than once.
    shared_blocks: u64,
    /// All blocks.
    total_blocks: u64,
}

/// Expected result of a number of draws.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expected {
    /// Draws.
    pub draws: u64,
    /// Draws of a content that had been drawn before.
    pub duplicates: f64,
}

impl Distribution {
    /// Reads a file: a path, or the NAME of `dist_NAME` in a directory of such files.
    pub fn open(name: &str, directory: &Path) -> Result<Distribution, String> {
        let candidates = [PathBuf::from(name), directory.join(format!("dist_{name}")), directory.join(name)];
        let found = candidates.iter().find(|path| path.is_file());
        let path = found.ok_or_else(|| {
            let (first, second) = (candidates[0].display(), candidates[1].display());
            format!(
                "there is no distribution {name:?}: neither {first} nor {second} is a file; --data names the directory"
            )
        })?;
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Distribution::parse(&name, &text).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads the text of a file. The error names the line.
    pub fn parse(name: &str, text: &str) -> Result<Distribution, String> {
        let mut distribution =
            Distribution { name: name.to_owned(), classes: Vec::new(), shared_blocks: 0, total_blocks: 0 };
        let (mut contents_before, mut unique_blocks) = (0u64, 0u64);
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |what: &str| format!("line {}: {what}: {line:?}", number + 1);
            let mut words = line.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(duplicates)), Some(Ok(contents)), None) = (words.next(), words.next(), words.next()) else {
                return Err(wrong("not two numbers, '<duplicates> <contents>'"));
            };
            let copies = duplicates.saturating_add(1);
            let blocks = copies.checked_mul(contents).filter(|&blocks| blocks < VALUES);
            let blocks = blocks.ok_or_else(|| wrong("more than 2^32 blocks"))?;
            distribution.total_blocks += blocks;
            if distribution.total_blocks >= VALUES {
                return Err(wrong("with this line there are more than 2^32 blocks"));
            }
            if duplicates == 0 {
                unique_blocks += blocks;
                continue;
            }
            let first_block = distribution.shared_blocks;
            distribution.classes.push(Class { first_block, first_content: contents_before, copies, contents });
            distribution.shared_blocks += blocks;
            contents_before += contents;
        }
        if distribution.total_blocks == 0 {
            return Err("it has no blocks".into());
        }
        debug_assert_eq!(distribution.shared_blocks + unique_blocks, distribution.total_blocks);
        distribution.classes.retain(|class| class.contents > 0);
        Ok(distribution)
    }

    /// Returns the distribution for a load that is `times` times smaller, with the same share of duplicate draws. A class of equally frequent contents gets
    /// `times` times fewer contents. If there are too few of them for that, each comes less often.
    pub fn shrunk(&self, times: u64) -> Distribution {
        let times = times.max(1);
        let mut shrunk =
            Distribution { name: self.name.clone(), classes: Vec::new(), shared_blocks: 0, total_blocks: 0 };
        let mut first_content = 0;
        for class in &self.classes {
            let (copies, contents) = match class {
                Class { copies, contents, .. } if *contents >= 8 * times => (*copies, contents / times),
                Class { copies, contents, .. } if *copies >= 2 * times => (copies / times, *contents),
                Class { copies, contents, .. } => (2, copies * contents / times / 2),
            };
            if contents > 0 {
                let first_block = shrunk.shared_blocks;
                shrunk.classes.push(Class { first_block, first_content, copies, contents });
                shrunk.shared_blocks += copies * contents;
                first_content += contents;
            }
        }
        shrunk.total_blocks = shrunk.shared_blocks + (self.total_blocks - self.shared_blocks).div_ceil(times);
        shrunk
    }

    /// Returns the number of contents that come more than once: draws give them numbers below this.
    pub fn shared_contents(&self) -> u64 {
        self.classes.last().map_or(0, |class| class.first_content + class.contents)
    }

    /// Draws one content: the number of one that comes more than once, or none for one that comes once.
    pub fn draw(&self, random: &mut Random) -> Option<u64> {
        self.content_of((random.draw() >> 32) % self.total_blocks)
    }

    fn content_of(&self, block: u64) -> Option<u64> {
        if block >= self.shared_blocks {
            return None;
        }
        let class = self.classes[self.classes.partition_point(|class| class.first_block <= block) - 1];
        Some(class.first_content + (block - class.first_block) / class.copies)
    }

    /// Returns the expected duplicates of `draws` draws.
    ///
    /// A content of probability p is drawn `draws * p` times, and of these draws the first is not a duplicate, if there is one: `draws * p
    /// - (1 - (1 - p)^draws)`, summed over all contents.
    pub fn expect(&self, draws: u64) -> Expected {
        // The first `favoured` blocks are drawn by one 32-bit value more than the others.
        let favoured = VALUES % self.total_blocks;
        let values = |first: u64, end: u64| {
            (end - first) * (VALUES / self.total_blocks) + (end.min(favoured) - first.min(favoured))
        };
        let duplicates = |first: u64, copies: u64| {
            let probability = values(first, first + copies) as f64 / VALUES as f64;
            let missed = libm::exp(draws as f64 * libm::log1p(-probability));
            draws as f64 * probability - (1.0 - missed)
        };
        let mut sum = 0.0;
        for class in &self.classes {
            // Contents before the end of the favoured blocks have one probability, and those after it another; one content may span the end.
            let before = (favoured.saturating_sub(class.first_block) / class.copies).min(class.contents);
            let mut first = class.first_block;
            for count in [before, (class.contents - before).min(1), (class.contents - before).saturating_sub(1)] {
                if count > 0 {
                    sum += count as f64 * duplicates(first, class.copies);
                    first += count * class.copies;
                }
            }
        }
        Expected { draws, duplicates: sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_comes_how_often() {
        let distribution = Distribution::parse("small", "0 6\n2 3\n\n1 4").expect("it is one");
        assert_eq!((distribution.total_blocks, distribution.shared_blocks), (23, 17));
        assert_eq!(distribution.shared_contents(), 7);
        let contents: Vec<_> = (0..23).map(|block| distribution.content_of(block)).collect();
        let shared = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6];
        assert_eq!(contents[..17], shared.map(Some));
        assert_eq!(contents[17..], [None; 6]);
    }

    #[test]
    fn what_is_no_distribution_is_refused_with_the_line() {
        for (text, words) in [
            ("", "no blocks"),
            ("0 1\n1 two", "line 2"),
            ("1 2 3", "two numbers"),
            ("-1 4", "two numbers"),
            ("4294967295 1", "2^32"),
            ("0 4000000000\n0 4000000000", "line 2"),
            ("18446744073709551615 18446744073709551615", "2^32"),
        ] {
            let why = Distribution::parse("bad", text).expect_err(text);
            assert!(why.contains(words), "{text:?}: {why}");
        }
    }

    #[test]
    fn a_smaller_load_of_a_smaller_distribution_has_as_many_duplicates() {
        let text = "0 400000\n1 90000\n4 30000\n30 40\n60000 1";
        let distribution = Distribution::parse("some", text).expect("it is one");
        let share = |distribution: &Distribution, draws: u64| distribution.expect(draws).duplicates / draws as f64;
        let whole = share(&distribution, 500_000);
        for times in [2, 16, 100] {
            let part = share(&distribution.shrunk(times), 500_000 / times);
            assert!((part - whole).abs() < 0.01, "{times}: {part} for {whole}");
        }
        assert_eq!(distribution.shrunk(1).expect(1000), distribution.expect(1000));
    }

    #[test]
    fn draws_come_to_what_is_expected_of_them() {
        let distribution = Distribution::parse("some", "0 900\n1 400\n5 40\n199 3").expect("it is one");
        let (mut random, mut seen, mut duplicates) = (Random::new(1), vec![false; 443], 0);
        let draws = 20_000;
        for content in (0..draws).filter_map(|_| distribution.draw(&mut random)) {
            duplicates += u64::from(std::mem::replace(&mut seen[content as usize], true));
        }
        let expected = distribution.expect(draws).duplicates;
        assert!((duplicates as f64 - expected).abs() < 300.0, "{duplicates} for {expected}");
        assert!(distribution.expect(1).duplicates.abs() < 1e-9, "the first draw of all is new");
    }
}
