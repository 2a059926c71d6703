//! Remaining lifetime of client certificates, observed at each request that one authenticates.

use parking_lot::Mutex;

/// Upper bounds in seconds: 0, half an hour, ..., a year.
const BOUNDS: [i64; 13] = [
    0, 1_800, 7_200, 21_600, 43_200, 86_400, 172_800, 345_600, 604_800, 2_592_000, 7_776_000,
    15_552_000, 31_104_000,
];

/// A histogram of the remaining lifetime.
#[derive(Debug, Default)]
pub struct CertificateLife(Mutex<Counts>);

/// The values of a [`CertificateLife`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    within: [u64; BOUNDS.len()],
    /// Number of requests.
    pub count: u64,
    /// Sum of the remaining seconds.
    pub seconds: f64,
}

impl CertificateLife {
    pub(crate) fn observe(&self, left: i64) {
        let mut counts = self.0.lock();
        for (within, bound) in counts.within.iter_mut().zip(BOUNDS) {
            *within += u64::from(left <= bound);
        }
        counts.count += 1;
        counts.seconds += left as f64;
    }

    /// Returns the current values.
    pub fn counts(&self) -> Counts {
        *self.0.lock()
    }
}

impl Counts {
    /// Returns each bound in seconds with the number of requests at or below it.
    pub fn buckets(&self) -> impl Iterator<Item = (i64, u64)> {
        BOUNDS.into_iter().zip(self.within)
    }
}
