//! Front proxies: they authenticate the user and send the identity in headers, over a connection
//! with their own certificate.

use crate::options_error::OptionsError;
use crate::x509::{Verifier, certificate_subject};
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `--requestheader-*`.
#[derive(Clone, Debug, Default)]
pub struct RequestHeader {
    /// The CA of front proxies; must not be the client CA.
    pub client_ca_file: PathBuf,
    /// Accepted common names; an empty list accepts all.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; the first with a value counts.
    pub username_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra information.
    pub extra_header_prefixes: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
}

/// Authenticates users by a front proxy's headers.
pub struct HeaderAuthenticator {
    options: RequestHeader,
    verifier: Verifier,
}

impl HeaderAuthenticator {
    /// Loads the CA; converts header names to lower case.
    pub fn new(mut options: RequestHeader) -> Result<Self, OptionsError> {
        // A CA of its own: a client certificate of the cluster's CA must not allow its holder to
        // name any user.
        let verifier = Verifier::from_file(&options.client_ca_file)?;
        // HTTP/2 sends header names in lower case, and the flags name them in any case.
        let lists = [
            &mut options.username_headers,
            &mut options.group_headers,
            &mut options.extra_header_prefixes,
            &mut options.uid_headers,
        ];
        lists
            .into_iter()
            .flatten()
            .for_each(|h| h.make_ascii_lowercase());
        Ok(HeaderAuthenticator { options, verifier })
    }

    fn header_values<'a>(
        &'a self,
        names: &'a [String],
        credentials: &'a Credentials,
    ) -> impl Iterator<Item = &'a str> {
        let of = |name: &'a String| {
            credentials
                .remote_headers
                .iter()
                .filter(move |(h, _)| h == name)
        };
        names
            .iter()
            .flat_map(of)
            .map(|(_, v)| v.as_str())
            // An empty header of an earlier name does not hide a value in a later one.
            .filter(|v| !v.is_empty())
    }

    fn read_extra(&self, credentials: &Credentials) -> BTreeMap<String, Vec<String>> {
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (header, value) in &credentials.remote_headers {
            let key = self
                .options
                .extra_header_prefixes
                .iter()
                .find_map(|p| header.strip_prefix(p.as_str()));
            if let Some(key) = key {
                extra
                    .entry(unescape_key(key))
                    .or_default()
                    .push(value.clone());
            }
        }
        extra
    }
}

/// Decodes percent escapes in the rest of a header's name (`example.com%2fteam`).
fn unescape_key(key: &str) -> String {
    let bytes = key.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while let Some(&b) = bytes.get(i) {
        // Header names can not hold a slash, which keys of extra values contain.
        let escaped = (b == b'%').then(|| key.get(i + 1..i + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(decoded) => {
                out.push(decoded);
                i += 3;
            }
            None => {
                out.push(b);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[async_trait::async_trait]
impl Authenticator for HeaderAuthenticator {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        let Some(name) = self
            .header_values(&self.options.username_headers, credentials)
            .next()
        else {
            return Ok(None);
        };
        // Without a certificate, every client could send the headers, so they mean nothing.
        let Some(leaf) = credentials.certificates.first() else {
            return Ok(None);
        };
        // Not an error: the certificate may be one of a client, for the next authenticator.
        if !self.verifier.is_valid_chain(&credentials.certificates) {
            return Ok(None);
        }
        // The chain only proves the CA. Other components may hold certificates of it.
        let (proxy, _) = certificate_subject(leaf).unwrap_or_default();
        if !self.options.allowed_names.is_empty() && !self.options.allowed_names.contains(&proxy) {
            return Err(AuthnError(format!(
                "the front proxy's name {proxy:?} is not allowed"
            )));
        }
        Ok(Some(User {
            name: name.to_owned(),
            uid: self
                .header_values(&self.options.uid_headers, credentials)
                .next()
                .unwrap_or_default()
                .to_owned(),
            groups: self
                .header_values(&self.options.group_headers, credentials)
                .map(str::to_owned)
                .collect(),
            extra: self.read_extra(credentials),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::unescape_key;

    #[test]
    fn header_names_are_unescaped() {
        for (from, to) in [
            ("scopes", "scopes"),
            ("example.com%2fteam", "example.com/team"),
            ("a%", "a%"),
            ("%zz", "%zz"),
        ] {
            assert_eq!(unescape_key(from), to);
        }
    }
}
