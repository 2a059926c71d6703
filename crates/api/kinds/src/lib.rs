//! The table of kinds: one row for each resource and version that the server knows.
//!
//! Routes, discovery, codecs, storage keys, printing and authorisation are driven by these rows; adding a kind is one
//! row in `data/`. What cannot be data (a field selector's computed value, two versions of one stored object) stands
//! beside it as pure functions.

mod convert;
mod load;
mod model;
mod select;

pub use convert::convert;
pub use load::{find, find_kind, groups, resources, served};
pub use model::{Group, GroupVersion, Resource, Storage, Subresource};
pub use select::{selectable_value, unsupported_field};
