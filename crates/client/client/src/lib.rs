//! Client library: REST over HTTP/2, informers, work queues, leader election, events.
//!
//! All components outside the API server access the cluster only through this crate. It needs no
//! private endpoint: any v1.36 API server is supported.
//!
//! - [`Client`] and [`Api`] send requests; [`Config`] says where to and as whom.
//! - [`Informer`] keeps a [`Store`] equal to the cluster and tells handlers what changed.
//! - [`WorkQueue`] turns changes into keys to reconcile.
//! - [`election`] and [`events`] are what every component needs besides.

mod accept;
mod any_object;
mod api;
mod client;
mod collection;
mod config;
mod decode;
pub mod election;
mod error;
pub mod events;
pub mod informer;
mod json;
mod kinds;
pub mod kubeconfig;
mod list;
mod object;
mod object_key;
mod params;
mod queue;
mod readiness;
mod servers;
mod tls;
mod token;
mod transport;
mod watch;
mod watch_event;

pub use api::Api;
pub use client::{Body, Client, Request};
pub use config::{Config, Identity, KubeconfigFile, Source};
pub use decode::{Decode, Encode};
pub use error::{Error, Result};
pub use informer::{Event, Informer, Store};
pub use kubeconfig::{KubeconfigCluster, SERVERS_EXTENSION, read_cluster, read_clusters};
pub use list::List;
pub use object::{ApiResource, DynamicObject, Object, ObjectExt, PartialObject, object_reference};
pub use params::{DeleteParams, ListParams, Patch, Propagation, VersionMatch};
pub use queue::{RateLimit, WorkQueue};
pub use servers::MAX_SERVERS;
pub use watch::Watch;
pub use watch_event::{Undecodable, WatchEvent};
