//! The gateway: forwards HTTP requests from outside of the cluster to endpoints of Services.
//! Ingresses (networking.k8s.io/v1) and the core of the Gateway API (v1) decide which.
//!
//! A pure function (`compile`) makes a routing table and the statuses from the objects. A change of
//! an object makes a new table, which requests read without a lock. Endpoints change inside of a
//! table. The proxy connects to endpoints, not to the Service's address.
//!
//! Invariants: an object of one namespace gets no request for a host that another namespace owns
//! (`claims`, `table`). An object with a field that would restrict access and is not implemented is
//! refused. Only endpoints with an allowed address are connected (`endpoint_policy`).

mod action;
mod address;
mod backend;
mod certificates;
mod claims;
mod compile;
mod condition;
mod connect;
mod connections;
mod controller;
mod crds;
mod deletion_delay;
mod endpoint_budget;
mod endpoint_policy;
mod flags;
mod gateway_api;
mod gateway_services;
mod gateways;
mod headers;
mod host;
mod http2_connections;
mod http_routes;
mod idle;
mod infrastructure;
mod ingress;
mod listener_ports;
mod metrics;
mod own_ports;
mod path_match;
mod placement;
mod places;
mod port_assignment;
mod port_range;
mod proxy;
mod readings;
mod refusal;
mod route_filters;
mod route_rules;
mod rule;
mod rule_budget;
mod run;
mod secrets;
mod service_deletion;
mod status_writer;
mod table;
mod target;
mod tls_policies;
mod unread;
mod upload;

pub use flags::{CONTROLLER, Flags};
pub use run::{Gateway, run};
