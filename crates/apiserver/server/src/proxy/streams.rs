//! Kubelet paths of logs, exec, attach, port-forward and node proxies.

use super::logs::LogOptions;
use super::options::ConnectOptions;
use super::request::cached_object;
use super::services;
use crate::connect::Target;
use crate::connect::reach::Loopback;
use crate::context::Context;
use crate::server::Server;
use api_meta::{ApiError, Meta, meta};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Returns the target of `nodes/NAME/proxy`: the kubelet, or another port of the node
/// (`[SCHEME:]NAME:PORT`), to which the server does not present its client certificate.
pub fn node_target(
    server: &Server,
    context: &Context,
    options: &ConnectOptions,
) -> Result<Target, ApiError> {
    let requested = services::parse_name(&context.info.name)?;
    let node = cached_object(server, "nodes", "", requested.name)?;
    let mut target = server
        .kubelets
        .kubelet_target(&node, options.backend_path(context))?;
    // The client chooses the path, which could reach services that trust this machine.
    target.loopback = Loopback::Refused;
    // The kubelet's own port may be given explicitly, and then it is still the kubelet.
    if !requested.port.is_empty() && requested.port != target.port.to_string() {
        let port = requested
            .port
            .parse()
            .map_err(|_| ApiError::bad_request("the port is not a number"))?;
        target =
            server
                .kubelets
                .unverified_target(requested.https, &target.host, port, target.path);
    }
    target.reach = target.reach.with_servers(&*server.caches);
    Ok(target)
}

/// Returns the kubelet of a pod, and the path of the subresource.
pub async fn pod_stream_target(
    server: &Server,
    context: &Context,
    options: &ConnectOptions,
) -> Result<Target, ApiError> {
    let (namespace, name) = (context.info.namespace.as_str(), context.info.name.as_str());
    // Before the pod is read, as upstream: the options are wrong for any pod.
    let log = match context.info.subresource.as_str() {
        "log" => Some(LogOptions::parse(context)?),
        _ => None,
    };
    let row = api_kinds::find("", "v1", "pods").ok_or_else(ApiError::no_such_path)?;
    let pod = server
        .registry
        // From the present revision: a client may have seen the pod start through another server.
        .get(row, namespace, name, "")
        .await?
        .tree_as(row)?;
    let subresource = context.info.subresource.as_str();
    let skips_verification = log.as_ref().is_some_and(|log| log.skips_verification);
    let path = match (subresource, log) {
        ("portforward", _) => with_query(
            &format!("/portForward/{namespace}/{name}"),
            port_parameters(options),
        ),
        (_, Some(log)) => {
            let container = choose_container(context.query.text("container"), &pod)?;
            with_query(
                &format!("/containerLogs/{namespace}/{name}/{container}"),
                log.parameters,
            )
        }
        (stream, None) => {
            let container = choose_container(options.container(), &pod)?;
            with_query(
                &format!("/{stream}/{namespace}/{name}/{container}"),
                stream_parameters(options),
            )
        }
    };
    let node_name = meta::str_at(&pod, &["spec", "nodeName"]);
    if node_name.is_empty() {
        return Err(ApiError::bad_request(format!(
            "pod {name} does not have a host assigned"
        )));
    }
    let node = cached_object(server, "nodes", "", node_name)?;
    if skips_verification {
        server.kubelets.unverified_kubelet_target(&node, path)
    } else {
        server.kubelets.kubelet_target(&node, path)
    }
}

fn with_query(path: &str, pairs: Vec<(String, String)>) -> String {
    // Fully escaped: a command with `&` must not add options.
    let encode = |text: &str| utf8_percent_encode(text, QUERY).to_string();
    let query: Vec<String> = pairs
        .iter()
        .map(|(k, v)| format!("{}={}", encode(k), encode(v)))
        .collect();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", query.join("&"))
    }
}

/// Translates the stream options, for which the kubelet has other names.
fn stream_parameters(options: &ConnectOptions) -> Vec<(String, String)> {
    let streams = options.streams();
    let flags = [
        ("input", streams.stdin),
        ("output", streams.stdout),
        ("error", streams.stderr),
        ("tty", streams.tty),
    ];
    let given = flags.iter().filter(|(_, is_given)| *is_given);
    let mut pairs: Vec<(String, String)> = given
        .map(|(name, _)| ((*name).to_owned(), "1".to_owned()))
        .collect();
    let words = options.command();
    pairs.extend(words.map(|word| ("command".to_owned(), word.to_owned())));
    pairs
}

fn port_parameters(options: &ConnectOptions) -> Vec<(String, String)> {
    let ports = options.ports();
    ports
        .map(|port| ("port".to_owned(), port.to_string()))
        .collect()
}

/// Returns the requested container, or the default one.
fn choose_container(requested: &str, pod: &Value) -> Result<String, ApiError> {
    let names = |field: &str| -> Vec<&str> {
        let list = pod
            .pointer("/spec")
            .and_then(|spec| spec.get(field)?.as_array());
        list.into_iter()
            .flatten()
            .filter_map(|c| c.get("name")?.as_str())
            .collect()
    };
    let own = names("containers");
    let name = pod.name();
    if !requested.is_empty() {
        let all = [own, names("initContainers"), names("ephemeralContainers")].concat();
        let known = all.contains(&requested);
        return if known {
            Ok(requested.to_owned())
        } else {
            Err(ApiError::bad_request(format!(
                "container {requested} is not valid for pod {name}"
            )))
        };
    }
    // The default container is one of the ordinary ones, also if init containers still run.
    match own.as_slice() {
        [one] => Ok((*one).to_owned()),
        [] => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        many => {
            let default = pod
                .annotation("kubectl.kubernetes.io/default-container")
                .filter(|d| many.contains(d));
            default.map(str::to_owned).ok_or_else(|| {
                let all = many.join(" ");
                ApiError::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{all}]"
                ))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn options(kind: &str, query: &str) -> ConnectOptions {
        let uri = format!("/api/v1/namespaces/d/pods/p/x?{query}");
        let request = http::Request::get(uri).body(()).unwrap();
        let context = Context::new(request.into_parts().0).unwrap();
        ConnectOptions::parse(&context, kind).unwrap()
    }

    fn pod(containers: &[&str], annotation: Option<&str>) -> Value {
        let containers: Vec<Value> = containers
            .iter()
            .map(|name| json!({"name": name}))
            .collect();
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers,
            "initContainers": [{"name": "init"}], "ephemeralContainers": [{"name": "debug"}]}});
        if let Some(name) = annotation {
            let key = "kubectl.kubernetes.io/default-container";
            pod["metadata"]["annotations"] = json!({key: name});
        }
        pod
    }

    #[test]
    fn container_is_the_requested_one_of_any_kind() {
        for name in ["a", "init", "debug"] {
            let chosen = choose_container(name, &pod(&["a", "b"], None));
            assert_eq!(chosen.unwrap(), name);
        }
        let unknown = choose_container("x", &pod(&["a"], None));
        assert_eq!(unknown.unwrap_err().code(), 400);
    }

    #[test]
    fn container_defaults_to_the_only_or_the_annotated_one() {
        let choose = |pod: Value| choose_container("", &pod);
        assert_eq!(choose(pod(&["a"], None)).unwrap(), "a");
        assert_eq!(choose(pod(&["a", "b"], Some("b"))).unwrap(), "b");
        let error = choose(pod(&["a", "b"], Some("x"))).unwrap_err();
        assert!(error.message.contains("choose one of: [a b]"), "{error}");
    }

    #[test]
    fn stream_options_get_the_kubelets_names() {
        let options = options(
            "PodExecOptions",
            "stdin=true&stdout=1&stderr=false&tty=true&command=sh&command=-c&command=a%26b",
        );
        let path = with_query("/exec/d/p/c", stream_parameters(&options));
        let expect = "/exec/d/p/c?input=1&output=1&tty=1&command=sh&command=-c&command=a%26b";
        assert_eq!(path, expect, "a command can not add parameters");
    }

    #[test]
    fn forwarded_ports_are_lists_or_repeated() {
        let options = options("PodPortForwardOptions", "ports=80,443&ports=9090");
        let ports = port_parameters(&options);
        let ports: Vec<&str> = ports.iter().map(|(_, port)| port.as_str()).collect();
        assert_eq!(ports, ["80", "443", "9090"]);
    }
}
