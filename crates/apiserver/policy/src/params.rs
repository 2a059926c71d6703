//! The parameters of a binding.

use api_meta::Selector;
use api_meta::tree::{get, has, text};
use apiserver_webhook::GroupVersionResource;
use serde_json::Value;

/// `paramKind` of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamKind {
    api_version: String,
    kind: String,
}

impl ParamKind {
    /// Reads `paramKind` of a spec.
    pub fn parse(spec: &Value) -> Option<Self> {
        let kind = get(spec, "paramKind");
        has(spec, "paramKind").then(|| ParamKind {
            api_version: text(kind, "apiVersion").to_owned(),
            kind: text(kind, "kind").to_owned(),
        })
    }
}

/// The resource of a kind of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamResource {
    /// The resource.
    pub resource: GroupVersionResource,
    /// The objects are in namespaces.
    pub is_namespaced: bool,
}

/// The objects that can be parameters, built-in or custom. The server implements it over its
/// caches.
#[async_trait::async_trait]
pub trait ParamObjects: Send + Sync {
    /// Returns the resource that serves a kind.
    fn find_resource(&self, api_version: &str, kind: &str) -> Option<ParamResource>;
    /// Returns an object in the resource's version.
    ///
    /// # Errors
    /// The object exists and can't be converted to this version. It must not count as missing: a
    /// policy that allows requests without parameters would fail open.
    async fn find_object(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, String>;
    /// Returns the objects of a namespace, or all, that a selector matches.
    ///
    /// # Errors
    /// One of the objects can't be converted to the resource's version.
    async fn list_objects(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
        selector: &Selector,
    ) -> Result<Vec<Value>, String>;
}

/// Returns the parameters for each of which a policy is evaluated; null stands for none.
///
/// # Errors
/// The binding is not usable for the request; with upstream's text.
pub async fn collect_params(
    objects: &dyn ParamObjects,
    kind: Option<&ParamKind>,
    reference: &Value,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    // As upstream: a `paramRef` without `paramKind` is ignored, and a `paramKind` without
    // `paramRef` leaves `params` null.
    let Some(kind) = kind.filter(|_| !reference.is_null()) else {
        return Ok(vec![Value::Null]);
    };
    let Some(found) = objects.find_resource(&kind.api_version, &kind.kind) else {
        // The text is that of Go's generated `String` method.
        return Err(format!(
            "paramKind kind `&ParamKind{{APIVersion:{},Kind:{},}}` not known",
            kind.api_version, kind.kind
        ));
    };
    let own = text(reference, "namespace");
    let namespace = match (found.is_namespaced, own.is_empty()) {
        (false, true) => "",
        (false, false) => {
            let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
            return Err(why.to_owned());
        }
        (true, false) => own,
        // The parameters of the request's own namespace are meant, and a cluster-scoped object has
        // none.
        (true, true) if namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, true) => namespace,
    };
    let params = find_params(objects, &found, reference, namespace).await?;
    // With Allow, the binding has no effect until a parameter exists.
    if params.is_empty() && text(reference, "parameterNotFoundAction") == "Deny" {
        let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
        return Err(why.to_owned());
    }
    Ok(params)
}

async fn find_params(
    objects: &dyn ParamObjects,
    found: &ParamResource,
    reference: &Value,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let name = text(reference, "name");
    let selector = get(reference, "selector");
    match (name.is_empty(), selector.is_null()) {
        (false, false) => {
            // Validation rejects this; upstream checks again all the same.
            Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned())
        }
        (false, true) => {
            let object = objects
                .find_object(&found.resource, namespace, name)
                .await?;
            Ok(object.into_iter().collect())
        }
        (true, false) => {
            let selector = Selector::from_label_selector(selector)
                .map_err(|error| error.to_string())?
                .unwrap_or_default();
            let namespace = found.is_namespaced.then_some(namespace);
            let found = objects.list_objects(&found.resource, namespace, &selector);
            found.await
        }
        (true, true) => Err("one of name or selector must be provided".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use api_meta::Meta;
    use serde_json::json;

    /// Config maps `n/a` and `n/b` with labels, and the cluster-scoped kind `Limit`.
    struct Fake;

    fn map(name: &str, tier: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "n", "labels": {"tier": tier}}})
    }

    #[async_trait::async_trait]
    impl ParamObjects for Fake {
        fn find_resource(&self, api_version: &str, kind: &str) -> Option<ParamResource> {
            let resource = match (api_version, kind) {
                ("v1", "ConfigMap") => GroupVersionResource::new("", "v1", "configmaps"),
                ("g/v1", "Limit") => GroupVersionResource::new("g", "v1", "limits"),
                _ => return None,
            };
            let is_namespaced = kind == "ConfigMap";
            Some(ParamResource {
                resource,
                is_namespaced,
            })
        }

        async fn find_object(
            &self,
            of: &GroupVersionResource,
            namespace: &str,
            name: &str,
        ) -> Result<Option<Value>, String> {
            if name == "broken" {
                return Err("not converted".to_owned());
            }
            let all = self
                .list_objects(of, Some(namespace), &Selector::default())
                .await?;
            Ok(all.into_iter().find(|object| object.name() == name))
        }

        async fn list_objects(
            &self,
            _: &GroupVersionResource,
            namespace: Option<&str>,
            selector: &Selector,
        ) -> Result<Vec<Value>, String> {
            if namespace == Some("broken") {
                return Err("not converted".to_owned());
            }
            let all = vec![map("a", "1"), map("b", "2")];
            Ok(all
                .into_iter()
                .filter(|object| namespace.is_none_or(|name| name == object.namespace()))
                .filter(|object| selector.matches_map(object.labels()))
                .collect())
        }
    }

    async fn collect(
        kind: &str,
        reference: &Value,
        namespace: &str,
    ) -> Result<Vec<String>, String> {
        let version = if kind == "ConfigMap" { "v1" } else { "g/v1" };
        let spec = json!({"paramKind": {"apiVersion": version, "kind": kind}});
        let found = collect_params(
            &Fake,
            ParamKind::parse(&spec).as_ref(),
            reference,
            namespace,
        )
        .await?;
        Ok(found
            .iter()
            .map(|object| object.name().to_owned())
            .collect())
    }

    #[tokio::test]
    async fn parameters_are_found_by_name_and_by_selector() {
        let second = json!({"matchLabels": {"tier": "2"}});
        for (reference, namespace, expect) in [
            (json!({"name": "a"}), "n", vec!["a"]),
            (json!({"name": "a", "namespace": "n"}), "other", vec!["a"]),
            (json!({"name": "a"}), "other", vec![]),
            (json!({"selector": second}), "n", vec!["b"]),
            (json!({"selector": {}}), "n", vec!["a", "b"]),
            (
                json!({"selector": {}, "namespace": "n"}),
                "",
                vec!["a", "b"],
            ),
            (
                json!({"name": "x", "parameterNotFoundAction": "Allow"}),
                "n",
                vec![],
            ),
        ] {
            let found = collect("ConfigMap", &reference, namespace).await.unwrap();
            assert_eq!(found, expect, "{reference}");
        }
    }

    #[tokio::test]
    async fn parameter_that_can_not_be_converted_is_not_missing() {
        for (reference, namespace) in [
            (json!({"name": "broken"}), "n"),
            (json!({"selector": {}}), "broken"),
        ] {
            let mut reference = reference;
            reference["parameterNotFoundAction"] = json!("Allow");
            let error = collect("ConfigMap", &reference, namespace)
                .await
                .unwrap_err();
            assert_eq!(error, "not converted", "{reference}");
        }
    }

    #[tokio::test]
    async fn policy_without_parameters_is_evaluated_once() {
        let none = collect_params(&Fake, None, &json!({"name": "a"}), "n")
            .await
            .unwrap();
        assert_eq!(none, [Value::Null]);
        let spec = json!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}});
        let kind = ParamKind::parse(&spec);
        let none = collect_params(&Fake, kind.as_ref(), &Value::Null, "n")
            .await
            .unwrap();
        assert_eq!(none, [Value::Null]);
    }

    #[tokio::test]
    async fn reference_that_can_not_be_used_is_an_error() {
        for (kind, reference, namespace, expect) in [
            (
                "Nothing",
                json!({"name": "a"}),
                "n",
                "paramKind kind `&ParamKind{APIVersion:g/v1,Kind:Nothing,}` not known",
            ),
            (
                "Limit",
                json!({"name": "a", "namespace": "n"}),
                "n",
                "must not be provided for a cluster-scoped",
            ),
            (
                "ConfigMap",
                json!({"name": "a"}),
                "",
                "cannot use namespaced paramRef",
            ),
            ("ConfigMap", json!({}), "n", "one of name or selector"),
            (
                "ConfigMap",
                json!({"name": "a", "selector": {}}),
                "n",
                "mutually exclusive",
            ),
            (
                "ConfigMap",
                json!({"name": "x", "parameterNotFoundAction": "Deny"}),
                "n",
                "no params found",
            ),
        ] {
            let error = collect(kind, &reference, namespace).await.unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }
}
