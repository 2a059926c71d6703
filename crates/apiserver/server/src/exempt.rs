//! Requests that no limit applies to.

use apiserver_request::{RequestInfo, User};

/// Returns whether a request lasts as long as its client wants: limits and timeouts do not apply.
pub fn is_long_running(info: &RequestInfo) -> bool {
    let streams = matches!(
        info.subresource.as_str(),
        "attach" | "exec" | "proxy" | "log" | "portforward"
    );
    info.is_resource && (info.verb == "watch" || streams)
}

/// Returns whether no limit applies to the request.
pub fn is_exempt(info: &RequestInfo, user: &User) -> bool {
    let first = info.path.split('/').find(|word| !word.is_empty());
    // A probe that is rejected under load would restart a server that works.
    let health = !info.is_resource && matches!(first, Some("livez" | "readyz" | "healthz"));
    health || is_long_running(info) || user.in_group(User::MASTERS)
}
