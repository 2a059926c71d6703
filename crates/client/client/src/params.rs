//! Options of requests, and their query strings and bodies.

use serde_json::{Value, json};

/// Interpretation of a list's `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Exactly that version.
    Exact,
    /// That version or a later one.
    NotOlderThan,
}

/// Options of list, watch, informers and deletecollection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListParams {
    /// Label selector, such as `app=web,tier!=db`.
    pub label_selector: Option<String>,
    /// Field selector, such as `spec.nodeName=n1`.
    pub field_selector: Option<String>,
    /// Maximum number of items per page. Lists read all pages.
    pub limit: Option<u32>,
    /// Version to list: `0` for any, absent for the newest.
    pub resource_version: Option<String>,
    /// Interpretation of `resource_version`.
    pub version_match: Option<VersionMatch>,
}

impl ListParams {
    /// Selects all objects at the newest version.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects objects with these labels.
    pub fn with_labels(mut self, selector: impl Into<String>) -> Self {
        self.label_selector = Some(selector.into());
        self
    }

    /// Selects objects with these field values.
    pub fn with_fields(mut self, selector: impl Into<String>) -> Self {
        self.field_selector = Some(selector.into());
        self
    }

    /// Sets the maximum number of items per page.
    pub fn with_limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets the version to list.
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = Some(version.into());
        self
    }

    pub(crate) fn push_selectors(&self, query: &mut Query) {
        query.push_some("labelSelector", self.label_selector.as_deref());
        query.push_some("fieldSelector", self.field_selector.as_deref());
    }

    pub(crate) fn list_query(&self, query: &mut Query, continue_: Option<&str>) {
        self.push_selectors(query);
        if let Some(limit) = self.limit {
            query.push("limit", &limit.to_string());
        }
        // The token contains the version; servers reject a request with both.
        if let Some(token) = continue_ {
            query.push("continue", token);
            return;
        }
        query.push_some("resourceVersion", self.resource_version.as_deref());
        let how = self.version_match.map(|how| match how {
            VersionMatch::Exact => "Exact",
            VersionMatch::NotOlderThan => "NotOlderThan",
        });
        query.push_some("resourceVersionMatch", how);
    }
}

/// Propagation policy for the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are orphaned.
    Orphan,
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
}

/// Options of delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteParams {
    /// Grace period in seconds; `None`: the object's own.
    pub grace_period_seconds: Option<i64>,
    /// Propagation policy; `None`: the default of the kind.
    pub propagation: Option<Propagation>,
    /// Precondition: UID of the object.
    pub uid: Option<String>,
    /// Precondition: resource version of the object.
    pub resource_version: Option<String>,
    /// Validates the deletion without executing it.
    pub dry_run: bool,
}

impl DeleteParams {
    /// Returns the defaults of the kind.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes dependents after the owner.
    pub fn background() -> Self {
        Self {
            propagation: Some(Propagation::Background),
            ..Self::default()
        }
    }

    /// Deletes dependents before the owner.
    pub fn foreground() -> Self {
        Self {
            propagation: Some(Propagation::Foreground),
            ..Self::default()
        }
    }

    /// Orphans dependents.
    pub fn orphan() -> Self {
        Self {
            propagation: Some(Propagation::Orphan),
            ..Self::default()
        }
    }

    /// Sets the grace period in seconds.
    pub fn grace_period(mut self, seconds: i64) -> Self {
        self.grace_period_seconds = Some(seconds);
        self
    }

    /// Requires this UID.
    pub fn uid(mut self, uid: impl Into<String>) -> Self {
        self.uid = Some(uid.into());
        self
    }

    /// Requires this resource version.
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.resource_version = Some(version.into());
        self
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if let Some(seconds) = self.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(propagation) = self.propagation {
            // The variants are named as the API names the policies.
            body["propagationPolicy"] = json!(format!("{propagation:?}"));
        }
        if let Some(uid) = &self.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &self.resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        if self.dry_run {
            body["dryRun"] = json!(["All"]);
        }
        body
    }
}

/// A patch in one of the four formats.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// JSON patch (RFC 6902).
    Json(Value),
    /// JSON merge patch (RFC 7386).
    Merge(Value),
    /// Strategic merge patch: lists are merged by key.
    Strategic(Value),
    /// Server-side apply.
    Apply {
        /// Field manager.
        manager: String,
        /// Takes fields from other managers on conflict.
        force: bool,
        /// The applied object.
        object: Value,
    },
}

impl Patch {
    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Json(_) => "application/json-patch+json",
            Self::Merge(_) => "application/merge-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
            Self::Apply { .. } => "application/apply-patch+yaml",
        }
    }

    pub(crate) fn body(&self) -> &Value {
        match self {
            Self::Json(body) | Self::Merge(body) | Self::Strategic(body) => body,
            Self::Apply { object, .. } => object,
        }
    }

    pub(crate) fn push_query(&self, query: &mut Query) {
        if let Self::Apply { manager, force, .. } = self {
            query.push("fieldManager", manager);
            query.push("force", if *force { "true" } else { "false" });
        }
    }
}

/// A query string under construction.
#[derive(Debug, Default)]
pub(crate) struct Query(String);

impl Query {
    pub(crate) fn push(&mut self, key: &str, value: &str) {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(key);
        self.0.push('=');
        self.0.extend(percent_encoding::utf8_percent_encode(
            value,
            // Selectors contain `=`, `,` and `!`. Encoding too much is always valid.
            percent_encoding::NON_ALPHANUMERIC,
        ));
    }

    pub(crate) fn push_some(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.push(key, value);
        }
    }

    pub(crate) fn append_to(self, mut path: String) -> String {
        path.push_str(&self.0);
        path
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn list_query_has_selectors_limit_and_version_or_token() {
        let cases = [
            (ListParams::new(), None, "p"),
            (
                ListParams::new().with_labels("a=b,c!=d"),
                None,
                "p?labelSelector=a%3Db%2Cc%21%3Dd",
            ),
            (
                ListParams::new().with_limit(5).resource_version("0"),
                None,
                "p?limit=5&resourceVersion=0",
            ),
            (
                ListParams::new().with_limit(5).resource_version("0"),
                Some("t"),
                "p?limit=5&continue=t",
            ),
        ];
        for (params, token, want) in cases {
            let mut query = Query::default();
            params.list_query(&mut query, token);
            assert_eq!(query.append_to("p".into()), want);
        }
    }

    #[test]
    fn delete_options_have_policy_grace_period_and_preconditions() {
        let body = DeleteParams::background().grace_period(0).uid("u").body();
        assert_eq!(body["propagationPolicy"], "Background");
        assert_eq!(body["gracePeriodSeconds"], 0);
        assert_eq!(body["preconditions"]["uid"], "u");
    }

    fn patch_query(patch: &Patch) -> String {
        let mut query = Query::default();
        patch.push_query(&mut query);
        query.append_to("p".into())
    }

    #[test]
    fn patch_has_the_media_type_of_its_form_and_apply_names_its_manager() {
        let apply = Patch::Apply {
            manager: "me".into(),
            force: true,
            object: json!({}),
        };
        for (patch, media_type, path) in [
            (Patch::Json(json!([])), "application/json-patch+json", "p"),
            (Patch::Merge(json!({})), "application/merge-patch+json", "p"),
            (
                Patch::Strategic(json!({})),
                "application/strategic-merge-patch+json",
                "p",
            ),
            (
                apply,
                "application/apply-patch+yaml",
                "p?fieldManager=me&force=true",
            ),
        ] {
            assert_eq!(
                (patch.content_type(), patch_query(&patch).as_str()),
                (media_type, path)
            );
        }
    }

    #[test]
    fn version_match_and_dry_run_are_written_in_the_form_of_the_api() {
        let params = ListParams {
            version_match: Some(VersionMatch::NotOlderThan),
            ..ListParams::new().resource_version("5")
        };
        let mut query = Query::default();
        params.list_query(&mut query, None);
        let path = query.append_to("p".into());
        assert_eq!(
            path,
            "p?resourceVersion=5&resourceVersionMatch=NotOlderThan"
        );
        let body = DeleteParams {
            dry_run: true,
            ..DeleteParams::orphan().resource_version("7")
        }
        .body();
        assert_eq!(body["dryRun"], json!(["All"]));
        assert_eq!(body["propagationPolicy"], "Orphan");
        assert_eq!(body["preconditions"]["resourceVersion"], "7");
    }
}
