//! Resources, and the table of the built-in ones: one row for each resource and version.
//!
//! Routes, discovery, codecs, storage keys, printing and authorization are driven by these rows.
//! Adding a kind takes one row in `data/`. Pure functions beside it implement everything that can't
//! be data, such as a field selector's computed value or two versions of one stored object.
//!
//! A `Resource` is a value: custom resources have the same type, with names of their own and a
//! schema that is no message.

mod autoscaler;
mod convert;
mod converter;
mod emulation;
mod enablement;
mod lifecycle;
mod load;
mod model;
mod schema;
mod select;
mod set;

pub use convert::convert;
pub use converter::{Conversion, Converter};
pub use emulation::EmulatedRelease;
pub use enablement::{
    BuiltInResources, RuntimeConfig, RuntimeConfigError, find_rule_version, is_resource_gate,
};
pub use lifecycle::{Deprecation, Release, ReleaseError, find_deprecation};
pub use load::{find, find_kind, groups, is_stable, resources, served};
pub use model::{Group, GroupVersion, Name, Resource, Storage, StorageFormat, Subresource};
pub use schema::{CustomSchema, ObjectSchema, SchemaError, SelectableField};
pub use select::{selectable_paths, selectable_value, unsupported_field};
pub use set::{ResourceSet, compare_versions, custom_prefix, is_built_in, is_built_in_group};
