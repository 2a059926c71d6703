//! Subresources whose body is not the object itself.
//!
//! Status, approval, ephemeralcontainers and resize are ordinary updates whose strategy leaves all
//! other fields unchanged.

mod bind;
mod evict;
mod scale;
mod token;

pub use evict::Eviction;
