//! The flags of the process.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Upstream's substitute for the value of a secret flag.
const CLASSIFIED: &str = "CLASSIFIED";
/// Words of names whose values may be secrets.
const SECRET_WORDS: [&str; 10] = [
    "token",
    "tokens",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "key",
];
/// Last words of names whose values are paths, times or numbers.
const HARMLESS_ENDINGS: [&str; 7] = [
    "file",
    "dir",
    "path",
    "ttl",
    "expiration",
    "period",
    "syncs",
];
/// Paths whose flags have the name of a key.
const PATHS: [&str; 1] = ["kubelet-client-key"];

// A command line belongs to the process, like std::env::args; its parser knows no server.
static FLAGS: OnceLock<FlagValues> = OnceLock::new();

/// Values by the names of flags, without secrets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlagValues(BTreeMap<String, String>);

impl FlagValues {
    /// Returns the values in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for FlagValues {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(flags: I) -> Self {
        // Here and not on the page: what is not kept cannot be shown by mistake.
        let censor = |(name, value): (String, String)| {
            let value = match may_be_secret(&name, &value) {
                true => CLASSIFIED.to_owned(),
                false => value,
            };
            (name, value)
        };
        Self(flags.into_iter().map(censor).collect())
    }
}

/// Records the flags of the process. Later calls have no effect.
pub fn record_flags(flags: FlagValues) {
    // The only failure is a second call.
    let _ = FLAGS.set(flags);
}

/// Returns the recorded flags; none before [`record_flags`].
pub fn flag_values() -> FlagValues {
    FLAGS.get().cloned().unwrap_or_default()
}

/// Returns whether a value must not be shown. Unknown flags with a suspicious name count as
/// secrets.
fn may_be_secret(name: &str, value: &str) -> bool {
    // A switch such as --enable-bootstrap-token-auth has the words, and no secret.
    if matches!(value, "" | "true" | "false") {
        return false;
    }
    // The part before the @ of a URL may have a password.
    if value.split("://").skip(1).any(|rest| rest.contains('@')) {
        return true;
    }
    let named = name.split('-').any(|word| SECRET_WORDS.contains(&word));
    let harmless = PATHS.contains(&name)
        || name
            .rsplit('-')
            .next()
            .is_some_and(|last| HARMLESS_ENDINGS.contains(&last));
    named && !harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str, value: &str) -> String {
        let flags: FlagValues = [(name.to_owned(), value.to_owned())].into_iter().collect();
        flags.iter().map(|(_, value)| value.to_owned()).collect()
    }

    #[test]
    fn values_that_may_be_secrets_are_classified() {
        for (name, value) in [
            ("token", "abc.def"),
            ("bootstrap-token", "abcdef.0123456789abcdef"),
            ("storage-driver-password", "root"),
            ("discovery-key", "x"),
            ("signing-secret", "/x"),
            ("etcd-servers", "https://a,https://root:secret@b:2379"),
            ("master", "https://token@server"),
        ] {
            assert_eq!(shown(name, value), "CLASSIFIED", "{name}={value}");
        }
    }

    #[test]
    fn paths_times_and_switches_are_shown() {
        for (name, value) in [
            ("tls-private-key-file", "/pki/server.key"),
            ("token-auth-file", "/etc/tokens.csv"),
            ("kubelet-client-key", "/pki/kubelet.key"),
            ("authentication-token-webhook-cache-ttl", "10s"),
            ("service-account-max-token-expiration", "1h"),
            ("enable-bootstrap-token-auth", "true"),
            ("token", ""),
            ("etcd-servers", "https://127.0.0.1:2379"),
            ("kubeconfig", "/etc/scheduler.conf"),
        ] {
            assert_eq!(shown(name, value), value, "{name}");
        }
    }
}
