//! `/statusz` and `/flagz`.

use crate::body::{Body, full_body};
use crate::context::Context;
use crate::discovery::Discovery;
use crate::server::Server;
use base_zpages::Process;
use http::Response;

/// Upstream's name: its pages are those of any API server.
const COMPONENT: &str = "apiserver";

/// Responds to `/statusz`.
pub fn respond_statusz(server: &Server, context: &Context) -> Response<Body> {
    let paths = Discovery::list_paths(server.caches.served().resources());
    let paths = paths.iter().map(String::as_str);
    let accept = context.header("accept");
    base_zpages::respond_statusz(COMPONENT, Process::read(), paths, accept).map(full_body)
}

/// Responds to `/flagz`.
pub fn respond_flagz(context: &Context) -> Response<Body> {
    let flags = base_zpages::flag_values();
    base_zpages::respond_flagz(COMPONENT, &flags, context.header("accept")).map(full_body)
}
