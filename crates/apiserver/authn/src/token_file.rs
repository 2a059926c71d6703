//! Static tokens: a CSV file of token, user, UID and optionally a quoted list of groups.

use crate::secret;
use apiserver_config::{ConfigFileError, read_file};
use apiserver_request::{Authenticator, AuthnError, Credentials, User};
use std::path::Path;

/// Authenticates by static token. Tokens are kept as digests only.
pub struct TokenFile {
    users: Vec<([u8; 32], User)>,
}

impl TokenFile {
    /// Loads the file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigFileError> {
        let bad = |why: String| ConfigFileError::content(path, why);
        let text = String::from_utf8(read_file(path)?).map_err(|_| bad("it is not text".into()))?;
        let mut users = Vec::new();
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty())
        {
            let fields = parse_fields(line);
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(bad(format!(
                    "line {} needs a token, a user and a UID",
                    number + 1
                )));
            };
            // An empty token would match a client that sends an empty header.
            if token.is_empty() {
                return Err(bad(format!("line {} has an empty token", number + 1)));
            }
            // The fourth column is one quoted list.
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups
                .split(',')
                .map(str::trim)
                .filter(|g| !g.is_empty())
                .map(str::to_owned)
                .collect();
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups,
                ..User::default()
            };
            users.push((secret::digest_secret(token.as_bytes()), user));
        }
        Ok(TokenFile { users })
    }
}

/// Splits a CSV line into fields; quotes enclose commas, doubled quotes are one.
fn parse_fields(line: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // CSV doubles a quotation mark within quotes.
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                push_char(&mut out, '"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(String::new()),
            c => push_char(&mut out, c),
        }
    }
    out.iter_mut().for_each(|f| *f = f.trim().to_owned());
    out
}

fn push_char(fields: &mut [String], c: char) {
    if let Some(last) = fields.last_mut() {
        last.push(c);
    }
}

#[async_trait::async_trait]
impl Authenticator for TokenFile {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        let Some(token) = &credentials.bearer else {
            return Ok(None);
        };
        let digest = secret::digest_secret(token.as_bytes());
        // Compares all rows, so that the time does not reveal which one matched.
        let mut found = None;
        for (known, user) in &self.users {
            if bool::from(subtle::ConstantTimeEq::ct_eq(&known[..], &digest[..])) {
                found = Some(user.clone());
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::parse_fields;

    #[test]
    fn quoted_fields_of_a_line_are_split() {
        assert_eq!(parse_fields("t,u,1"), ["t", "u", "1"]);
        assert_eq!(parse_fields("t, u ,1,\"a,b\""), ["t", "u", "1", "a,b"]);
        assert_eq!(parse_fields("\"t\"\"x\",u,1"), ["t\"x", "u", "1"]);
    }
}
