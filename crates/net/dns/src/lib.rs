//! The cluster's DNS server: answers names of Services, endpoints and pods from informers, and
//! forwards all others.
//!
//! The specification is Kubernetes' DNS-Based Service Discovery 1.1.0. A pure function
//! ([`zone::resolve_name`]) resolves a name over a read-only view of the cluster; sockets and
//! forwarding are separate. There is no cache of the cluster's own names: the informers' stores
//! serve as one, and an answer is never older than they are. Answers of upstream resolvers are
//! cached.

mod answer_cache;
mod clients;
mod forwarded_answer;
mod forwarder;
mod health;
mod metrics;
mod question;
mod reply;
mod run;
mod search_path;
mod server;
mod slots;
mod sockets;
mod stub_domain;
#[cfg(test)]
mod test_resolver;
#[cfg(test)]
mod test_server;
mod upstream;
mod view;
pub mod zone;

pub use run::{Settings, drop_privileges, run};
pub use search_path::{SearchPaths, has_search_domains};
pub use stub_domain::{InvalidStubDomain, StubDomain};
pub use upstream::parse_name_servers;
pub use view::{Extras, InformerView};
