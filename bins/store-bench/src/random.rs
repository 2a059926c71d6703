//! Pseudo-random numbers from a seed.

/// Xorshift generator: cheap, and uniform enough for choosing keys.
pub struct Random(u64);

impl Random {
    /// Creates the generator of a seed.
    pub fn new(seed: u64) -> Random {
        // Multiplied, because xorshift starts slowly from small seeds; odd, because it stays at 0
        // for ever.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_number() >> 11)
            .unwrap_or_default()
            .checked_rem(end)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 5].map(|()| random.next_number())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(9));
        assert_ne!(numbers(0), [0; 5], "xorshift stays at 0 for ever");
    }

    #[test]
    fn number_is_below_its_bound_and_reaches_every_value() {
        let mut random = Random::new(1);
        let mut seen = [0; 8];
        for _ in 0..8_000 {
            seen[random.below(8)] += 1;
        }
        assert!(
            seen.iter().all(|count| (800..1_200).contains(count)),
            "{seen:?}"
        );
        assert_eq!(random.below(0), 0);
    }
}
