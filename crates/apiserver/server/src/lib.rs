//! The API server: the handler chain of a request, and the process around it.
//!
//! Follow a request from `pipeline::handle_request`: the path is parsed (`request_info`), the user
//! is authenticated, impersonation and authorization are decided, then `route` picks the handler of
//! the verb (`handlers/`), which decodes the body, calls the registry and encodes the response
//! (`respond`). `run` starts a server from its options.

mod aggregation;
mod audit;
mod audit_flags;
mod audit_record;
mod authorize;
mod authorizers;
mod authz_flags;
mod base64url;
mod body;
mod bootstrap;
mod bootstrap_steps;
mod check_config;
mod compress;
mod connect;
mod context;
mod conversion;
mod credentials;
mod decode;
mod discovery;
mod discovery_documents;
mod durations;
mod encode;
mod endpoint_reconciler;
mod exempt;
mod feature_gates;
mod flow;
mod handlers;
mod health;
mod impersonate;
mod inflight;
mod issuers;
mod list_body;
mod lists;
mod method;
mod metrics;
mod metrics_page;
mod negotiate;
mod oidc_flags;
mod options;
mod pipeline;
mod policies;
mod proxy;
mod query;
mod quotas;
mod release_flags;
mod request_info;
mod respond;
mod response_budget;
mod reviews;
mod route;
mod run;
mod runtime_config;
mod server;
mod short_requests;
#[cfg(test)]
mod tests;
mod transform;
mod upstream_flags;
mod version;
mod webhooks;
mod zpages;

pub use check_config::check_config;
pub use feature_gates::UNIMPLEMENTED_GATES;
pub use options::ServerOptions;
pub use run::run;
pub use upstream_flags::UPSTREAM_FLAGS;
