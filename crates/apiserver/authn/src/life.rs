//! Remaining lifetime of client certificates, observed at each request that one authenticates.

use base_telemetry::Histogram;

/// Upper bounds in seconds: 0, half an hour, ..., a year.
const BOUNDS: [f64; 13] = [
    0.0,
    1_800.0,
    7_200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// A histogram of the remaining lifetime, in seconds.
#[derive(Debug)]
pub struct CertificateLife(Histogram);

impl Default for CertificateLife {
    fn default() -> Self {
        Self(Histogram::new(&BOUNDS))
    }
}

impl CertificateLife {
    pub(crate) fn observe_remaining(&self, left: i64) {
        self.0.observe(left as f64);
    }

    /// Returns the histogram.
    pub fn histogram(&self) -> Histogram {
        self.0.clone()
    }
}
