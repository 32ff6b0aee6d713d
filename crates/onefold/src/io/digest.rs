//! Digests of blocks: both keyed functions that a pool may record, and the test for zero blocks.
//!
//! A pool keeps the function that it was created with; [`DEFAULT`] is what new pools get. It was chosen by
//! `cargo bench -p benches --bench digest`, which measures 4 KiB pieces on one core (docs/rfc/0018-digest.md).

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
    /// Makes the digest function of a pool, from its parameters.
    pub fn new(parameters: &Parameters) -> Digester {
        Digester::with_key(parameters.digest, parameters.key)
    }

    /// Makes a digest function with a key; AEGIS takes its second half as the nonce.
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

    /// Computes the digest of bytes of any length.
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

    /// Computes the content of a full block for the engine. A zero block's digest is never used, so it is not computed.
    pub fn content(&self, block: &[u8]) -> BlockContent {
        if is_zero(block) {
            return BlockContent::ZERO;
        }
        BlockContent { digest: self.digest(block), zero: false, record_like: engine::begins_as_record(block) }
    }
}

/// Returns true if all bytes are zero. Stops at the first 256 bytes that are not, which most blocks have at their beginning.
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
        Digester::new(&Parameters::new(geometry, [1; 16], key, digest))
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

    // ---- AEGISMAC-128X2 as draft-irtf-cfrg-aegis-aead states it, without any instructions for AES ----

    type Word = [u8; 16];

    fn xor(a: Word, b: Word) -> Word {
        std::array::from_fn(|at| a[at] ^ b[at])
    }

    /// Multiplies two elements of AES's field.
    fn times(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum: u8, bit| {
            let doubled = (sum << 1) ^ if sum & 0x80 != 0 { 0x1b } else { 0 };
            doubled ^ if b >> bit & 1 != 0 { a } else { 0 }
        })
    }

    /// Computes SubBytes for every byte: the inverse in the field, then the affine map (FIPS 197, 5.1.1).
    fn substitutions() -> [u8; 256] {
        std::array::from_fn(|byte| {
            let inverse = (0..=255).find(|&other| times(byte as u8, other) == 1).unwrap_or(0);
            (0..5).fold(0x63, |sum, turn| sum ^ inverse.rotate_left(turn))
        })
    }

    /// Performs one round of AES (SubBytes, ShiftRows, MixColumns) and adds its key.
    fn round(table: &[u8; 256], word: Word, key: Word) -> Word {
        let shifted: Word = std::array::from_fn(|at| table[usize::from(word[(at + 4 * (at % 4)) % 16])]);
        let mixed = std::array::from_fn(|at| {
            let (column, row) = (at / 4 * 4, at % 4);
            let byte = |more: usize| shifted[column + (row + more) % 4];
            times(byte(0), 2) ^ times(byte(1), 3) ^ byte(2) ^ byte(3)
        });
        xor(mixed, key)
    }

    /// Both lanes, each of eight words.
    struct Stated {
        table: [u8; 256],
        lanes: [[Word; 8]; 2],
    }

    impl Stated {
        fn update(&mut self, first: [Word; 2], second: [Word; 2]) {
            for (lane, state) in self.lanes.iter_mut().enumerate() {
                let before = *state;
                for at in 0..8 {
                    let message = [first[lane], [0; 16], [0; 16], [0; 16], second[lane], [0; 16], [0; 16], [0; 16]][at];
                    state[at] = round(&self.table, before[(at + 7) % 8], xor(before[at], message));
                }
            }
        }

        fn init(key: Word, nonce: Word) -> Stated {
            let c0 = [0, 1, 1, 2, 3, 5, 8, 0x0d, 0x15, 0x22, 0x37, 0x59, 0x90, 0xe9, 0x79, 0x62];
            let c1 = [0xdb, 0x3d, 0x18, 0x55, 0x6d, 0xc2, 0x2f, 0xf1, 0x20, 0x11, 0x31, 0x42, 0x73, 0xb5, 0x28, 0xdd];
            let (kn, k0, k1) = (xor(key, nonce), xor(key, c0), xor(key, c1));
            let mut state = Stated { table: substitutions(), lanes: [[kn, c1, c0, c1, kn, k0, k1, k0]; 2] };
            for _ in 0..10 {
                for lane in 0..2 {
                    let mut context = [0; 16];
                    (context[0], context[1]) = (lane as u8, 1);
                    for at in [3, 7] {
                        state.lanes[lane][at] = xor(state.lanes[lane][at], context);
                    }
                }
                state.update([nonce; 2], [key; 2]);
            }
            state
        }

        fn absorb(&mut self, bytes: &[u8; 64]) {
            let word = |at: usize| std::array::from_fn(|byte| bytes[at * 16 + byte]);
            self.update([word(0), word(1)], [word(2), word(3)]);
        }

        fn finish(&mut self, first: u64, second: u64) -> [Word; 2] {
            let mut lengths = [0; 16];
            lengths[..8].copy_from_slice(&first.to_le_bytes());
            lengths[8..].copy_from_slice(&second.to_le_bytes());
            let mixed = self.lanes.map(|state| xor(state[2], lengths));
            for _ in 0..7 {
                self.update(mixed, mixed);
            }
            self.lanes.map(|state| state[..7].iter().copied().reduce(xor).unwrap())
        }

        fn mac(mut self, bytes: &[u8]) -> Word {
            for chunk in bytes.chunks(64) {
                let mut padded = [0; 64];
                padded[..chunk.len()].copy_from_slice(chunk);
                self.absorb(&padded);
            }
            let tags = self.finish(bytes.len() as u64 * 8, 128);
            // The tag of the first lane is in those below already.
            let mut second = [0; 64];
            second[..16].copy_from_slice(&tags[0]);
            second[32..48].copy_from_slice(&tags[1]);
            self.absorb(&second);
            self.finish(2, 128)[0]
        }
    }

    /// Tests that the digest is the stated function for every length, for every place where the bytes begin, and with whatever instructions the processor has.
    #[test]
    fn the_digest_is_what_the_draft_states() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8 * 7 + 1);
        let digester = digester(DigestFunction::Aegis128X2, key);
        let (first, nonce) = (key[..16].try_into().unwrap(), key[16..].try_into().unwrap());
        let bytes: Vec<u8> = (0..70_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..=300).chain([511, 512, 4095, 4096, 4097, 65536]) {
            let piece = &bytes[length % 67..][..length];
            assert_eq!(digester.digest(piece).0, Stated::init(first, nonce).mac(piece), "{length} bytes");
        }
    }
}
