//! Credentials for webhooks, from the kubeconfig of the admission configuration.
//!
//! Users of that file are named after servers: `hook.ns.svc`, `hook.ns.svc:8443`, `*.example.com`,
//! `*`.

use api_meta::tree::{get, has, list, opt_text, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Credentials by server. Without `Debug`, so that no log line has a key.
#[derive(Clone, Default)]
pub struct Credentials {
    users: HashMap<String, AuthInfo>,
    /// User of the current context.
    current: Option<String>,
}

/// The credentials for one server.
#[derive(Clone, Default)]
pub struct AuthInfo {
    token: Option<String>,
    token_file: Option<PathBuf>,
    basic: Option<String>,
    certificate: Option<Data>,
    key: Option<Data>,
}

/// A certificate chain and its key as PEM.
pub(crate) type Identity = (Vec<u8>, Vec<u8>);

#[derive(Clone)]
enum Data {
    Inline(Vec<u8>),
    File(PathBuf),
}

impl Credentials {
    /// Parses the users of a kubeconfig; `current` is that of the current context, and relative
    /// paths start at `folder`. Reads the files of certificates: a missing one fails the start, and
    /// not the first request.
    ///
    /// # Errors
    /// A file that can't be read, or a kind of credentials that is not implemented.
    pub(crate) fn parse(
        tree: &Value,
        current: Option<&str>,
        folder: &Path,
    ) -> Result<Self, String> {
        let mut users = HashMap::new();
        for entry in list(tree, "users") {
            let user = parse_user(get(entry, "user"), folder)?;
            user.identity()?;
            users.insert(text(entry, "name").to_owned(), user);
        }
        Ok(Credentials {
            users,
            current: current.map(str::to_owned),
        })
    }

    /// Drops all users but that of the current context.
    pub(crate) fn keep_current(mut self) -> Self {
        let current = self.current.as_deref();
        self.users.retain(|name, _| Some(name.as_str()) == current);
        self
    }

    /// Returns the credentials for `host:port`; the most specific entry wins.
    pub(crate) fn find_auth(&self, host_port: &str) -> Option<&AuthInfo> {
        let find = |server: &str| {
            let exact = self.users.get(server);
            exact.or_else(|| self.find_wildcard(server))
        };
        // As upstream, a name without a port stands for the default port of https only.
        let without_port = || find(host_port.strip_suffix(":443")?);
        let current = || self.users.get(self.current.as_deref()?);
        find(host_port)
            .or_else(without_port)
            .or_else(|| self.users.get("*"))
            .or_else(current)
    }

    fn find_wildcard(&self, server: &str) -> Option<&AuthInfo> {
        server
            // The first dot leaves the longest suffix, so that the most specific entry is found
            // first.
            .match_indices('.')
            .find_map(|(at, _)| self.users.get(&format!("*{}", server.get(at..)?)))
    }
}

fn parse_user(user: &Value, folder: &Path) -> Result<AuthInfo, String> {
    // Ignored, the webhook would be called without the credentials that the operator has
    // configured.
    for field in ["exec", "auth-provider", "as"] {
        if has(user, field) {
            return Err(format!("the field {field:?} of a user is not supported"));
        }
    }
    let filled = |field: &str| opt_text(user, field).filter(|text| !text.is_empty());
    let data = |field: &str| match filled(&format!("{field}-data")) {
        Some(text) => STANDARD
            .decode(text)
            .map(|bytes| Some(Data::Inline(bytes)))
            .map_err(|_| format!("{field}-data is not base64")),
        None => Ok(filled(field).map(|path| Data::File(folder.join(path)))),
    };
    let basic = filled("username").map(|name| {
        let pair = format!("{name}:{}", text(user, "password"));
        format!("Basic {}", STANDARD.encode(pair))
    });
    Ok(AuthInfo {
        token: filled("token").map(str::to_owned),
        token_file: filled("tokenFile").map(|path| folder.join(path)),
        basic,
        certificate: data("client-certificate")?,
        key: data("client-key")?,
    })
}

impl AuthInfo {
    /// Returns the certificate and key as PEM. Reads files: call it on a blocking thread.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, String> {
        match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Ok(Some((certificate.read()?, key.read()?))),
            (None, None) => Ok(None),
            _ => Err("a client certificate and its key must be given together".to_owned()),
        }
    }

    /// Returns whether the certificate may be rotated. As client-go, only if the certificate and
    /// the key are files.
    pub(crate) fn is_rotated(&self) -> bool {
        let is_file = |data: &Option<Data>| matches!(data, Some(Data::File(_)));
        is_file(&self.certificate) && is_file(&self.key)
    }

    /// Returns the `Authorization` header. The token's file is read each time, because tokens are
    /// rotated.
    pub(crate) async fn authorization(&self) -> Result<Option<String>, String> {
        let rotated = match &self.token_file {
            Some(path) => read_token(path).await.map(Some),
            None => Ok(None),
        };
        let token = match (rotated, &self.token) {
            // The file comes before the token, which is for the time without a usable file, as in
            // client-go's transport.
            (Ok(Some(rotated)), _) => Some(rotated),
            (_, Some(token)) => Some(token.clone()),
            (rotated, None) => rotated?,
        };
        Ok(match token {
            Some(token) => Some(format!("Bearer {token}")),
            None => self.basic.clone(),
        })
    }
}

/// Reads a token.
///
/// # Errors
/// The file can't be read, or is empty.
async fn read_token(path: &Path) -> Result<String, String> {
    let text = tokio::fs::read_to_string(path)
        .await
        .map_err(|_| "the token file of the webhook can't be read".to_owned())?;
    match text.trim() {
        "" => Err("the token file of the webhook is empty".to_owned()),
        token => Ok(token.to_owned()),
    }
}

impl Data {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Data::Inline(bytes) => Ok(bytes.clone()),
            Data::File(path) => std::fs::read(path)
                .map_err(|_| format!("the file {} can't be read", path.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn credentials(names: &[&str]) -> Credentials {
        let users: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "user": {"token": name}}))
            .collect();
        Credentials::parse(&json!({"users": users}), Some("fallback"), Path::new("/")).unwrap()
    }

    #[test]
    fn most_specific_user_is_chosen() {
        let all = credentials(&[
            "hook.n.svc",
            "hook.n.svc:8443",
            "*.n.svc",
            "*.example.com:8443",
            "*",
        ]);
        for (server, expect) in [
            ("hook.n.svc:443", "hook.n.svc"),
            ("hook.n.svc:8443", "hook.n.svc:8443"),
            ("other.n.svc:443", "*.n.svc"),
            ("a.b.example.com:8443", "*.example.com:8443"),
            ("a.example.com:443", "*"),
        ] {
            let found = all.find_auth(server).and_then(|user| user.token.clone());
            assert_eq!(found.as_deref(), Some(expect), "{server}");
        }
    }

    #[test]
    fn user_of_the_current_context_is_the_last_resort() {
        let all = credentials(&["fallback"]);
        assert!(all.find_auth("x.n.svc:443").is_some());
        assert!(credentials(&["x"]).find_auth("y.n.svc:443").is_none());
    }

    #[test]
    fn unsupported_or_incomplete_credentials_are_rejected() {
        for user in [
            json!({"exec": {"command": "x"}}),
            json!({"auth-provider": {"name": "gcp"}}),
            json!({"client-key-data": "%"}),
            json!({"client-key-data": "eA=="}),
            json!({"client-key": "absent.key", "client-certificate": "absent.crt"}),
        ] {
            let tree = json!({"users": [{"name": "*", "user": user}]});
            let parsed = Credentials::parse(&tree, None, Path::new("/"));
            assert!(parsed.is_err(), "{user}");
        }
    }

    #[tokio::test]
    async fn token_comes_before_a_password_and_its_file_is_read_each_time() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "first\n").unwrap();
        let user = |user: Value| parse_user(&user, folder.path()).unwrap();
        let header =
            async |user: &AuthInfo| user.authorization().await.unwrap().unwrap_or_default();
        let basic = json!({"username": "u", "password": "p"});
        assert_eq!(header(&user(basic)).await, "Basic dTpw");
        let both = json!({"username": "u", "token": "t"});
        assert_eq!(header(&user(both)).await, "Bearer t");
        let file = user(json!({"tokenFile": "token"}));
        assert_eq!(header(&file).await, "Bearer first");
        std::fs::write(folder.path().join("token"), "second").unwrap();
        assert_eq!(header(&file).await, "Bearer second");
        assert_eq!(header(&user(json!({}))).await, "");
    }

    #[tokio::test]
    async fn token_file_comes_before_the_token_while_it_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let both = json!({"token": "fixed", "tokenFile": "token"});
        let both = parse_user(&both, folder.path()).unwrap();
        let alone = parse_user(&json!({"tokenFile": "token"}), folder.path()).unwrap();
        for (content, expect, has_token) in [
            (None, "Bearer fixed", false),
            (Some(" rotated\n"), "Bearer rotated", true),
            (Some("\n"), "Bearer fixed", false),
        ] {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            let header = both.authorization().await;
            assert_eq!(header, Ok(Some(expect.to_owned())), "{content:?}");
            assert_eq!(
                alone.authorization().await.is_ok(),
                has_token,
                "{content:?}"
            );
        }
    }
}
