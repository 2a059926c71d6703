//! Warnings of one write.

use parking_lot::Mutex;

/// Warnings for the client. Validating plugins add them through a shared reference, and some of
/// them concurrently.
#[derive(Debug, Default)]
pub struct Warnings(Mutex<Vec<String>>);

impl Warnings {
    /// Adds a warning. A repeated one is dropped, because the mutating plugins may run twice.
    pub fn push(&self, warning: String) {
        let mut all = self.0.lock();
        if !all.contains(&warning) {
            all.push(warning);
        }
    }

    /// Removes and returns all warnings.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }

    /// Adds several warnings.
    pub fn extend(&self, warnings: impl IntoIterator<Item = String>) {
        warnings.into_iter().for_each(|warning| self.push(warning));
    }
}

impl IntoIterator for Warnings {
    type Item = String;
    type IntoIter = std::vec::IntoIter<String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_inner().into_iter()
    }
}
