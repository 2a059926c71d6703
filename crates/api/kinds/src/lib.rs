//! The table of kinds: one row for each resource and version that the server knows.
//!
//! Routes, discovery, codecs, storage keys, printing and authorization are driven by these rows.
//! Adding a kind takes one row in `data/`. Pure functions beside it implement everything that can't
//! be data, such as a field selector's computed value or two versions of one stored object.

mod convert;
mod load;
mod model;
mod select;

pub use convert::convert;
pub use load::{find, find_kind, groups, resources, served};
pub use model::{Group, GroupVersion, Resource, Storage, Subresource};
pub use select::{selectable_value, unsupported_field};
