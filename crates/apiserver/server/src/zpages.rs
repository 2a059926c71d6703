//! `/statusz` and `/flagz`.

use crate::body::{Body, full_body};
use crate::context::Context;
use crate::discovery_documents::Discovery;
use crate::server::Server;
use api_codec::cbor;
use base_zpages::{AcceptedTypes, Process};
use http::Response;

/// Upstream's name: its pages are those of any API server.
const COMPONENT: &str = "apiserver";

/// Responds to `/statusz`.
pub fn respond_statusz(server: &Server, context: &Context) -> Response<Body> {
    let paths = Discovery::list_paths(server.caches.served().resources());
    let paths = paths.iter().map(String::as_str);
    let accept = accepted_types(server, context);
    let release = server.emulated.release;
    let process = Process {
        emulated: (release.major, release.minor),
        ..Process::read()
    };
    base_zpages::respond_statusz(COMPONENT, process, paths, accept).map(full_body)
}

/// Responds to `/flagz`.
pub fn respond_flagz(server: &Server, context: &Context) -> Response<Body> {
    let flags = base_zpages::flag_values();
    let accept = accepted_types(server, context);
    base_zpages::respond_flagz(COMPONENT, &flags, accept).map(full_body)
}

/// Returns the types that a client accepts. CBOR has a feature gate.
fn accepted_types<'a>(server: &Server, context: &'a Context) -> AcceptedTypes<'a> {
    let encode = |object: &serde_json::Value| cbor::mark(&cbor::encode_value(object));
    AcceptedTypes {
        header: context.header("accept"),
        cbor: server.formats.cbor.then_some(encode),
    }
}
