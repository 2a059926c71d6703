//! Authorization of a request, under its own verb and others.

use crate::context::Context;
use crate::server::Server;
use api_meta::ApiError;
use apiserver_authz::forbidden_error;
use apiserver_request::{Attributes, Authorizer, Decision, RequestInfo, annotate_audit};
use percent_encoding::percent_decode_str;

/// First segments of kubelet paths that run a command in a container or checkpoint one.
const KUBELET_STREAMS: [&str; 6] = ["exec", "attach", "portForward", "run", "cri", "checkpoint"];

/// Seconds after which a client may repeat a request that was beyond the limits of a webhook.
const RETRY_AFTER: i32 = 1;

/// Authorizes the request, and records the decision in its audit events.
pub async fn authorize_and_annotate(
    server: &Server,
    attributes: &Attributes,
) -> Result<(), ApiError> {
    let decision = server.authz.authorize(attributes).await;
    let (decided, reason) = match &decision {
        Decision::Allow(reason) => (Some("allow"), reason.as_str()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => (Some("forbid"), reason.as_str()),
        // As upstream, without a decision: there was none.
        Decision::Failed(_) => (None, "internal error"),
    };
    if let Some(decided) = decided {
        annotate_audit("authorization.k8s.io/decision", || decided.to_owned());
    }
    annotate_audit("authorization.k8s.io/reason", || reason.to_owned());
    check_decision(attributes, decision)
}

fn check_decision(attributes: &Attributes, decision: Decision) -> Result<(), ApiError> {
    match decision {
        Decision::Allow(_) => Ok(()),
        Decision::Deny(reason) | Decision::NoOpinion(reason) => {
            Err(forbidden_error(attributes, &reason))
        }
        Decision::Failed(failure) if failure.is_overloaded => {
            Err(ApiError::too_many_requests(failure.error, RETRY_AFTER))
        }
        // As upstream no 403: the same request may be allowed when the webhook responds again.
        Decision::Failed(failure) => Err(ApiError::internal(failure.error)),
    }
}

/// Authorizes the request under another verb as well.
pub async fn authorize_verb(
    server: &Server,
    context: &Context,
    verb: &str,
) -> Result<(), ApiError> {
    let attributes = Attributes {
        verb: verb.to_owned(),
        ..request_attributes(context)
    };
    let decision = server.authz.authorize(&attributes).await;
    check_decision(&attributes, decision)
}

/// Returns whether the request runs a command in a container. It needs `create` in addition to its
/// method's verb: a WebSocket begins with GET, and the permission to read must not suffice.
pub fn opens_stream(info: &RequestInfo) -> bool {
    match (
        info.group.as_str(),
        info.resource.as_str(),
        info.subresource.as_str(),
    ) {
        ("", "pods", "exec" | "attach" | "portforward") => true,
        ("", "nodes", "proxy") => {
            // The kubelet decodes the path again, so `/%72un` runs a command, too.
            let path = percent_decode_str(&info.rest).decode_utf8_lossy();
            let first = path
                .split('/')
                .find(|word| !word.is_empty())
                .unwrap_or_default();
            KUBELET_STREAMS
                .iter()
                .any(|word| first.eq_ignore_ascii_case(word))
        }
        _ => false,
    }
}

/// Returns what authorizers decide about.
pub fn request_attributes(context: &Context) -> Attributes {
    let info = &context.info;
    // Authorizers see selectors of these verbs only, as upstream.
    let selects = matches!(info.verb.as_str(), "list" | "watch" | "deletecollection");
    let selector = |name| {
        if selects {
            context.query.text(name).to_owned()
        } else {
            String::new()
        }
    };
    Attributes {
        user: context.user.clone(),
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        namespace: info.namespace.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        name: info.name.clone(),
        path: info.path.clone(),
        is_resource: info.is_resource,
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
        caller: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_paths_into_containers_need_create() {
        let info = |rest: &str| RequestInfo {
            resource: "nodes".into(),
            subresource: "proxy".into(),
            rest: rest.into(),
            ..RequestInfo::default()
        };
        for rest in [
            "/run/ns/pod/c",
            "/%72un/ns",
            "//exec/x",
            "/%2Fattach",
            "/portforward/x",
            "/cri/exec/t",
            "/exec",
        ] {
            assert!(opens_stream(&info(rest)), "{rest}");
        }
        for rest in [
            "",
            "/",
            "/metrics",
            "/pods/run",
            "/runningpods/",
            "/%2572un",
        ] {
            assert!(!opens_stream(&info(rest)), "{rest}");
        }
    }
}
