//! Digests of blocks: both keyed functions that a pool may record, and the test for zero blocks.
//!
//! A pool keeps the function that it was created with; [`DEFAULT`] is what new pools get. It was chosen by
//! `cargo test --release -p onefold digest_speed -- --ignored --nocapture`, which measures 4 KiB pieces on one core.

use aegis::aegis128x2::Aegis128X2Mac;
use engine::{BlockContent, Digest, DigestFunction, Parameters};

/// The digest function of new pools: the faster one wherever the processor has AES instructions.
pub const DEFAULT: DigestFunction = DigestFunction::Aegis128X2;

/// A digest function with its key, ready to use.
#[derive(Clone)]
pub enum Digester {
    /// BLAKE3 in keyed mode; the first 128 bits.
    Blake3([u8; 32]),
    /// AEGIS-128X2 as a MAC: the key's first half is the key, its second half the nonce.
    Aegis128X2(Box<Aegis128X2Mac<16>>),
}

impl Digester {
    /// The digest function of a pool.
    pub fn new(parameters: &Parameters) -> Digester {
        Digester::with_key(parameters.digest, parameters.key)
    }

    /// A digest function with a key.
    pub fn with_key(function: DigestFunction, key: [u8; 32]) -> Digester {
        match function {
            DigestFunction::Blake3 => Digester::Blake3(key),
            DigestFunction::Aegis128X2 => {
                let (mut first, mut nonce) = ([0; 16], [0; 16]);
                first.copy_from_slice(&key[..16]);
                nonce.copy_from_slice(&key[16..]);
                Digester::Aegis128X2(Box::new(Aegis128X2Mac::new_with_nonce(&first, &nonce)))
            }
        }
    }

    /// The digest of any bytes.
    pub fn digest(&self, bytes: &[u8]) -> Digest {
        match self {
            Digester::Blake3(key) => {
                let mut digest = [0; 16];
                digest.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..16]);
                Digest(digest)
            }
            Digester::Aegis128X2(start) => {
                let mut state = (**start).clone();
                state.update(bytes);
                Digest(state.finalize())
            }
        }
    }

    /// What the engine wants to know about a full block. A zero block's digest is never used, so it is not computed.
    pub fn content(&self, block: &[u8]) -> BlockContent {
        if is_zero(block) {
            return BlockContent { digest: Digest::default(), zero: true };
        }
        BlockContent { digest: self.digest(block), zero: false }
    }
}

/// Whether all bytes are zero. Most blocks that are not show it at once, so it stops at the first 256 bytes that differ.
pub fn is_zero(bytes: &[u8]) -> bool {
    let (chunks, rest) = bytes.as_chunks::<256>();
    for chunk in chunks {
        let (words, _) = chunk.as_chunks::<8>();
        // No exit inside: the loop is turned into vector instructions.
        if words.iter().fold(0, |any, word| any | u64::from_ne_bytes(*word)) != 0 {
            return false;
        }
    }
    rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Geometry;

    fn digester(digest: DigestFunction, key: [u8; 32]) -> Digester {
        let geometry = Geometry::for_capacity(1 << 30).unwrap();
        Digester::new(&Parameters { geometry, id: [1; 16], key, digest })
    }

    fn hex(digest: Digest) -> String {
        format!("{digest:?}")
    }

    #[test]
    fn blake3_gives_the_published_keyed_hash() {
        // From the test vectors of the BLAKE3 team: this key, input length 1 (a zero byte) and 1024 (bytes modulo 251).
        let digester = digester(DigestFunction::Blake3, *b"whats the Elvish word for friend");
        assert_eq!(hex(digester.digest(&[0])), "6d7878dfff2f485635d39013278ae14f");
        let input: Vec<u8> = (0..1024u32).map(|i| (i % 251) as u8).collect();
        assert_eq!(hex(digester.digest(&input)), "75c46f6f3d9eb4f55ecaaee480db732e");
    }

    #[test]
    fn aegis_gives_the_published_tag() {
        // draft-irtf-cfrg-aegis-aead, AEGISMAC-128X2 test vector.
        let mut key = [0; 32];
        key[..2].copy_from_slice(&[0x10, 0x01]);
        key[16..19].copy_from_slice(&[0x10, 0x00, 0x02]);
        let input: Vec<u8> = (0..35).collect();
        let digest = digester(DigestFunction::Aegis128X2, key).digest(&input);
        assert_eq!(hex(digest), "6873ee34e6b5c59143b6d35c5e4f2c6e");
    }

    #[test]
    fn keys_and_halves_of_keys_matter() {
        for function in [DigestFunction::Blake3, DigestFunction::Aegis128X2] {
            let block = [5; 4096];
            let first = digester(function, [1; 32]).digest(&block);
            for at in [0, 15, 16, 31] {
                let mut key = [1; 32];
                key[at] = 2;
                assert_ne!(digester(function, key).digest(&block), first);
            }
        }
    }

    #[test]
    fn one_byte_anywhere_makes_a_block_not_zero() {
        for length in [1, 255, 256, 257, 512, 4096] {
            let mut block = vec![0; length];
            assert!(is_zero(&block));
            for at in 0..length {
                block[at] = 1;
                assert!(!is_zero(&block), "byte {at} of {length}");
                block[at] = 0;
            }
        }
    }

    #[test]
    #[ignore = "a measurement, not a test"]
    fn digest_speed() {
        let mut blocks = vec![0u8; 4096 * 4096];
        getrandom::fill(&mut blocks).unwrap();
        let measure = |name: &str, bytes: &[u8], work: &dyn Fn(&[u8]) -> u64| {
            let start = std::time::Instant::now();
            let mut sum = 0u64;
            for _ in 0..8 {
                sum = bytes.chunks_exact(4096).fold(sum, |sum, block| sum.wrapping_add(work(block)));
            }
            let gigabytes = (bytes.len() * 8) as f64 / 1e9;
            println!("{name:12} {:6.2} GB/s ({sum:x})", gigabytes / start.elapsed().as_secs_f64());
        };
        for function in [DigestFunction::Blake3, DigestFunction::Aegis128X2] {
            let digester = digester(function, [3; 32]);
            let name = format!("{function:?}");
            measure(&name, &blocks, &|block| u64::from(digester.digest(block).0[0]));
        }
        let zeroes = vec![0u8; blocks.len()];
        measure("zero test", &zeroes, &|block| u64::from(is_zero(block)));
    }
}
