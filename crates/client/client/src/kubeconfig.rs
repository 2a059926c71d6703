//! Kubeconfig files and the service account of a pod.
//!
//! Unknown fields are ignored, because other programs store theirs in the same file. Relative paths
//! are relative to the file. Users with `exec` or `auth-provider` are rejected by name.

use std::path::{Path, PathBuf};

use base64::Engine;
use serde::Deserialize;

use crate::config::{Config, Identity, Source};
use crate::error::{Error, Result};

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    // kubeadm's discovery files have an empty one.
    #[serde(default)]
    name: String,
    cluster: KubeconfigCluster,
}

#[derive(Debug, Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: Option<User>,
}

#[derive(Debug, Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

/// A cluster of a kubeconfig, as it is written there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct KubeconfigCluster {
    /// URL of the API server.
    pub server: String,
    /// Path of the CA certificates in PEM.
    pub certificate_authority: Option<PathBuf>,
    /// CA certificates in PEM, in base64.
    pub certificate_authority_data: Option<String>,
    /// Name in the server's certificate, if it is not the host of the URL.
    pub tls_server_name: Option<String>,
    /// Connect to servers with any certificate.
    pub insecure_skip_tls_verify: bool,
}

/// Reads the clusters of a kubeconfig in their order. Its users and contexts are ignored.
///
/// # Errors
/// The text is no kubeconfig.
pub fn read_clusters(text: &str) -> Result<Vec<KubeconfigCluster>> {
    let file: File = serde_yaml::from_str(text)
        .map_err(|error| Error::Config(format!("it is no kubeconfig: {error}")))?;
    let clusters = file.clusters.into_iter().flatten();
    Ok(clusters.map(|named| named.cluster).collect())
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    #[serde(rename = "as")]
    impersonate: Option<String>,
    exec: Option<serde_yaml::Value>,
    auth_provider: Option<serde_yaml::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

impl Config {
    /// Loads the current context of a kubeconfig file.
    pub fn from_kubeconfig(path: impl AsRef<Path>) -> Result<Self> {
        load_kubeconfig(path.as_ref(), None)
    }

    /// Loads a named context of a kubeconfig file.
    pub fn from_kubeconfig_context(path: impl AsRef<Path>, context: &str) -> Result<Self> {
        load_kubeconfig(path.as_ref(), Some(context))
    }

    /// Loads the service account of the pod in which this process runs.
    pub fn in_cluster() -> Result<Self> {
        load_service_account()
    }

    /// Loads the given kubeconfig, or else the pod's service account.
    pub fn from_kubeconfig_or_in_cluster(path: Option<&Path>) -> Result<Self> {
        // Components in pods are started without the flag.
        path.map_or_else(Self::in_cluster, Self::from_kubeconfig)
    }
}

fn load_kubeconfig(path: &Path, context: Option<&str>) -> Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::Config(format!(
            "cannot read kubeconfig {}: {error}",
            path.display()
        ))
    })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    parse_kubeconfig(&text, folder, context)
        .map_err(|problem| Error::Config(format!("kubeconfig {}: {problem}", path.display())))
}

fn parse_kubeconfig(text: &str, folder: &Path, context: Option<&str>) -> Result<Config, String> {
    let file: File = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let name = context
        .or(file.current_context.as_deref())
        .filter(|name| !name.is_empty())
        .ok_or("it has no current-context")?;
    let context = &file
        .contexts
        .iter()
        .flatten()
        .find(|entry| entry.name == name)
        .ok_or_else(|| format!("it has no context {name:?}"))?
        .context;
    let cluster = &file
        .clusters
        .iter()
        .flatten()
        .find(|entry| entry.name == context.cluster)
        .ok_or_else(|| format!("it has no cluster {:?}", context.cluster))?
        .cluster;
    let user = file
        .users
        .iter()
        .flatten()
        .find(|entry| entry.name == context.user)
        .and_then(|entry| entry.user.as_ref());
    build_config(cluster, user, context, folder)
}

fn build_config(
    cluster: &KubeconfigCluster,
    user: Option<&User>,
    context: &Context,
    folder: &Path,
) -> Result<Config, String> {
    if cluster.server.is_empty() {
        return Err(format!("cluster {:?} has no server", context.cluster));
    }
    // A trailing slash would double in every path.
    let mut config = Config::builder(cluster.server.trim_end_matches('/'));
    config.ca = data_or_file(
        cluster.certificate_authority_data.as_deref(),
        cluster.certificate_authority.as_deref(),
        folder,
        "certificate-authority-data",
    )?;
    config.tls_server_name.clone_from(&cluster.tls_server_name);
    config.insecure = cluster.insecure_skip_tls_verify;
    if let Some(namespace) = context.namespace.as_deref().filter(|name| !name.is_empty()) {
        namespace.clone_into(&mut config.namespace);
    }
    if let Some(user) = user {
        set_credentials(&mut config, user, folder)?;
    }
    Ok(config)
}

fn set_credentials(config: &mut Config, user: &User, folder: &Path) -> Result<(), String> {
    let certificate = data_or_file(
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
        folder,
        "client-certificate-data",
    )?;
    let key = data_or_file(
        user.client_key_data.as_deref(),
        user.client_key.as_deref(),
        folder,
        "client-key-data",
    )?;
    config.identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err("the user has a client certificate without a key".into()),
        (None, Some(_)) => return Err("the user has a client key without a certificate".into()),
    };
    config.token = match (&user.token_file, &user.token) {
        // The file wins over an inline token, since it can be rotated.
        (Some(path), _) => Some(Source::File(folder.join(path))),
        (None, Some(token)) if !token.is_empty() => {
            Some(Source::Inline(token.clone().into_bytes()))
        }
        _ => None,
    };
    config.impersonate.clone_from(&user.impersonate);
    // A plugin beside static credentials is tolerated: clientcmd would call it, but the static ones
    // suffice.
    let nothing = config.identity.is_none() && config.token.is_none();
    if nothing && (user.exec.is_some() || user.auth_provider.is_some()) {
        return Err(
            "users with exec or auth-provider are not supported; use a token or a client \
                    certificate"
                .into(),
        );
    }
    Ok(())
}

fn data_or_file(
    data: Option<&str>,
    file: Option<&Path>,
    folder: &Path,
    field: &str,
) -> Result<Option<Source>, String> {
    match (data.filter(|data| !data.is_empty()), file) {
        // Inline data win over the file, as in clientcmd.
        (Some(data), _) => base64::engine::general_purpose::STANDARD
            .decode(data.trim())
            .map(|bytes| Some(Source::Inline(bytes)))
            .map_err(|error| format!("{field} is not base64: {error}")),
        (None, Some(path)) if !path.as_os_str().is_empty() => {
            Ok(Some(Source::File(folder.join(path))))
        }
        _ => Ok(None),
    }
}

fn load_service_account() -> Result<Config> {
    let variable = |name: &str| {
        std::env::var(name).map_err(|_| {
            Error::Config(format!(
                "no kubeconfig given, and {name} is not set: this is not a pod"
            ))
        })
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    // IPv6 addresses need brackets in a URL, and the variable has none.
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let folder = Path::new(ACCOUNT);
    let mut config = Config::builder(format!("https://{host}:{port}"))
        .with_ca(Source::File(folder.join("ca.crt")))
        .with_token(Source::File(folder.join("token")));
    if let Ok(namespace) = std::fs::read_to_string(folder.join("namespace")) {
        namespace.trim().clone_into(&mut config.namespace);
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
current-context: c
clusters:
- name: k
  cluster: {server: 'https://127.0.0.1:6443/', certificate-authority: ca.crt, tls-server-name: kubernetes}
users:
- name: u
  user: {client-certificate-data: YWJj, client-key: /k.pem}
- name: t
  user: {tokenFile: tok}
contexts:
- name: c
  context: {cluster: k, user: u, namespace: dev}
- name: d
  context: {cluster: k, user: t}
- name: e
  context: {cluster: none, user: t}
";

    #[test]
    fn context_selects_cluster_user_and_namespace() {
        let config = parse_kubeconfig(TEXT, Path::new("/d"), None).unwrap();
        assert_eq!(config.server, "https://127.0.0.1:6443");
        assert_eq!(config.ca, Some(Source::File("/d/ca.crt".into())));
        assert_eq!(config.tls_server_name.as_deref(), Some("kubernetes"));
        assert_eq!(config.namespace, "dev");
        let identity = config.identity.unwrap();
        assert_eq!(identity.certificate, Source::Inline(b"abc".to_vec()));
        assert_eq!(identity.key, Source::File("/k.pem".into()));
        let config = parse_kubeconfig(TEXT, Path::new("/d"), Some("d")).unwrap();
        assert_eq!(config.token, Some(Source::File("/d/tok".into())));
    }

    #[test]
    fn clusters_are_read_without_a_context() {
        let text = "clusters:\n- cluster: {server: 'https://a'}\n- name: b\n  cluster: {server: 'https://b'}\n";
        let found = read_clusters(text).unwrap();
        let servers: Vec<_> = found
            .iter()
            .map(|cluster| cluster.server.as_str())
            .collect();
        assert_eq!(servers, ["https://a", "https://b"]);
        assert_eq!(read_clusters("{}").unwrap(), []);
        assert!(read_clusters("[").is_err());
    }

    #[test]
    fn missing_cluster_and_context_are_named() {
        let cases = [
            (Some("e"), "no cluster \"none\""),
            (Some("x"), "no context \"x\""),
        ];
        for (context, want) in cases {
            let problem = parse_kubeconfig(TEXT, Path::new("/d"), context).unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
    }

    /// Parses a kubeconfig with one cluster, one user and one context.
    fn parse(cluster: &str, user: &str) -> Result<Config, String> {
        let text = format!(
            "current-context: c\nclusters: [{{name: k, cluster: {cluster}}}]\n\
             users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
        );
        parse_kubeconfig(&text, Path::new("/d"), None)
    }

    #[test]
    fn inline_certificate_wins_over_a_file_and_a_token_file_over_a_token() {
        let cluster = "{server: 'https://h', certificate-authority: ca.crt, certificate-authority-data: YWJj}";
        let config = parse(cluster, "{token: inline, tokenFile: tok}").unwrap();
        assert_eq!(config.ca, Some(Source::Inline(b"abc".to_vec())));
        assert_eq!(config.token, Some(Source::File("/d/tok".into())));
    }

    #[test]
    fn plugin_is_rejected_unless_the_user_has_static_credentials() {
        let cluster = "{server: 'https://h'}";
        let plugin = "exec: {command: x, apiVersion: v1}";
        let problem = parse(cluster, &format!("{{{plugin}}}")).unwrap_err();
        assert!(problem.contains("exec"), "{problem}");
        assert!(parse(cluster, &format!("{{{plugin}, token: t}}")).is_ok());
    }

    #[test]
    fn half_a_client_certificate_and_broken_data_are_named() {
        for (cluster, user, want) in [
            (
                "{server: 'https://h'}",
                "{client-certificate: a.crt}",
                "without a key",
            ),
            (
                "{server: 'https://h'}",
                "{client-key: a.key}",
                "without a certificate",
            ),
            (
                "{server: 'https://h', certificate-authority-data: '%'}",
                "{}",
                "certificate-authority-data",
            ),
            ("{}", "{}", "has no server"),
        ] {
            let problem = parse(cluster, user).unwrap_err();
            assert!(problem.contains(want), "{problem}");
        }
    }
}
