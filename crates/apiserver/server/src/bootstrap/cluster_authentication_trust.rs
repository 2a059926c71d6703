//! The ConfigMap `extension-apiserver-authentication`: extension servers learn from it how API
//! servers authenticate requests.
//!
//! Each server adds its own CAs and names to those of the others, as upstream: during the rotation
//! of a CA, servers with the old and with the new file are both trusted. An administrator who
//! withdraws a CA deletes the ConfigMap, and the servers write it again within a minute.

use super::{create_missing, find_object, find_resource};
use crate::options::ServerOptions;
use crate::server::Server;
use api_meta::ApiError;
use apiserver_authn::combine_ca_bundles;
use apiserver_registry::{Mode, Update, Write};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
const FRONT_PROXY_CA: &str = "requestheader-client-ca-file";
/// Lists of the front proxies, each a JSON text.
const LISTS: [&str; 4] = [
    "requestheader-allowed-names",
    "requestheader-username-headers",
    "requestheader-group-headers",
    "requestheader-extra-headers-prefix",
];
/// Upstream writes this list only if it has an entry, unlike the others.
const UID_HEADERS: &str = "requestheader-uid-headers";
/// Interval between checks of the files and the ConfigMap, as upstream.
const INTERVAL: Duration = Duration::from_secs(60);
/// Limit of a ConfigMap's data, in bytes.
const MAX_SIZE: usize = 1024 * 1024;

/// Adds the authentication info of this server to the ConfigMap.
///
/// # Errors
/// The store can't be reached.
pub async fn ensure_authentication_info(
    server: &Server,
    options: &ServerOptions,
) -> Result<(), ApiError> {
    let resource = find_resource("", "configmaps")?;
    let own = read_authentication_info(options);
    let now = Timestamp::now();
    let Some(known) = find_object(server, resource, NAMESPACE, NAME) else {
        let data = combine_authentication_info(&Map::new(), &own, now);
        let object = json!({"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": data});
        return create_missing(server, resource, object).await;
    };
    if is_complete(&known, &own, now) {
        return Ok(());
    }
    // From the stored object, because another server may have added its own since.
    let change = move |old: &Value| {
        let mut new = old.clone();
        new["data"] = combine_authentication_info(&read_data(old), &own, now).into();
        Ok(new)
    };
    let mut write = Write::internal(resource, NAMESPACE, NAME);
    let update = Update {
        change: &change,
        replaces: false,
        mode: Mode::Raw,
    };
    server.registry.update(&mut write, &update).await?;
    tracing::info!(
        configmap = NAME,
        "authentication info for extension servers updated"
    );
    Ok(())
}

/// Keeps the ConfigMap in step with the CA files until the server stops.
pub async fn maintain_authentication_info(server: Arc<Server>, options: ServerOptions) {
    while server
        .stopping
        .run_until_cancelled(tokio::time::sleep(INTERVAL))
        .await
        .is_some()
    {
        if let Err(error) = ensure_authentication_info(&server, &options).await {
            tracing::warn!(
                %error, configmap = NAME, retry_after = ?INTERVAL,
                "failed to update the ConfigMap, retrying"
            );
        }
    }
}

/// Reads the authentication info of this server, in the form of the ConfigMap's data.
fn read_authentication_info(options: &ServerOptions) -> Map<String, Value> {
    let mut data = Map::new();
    // A file that is being replaced is read in the next round.
    let read = |path: &PathBuf| {
        Value::String(base_task::blocking(|| std::fs::read_to_string(path)).unwrap_or_default())
    };
    if let Some(ca) = &options.client_ca_file {
        data.insert(CLIENT_CA.into(), read(ca));
    }
    if let Some(ca) = &options.requestheader_client_ca_file {
        data.insert(FRONT_PROXY_CA.into(), read(ca));
        let lists = [
            &options.requestheader_allowed_names,
            &options.requestheader_username_headers,
            &options.requestheader_group_headers,
            &options.requestheader_extra_headers_prefix,
        ];
        for (key, list) in LISTS.into_iter().zip(lists) {
            data.insert(key.into(), encode_list(list));
        }
        let uid_headers = &options.requestheader_uid_headers;
        data.insert(UID_HEADERS.into(), encode_list(uid_headers));
    }
    data
}

fn read_data(config_map: &Value) -> Map<String, Value> {
    config_map["data"].as_object().cloned().unwrap_or_default()
}

fn is_complete(config_map: &Value, own: &Map<String, Value>, now: Timestamp) -> bool {
    let known = read_data(config_map);
    combine_authentication_info(&known, own, now) == known
}

/// Returns the authentication info of both. If they exceed the size of a ConfigMap, those of
/// this server only; the other servers add theirs again.
fn combine_authentication_info(
    known: &Map<String, Value>,
    own: &Map<String, Value>,
    now: Timestamp,
) -> Map<String, Value> {
    let combined = merge_authentication_info(known, own, now);
    let size: usize = combined
        .iter()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    match size > MAX_SIZE {
        true => merge_authentication_info(&Map::new(), own, now),
        false => combined,
    }
}

fn merge_authentication_info(
    known: &Map<String, Value>,
    own: &Map<String, Value>,
    now: Timestamp,
) -> Map<String, Value> {
    let bundle = |key| combine_ca_bundles(&[read_text(known, key), read_text(own, key)], now);
    let mut data = Map::new();
    let client_ca = bundle(CLIENT_CA);
    if !client_ca.is_empty() {
        data.insert(CLIENT_CA.into(), client_ca.into());
    }
    let front_proxy_ca = bundle(FRONT_PROXY_CA);
    // Without a CA no front proxy is trusted, whatever its headers.
    if front_proxy_ca.is_empty() {
        return data;
    }
    data.insert(FRONT_PROXY_CA.into(), front_proxy_ca.into());
    for key in LISTS.into_iter().chain([UID_HEADERS]) {
        let mut list = decode_list(read_text(known, key));
        for entry in decode_list(read_text(own, key)) {
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
        if key != UID_HEADERS || !list.is_empty() {
            data.insert(key.into(), encode_list(&list));
        }
    }
    data
}

fn read_text<'a>(data: &'a Map<String, Value>, key: &str) -> &'a str {
    data.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Extension servers parse these values as JSON lists within the text.
fn encode_list(list: &[String]) -> Value {
    Value::String(json!(list).to_string())
}

/// Returns the entries of a list. A text that is no list, which only a user can have written, has
/// none.
fn decode_list(text: &str) -> Vec<String> {
    let list: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    let mut unique = Vec::with_capacity(list.len());
    for entry in list {
        if !unique.contains(&entry) {
            unique.push(entry);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn certificate() -> String {
        let certificate = CertificateParams::default()
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap();
        certificate.pem().replace("\r\n", "\n")
    }

    fn data(tree: Value) -> Map<String, Value> {
        tree.as_object().unwrap().clone()
    }

    fn combine(known: &Value, own: &Value) -> Value {
        let now = Timestamp::now();
        Value::Object(combine_authentication_info(
            &data(known.clone()),
            &data(own.clone()),
            now,
        ))
    }

    /// Returns the authentication info of a server with front proxies.
    fn build_info(client_ca: &str, proxy_ca: &str, names: &str, uid_headers: &str) -> Value {
        json!({"client-ca-file": client_ca, "requestheader-client-ca-file": proxy_ca,
            "requestheader-allowed-names": names,
            "requestheader-username-headers": r#"["X-Remote-User"]"#,
            "requestheader-group-headers": r#"["X-Remote-Group"]"#,
            "requestheader-extra-headers-prefix": r#"["X-Remote-Extra-"]"#,
            "requestheader-uid-headers": uid_headers})
    }

    fn without_uid_headers(mut info: Value) -> Value {
        info.as_object_mut().unwrap().remove(UID_HEADERS);
        info
    }

    #[test]
    fn servers_add_their_info_to_that_of_others() {
        let (old, new, proxy) = (certificate(), certificate(), certificate());
        let both = format!("{old}{new}");
        let a = build_info(&old, &proxy, r#"["a"]"#, "[]");
        let b = build_info(&new, &proxy, r#"["b","a"]"#, r#"["X-Remote-Uid"]"#);
        let without_proxy = json!({"client-ca-file": old});
        for (case, known, own, expect) in [
            ("new", json!({}), &a, without_uid_headers(a.clone())),
            ("same", a.clone(), &a, without_uid_headers(a.clone())),
            (
                "other",
                a.clone(),
                &b,
                build_info(&both, &proxy, r#"["a","b"]"#, r#"["X-Remote-Uid"]"#),
            ),
            (
                "no front proxy",
                json!({}),
                &without_proxy,
                without_proxy.clone(),
            ),
            ("only another's front proxy", b.clone(), &json!({}), {
                build_info(&new, &proxy, r#"["b","a"]"#, r#"["X-Remote-Uid"]"#)
            }),
            (
                "keys of users",
                json!({"x": "y"}),
                &without_proxy,
                without_proxy.clone(),
            ),
            (
                "broken values",
                build_info("no PEM", "", "{", "7"),
                &a,
                without_uid_headers(a.clone()),
            ),
            (
                "file that is being written",
                a.clone(),
                &build_info("", "", r#"["a"]"#, "[]"),
                without_uid_headers(a.clone()),
            ),
        ] {
            let combined = combine(&known, own);
            assert_eq!(combined, expect, "{case}");
            assert_eq!(combine(&combined, own), combined, "{case}");
        }
    }

    #[test]
    fn info_that_is_too_large_is_replaced() {
        let own = json!({"client-ca-file": certificate()});
        let known = build_info(
            "",
            &certificate(),
            &json!(["x".repeat(MAX_SIZE)]).to_string(),
            "[]",
        );
        assert_eq!(combine(&known, &own), own);
    }
}
