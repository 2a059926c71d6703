//! Kubeconfig files with embedded certificates, so that one file can be copied elsewhere.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::Error;
use crate::files::{read_optional, write_private};

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
}

impl Kubeconfig<'_> {
    /// Writes the file with mode 0600 if its content differs; returns true if it was written.
    pub fn write(&self, path: &Path) -> Result<bool, Error> {
        let text = self.render_yaml()?;
        if read_optional(path)?.as_deref() == Some(text.as_str()) {
            return Ok(false);
        }
        write_private(path, text.as_bytes())?;
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
        Ok(format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: {cluster}\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {ca}\nusers:\n- name: {user}\n  user:\n    client-certificate-data: \
             {certificate}\n    client-key-data: {key}\ncontexts:\n- name: {user}@{cluster}\n  context:\n    \
             cluster: {cluster}\n    user: {user}\ncurrent-context: {user}@{cluster}\npreferences: {{}}\n"
        ))
    }
}

/// Encodes text as in the `-data` fields of a kubeconfig.
#[must_use]
pub fn encode_base64(text: &str) -> String {
    STANDARD.encode(text)
}

fn encode_file(path: &Path) -> Result<String, Error> {
    std::fs::read(path)
        .map(|data| STANDARD.encode(data))
        .map_err(|cause| Error::Io {
            path: path.to_owned(),
            cause,
        })
}
