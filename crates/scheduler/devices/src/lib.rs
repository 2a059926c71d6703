//! Allocation of devices to ResourceClaims.
//!
//! [`Allocator`] searches a node's devices for those that satisfy the claims of a pod. It is a pure
//! function of claims, DeviceClasses, ResourceSlices and what is allocated already, and its search
//! is bounded by [`Limits`]: tenants write the claims. [`Ledger`] holds what the scheduler has
//! decided and the informers do not show yet; [`DeviceView`] joins both for plugins.

mod allocate;
mod allocated;
mod capacity;
mod constraint;
mod failure;
mod ledger;
mod limits;
mod node_devices;
mod outcome;
mod pools;
mod prepare;
mod search;
mod selectors;
mod view;

pub use allocate::Allocator;
pub use allocated::Allocated;
pub use failure::{Failure, Problem};
pub use ledger::Ledger;
pub use limits::Limits;
pub use outcome::is_bound_by_conditions;
pub use pools::Pools;
pub use selectors::Selectors;
pub use view::{DeviceView, NoDevices};
