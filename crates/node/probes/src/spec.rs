//! Resolved probes: named ports, defaults, address.

use k8s_openapi::api::core::v1::{
    Container, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::time::Duration;

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    /// The container has started; the other probes wait for it.
    Startup,
    /// The container must be restarted if it fails.
    Liveness,
    /// The container receives traffic.
    Readiness,
}

impl ProbeKind {
    /// Returns the kind's name in events.
    pub fn as_str(self) -> &'static str {
        match self {
            ProbeKind::Startup => "Startup",
            ProbeKind::Liveness => "Liveness",
            ProbeKind::Readiness => "Readiness",
        }
    }
}

/// A check of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handler {
    /// A command inside the container.
    Exec(Vec<String>),
    /// An HTTP request.
    Http {
        /// Full URL; certificates are not verified.
        url: String,
        /// Headers, in order.
        headers: Vec<(String, String)>,
    },
    /// A TCP connection.
    Tcp {
        /// Host or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// gRPC's health service.
    Grpc {
        /// Address.
        host: String,
        /// Port.
        port: u16,
        /// Service name in the health request.
        service: String,
    },
    /// A wait; lifecycle hooks only.
    Sleep(Duration),
    /// A handler that can't be used, with the reason.
    Invalid(String),
}

/// A resolved probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSpec {
    /// Kind of the probe.
    pub kind: ProbeKind,
    /// The check.
    pub handler: Handler,
    /// Delay after the container's start.
    pub initial_delay: Duration,
    /// Interval between two checks.
    pub period: Duration,
    /// Timeout of one check.
    pub timeout: Duration,
    /// Consecutive successes that make the state healthy.
    pub success_threshold: u32,
    /// Consecutive failures that make the state unhealthy.
    pub failure_threshold: u32,
}

fn positive_seconds(value: Option<i32>, default: u64) -> Duration {
    Duration::from_secs(
        value
            .filter(|v| *v > 0)
            .and_then(|v| u64::try_from(v).ok())
            .unwrap_or(default),
    )
}

fn positive_count(value: Option<i32>, default: u32) -> u32 {
    value
        .filter(|v| *v > 0)
        .and_then(|v| u32::try_from(v).ok())
        .unwrap_or(default)
}

impl ProbeSpec {
    /// Resolves a probe of `container` in a pod at `pod_ip`.
    pub fn new(kind: ProbeKind, probe: &Probe, container: &Container, pod_ip: &str) -> Self {
        ProbeSpec {
            kind,
            handler: resolve_probe_handler(probe, container, pod_ip),
            initial_delay: positive_seconds(probe.initial_delay_seconds, 0),
            period: positive_seconds(probe.period_seconds, 10),
            timeout: positive_seconds(probe.timeout_seconds, 1),
            success_threshold: positive_count(probe.success_threshold, 1),
            failure_threshold: positive_count(probe.failure_threshold, 3),
        }
    }
}

fn resolve_probe_handler(probe: &Probe, container: &Container, pod_ip: &str) -> Handler {
    // Validation allows exactly one handler.
    if let Some(exec) = &probe.exec {
        return Handler::Exec(exec.command.clone().unwrap_or_default());
    }
    if let Some(get) = &probe.http_get {
        return http_handler(get, container, pod_ip);
    }
    if let Some(tcp) = &probe.tcp_socket {
        return tcp_handler(tcp, container, pod_ip);
    }
    if let Some(grpc) = &probe.grpc {
        return match u16::try_from(grpc.port) {
            Ok(port) => Handler::Grpc {
                host: pod_ip.to_owned(),
                port,
                service: grpc.service.clone().unwrap_or_default(),
            },
            Err(_) => Handler::Invalid(format!("invalid port {}", grpc.port)),
        };
    }
    Handler::Invalid("the probe has no handler".into())
}

/// Resolves the handler of a postStart or preStop hook.
pub fn resolve_hook_handler(
    hook: &LifecycleHandler,
    container: &Container,
    pod_ip: &str,
) -> Handler {
    if let Some(exec) = &hook.exec {
        return Handler::Exec(exec.command.clone().unwrap_or_default());
    }
    if let Some(get) = &hook.http_get {
        return http_handler(get, container, pod_ip);
    }
    if let Some(tcp) = &hook.tcp_socket {
        return tcp_handler(tcp, container, pod_ip);
    }
    if let Some(sleep) = &hook.sleep {
        return Handler::Sleep(Duration::from_secs(
            u64::try_from(sleep.seconds).unwrap_or(0),
        ));
    }
    Handler::Invalid("the hook has no handler".into())
}

fn http_handler(get: &HTTPGetAction, container: &Container, pod_ip: &str) -> Handler {
    let port = match resolve_port(&get.port, container) {
        Ok(port) => port,
        Err(why) => return Handler::Invalid(why),
    };
    let scheme = get.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let host = get
        .host
        .as_deref()
        .filter(|h| !h.is_empty())
        .unwrap_or(pod_ip);
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let path = get.path.as_deref().unwrap_or("/");
    // Upstream accepts a path without a leading slash.
    let slash = if path.starts_with('/') { "" } else { "/" };
    let headers = get
        .http_headers
        .iter()
        .flatten()
        .map(|h| (h.name.clone(), h.value.clone()))
        .collect();
    Handler::Http {
        url: format!("{scheme}://{host}:{port}{slash}{path}"),
        headers,
    }
}

fn tcp_handler(tcp: &TCPSocketAction, container: &Container, pod_ip: &str) -> Handler {
    match resolve_port(&tcp.port, container) {
        Ok(port) => {
            let host = tcp
                .host
                .as_deref()
                .filter(|h| !h.is_empty())
                .unwrap_or(pod_ip);
            Handler::Tcp {
                host: host.to_owned(),
                port,
            }
        }
        Err(why) => Handler::Invalid(why),
    }
}

fn resolve_port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|p| p.name.as_deref() == Some(name));
            match named
                .map(|p| p.container_port)
                // A string of digits is a number for upstream, too.
                .or_else(|| name.parse().ok())
            {
                Some(number) => number,
                None => {
                    return Err(format!(
                        "no port is named {name:?} in container {}",
                        container.name
                    ));
                }
            }
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|p| *p > 0)
        .ok_or_else(|| format!("invalid port {number}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn resolve(probe: Value) -> ProbeSpec {
        let container: Container = serde_json::from_value(json!({"name": "c",
            "ports": [{"name": "web", "containerPort": 8080}]}))
        .unwrap();
        let probe: Probe = serde_json::from_value(probe).unwrap();
        ProbeSpec::new(ProbeKind::Readiness, &probe, &container, "fd00::5")
    }

    #[test]
    fn probe_without_numbers_has_the_defaults_of_the_api() {
        let spec = resolve(json!({"exec": {"command": ["true"]}}));
        assert_eq!(
            (spec.initial_delay, spec.period, spec.timeout),
            (
                Duration::ZERO,
                Duration::from_secs(10),
                Duration::from_secs(1)
            )
        );
        assert_eq!((spec.success_threshold, spec.failure_threshold), (1, 3));
    }

    #[test]
    fn http_probe_addresses_the_pod_unless_it_names_a_host() {
        for (get, url) in [
            (json!({"port": 80}), "http://[fd00::5]:80/"),
            (
                json!({"port": "web", "path": "live"}),
                "http://[fd00::5]:8080/live",
            ),
            (
                json!({"port": 80, "host": "example.com", "scheme": "HTTPS", "path": "/x?y=z"}),
                "https://example.com:80/x?y=z",
            ),
            (json!({"port": 80, "host": ""}), "http://[fd00::5]:80/"),
        ] {
            let Handler::Http { url: found, .. } = resolve(json!({"httpGet": get})).handler else {
                unreachable!("{get} is no HTTP handler");
            };
            assert_eq!(found, url, "{get}");
        }
    }

    #[test]
    fn port_of_a_probe_is_a_number_or_the_name_of_a_container_port() {
        for (port, expected) in [
            (json!(1), Some(1)),
            (json!("web"), Some(8080)),
            (json!("81"), Some(81)),
            (json!("metrics"), None),
            (json!(0), None),
            (json!(65536), None),
        ] {
            let handler = resolve(json!({"tcpSocket": {"port": port}})).handler;
            let found = match handler {
                Handler::Tcp { port, .. } => Some(port),
                _ => None,
            };
            assert_eq!(found, expected, "{port}");
        }
    }

    #[test]
    fn probe_without_a_handler_is_invalid() {
        assert_eq!(
            resolve(json!({})).handler,
            Handler::Invalid("the probe has no handler".into())
        );
    }

    #[test]
    fn hook_may_sleep() {
        let hook = serde_json::from_value(json!({"sleep": {"seconds": 7}})).unwrap();
        let handler = resolve_hook_handler(&hook, &Container::default(), "10.0.0.1");
        assert_eq!(handler, Handler::Sleep(Duration::from_secs(7)));
    }
}
