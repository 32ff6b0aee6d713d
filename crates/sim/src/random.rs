//! The simulator's only source of random numbers: xoshiro256++ (Blackman and Vigna), seeded by splitmix64. The same seed gives the same numbers, on every
//! machine and in every version.

/// A stream of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

/// Applies one step of splitmix64, a bijection that mixes well; the simulator's hashes are built of it.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// Creates the stream of a seed.
    pub fn new(seed: u64) -> Random {
        let mut state = [0; 4];
        let mut value = seed;
        for word in &mut state {
            value = mix(value);
            *word = value;
        }
        Random { state }
    }

    /// Draws the next 64 bits.
    pub fn draw(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Draws a number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a bound of zero leaves nothing to choose");
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws a number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Returns true once in `one_in` times.
    pub fn one_in(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Draws one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Draws an index by weight; at least one weight must not be zero.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut rest = self.below(weights.iter().map(|&weight| u64::from(weight)).sum());
        for (index, &weight) in weights.iter().enumerate() {
            if rest < u64::from(weight) {
                return index;
            }
            rest -= u64::from(weight);
        }
        unreachable!("the rest is below the sum of the weights")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_another_seed_another() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn weights_of_zero_are_never_chosen() {
        let mut random = Random::new(3);
        assert!((0..1000).all(|_| random.weighted(&[0, 3, 0, 1]) % 2 == 1));
        assert!((0..1000).all(|_| (4..=6).contains(&random.between(4, 6))));
    }
}
