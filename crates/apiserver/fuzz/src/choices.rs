//! Choices of a generator, from the bytes of an input.

/// The choices that are left. Used up, each is the first alternative, so that every generator ends.
pub(crate) struct Choices<'a> {
    bytes: std::slice::Iter<'a, u8>,
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes: bytes.iter(),
        }
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let mut number = usize::from(self.bytes.next().copied().unwrap_or(0));
        if end > 256 {
            number = number << 8 | usize::from(self.bytes.next().copied().unwrap_or(0));
        }
        number % end.max(1)
    }

    /// Returns true once in `of` cases.
    pub(crate) fn hits(&mut self, of: usize) -> bool {
        self.below(of) == of - 1
    }

    /// Returns an alternative.
    pub(crate) fn pick<'t>(&mut self, alternatives: &[&'t str]) -> &'t str {
        let at = self.below(alternatives.len());
        alternatives.get(at).copied().unwrap_or_default()
    }
}

/// Returns bytes that depend on the seed only.
pub fn random_bytes(seed: u64) -> Vec<u8> {
    // SplitMix64, whose streams of neighbouring seeds are unrelated.
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let words = 4 + next() % 252;
    (0..words).flat_map(|_| next().to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_up_choices_are_the_first_alternative() {
        let mut choices = Choices::new(&[7]);
        assert_eq!(choices.below(4), 3);
        assert_eq!(choices.below(4), 0);
        assert!(!choices.hits(2));
        assert_eq!(choices.pick(&["a", "b"]), "a");
    }

    #[test]
    fn seed_determines_the_bytes() {
        assert_eq!(random_bytes(3), random_bytes(3));
        assert_ne!(random_bytes(3), random_bytes(4));
    }
}
