//! The annotation `kubernetes.io/enforce-mountable-secrets`: limits a ServiceAccount's pods to the
//! Secrets that it lists.

use crate::context::{list_at, string_at};
use api_meta::Meta;
use serde_json::Value;

const ANNOTATION: &str = "kubernetes.io/enforce-mountable-secrets";

/// Returns the first reference of `pod` to a Secret that `account` does not allow.
pub fn find_forbidden(pod: &Value, account: &Value) -> Option<String> {
    // Opt-in by the account; accounts without the annotation may use every Secret.
    if !is_true(account.annotation(ANNOTATION).unwrap_or_default()) {
        return None;
    }
    let named = |field: &str, name: &str| {
        list_at(account, field)
            .iter()
            .any(|secret| string_at(secret, "/name") == name)
    };
    let refused = secret_references(pod)
        .into_iter()
        .find(|(_, name)| !named("/secrets", name));
    // Pull Secrets are listed in a field of their own of the account.
    let pull = || {
        list_at(pod, "/spec/imagePullSecrets")
            .iter()
            .map(|secret| string_at(secret, "/name"))
    };
    let refused_pull = || {
        pull()
            .find(|name| !named("/imagePullSecrets", name))
            .map(|name| ("imagePullSecrets", name))
    };
    let (what, name) = refused.or_else(refused_pull)?;
    let account = account.name();
    Some(format!(
        "{what} with secret {name:?} is not allowed because service account {account} does not reference that secret"
    ))
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Returns the Secrets that volumes and containers of every kind name. Upstream leaves out
/// projected volumes, which makes the limit easy to bypass.
fn secret_references(pod: &Value) -> Vec<(&'static str, &str)> {
    let mut found = Vec::new();
    for volume in list_at(pod, "/spec/volumes") {
        found.push(("volume", string_at(volume, "/secret/secretName")));
        let sources = list_at(volume, "/projected/sources");
        found.extend(
            sources
                .iter()
                .map(|source| ("projected volume", string_at(source, "/secret/name"))),
        );
    }
    for field in [
        "/spec/initContainers",
        "/spec/containers",
        "/spec/ephemeralContainers",
    ] {
        for container in list_at(pod, field) {
            let env = list_at(container, "/env")
                .iter()
                .map(|env| ("env", string_at(env, "/valueFrom/secretKeyRef/name")));
            let all = list_at(container, "/envFrom")
                .iter()
                .map(|from| ("envFrom", string_at(from, "/secretRef/name")));
            found.extend(env.chain(all));
        }
    }
    // Most volumes and variables name no Secret; an absent name must not count as a forbidden one.
    found.retain(|(_, name)| !name.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secret_that_the_account_does_not_list_is_found_in_every_reference() {
        let account = |limits: &str| {
            json!({"metadata": {"name": "a", "annotations": {ANNOTATION: limits}}, "secrets": [{"name": "mine"}],
                "imagePullSecrets": [{"name": "pull"}]})
        };
        let env = |name: &str| json!([{"env": [{"valueFrom": {"secretKeyRef": {"name": name}}}]}]);
        let from = |name: &str| json!([{"envFrom": [{"secretRef": {"name": name}}]}]);
        for (spec, expect) in [
            (
                json!({"volumes": [{"secret": {"secretName": "mine"}}], "containers": env("mine")}),
                false,
            ),
            (
                json!({"volumes": [{"secret": {"secretName": "other"}}]}),
                true,
            ),
            (
                json!({"volumes": [{"projected": {"sources": [{"secret": {"name": "other"}}]}}]}),
                true,
            ),
            (json!({"initContainers": env("other")}), true),
            (json!({"containers": from("other")}), true),
            (json!({"ephemeralContainers": env("other")}), true),
            (json!({"imagePullSecrets": [{"name": "pull"}]}), false),
            (json!({"imagePullSecrets": [{"name": "mine"}]}), true),
        ] {
            let pod = json!({"spec": spec});
            assert_eq!(
                find_forbidden(&pod, &account("true")).is_some(),
                expect,
                "{pod}"
            );
            assert_eq!(find_forbidden(&pod, &account("false")), None, "{pod}");
        }
    }
}
