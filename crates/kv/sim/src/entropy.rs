//! Sources of randomness: a generator for the simulation's own decisions, and the system's source.
//!
//! Hash maps, tokio's `select!` and `rand` get their seeds from the system. In a simulating thread,
//! the system's source is derived from the run's seed: this crate defines `getrandom`, which the C
//! library would otherwise provide, and every run has its own thread. Rejected: seeding each of
//! them by its own interface, because some have none.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io::Read;

thread_local! {
    static SIMULATED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes this thread's randomness depend on a seed from here on.
pub(crate) fn seed_thread(seed: u64) {
    SIMULATED.set(Some(seed));
}

fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Replaces the C library's function of this name in the whole process.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes, as for the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: required of the caller.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
    let simulated = SIMULATED.try_with(Cell::get).ok().flatten();
    let Some(mut state) = simulated else {
        let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes));
        return if read.is_ok() {
            length.cast_signed()
        } else {
            -1
        };
    };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&step(&mut state).to_le_bytes()[..chunk.len()]);
    }
    // The same bytes for each call: the number of earlier calls must make no difference.
    length.cast_signed()
}

/// Generator for the simulation's decisions.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// Returns an independent generator: later calls of this one do not affect its numbers.
    pub fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    pub fn next(&mut self) -> u64 {
        step(&mut self.0)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns a number from `start` (inclusive) to `end` (exclusive).
    pub fn range(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end.saturating_sub(start))
    }

    /// Returns true with probability 1/`times`; never if that is 0.
    pub fn once_in(&mut self, times: u64) -> bool {
        times != 0 && self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::hash::{BuildHasher, RandomState};

    #[test]
    fn seeded_thread_hashes_deterministically() {
        let hash = |seed| {
            let thread = std::thread::spawn(move || {
                seed_thread(seed);
                let _: HashMap<u8, u8> = HashMap::new();
                RandomState::new().hash_one(1)
            });
            thread.join().unwrap_or_default()
        };
        assert_eq!(hash(1), hash(1));
        assert_ne!(hash(1), hash(2));
    }
}
