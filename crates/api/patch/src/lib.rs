//! The three patch formats without field ownership: JSON Patch, merge patch and strategic merge
//! patch.

mod error;
mod json_patch;
mod merge_patch;
mod strategic;

pub use error::PatchError;
pub use json_patch::json_patch;
pub use merge_patch::merge_patch;
pub use strategic::strategic_merge;
