//! Kubeconfig files and the service account of a pod.
//!
//! Unknown fields are ignored, because other programs store theirs in the same file. Relative paths
//! are relative to the file. Users with `exec` or `auth-provider` are rejected by name.

use std::path::{Path, PathBuf};

use base64::Engine;
use serde::Deserialize;

use base_tls::TlsError;

use crate::config::{Config, FixedContent, Identity, KubeconfigFile, Source};
use crate::error::{Error, Result};

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Name of the extension of a cluster with the URLs of its further API servers, `servers: [URL]`.
/// Other programs connect to the server of the cluster only.
pub const SERVERS_EXTENSION: &str = "ironclad.local/servers";

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
    extensions: Option<Vec<NamedExtension>>,
}

/// Data of a program in a kubeconfig.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct NamedExtension {
    name: String,
    #[serde(default)]
    extension: serde_yaml::Value,
}

/// The content of the extension [`SERVERS_EXTENSION`].
#[derive(Debug, Deserialize)]
struct ServersExtension {
    servers: Vec<String>,
}

impl KubeconfigCluster {
    /// Returns the URLs of the further API servers.
    fn read_further_servers(&self) -> Result<Vec<String>, String> {
        let mut extensions = self.extensions.iter().flatten();
        let Some(found) = extensions.find(|named| named.name == SERVERS_EXTENSION) else {
            return Ok(Vec::new());
        };
        let parsed = ServersExtension::deserialize(&found.extension);
        let parsed = parsed.map_err(|error| format!("its {SERVERS_EXTENSION}: {error}"))?;
        let servers = parsed.servers.iter();
        // As that of the cluster: a trailing slash would double in every path.
        Ok(servers
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect())
    }
}

/// Reads the clusters of a kubeconfig in their order. Its users and contexts are ignored.
///
/// # Errors
/// The text is no kubeconfig.
pub fn read_clusters(text: &str) -> Result<Vec<KubeconfigCluster>> {
    let clusters = parse_file(text)?.clusters.into_iter().flatten();
    Ok(clusters.map(|named| named.cluster).collect())
}

fn parse_file(text: &str) -> Result<File> {
    serde_yaml::from_str(text)
        .map_err(|error| Error::Config(format!("it is no kubeconfig: {error}")))
}

/// Reads the cluster of a kubeconfig: the only one, or that of its current context. Users are
/// ignored. Returns None if there is none.
///
/// # Errors
/// The text is no kubeconfig.
pub fn read_cluster(text: &str) -> Result<Option<KubeconfigCluster>> {
    let file = parse_file(text)?;
    let mut clusters = file.clusters.unwrap_or_default();
    if clusters.len() <= 1 {
        return Ok(clusters.pop().map(|named| named.cluster));
    }
    let mut contexts = file.contexts.into_iter().flatten();
    let current = file.current_context.as_ref();
    let current = contexts.find(|named| Some(&named.name) == current);
    let named = current.and_then(|context| {
        let mut clusters = clusters.into_iter();
        clusters.find(|named| named.name == context.context.cluster)
    });
    Ok(named.map(|named| named.cluster))
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
        KubeconfigFile::new(path.as_ref(), None).load()
    }

    /// Loads a named context of a kubeconfig file.
    pub fn from_kubeconfig_context(path: impl AsRef<Path>, context: &str) -> Result<Self> {
        KubeconfigFile::new(path.as_ref(), Some(context)).load()
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

impl KubeconfigFile {
    fn new(path: &Path, context: Option<&str>) -> Self {
        Self {
            path: path.to_owned(),
            context: context.map(str::to_owned),
            fixed: FixedContent::default(),
        }
    }

    fn load(&self) -> Result<Config> {
        let path = &self.path;
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::Config(format!(
                "cannot read kubeconfig {}: {error}",
                path.display()
            ))
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut config =
            parse_kubeconfig(&text, folder, self.context.as_deref()).map_err(|problem| {
                Error::Config(format!("kubeconfig {}: {problem}", path.display()))
            })?;
        let fixed = FixedContent::from_loaded(&config);
        config.kubeconfig = Some(Self {
            fixed,
            ..self.clone()
        });
        Ok(config)
    }
}

/// Returns the CA and the client certificate of a configuration. If a kubeconfig embeds them, they
/// are read from it again.
///
/// # Errors
/// The kubeconfig can't be read, no longer embeds what it embedded, or differs in anything else.
pub(crate) fn read_sources(
    config: &Config,
) -> Result<(Option<Source>, Option<Identity>), TlsError> {
    let (mut ca, mut identity) = (config.ca.clone(), config.identity.clone());
    let Some(file) = &config.kubeconfig else {
        return Ok((ca, identity));
    };
    let now = file
        .load()
        .map_err(|error| TlsError::Refused(error.to_string()))?;
    let refused = |change: &str| {
        let path = file.path.display();
        TlsError::Refused(format!("kubeconfig {path} {change}, which needs a restart"))
    };
    let fixed = FixedContent::from_loaded(&now);
    // If they are missing, the client must not fall back to the system's CAs or to anonymous
    // access.
    if ca.as_ref().is_some_and(Source::is_inline) {
        let embedded = now.ca.filter(Source::is_inline);
        ca = Some(embedded.ok_or_else(|| refused("no longer embeds a certificate authority"))?);
    }
    if identity.as_ref().is_some_and(Identity::is_inline) {
        let embedded = now.identity.filter(Identity::is_inline);
        identity = Some(embedded.ok_or_else(|| refused("no longer embeds a client certificate"))?);
    }
    // Compared with the loaded content, not with `config`, whose server a caller may have replaced.
    match describe_change(&file.fixed, &fixed) {
        Some(change) => Err(refused(change)),
        None => Ok((ca, identity)),
    }
}

fn describe_change(was: &FixedContent, now: &FixedContent) -> Option<&'static str> {
    let same_check = now.tls_server_name == was.tls_server_name && now.insecure == was.insecure;
    [
        (now.server == was.server, "names another server"),
        (same_check, "verifies the server in another way"),
        (now.token == was.token, "has another token"),
        (
            now.impersonate == was.impersonate,
            "impersonates another user",
        ),
        (now.files == was.files, "names other certificate files"),
    ]
    .into_iter()
    .find_map(|(same, change)| (!same).then_some(change))
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
    let further = cluster.read_further_servers()?;
    config
        .set_further_servers(further)
        .map_err(|problem| format!("cluster {:?}: {problem}", context.cluster))?;
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
    fn cluster_is_the_only_one_or_that_of_the_current_context() {
        let one = "clusters:\n- cluster: {server: 'https://a'}\n";
        let two = format!("{one}- name: b\n  cluster: {{server: 'https://b'}}\n");
        let context = "contexts: [{name: c, context: {cluster: b, user: u}}]\n";
        for (text, expected) in [
            (one.to_owned(), Some("https://a")),
            (two.clone(), None),
            (
                format!("{two}{context}current-context: c"),
                Some("https://b"),
            ),
            (format!("{two}{context}current-context: d"), None),
            ("{}".to_owned(), None),
        ] {
            let all = read_clusters(&text).unwrap();
            assert_eq!(all.len(), text.matches("server:").count(), "{text}");
            let found = read_cluster(&text).unwrap();
            let server = found.as_ref().map(|cluster| cluster.server.as_str());
            assert_eq!(server, expected, "{text}");
        }
        assert!(read_cluster("[").is_err());
    }

    #[test]
    fn further_servers_are_those_of_the_extension_with_the_scheme_of_the_first() {
        let extension = |content: &str| {
            format!(
                "{{server: 'https://a', extensions: [{{name: other, extension: {{servers: 1}}}}, \
                 {{name: {SERVERS_EXTENSION}, extension: {content}}}]}}"
            )
        };
        let config = parse(
            &extension("{servers: ['https://b:6443/', 'https://a', 'https://[fd00::1]:6443']}"),
            "{}",
        );
        let servers = config.unwrap().servers;
        assert_eq!(
            servers,
            ["https://a", "https://b:6443", "https://[fd00::1]:6443"]
        );
        let many: Vec<_> = (0..32).map(|n| format!("'https://h{n}'")).collect();
        for (content, want) in [
            ("{servers: ['http://b']}".to_owned(), "scheme"),
            ("{servers: [b]}".to_owned(), "not an address"),
            ("{servers: b}".to_owned(), SERVERS_EXTENSION),
            ("{}".to_owned(), SERVERS_EXTENSION),
            (format!("{{servers: [{}]}}", many.join(", ")), "more than"),
        ] {
            let problem = parse(&extension(&content), "{}").unwrap_err();
            assert!(problem.contains(want), "{content}: {problem}");
        }
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
