//! A whole cluster: controllers, scheduler, and kubelets on the simulated runtime.

#![allow(clippy::unwrap_used, missing_docs)]
