//! Conversion of custom resources between versions by something outside the server.

use api_meta::ApiError;
use serde_json::Value;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

/// A conversion in progress.
pub type Conversion<'a> = Pin<Box<dyn Future<Output = Result<Vec<Value>, ApiError>> + Send + 'a>>;

/// Converts the objects of one definition.
pub trait Converter: Debug + Send + Sync {
    /// Converts objects to an `apiVersion`, in their order; those that have it stay as they are.
    fn convert_objects<'a>(&'a self, objects: Vec<Value>, api_version: &'a str) -> Conversion<'a>;
}
