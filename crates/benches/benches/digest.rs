//! Digests and the test for zeroes, for blocks of 4 KiB: `cargo bench -p benches --bench digest`. docs/rfc/0018-digest.md has the figures.
//!
//! `cached` goes round 64 KiB, as what was just received or read does; `cold` goes through 256 MiB.

#[expect(dead_code, reason = "the program makes digesters from the parameters of a pool")]
#[path = "../../onefold/src/io/digest.rs"]
mod digest;

use aegis::aegis128l::Aegis128LMac;
use aegis::aegis128x4::Aegis128X4Mac;
use digest::{Digester, is_zero};
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use engine::DigestFunction;

const BLOCK: usize = 4096;

/// Blocks of no pattern, and how one goes round them.
struct Blocks {
    bytes: Vec<u8>,
    at: usize,
}

impl Blocks {
    fn new(bytes: usize, is_zero: bool) -> Blocks {
        let mut all = vec![1; bytes];
        if is_zero {
            all.fill(0);
        } else {
            getrandom::fill(&mut all).expect("the system has random bytes");
        }
        Blocks { bytes: all, at: 0 }
    }

    fn next(&mut self) -> &[u8] {
        self.at = (self.at + BLOCK) % self.bytes.len();
        black_box(&self.bytes[self.at..self.at + BLOCK])
    }
}

const CACHED: usize = 64 << 10;
const COLD: usize = 256 << 20;

fn run<T>(bencher: Bencher, mut blocks: Blocks, work: impl Fn(&[u8]) -> T) {
    bencher.counter(BytesCount::new(BLOCK)).bench_local(|| work(blocks.next()));
}

#[divan::bench(args = [CACHED, COLD])]
fn blake3(bencher: Bencher, bytes: usize) {
    let digester = Digester::with_key(DigestFunction::Blake3, [3; 32]);
    run(bencher, Blocks::new(bytes, false), |block| digester.digest(block));
}

/// The digest of new pools.
#[divan::bench(args = [CACHED, COLD])]
fn aegis_128x2(bencher: Bencher, bytes: usize) {
    let digester = Digester::with_key(DigestFunction::Aegis128X2, [3; 32]);
    run(bencher, Blocks::new(bytes, false), |block| digester.digest(block));
}

/// A MAC of the same family that no pool has.
macro_rules! other {
    ($name:ident $mac:ident) => {
        #[divan::bench(args = [CACHED, COLD])]
        fn $name(bencher: Bencher, bytes: usize) {
            let start = $mac::<16>::new_with_nonce(&[3; 16], &[4; 16]);
            run(bencher, Blocks::new(bytes, false), |block| {
                let mut state = start.clone();
                state.update(block);
                state.finalize()
            });
        }
    };
}

other!(aegis_128l Aegis128LMac);
other!(aegis_128x4 Aegis128X4Mac);

/// All that the reactor does for a block: the test for zeroes, and the digest if it is not.
#[divan::bench(args = [CACHED, COLD])]
fn content(bencher: Bencher, bytes: usize) {
    let digester = Digester::with_key(digest::DEFAULT, [3; 32]);
    run(bencher, Blocks::new(bytes, false), |block| digester.content(block));
}

#[divan::bench(args = [CACHED, COLD])]
fn content_of_zeroes(bencher: Bencher, bytes: usize) {
    let digester = Digester::with_key(digest::DEFAULT, [3; 32]);
    run(bencher, Blocks::new(bytes, true), |block| digester.content(block));
}

#[divan::bench(args = [CACHED, COLD])]
fn zero_test(bencher: Bencher, bytes: usize) {
    run(bencher, Blocks::new(bytes, true), is_zero);
}

/// The C library's memcmp with a block of zeroes, to compare.
#[divan::bench(args = [CACHED, COLD])]
fn memcmp_with_zeroes(bencher: Bencher, bytes: usize) {
    let zeroes = vec![0; BLOCK];
    run(bencher, Blocks::new(bytes, true), |block| block == black_box(&zeroes[..]));
}

fn main() {
    divan::main();
}
