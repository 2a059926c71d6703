//! The file of `--authentication-config`: paths that accept requests without credentials.
//!
//! JWT issuers are not implemented, so the server fails to start with a file that has one.

use anyhow::{Context as _, bail};
use apiserver_authn::Anonymous;
use serde_json::Value;
use std::path::Path;

const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// Reads the file; None if it has no section about anonymous requests.
///
/// # Errors
/// The file can't be read, is no AuthenticationConfiguration, or uses a field that is not
/// implemented.
pub fn read_file(path: &Path) -> anyhow::Result<Option<Anonymous>> {
    let bytes = std::fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    let (tree, _) = api_codec::yaml::parse(&bytes)
        .with_context(|| format!("{} can't be parsed", path.display()))?;
    parse_anonymous(&tree).with_context(|| format!("{} can't be used", path.display()))
}

fn parse_anonymous(tree: &Value) -> anyhow::Result<Option<Anonymous>> {
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != "AuthenticationConfiguration" || !VERSIONS.contains(&text("apiVersion")) {
        bail!("it is not an AuthenticationConfiguration of apiserver.config.k8s.io/v1");
    }
    let fields = tree
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str());
    if let Some(unknown) = fields
        .into_iter()
        .find(|name| !["kind", "apiVersion", "jwt", "anonymous"].contains(name))
    {
        // A misspelt restriction that is ignored would open every path.
        bail!("the field {unknown:?} is not known");
    }
    if tree
        .get("jwt")
        .and_then(Value::as_array)
        .is_some_and(|issuers| !issuers.is_empty())
    {
        // Ignored issuers would lock out their users without a message.
        bail!("JWT issuers are not implemented");
    }
    let Some(anonymous) = tree
        .get("anonymous")
        .filter(|anonymous| !anonymous.is_null())
    else {
        return Ok(None);
    };
    let enabled = anonymous
        .get("enabled")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let conditions = anonymous
        .get("conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let path = |condition: &Value| {
        condition
            .get("path")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let paths: Option<Vec<String>> = conditions.iter().map(path).collect();
    match (enabled, paths) {
        (_, None) => bail!("a condition of anonymous has no path"),
        (false, Some(paths)) if !paths.is_empty() => {
            // Upstream's validation: conditions of a switch that is off are a mistake.
            bail!("anonymous has conditions but is not enabled")
        }
        (false, Some(_)) => Ok(Some(Anonymous::Disabled)),
        (true, Some(paths)) if paths.is_empty() => Ok(Some(Anonymous::AllPaths)),
        (true, Some(paths)) => Ok(Some(Anonymous::Paths(paths))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(rest: Value) -> anyhow::Result<Option<Anonymous>> {
        let mut tree = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"});
        tree.as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        parse_anonymous(&tree)
    }

    #[test]
    fn conditions_allow_anonymous_requests_on_their_paths() {
        let paths = json!({"anonymous": {"enabled": true, "conditions": [{"path": "/livez"}, {"path": "/readyz"}]}});
        assert_eq!(
            read(paths).unwrap(),
            Some(Anonymous::Paths(vec!["/livez".into(), "/readyz".into()]))
        );
        assert_eq!(read(json!({})).unwrap(), None);
        assert_eq!(read(json!({"jwt": []})).unwrap(), None);
        assert_eq!(
            read(json!({"anonymous": {"enabled": true}})).unwrap(),
            Some(Anonymous::AllPaths)
        );
        assert_eq!(
            read(json!({"anonymous": {"enabled": false}})).unwrap(),
            Some(Anonymous::Disabled)
        );
    }

    #[test]
    fn unknown_or_unimplemented_field_is_rejected() {
        for rest in [
            json!({"jwt": [{"issuer": {"url": "https://issuer"}}]}),
            json!({"kind": "AuthorizationConfiguration"}),
            json!({"apiVersion": "v1"}),
            json!({"other": 1}),
            json!({"anonymous": {"enabled": true, "conditions": [{}]}}),
            json!({"anonymous": {"conditions": [{"path": "/livez"}]}}),
        ] {
            assert!(read(rest.clone()).is_err(), "{rest}");
        }
    }
}
