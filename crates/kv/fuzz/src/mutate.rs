//! Mutations of valid input from a seed.

/// Creates mutated inputs.
pub struct Mutator(u64);

const INTERESTING: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

impl Mutator {
    /// Creates a mutator. The same seed produces the same inputs.
    pub fn new(seed: u64) -> Self {
        Mutator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % end.max(1)
    }

    /// Returns an input of the corpus with a few changes.
    pub fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus
            .get(self.below(corpus.len()))
            .cloned()
            .unwrap_or_default();
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, INTERESTING[self.below(INTERESTING.len())]),
                2 => {
                    let end = (at + self.below(64)).min(bytes.len());
                    bytes.drain(at..end);
                }
                3 => {
                    let end = (at + self.below(64)).min(bytes.len());
                    let copy = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, copy);
                }
                _ => {
                    let value = INTERESTING[self.below(INTERESTING.len())];
                    let flip = 1 << self.below(8);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = if flip & 1 == 1 { value } else { *byte ^ flip };
                    }
                }
            }
        }
        bytes
    }
}
