//! The directory of a projected volume.

use crate::field::{Errors, Path};
use std::collections::BTreeSet;

/// The files of a projected volume, which all sources write into one directory.
#[derive(Default)]
pub(crate) struct ProjectedFiles<'a> {
    paths: BTreeSet<&'a str>,
}

impl<'a> ProjectedFiles<'a> {
    /// Adds a file. `owner` is what the error shows.
    pub fn add(&mut self, file: &'a str, owner: &str, volume: &Path<'_>, errors: &mut Errors) {
        if !self.paths.insert(file) {
            errors.invalid(volume, owner, "conflicting duplicate paths");
        }
    }
}
