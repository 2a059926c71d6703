//! Which requests a policy or binding applies to.

use api_meta::ApiError;
use api_meta::tree::{get, list, text, texts};
use apiserver_request::Objects;
use apiserver_webhook::{
    Attributes, GroupVersionResource, Kinds, NamespaceLabels, ReviewTarget, Rule, RuleTarget,
    SelectorField, matches_objects,
};
use serde_json::Value;

/// `matchConstraints` of a policy or `matchResources` of a binding.
pub struct MatchResources {
    namespaces: SelectorField,
    objects: SelectorField,
    rules: Vec<NamedRule>,
    excluded: Vec<NamedRule>,
    is_equivalent: bool,
}

struct NamedRule {
    rule: Rule,
    names: Vec<String>,
}

impl NamedRule {
    fn parse(rule: &Value) -> Self {
        let names = texts(rule, "resourceNames");
        NamedRule {
            rule: Rule::parse(rule),
            names: names.into_iter().map(str::to_owned).collect(),
        }
    }

    fn matches(&self, attributes: &Attributes<'_>, resource: &GroupVersionResource) -> bool {
        let target = RuleTarget {
            operation: attributes.operation.as_str(),
            resource,
            subresource: attributes.subresource,
            namespace: attributes.namespace,
        };
        // During mutation, a create with `generateName` has no name, so that a rule with names does
        // not match it. Upstream has the same gap.
        let has_name = || self.names.iter().any(|name| name == attributes.name);
        self.rule.matches(&target) && (self.names.is_empty() || has_name())
    }
}

/// The objects of a request, and what is looked up for them.
pub struct Subject<'a> {
    /// The object, or null.
    pub object: &'a Value,
    /// The old object.
    pub old: Option<&'a Value>,
    /// The served kinds.
    pub kinds: &'a dyn Kinds,
    /// The watch caches.
    pub objects: &'a dyn Objects,
}

impl MatchResources {
    /// Reads the constraints.
    pub fn parse(resources: &Value) -> Self {
        let rules = |field: &str| {
            let rules = list(resources, field);
            rules.iter().map(NamedRule::parse).collect()
        };
        MatchResources {
            namespaces: SelectorField::parse(get(resources, "namespaceSelector")),
            objects: SelectorField::parse(get(resources, "objectSelector")),
            rules: rules("resourceRules"),
            excluded: rules("excludeResourceRules"),
            // An absent policy is the default of v1, Equivalent. Exact would let requests through
            // in another version.
            is_equivalent: text(resources, "matchPolicy") != "Exact",
        }
    }

    /// Returns the resource and kind in which the request is evaluated; None if it does not match.
    ///
    /// # Errors
    /// The rules match, but a selector is invalid or the namespace does not exist.
    pub async fn find_match(
        &self,
        attributes: &Attributes<'_>,
        subject: &Subject<'_>,
        labels: &mut NamespaceLabels,
    ) -> Result<Option<ReviewTarget>, ApiError> {
        // The order of upstream's `Matcher.Matches`: it decides which error a client sees.
        let in_namespace = self.match_namespace(attributes, subject, labels).await;
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let by_object = match &self.objects {
            SelectorField::Everything => Ok(true),
            SelectorField::Some(selector) => {
                Ok(matches_objects(selector, subject.object, subject.old))
            }
            SelectorField::Invalid(why) => Err(ApiError::internal(why)),
        };
        if matches!(by_object, Ok(false)) {
            return Ok(None);
        }
        if self
            .match_rules(&self.excluded, attributes, subject.kinds)?
            .is_some()
        {
            return Ok(None);
        }
        // Only bindings may have no rules: the request has matched those of the policy already.
        let found = if self.rules.is_empty() {
            Some((attributes.resource.clone(), attributes.kind.clone()))
        } else {
            self.match_rules(&self.rules, attributes, subject.kinds)?
        };
        // An error of a selector counts only for requests that the rules cover.
        if found.is_some() {
            in_namespace?;
            by_object?;
        }
        Ok(found)
    }

    async fn match_namespace(
        &self,
        attributes: &Attributes<'_>,
        subject: &Subject<'_>,
        labels: &mut NamespaceLabels,
    ) -> Result<bool, ApiError> {
        match &self.namespaces {
            SelectorField::Everything => Ok(true),
            SelectorField::Some(selector) => {
                labels
                    .matches(selector, attributes, subject.object, subject.objects)
                    .await
            }
            SelectorField::Invalid(why) => Err(ApiError::internal(why)),
        }
    }

    fn match_rules(
        &self,
        rules: &[NamedRule],
        attributes: &Attributes<'_>,
        kinds: &dyn Kinds,
    ) -> Result<Option<ReviewTarget>, ApiError> {
        let own = &attributes.resource;
        if rules.iter().any(|rule| rule.matches(attributes, own)) {
            return Ok(Some((own.clone(), attributes.kind.clone())));
        }
        if !self.is_equivalent || rules.is_empty() {
            return Ok(None);
        }
        let equivalents = kinds.equivalent_resources(own);
        let covered = rules.iter().find_map(|rule| {
            let mut all = equivalents.iter();
            all.find(|resource| rule.matches(attributes, resource))
        });
        let Some(resource) = covered else {
            return Ok(None);
        };
        match kinds.find_kind(resource, attributes.subresource) {
            Some(kind) => Ok(Some((resource.clone(), kind))),
            None => Err(ApiError::internal(format!(
                "unable to convert to {}: unknown kind",
                resource.resource
            ))),
        }
    }
}
