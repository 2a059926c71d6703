//! A kubeconfig that a flag or the admission configuration names: the server of a callback, and the
//! credentials for servers.

use crate::credentials::Credentials;
use crate::endpoint::Endpoint;
use api_meta::tree::{flag, get, list, opt_text, text};
use apiserver_config::{ConfigFileError, read_config, read_file};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Fields of a cluster without an implementation.
const UNSUPPORTED: [&str; 3] = ["insecure-skip-tls-verify", "tls-server-name", "proxy-url"];

/// A kubeconfig. Without `Debug`, so that no log line has a key.
pub struct Kubeconfig {
    path: PathBuf,
    tree: Value,
}

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// The file can't be read or parsed.
    pub fn read_file(path: &Path) -> Result<Self, ConfigFileError> {
        Ok(Kubeconfig {
            path: path.into(),
            tree: read_config(path)?,
        })
    }

    /// Returns the server of the current context. Reads the file of its CA, if there is one.
    ///
    /// # Errors
    /// The context is incomplete, or the server is not verified.
    pub fn endpoint(&self) -> Result<Endpoint, ConfigFileError> {
        let wrong = |why| ConfigFileError::content(&self.path, why);
        let cluster = find_cluster(&self.tree).map_err(wrong)?;
        for field in UNSUPPORTED {
            if flag(cluster, field) || !text(cluster, field).is_empty() {
                return Err(wrong(format!(
                    "the field {field:?} of a cluster is not supported"
                )));
            }
        }
        let mut config = json!({"url": text(cluster, "server")});
        match (
            text(cluster, "certificate-authority-data"),
            text(cluster, "certificate-authority"),
        ) {
            ("", "") => {}
            ("", file) => {
                let bytes = read_file(&self.folder().join(file))?;
                config["caBundle"] = STANDARD.encode(bytes).into();
            }
            (data, _) => config["caBundle"] = data.into(),
        }
        Endpoint::parse(&config).map_err(wrong)
    }

    /// Returns the credentials of all users. Reads the files of their certificates.
    ///
    /// # Errors
    /// A file that can't be read, or a kind of credentials that is not implemented.
    pub fn credentials(&self) -> Result<Credentials, ConfigFileError> {
        let current = find_context(&self.tree).and_then(|context| opt_text(context, "user"));
        Credentials::parse(&self.tree, current, self.folder())
            .map_err(|why| ConfigFileError::content(&self.path, why))
    }

    /// Returns the credentials of the current context's user alone, for the server of
    /// [`Kubeconfig::endpoint`].
    ///
    /// # Errors
    /// As [`Kubeconfig::credentials`].
    pub fn current_credentials(&self) -> Result<Credentials, ConfigFileError> {
        Ok(self.credentials()?.keep_current())
    }

    /// Returns the folder at which relative paths start, as in clientcmd.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// Returns the current context.
fn find_context(tree: &Value) -> Option<&Value> {
    find_entry(tree, "contexts", text(tree, "current-context"))
        .map(|context| get(context, "context"))
}

fn find_cluster(tree: &Value) -> Result<&Value, String> {
    let context = find_context(tree).ok_or_else(|| {
        let current = text(tree, "current-context");
        format!("there is no context {current:?}, the current-context")
    })?;
    let name = text(context, "cluster");
    let cluster = find_entry(tree, "clusters", name)
        .ok_or_else(|| format!("there is no cluster {name:?}"))?;
    Ok(get(cluster, "cluster"))
}

fn find_entry<'a>(tree: &'a Value, entries: &str, name: &str) -> Option<&'a Value> {
    let mut entries = list(tree, entries).iter();
    entries.find(|entry| text(entry, "name") == name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a kubeconfig with one cluster and one user.
    fn kubeconfig(cluster: Value) -> Value {
        json!({
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        })
    }

    fn read(content: &Value) -> Kubeconfig {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, content.to_string()).unwrap();
        Kubeconfig::read_file(&path).unwrap()
    }

    #[test]
    fn server_and_user_of_the_current_context_are_of_one_read() {
        // Its folder and file are removed by now.
        let found = read(&kubeconfig(json!({"server": "https://audit.example.com"})));
        assert!(found.endpoint().is_ok());
        let credentials = found.credentials().unwrap();
        assert!(credentials.find_auth("audit.example.com:443").is_some());
        let current = found.current_credentials().unwrap();
        assert!(current.find_auth("audit.example.com:443").is_some());
    }

    #[test]
    fn user_named_after_a_server_is_not_that_of_the_context() {
        let mut config = kubeconfig(json!({"server": "https://h.example"}));
        config["users"] = json!([{"name": "*", "user": {"token": "t"}}]);
        let credentials = read(&config).current_credentials().unwrap();
        assert!(credentials.find_auth("h.example:443").is_none());
    }

    #[test]
    fn cluster_that_is_missing_or_not_verified_is_rejected() {
        let url = "https://audit.example.com";
        for (field, value) in [
            ("insecure-skip-tls-verify", json!(true)),
            ("tls-server-name", json!("other")),
            ("proxy-url", json!("http://proxy")),
            ("certificate-authority", json!("absent.crt")),
            ("server", json!("http://audit.example.com")),
        ] {
            let mut cluster = json!({"server": url});
            cluster[field] = value;
            assert!(read(&kubeconfig(cluster)).endpoint().is_err(), "{field}");
        }
        for field in ["current-context", "contexts", "clusters"] {
            let mut config = kubeconfig(json!({"server": url}));
            config[field].take();
            assert!(read(&config).endpoint().is_err(), "{field}");
        }
    }
}
