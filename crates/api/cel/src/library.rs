//! Libraries: sets of functions, types, constants and macros that an environment enables.

mod address;
pub mod authorizer;
pub mod catalog;
mod costs;
pub mod error;
mod ip;
pub mod json_patch;
mod list_extensions;
mod lists;
mod named_format;
mod number_text;
mod pattern;
mod percent;
pub mod quantity;
mod quote;
mod semantic_version;
pub mod semver;
mod sets;
mod string_costs;
pub mod string_format;
mod strings;
mod urls;
mod web_address;

pub use semantic_version::SemanticVersion;

use crate::ast::Macro;
use crate::function::Function;
use crate::types::Type;
use crate::value::Value;

/// A constant of a library.
#[derive(Debug, Clone)]
pub struct Constant {
    /// The qualified name.
    pub name: &'static str,
    /// The type.
    pub value_type: Type,
    /// The value.
    pub value: Value<'static>,
}

/// A set of declarations that is enabled as a whole.
#[derive(Debug, Clone, Default)]
pub struct Library {
    /// The name, for instance `k8s.quantity`.
    pub name: &'static str,
    /// The minor version of Kubernetes 1.x that introduced the library; 0 if all versions have it.
    pub since: u16,
    /// The minor version from which on another library replaces this one.
    pub until: Option<u16>,
    /// The functions. Overloads of a name that several libraries declare are joined.
    pub functions: Vec<Function>,
    /// Types whose names are identifiers (`type(x) == net.IP`).
    pub types: Vec<Type>,
    /// The constants.
    pub constants: Vec<Constant>,
    /// The macros.
    pub macros: Vec<Macro>,
}

impl Library {
    /// Reports whether an environment of Kubernetes 1.`minor` has the library.
    pub fn is_enabled(&self, minor: u16) -> bool {
        self.since <= minor && self.until.is_none_or(|until| minor < until)
    }
}
