//! The decisions about a request that policies of both kinds share: target, parameters, objects.

use crate::matching::{MatchResources, Subject};
use crate::params::{ParamKind, ParamObjects, collect_params};
use crate::source::Binding;
use api_meta::ApiError;
use apiserver_request::Objects;
use apiserver_webhook::{
    Attributes, Kinds, NamespaceLabels, ObjectVersions, ReviewTarget, build_request,
};
use serde_json::Value;

/// The objects of a request in the version of one policy.
pub struct Versioned {
    /// `request`
    pub request: Value,
    /// `object`, or null.
    pub object: Value,
    /// `oldObject`, or null.
    pub old: Value,
    /// The object in canonical form, or null.
    pub canonical: Value,
}

/// The attributes of a request with what is looked up for them.
pub struct Lookup<'a> {
    /// The attributes.
    pub attributes: Attributes<'a>,
    /// The served kinds.
    pub kinds: &'a dyn Kinds,
    /// The watch caches.
    pub objects: &'a dyn Objects,
    /// The objects that can be parameters.
    pub params: &'a dyn ParamObjects,
    /// Labels of the namespace.
    pub labels: NamespaceLabels,
    /// The objects in the versions of the policies so far.
    pub versions: ObjectVersions,
}

impl Lookup<'_> {
    /// Returns the resource and kind in which the request is evaluated; None if it does not match.
    ///
    /// # Errors
    /// As `MatchResources::find_match`.
    pub async fn find_target(
        &mut self,
        resources: &MatchResources,
        (object, old): (&Value, Option<&Value>),
    ) -> Result<Option<ReviewTarget>, ApiError> {
        let subject = Subject {
            object,
            old,
            kinds: self.kinds,
            objects: self.objects,
        };
        resources
            .find_match(&self.attributes, &subject, &mut self.labels)
            .await
    }

    /// Returns the parameters of a binding; none if it does not match.
    ///
    /// # Errors
    /// The binding is not usable for the request.
    pub async fn find_params(
        &mut self,
        kind: Option<&ParamKind>,
        binding: &Binding,
        objects: (&Value, Option<&Value>),
    ) -> Result<Vec<Value>, String> {
        if let Some(resources) = &binding.resources {
            let found = self.find_target(resources, objects).await;
            // The target of the binding is not used: the version of the policy decides, as
            // upstream.
            if found.map_err(|error| error.message)?.is_none() {
                return Ok(Vec::new());
            }
        }
        let namespace = self.attributes.namespace;
        collect_params(self.params, kind, &binding.param_ref, namespace).await
    }

    /// Converts the objects to the version of a policy.
    ///
    /// # Errors
    /// An object that can't be converted.
    pub async fn convert_objects(
        &mut self,
        target: &ReviewTarget,
        objects: (&Value, Option<&Value>),
    ) -> Result<Versioned, ApiError> {
        let (kinds, attributes) = (self.kinds, &self.attributes);
        let versions = &mut self.versions;
        let objects = versions
            .find_or_convert(kinds, attributes, target, objects)
            .await?;
        let explicit = |object: &Value| match object {
            // Upstream evaluates typed objects, in which fields without `omitempty` are present
            // even if empty.
            Value::Object(_) => kinds.explicit_object(&target.0, attributes.subresource, object),
            _ => Value::Null,
        };
        Ok(Versioned {
            request: build_request(attributes, target),
            object: explicit(&objects.object),
            old: explicit(&objects.old),
            // The explicit form has fields that are not stored. Mutations compare and merge the
            // canonical one.
            canonical: objects.object.clone(),
        })
    }
}
