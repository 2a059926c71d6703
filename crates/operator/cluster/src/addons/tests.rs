//! Tests of merging and publishing the settings of the cluster.

#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::json;

#[test]
fn what_init_published_on_another_machine_is_adopted() {
    let published = |is_shared, endpoint: Option<&str>, sans: &[&str]| {
        let settings = Settings::example();
        ClusterParameters {
            pods: settings.pod_cidr,
            services: settings.service_cidr,
            domain: settings.domain,
            enforces_policies: true,
            load_balancer_pool: None,
            is_shared,
            endpoint: endpoint.map(str::to_owned),
            extra_sans: sans.iter().map(|&name| name.to_owned()).collect(),
            token_issuers: Vec::new(),
            network: published::NetworkConfiguration::default(),
        }
    };
    let known = Settings::example_shared().control_plane.unwrap();
    let merge = |published, given: Option<SharedOptions>| {
        merge_control_plane(&known, published, given.as_ref())
            .map(|all| (all.endpoint.unwrap_or_default(), all.extra_sans.join(",")))
    };
    let pair = |endpoint: &str, names: &str| Some((endpoint.to_owned(), names.to_owned()));
    assert_eq!(merge(published(true, None, &[]), None), None);
    // `init` on a cluster that `up` made.
    assert_eq!(merge(published(false, Some("a:1"), &["b"]), None), None);
    let new = || published(true, Some("a:1"), &["b"]);
    assert_eq!(merge(new(), None), pair("a:1", "b"));
    assert_eq!(
        merge(new(), Some(SharedOptions::default())),
        pair("a:1", "b")
    );
    let given = SharedOptions {
        endpoint: Some("c:1".into()),
        extra_sans: Vec::new(),
    };
    // The command has stored its options already.
    assert_eq!(merge(new(), Some(given)), pair("", "b"));
    let invalid = published(true, Some("a"), &[]);
    assert_eq!(merge(invalid, None), None);
}

#[test]
fn enforcement_by_the_network_of_another_owner_is_adopted_unless_the_command_changes_it() {
    let published = |enforced, is_shared| ClusterParameters {
        is_shared,
        network: published::NetworkConfiguration {
            policies_enforced: enforced,
            ..published::NetworkConfiguration::default()
        },
        ..published::read_cluster_config(
            &serde_json::from_value(published::cluster_config(&Settings::example(), &[], &[]))
                .unwrap(),
        )
        .unwrap()
    };
    for (known, other, is_shared, given, expected) in [
        (false, true, true, None, Some(true)),
        (true, false, true, None, Some(false)),
        (true, true, true, None, None),
        (true, false, true, Some(true), None),
        (false, true, false, None, None),
    ] {
        let settings = Settings {
            network_policies_enforced: known,
            ..Settings::example_shared()
        };
        let given = GivenOptions {
            network_policies_enforced: given,
            ..GivenOptions::default()
        };
        let newer = merge_settings(&settings, published(other, is_shared), given);
        let found = newer.map(|newer| newer.network_policies_enforced);
        assert_eq!(found, expected, "{known} {other} {is_shared} {given:?}");
    }
    let plain = Settings::example();
    assert_eq!(
        merge_settings(&plain, published(true, true), GivenOptions::default()),
        None
    );
}

/// Otherwise a token would be good at one API server only.
#[test]
fn token_issuers_of_the_cluster_are_adopted_unless_the_command_changes_them() {
    let issuers = |url: &str| vec![json!({"issuer": {"url": url}})];
    let cluster = Settings {
        token_issuers: issuers("https://new"),
        ..Settings::example_shared()
    };
    let map = published::cluster_config(&cluster, &[], &cluster.token_issuers);
    let map = serde_json::from_value(map).unwrap();
    let published = published::read_cluster_config(&map).unwrap();
    let known = Settings {
        token_issuers: issuers("https://former"),
        ..Settings::example_shared()
    };
    let changed = Settings {
        replaced_issuers: Some(issuers("https://former")),
        ..known.clone()
    };
    for (known, is_shared, expected) in [
        (&known, true, Some("https://new")),
        (&changed, true, None),
        (&known, false, None),
        (&cluster, true, None),
    ] {
        let published = ClusterParameters {
            is_shared,
            ..published.clone()
        };
        let newer = merge_settings(known, published, GivenOptions::default());
        let changes = newer.as_ref().map(|newer| list_changes(known, newer));
        assert_eq!(changes, expected.map(|_| vec!["issuers of tokens"]));
        let found = newer.map(|newer| newer.token_issuers);
        assert_eq!(found, expected.map(issuers), "{is_shared} {known:?}");
    }
}

#[test]
fn rights_are_not_granted_again_by_a_machine_that_joined() {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::new(dir.path(), false);
    record_granted_rights(&layout).unwrap();
    assert!(layout.bootstrap_marker().exists() && layout.join_marker().exists());
}

/// Serves these responses, one a connection; returns the methods of the requests.
async fn serve(listener: tokio::net::TcpListener, responses: &[(&str, Value)]) -> Vec<String> {
    let requests = serve_requests(listener, responses).await;
    requests.into_iter().map(|(method, _)| method).collect()
}

/// Reads a request; returns its method and its body.
async fn read_request(stream: &mut tokio::net::TcpStream) -> (String, String) {
    use tokio::io::AsyncReadExt;
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or_default() {
                let method = head.split(' ').next().unwrap_or_default();
                return (method.to_owned(), body.to_owned());
            }
        }
        let mut part = vec![0; 65536];
        let read = stream.read(&mut part).await.unwrap();
        assert_ne!(read, 0, "the request ended early: {text}");
        text.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
}

/// Serves these responses, one a connection; returns the methods and bodies of the requests.
async fn serve_requests(
    listener: tokio::net::TcpListener,
    responses: &[(&str, Value)],
) -> Vec<(String, String)> {
    use tokio::io::AsyncWriteExt;
    let mut requests = Vec::new();
    for (status, body) in responses {
        let (mut stream, _) = listener.accept().await.unwrap();
        requests.push(read_request(&mut stream).await);
        let body = body.to_string();
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(reply.as_bytes()).await.unwrap();
        let _ = stream.shutdown().await;
    }
    requests
}

async fn connect_listener() -> (tokio::net::TcpListener, Client) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    (listener, Client::new(client::Config::builder(&server)))
}

fn failure(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}

/// The list of this machine alone would replace the names of the other API servers.
#[tokio::test]
async fn published_hosts_are_not_replaced_if_they_cannot_be_read() {
    let settings = Settings::example_shared();
    let (listener, client) = connect_listener().await;
    let responses = [("403 Forbidden", failure(403, "Forbidden"))];
    let hosts = ["cp2".to_owned()];
    let published = publish_cluster_config(&client, &settings, &hosts);
    let (published, methods) = tokio::join!(published, serve(listener, &responses));
    let error = published.unwrap_err().to_string();
    assert!(error.contains("kubeadm-config"), "{error}");
    assert_eq!(methods, ["GET"]);
}

/// The settings of this machine may have an issuer that another one has removed.
#[tokio::test]
async fn settings_are_not_known_as_the_newest_if_the_published_ones_cannot_be_read() {
    let settings = Settings::example_shared();
    let (listener, client) = connect_listener().await;
    let responses = [("403 Forbidden", failure(403, "Forbidden"))];
    let found = find_newer_settings(&client, &settings, GivenOptions::default());
    let (found, methods) = tokio::join!(found, serve(listener, &responses));
    assert!(found.unwrap_err().to_string().contains("kubeadm-config"));
    assert_eq!(methods, ["GET"]);
}

fn settings_with_issuer(url: &str) -> Settings {
    Settings {
        token_issuers: vec![json!({"issuer": {"url": url}})],
        ..Settings::example_shared()
    }
}

fn published_map(cluster: &Settings, version: &str) -> Value {
    let mut map = published::cluster_config(cluster, &[], &cluster.token_issuers);
    map["metadata"]["resourceVersion"] = version.into();
    map
}

/// Only the list that the cluster has then is overwritten, also in a map that is broken
/// otherwise.
#[tokio::test]
async fn command_that_changes_token_issuers_records_those_of_the_cluster() {
    let cluster = settings_with_issuer("https://newer");
    let whole = published_map(&cluster, "1");
    let mut broken = whole.clone();
    broken["data"]["ClusterConfiguration"] = "broken".into();
    let known = Settings {
        replaced_issuers: Some(Vec::new()),
        ..settings_with_issuer("https://given")
    };
    let recorded = Settings {
        replaced_issuers: Some(cluster.token_issuers),
        ..known.clone()
    };
    assert!(list_changes(&known, &recorded).is_empty());
    for (map, changes_issuers, expected) in [
        (&whole, true, Some(&recorded)),
        (&broken, true, Some(&recorded)),
        // A later command without the option keeps the record.
        (&whole, false, None),
    ] {
        let given = GivenOptions {
            changes_issuers,
            ..GivenOptions::default()
        };
        let (listener, client) = connect_listener().await;
        let responses = [("200 OK", map.clone())];
        let found = find_newer_settings(&client, &known, given);
        let (found, _) = tokio::join!(found, serve(listener, &responses));
        assert_eq!(found.unwrap().as_ref(), expected, "{changes_issuers} {map}");
    }
}

/// Another machine removes an issuer between the reading and the writing of this one.
#[tokio::test]
async fn published_issuers_stay_if_the_command_does_not_change_them() {
    let stored = settings_with_issuer("https://stolen");
    let newer = published_map(&settings_with_issuer("https://newer"), "2");
    let responses = [
        ("200 OK", published_map(&stored, "1")),
        ("409 Conflict", failure(409, "Conflict")),
        ("200 OK", newer.clone()),
        ("200 OK", newer),
    ];
    let (listener, client) = connect_listener().await;
    let published = publish_cluster_config(&client, &stored, &[]);
    let (published, requests) = tokio::join!(published, serve_requests(listener, &responses));
    published.unwrap();
    let methods: Vec<_> = requests.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH", "GET", "PATCH"]);
    let written: ConfigMap = serde_json::from_str(&requests[3].1).unwrap();
    let issuers = published::read_issuers(&written).unwrap();
    assert_eq!(issuers, settings_with_issuer("https://newer").token_issuers);
}

/// Otherwise the map that another machine creates at the same time would be overwritten.
#[tokio::test]
async fn published_issuers_stay_if_another_machine_creates_the_map_meanwhile() {
    let stored = settings_with_issuer("https://stolen");
    let newer = published_map(&settings_with_issuer("https://newer"), "2");
    let responses = [
        ("404 Not Found", failure(404, "NotFound")),
        ("409 Conflict", failure(409, "AlreadyExists")),
        ("200 OK", newer.clone()),
        ("200 OK", newer),
    ];
    let (listener, client) = connect_listener().await;
    let published = publish_cluster_config(&client, &stored, &[]);
    let (published, requests) = tokio::join!(published, serve_requests(listener, &responses));
    published.unwrap();
    let methods: Vec<_> = requests.iter().map(|(method, _)| method.as_str()).collect();
    assert_eq!(methods, ["GET", "POST", "GET", "PATCH"]);
    assert!(!requests[3].1.contains("stolen"), "{}", requests[3].1);
}

/// A command that ended early is continued after another machine has published others.
#[tokio::test]
async fn issuers_are_not_published_over_those_of_another_machine() {
    let stored = Settings {
        replaced_issuers: Some(Vec::new()),
        ..settings_with_issuer("https://stolen")
    };
    let map = published_map(&settings_with_issuer("https://newer"), "2");
    let (listener, client) = connect_listener().await;
    let responses = [("200 OK", map)];
    let published = publish_cluster_config(&client, &stored, &[]);
    let (published, methods) = tokio::join!(published, serve(listener, &responses));
    let error = published.unwrap_err().to_string();
    for url in ["https://stolen", "https://newer"] {
        assert!(error.contains(url), "{error}");
    }
    assert_eq!(methods, ["GET"]);
}

/// Two machines print a certificate key each, and the Secret has the keys of the last one that
/// was printed.
#[tokio::test]
async fn object_that_another_machine_creates_meanwhile_is_changed() {
    let (listener, client) = connect_listener().await;
    let desired = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "kube-system"},
    });
    let responses = [
        ("404 Not Found", failure(404, "NotFound")),
        ("409 Conflict", failure(409, "AlreadyExists")),
        ("200 OK", desired.clone()),
    ];
    let ensured = ensure_object(client.namespaced::<ConfigMap>("kube-system"), &desired);
    let (ensured, methods) = tokio::join!(ensured, serve(listener, &responses));
    ensured.unwrap();
    assert_eq!(methods, ["PATCH", "POST", "PATCH"]);
}
