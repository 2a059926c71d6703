//! Kubeconfig files with embedded certificates, so that one file can be copied elsewhere.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::files::{has_group, read_optional, write_for_group, write_private};

/// Name of the cluster in kubeconfigs.
pub(crate) const CLUSTER: &str = "ironclad";
/// Name of the extension with the further API servers, which the crate `client` reads. Other
/// programs ignore it.
const SERVERS_EXTENSION: &str = "ironclad.local/servers";

/// A further API server of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedServer {
    /// Name of its machine: letters, digits, hyphens and dots.
    pub name: String,
    /// Its URL, `https://host:port`.
    pub url: String,
}

/// Writes the administrator's kubeconfig with the files in the directory of certificates; returns
/// true if the file changed. Each further server is a context, and one of the list for clients that
/// fail over.
pub fn write_admin_kubeconfig(
    folder: &Path,
    path: &Path,
    server: &str,
    further: &[NamedServer],
) -> Result<bool, Error> {
    let authority = read_file(&folder.join("ca.crt"))?;
    Kubeconfig {
        cluster: CLUSTER,
        user: "kubernetes-admin",
        server,
        authority: &String::from_utf8_lossy(&authority),
        certificate: &folder.join("admin.crt"),
        key: &folder.join("admin.key"),
        further,
    }
    .write(path)
}

/// The content of a kubeconfig.
#[derive(Debug, Clone)]
pub struct Kubeconfig<'a> {
    /// Name of the cluster in the file.
    pub cluster: &'a str,
    /// Name of the user in the file.
    pub user: &'a str,
    /// URL of the API server, `https://host:port`.
    pub server: &'a str,
    /// The CA's certificate in PEM.
    pub authority: &'a str,
    /// Path of the client certificate.
    pub certificate: &'a Path,
    /// Path of the client key.
    pub key: &'a Path,
    /// Further API servers of the cluster.
    pub further: &'a [NamedServer],
}

impl Kubeconfig<'_> {
    /// Writes the file if its content differs; returns true if it was written. Only its owner can
    /// read it.
    pub fn write(&self, path: &Path) -> Result<bool, Error> {
        self.write_for_group(path, None)
    }

    /// Writes the file as [`Self::write`]. The group, if there is one, can read it too.
    pub fn write_for_group(&self, path: &Path, group: Option<u32>) -> Result<bool, Error> {
        let text = self.render_yaml()?;
        let is_present = read_optional(path)?.as_deref() == Some(text.as_str());
        if is_present && group.is_none_or(|group| has_group(path, group)) {
            return Ok(false);
        }
        match group {
            Some(group) => write_for_group(path, text.as_bytes(), group)?,
            None => write_private(path, text.as_bytes())?,
        }
        Ok(true)
    }

    fn render_yaml(&self) -> Result<String, Error> {
        let Self {
            cluster,
            user,
            server,
            ..
        } = self;
        // Embedded and not by path: users copy this file to other machines.
        let ca = STANDARD.encode(self.authority);
        let certificate = encode_file(self.certificate)?;
        let key = encode_file(self.key)?;
        // No value needs quotes: names are those of this tool, the server is a URL, the rest is
        // base64.
        let (mut clusters, mut contexts) = (self.render_extension(), String::new());
        for NamedServer { name, url } in self.further {
            clusters.push_str(&format!(
                "- name: {cluster}-{name}\n  cluster:\n    server: {url}\n    certificate-authority-data: {ca}\n"
            ));
            contexts.push_str(&format!(
                "- name: {cluster}-{name}\n  context:\n    cluster: {cluster}-{name}\n    user: {user}\n"
            ));
        }
        Ok(format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {ca}\n{clusters}users:\n- name: {user}\n  user:\n    \
             client-certificate-data: {certificate}\n    client-key-data: {key}\ncontexts:\n\
             - name: {user}@{cluster}\n  context:\n    cluster: {cluster}\n    user: {user}\n{contexts}\
             current-context: {user}@{cluster}\npreferences: {{}}\n"
        ))
    }

    fn render_extension(&self) -> String {
        if self.further.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "    extensions:\n    - name: {SERVERS_EXTENSION}\n      extension:\n        servers:\n"
        );
        for server in self.further {
            text.push_str(&format!("        - {}\n", server.url));
        }
        text
    }
}

/// Encodes text as in the `-data` fields of a kubeconfig.
#[must_use]
pub fn encode_base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn encode_file(path: &Path) -> Result<String, Error> {
    read_file(path).map(|data| STANDARD.encode(data))
}

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|cause| Error::Io {
        path: path.to_owned(),
        cause,
    })
}
