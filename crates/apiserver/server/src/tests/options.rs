//! Options of the command line and of queries.

use crate::context::Context;
use crate::exempt::is_long_running;
use crate::handlers::watch_rules::read_options;
use crate::options::ServerOptions;
use clap::Parser;
use http::{Method, Request};
use std::net::IpAddr;

fn parse_flags(flags: &[&str]) -> Result<ServerOptions, clap::Error> {
    let fixed = [
        "x",
        "--etcd-servers=http://x",
        "--tls-cert-file=x",
        "--tls-private-key-file=x",
    ];
    ServerOptions::try_parse_from(fixed.iter().chain(flags))
}

fn context(method: Method, path: &str) -> Context {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(())
        .unwrap();
    Context::new(request.into_parts().0).unwrap()
}

#[test]
fn node_port_range_is_first_and_last() {
    let range = |text: &str| {
        let options = parse_flags(&[&format!("--service-node-port-range={text}")]);
        options.ok().map(|options| options.service_node_port_range)
    };
    assert_eq!(range("30000-30010"), Some(30000..=30010));
    assert_eq!(range("80-80"), Some(80..=80));
    for wrong in ["30010-30000", "0-10", "30000", "30000-70000", "a-b", ""] {
        assert_eq!(range(wrong), None, "{wrong}");
    }
}

#[test]
fn advertised_address_falls_back_to_the_one_to_listen_on() {
    let address = |flags: &[&str]| parse_flags(flags).unwrap().advertised_address();
    let parse = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(
        address(&["--advertise-address=192.0.2.1", "--bind-address=192.0.2.2"]),
        parse("192.0.2.1")
    );
    assert_eq!(address(&["--bind-address=192.0.2.2"]), parse("192.0.2.2"));
    let own = address(&["--bind-address=0.0.0.0"]);
    assert!(!own.is_unspecified(), "no client can use {own}");
}

#[test]
fn servers_and_certificates_of_the_store_are_required() {
    for missing in [
        "--etcd-servers",
        "--tls-cert-file",
        "--tls-private-key-file",
    ] {
        let flags = [
            "--etcd-servers=http://x",
            "--tls-cert-file=x",
            "--tls-private-key-file=x",
        ];
        let given = flags.iter().filter(|flag| !flag.starts_with(missing));
        let parsed = ServerOptions::try_parse_from([&"x"].into_iter().chain(given));
        assert!(parsed.is_err(), "{missing}");
    }
}

#[test]
fn unknown_authorization_mode_is_an_error() {
    let modes = |text: &str| {
        let options = parse_flags(&[&format!("--authorization-mode={text}")]).unwrap();
        let found = options.authz.authorizers();
        found.map(|found| found.specs.len())
    };
    assert_eq!(modes("Node,RBAC").unwrap(), 2);
    assert!(modes("RBAC,Maybe").is_err());
}

#[test]
fn watch_lasts_as_long_as_the_client_wants() {
    let timeout = |query: &str| {
        let options = read_options(&context(Method::GET, &format!("/api/v1/pods?{query}")));
        options.unwrap().timeout.as_secs()
    };
    assert_eq!(timeout("timeoutSeconds=7"), 7);
    for query in ["", "timeoutSeconds=0", "timeoutSeconds=-5"] {
        let seconds = timeout(query);
        assert!((1800..3600).contains(&seconds), "{query}: {seconds}");
    }
    let wrong = context(Method::GET, "/api/v1/pods?timeoutSeconds=soon");
    assert!(read_options(&wrong).is_err());
}

#[test]
fn resource_version_of_a_watch_must_be_a_number() {
    for version in ["abc", "-1", "1.0"] {
        let context = context(
            Method::GET,
            &format!("/api/v1/pods?resourceVersion={version}"),
        );
        assert_eq!(
            read_options(&context).unwrap_err().code(),
            500,
            "as upstream: {version}"
        );
    }
}

#[test]
fn watches_streams_and_proxies_have_no_request_timeout() {
    for (path, long) in [
        ("/api/v1/pods?watch=1", true),
        ("/api/v1/watch/pods", true),
        ("/api/v1/namespaces/d/pods/p/log?follow=true", true),
        ("/api/v1/namespaces/d/pods/p/exec", true),
        ("/api/v1/namespaces/d/pods/p/attach", true),
        ("/api/v1/namespaces/d/pods/p/portforward", true),
        ("/api/v1/namespaces/d/services/s/proxy/x", true),
        ("/api/v1/namespaces/d/pods/p", false),
        ("/api/v1/namespaces/d/pods/p/status", false),
        ("/api/v1/namespaces/d/pods", false),
        ("/healthz", false),
        ("/proxy", false),
    ] {
        assert_eq!(
            is_long_running(&context(Method::GET, path).info),
            long,
            "{path}"
        );
    }
}

#[test]
fn boolean_parameter_is_true_unless_it_is_false_or_zero() {
    for (query, expect) in [
        ("watch", true),
        ("watch=", true),
        ("watch=1", true),
        ("watch=yes", true),
        ("watch=0", false),
        ("watch=FALSE", false),
        ("", false),
    ] {
        let verb = context(Method::GET, &format!("/api/v1/pods?{query}"))
            .info
            .verb;
        assert_eq!(verb, if expect { "watch" } else { "list" }, "{query}");
    }
}
