//! The KubeletConfiguration file, `kubelet.config.k8s.io/v1beta1`, and the drop-in directory that
//! overrides it.
//!
//! Every field of upstream's is known by its path: it is read, or it is a row of
//! [`UPSTREAM_FIELDS`]. A name unknown to upstream is an error that quotes it and the nearest known
//! one.

use super::unsupported::UPSTREAM_FIELDS;
use anyhow::Context;
use base_cli::{FalseMeans, judge_fields};
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The fields that are honoured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs)]
pub struct Configuration {
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub healthz_port: Option<u16>,
    pub healthz_bind_address: Option<IpAddr>,
    pub authentication: Authentication,
    pub authorization: Authorization,
    #[serde(rename = "clusterDNS")]
    pub cluster_dns: Option<Vec<String>>,
    pub cluster_domain: Option<String>,
    pub static_pod_path: Option<PathBuf>,
    pub pod_logs_dir: Option<PathBuf>,
    pub max_pods: Option<u32>,
    pub pod_pids_limit: Option<i64>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub tls_min_version: Option<String>,
    pub tls_cipher_suites: Option<Vec<String>>,
    pub enable_debugging_handlers: Option<bool>,
    pub protect_kernel_defaults: Option<bool>,
    pub fail_swap_on: Option<bool>,
    pub cgroup_root: Option<String>,
    pub cgroup_driver: Option<String>,
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: Option<bool>,
    pub resolv_conf: Option<PathBuf>,
    pub node_status_update_frequency: Option<String>,
    pub node_status_report_frequency: Option<String>,
    pub node_lease_duration_seconds: Option<i32>,
    pub container_log_max_size: Option<String>,
    pub container_log_max_files: Option<usize>,
    pub container_runtime_endpoint: Option<String>,
    pub register_node: Option<bool>,
    pub register_with_taints: Option<Vec<Taint>>,
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub allowed_unsafe_sysctls: Option<Vec<String>>,
    pub seccomp_default: Option<bool>,
    pub rotate_certificates: Option<bool>,
    #[serde(rename = "serverTLSBootstrap")]
    pub server_tls_bootstrap: Option<bool>,
}

/// Authentication of clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Authentication {
    pub x509: X509,
    pub webhook: TokenWebhook,
    pub anonymous: Anonymous,
}

/// Client certificates.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct X509 {
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<PathBuf>,
}

/// Bearer tokens, authenticated by TokenReview.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct TokenWebhook {
    pub enabled: Option<bool>,
    #[serde(rename = "cacheTTL")]
    pub cache_ttl: Option<String>,
}

/// Requests without credentials.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Anonymous {
    pub enabled: Option<bool>,
}

/// Authorization of clients.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Authorization {
    pub mode: Option<String>,
    pub webhook: AccessWebhook,
}

/// SubjectAccessReviews, with the lifetimes of cached decisions.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct AccessWebhook {
    #[serde(rename = "cacheAuthorizedTTL")]
    pub cache_authorized_ttl: Option<String>,
    #[serde(rename = "cacheUnauthorizedTTL")]
    pub cache_unauthorized_ttl: Option<String>,
}

/// Returns the paths of the fields that are honoured, such as `authentication.webhook.enabled`.
pub fn honoured_fields() -> Vec<String> {
    fn collect_leaves(value: &Value, path: &str, into: &mut Vec<String>) {
        match value.as_object() {
            Some(map) => map
                .iter()
                .for_each(|(name, value)| collect_leaves(value, &join_path(path, name), into)),
            None => into.push(path.to_owned()),
        }
    }
    let mut fields = Vec::new();
    // The defaults have all fields; unset ones are null.
    collect_leaves(
        &serde_json::to_value(Configuration::default()).unwrap_or_default(),
        "",
        &mut fields,
    );
    fields
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Reads and checks the file and the drop-in files; returns the fields, and the merged document as
/// written.
///
/// # Errors
/// An invalid file, with the file's name and the place.
pub fn read_configuration(
    file: Option<&Path>,
    folder: Option<&Path>,
) -> anyhow::Result<(Configuration, Value)> {
    let mut all = serde_json::json!({});
    for path in file
        .map(Path::to_owned)
        .into_iter()
        .chain(folder.map(list_drop_ins).transpose()?.unwrap_or_default())
    {
        let shown = path.display();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("can't read configuration {shown}"))?;
        let value: Value = serde_yaml::from_str(&text)
            .map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
        check_document(&value).map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
        // Parses the text, not the merged value: its errors name the field and the line.
        let _: Configuration = serde_yaml::from_str(&text)
            .map_err(|e| anyhow::anyhow!("configuration {shown}: {e}"))?;
        merge_values(&mut all, value);
    }
    let read = Configuration::deserialize(&all).context("configuration")?;
    Ok((read, all))
}

/// Lists the `.conf` files of the directory and its subdirectories; later files override earlier
/// ones.
fn list_drop_ins(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let shown = folder.display();
    let entries = std::fs::read_dir(folder)
        .with_context(|| format!("can't read the folder --config-dir {shown}"))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|e| e.map(|e| e.path()))
        .collect::<std::io::Result<_>>()?;
    // Drop-ins override one another in the order of their names, as systemd's do.
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        // Upstream walks the whole tree.
        if path.is_dir() {
            found.extend(list_drop_ins(&path)?);
        } else if path.extension().is_some_and(|e| e == "conf") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Merges maps recursively; replaces everything else.
fn merge_values(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            more.into_iter().for_each(|(name, value)| {
                merge_values(into.entry(name).or_insert(Value::Null), value)
            });
        }
        (into, more) => *into = more,
    }
}

fn check_document(value: &Value) -> anyhow::Result<()> {
    let map = value
        .as_object()
        .ok_or_else(|| anyhow::anyhow!("not a KubeletConfiguration object"))?;
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    let kind = (text("apiVersion"), text("kind"));
    if kind != ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration") {
        anyhow::bail!(
            "apiVersion and kind are {kind:?}, not kubelet.config.k8s.io/v1beta1 KubeletConfiguration"
        );
    }
    // Known settings without an effect are taken out first, so that what remains is either honoured
    // or unknown.
    let mut rest = value.clone();
    let judged = judge_fields(&mut rest, UPSTREAM_FIELDS, FalseMeans::Set);
    for warning in judged.warnings {
        tracing::warn!("configuration field {warning}");
    }
    if !judged.refusals.is_empty() {
        anyhow::bail!("field {}", judged.refusals.join("; field "));
    }
    let honoured = honoured_fields();
    for (name, value) in rest
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str()))
    {
        check_field(name, value, &honoured)?;
    }
    Ok(())
}

fn check_field(path: &str, value: &Value, honoured: &[String]) -> anyhow::Result<()> {
    if honoured.iter().any(|name| name == path) {
        return Ok(());
    }
    let within = format!("{path}.");
    let all = || {
        UPSTREAM_FIELDS
            .iter()
            .map(|row| row.name)
            .chain(honoured.iter().map(String::as_str))
    };
    if !all().any(|name| name.starts_with(&within)) {
        let nearest = base_cli::nearest_word(path, all()).unwrap_or_default();
        anyhow::bail!("unknown field {path:?}; the nearest known one is {nearest:?}");
    }
    match value {
        Value::Object(map) => map
            .iter()
            .try_for_each(|(name, value)| check_field(&join_path(path, name), value, honoured)),
        Value::Null => Ok(()),
        _ => anyhow::bail!("{path} must be an object"),
    }
}
