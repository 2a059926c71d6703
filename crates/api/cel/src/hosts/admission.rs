//! Variables of admission policies and of the match conditions of webhooks.

use std::sync::{Arc, LazyLock};

use crate::environment::TypeProvider;
use crate::library::authorizer::{authorizer_type, resource_type};
use crate::library::json_patch;
use crate::program::Environment;
use crate::types::Type;

use super::create_base;
use super::shape::{Shape, ShapeTypes};

/// Variable: the object of the request.
pub const OBJECT: &str = "object";
/// Variable: the object before an update, or the deleted object.
pub const OLD_OBJECT: &str = "oldObject";
/// Variable: the attributes of the request.
pub const REQUEST: &str = "request";
/// Variable: the namespace of the object.
pub const NAMESPACE_OBJECT: &str = "namespaceObject";
/// Variable: the object that parameterizes the policy.
pub const PARAMS: &str = "params";
/// Variable: the expressions that the policy names.
pub const VARIABLES: &str = "variables";
/// Variable: authorization checks for the user of the request.
pub const AUTHORIZER: &str = "authorizer";
/// Variable: the authorization check for the resource of the request.
pub const REQUEST_RESOURCE: &str = "authorizer.requestResource";
/// Type of the variable [`VARIABLES`]. The host's provider declares its fields.
pub const VARIABLES_TYPE: &str = "kubernetes.variables";

/// Types of the objects that the expressions of a policy read. An evaluation takes them as they
/// are; these types are for a check without a request.
#[derive(Clone)]
pub struct ObjectTypes {
    /// Type of [`OBJECT`] and [`OLD_OBJECT`].
    pub object: Type,
    /// Type of [`PARAMS`].
    pub params: Type,
    /// Fields of both.
    pub providers: Vec<Arc<dyn TypeProvider>>,
}

/// Variables and types that not all expressions have.
#[derive(Clone, Default)]
pub struct AdmissionVariables {
    /// The policy has a kind of parameters.
    pub params: bool,
    /// Authorization checks are possible. Messages have none.
    pub authorizer: bool,
    /// The expression creates a patch.
    pub patches: bool,
    /// Fields of the variable `variables`.
    pub variables: Option<Arc<dyn TypeProvider>>,
    /// Types of the objects; without them they have any type.
    pub objects: Option<ObjectTypes>,
}

/// Type of [`REQUEST`]. Objects and options have no fields of their own here: the objects are
/// variables, and options are of any kind.
pub static REQUEST_SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let text = Shape::text;
    let kind = Shape::object(
        "kubernetes.GroupVersionKind",
        [("group", text()), ("version", text()), ("kind", text())],
    );
    let resource = Shape::object(
        "kubernetes.GroupVersionResource",
        [("group", text()), ("version", text()), ("resource", text())],
    );
    Shape::object(
        "kubernetes.AdmissionRequest",
        [
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", super::identity::user_shape()),
            ("dryRun", Shape::flag()),
            ("options", Shape::any()),
        ],
    )
});

/// Type of [`NAMESPACE_OBJECT`]. Owner references and managed fields are left out, as upstream.
pub static NAMESPACE_SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let (text, time, int) = (Shape::text, Shape::time, Shape::int);
    let metadata = Shape::object(
        "kubernetes.NamespaceMetadata",
        [
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", Shape::map(text())),
            ("annotations", Shape::map(text())),
            // Upstream declares this field in capitals.
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", int()),
            ("deletionTimestamp", time()),
            ("generation", int()),
            ("resourceVersion", text()),
            ("finalizers", Shape::list(text())),
        ],
    );
    let condition = Shape::object(
        "kubernetes.NamespaceCondition",
        [
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let spec = Shape::object(
        "kubernetes.NamespaceSpec",
        [("finalizers", Shape::list(text()))],
    );
    let status = Shape::object(
        "kubernetes.NamespaceStatus",
        [("conditions", Shape::list(condition)), ("phase", text())],
    );
    Shape::object(
        "kubernetes.Namespace",
        [("metadata", metadata), ("spec", spec), ("status", status)],
    )
});

/// Creates the environment of an expression of a policy, or of a match condition of a webhook.
pub fn create_admission(minor: u16, variables: AdmissionVariables) -> Environment {
    let mut types = ShapeTypes::new([&*REQUEST_SHAPE, &*NAMESPACE_SHAPE])
        .with_other(variables.variables.clone());
    // Without declared types, fields of the objects are looked up at run time only.
    let (mut object, mut params) = (Type::Dyn, Type::Dyn);
    if let Some(objects) = variables.objects {
        (object, params) = (objects.object, objects.params);
        for provider in objects.providers {
            types = types.with_other(Some(provider));
        }
    }
    if variables.patches {
        types = types.with_patches();
    }
    let mut environment = create_base(minor);
    if variables.patches {
        environment = environment.with_library(json_patch::library());
    }
    environment.with(|declarations| {
        declarations.set_provider(Arc::new(types));
        declarations.add_variable(OBJECT, object.clone());
        declarations.add_variable(OLD_OBJECT, object);
        declarations.add_variable(REQUEST, REQUEST_SHAPE.value_type());
        declarations.add_variable(NAMESPACE_OBJECT, NAMESPACE_SHAPE.value_type());
        if variables.params {
            declarations.add_variable(PARAMS, params);
        }
        if variables.authorizer {
            declarations.add_variable(AUTHORIZER, authorizer_type());
            declarations.add_variable(REQUEST_RESOURCE, resource_type());
        }
        // The provider declares the fields, so the variable exists only with it.
        if variables.variables.is_some() {
            declarations.add_variable(VARIABLES, Type::object(VARIABLES_TYPE));
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::budget::Budget;
    use crate::hosts::{NEW_EXPRESSIONS, STORED_EXPRESSIONS};
    use crate::value::Value;

    fn compiles(variables: AdmissionVariables, source: &str) -> bool {
        create_admission(STORED_EXPRESSIONS, variables)
            .compile(source)
            .is_ok()
    }

    #[test]
    fn request_has_declared_fields() {
        for (source, expected) in [
            ("request.operation == 'CREATE'", true),
            (
                "request.namespace == 'a' && request.userInfo.groups.exists(g, g == 'b')",
                true,
            ),
            ("request.userInfo.extra['a'][0] == 'b'", true),
            ("request.options.dryRun", true),
            ("request.uid == ''", false),
            ("request.object", false),
            ("namespaceObject.metadata.labels['a'] == 'b'", true),
            ("namespaceObject.metadata.managedFields", false),
            ("object.spec.replicas > oldObject.spec.replicas", true),
            ("params.x", false),
            ("authorizer.path('/x').check('get').allowed()", false),
            ("variables.x", false),
            ("JSONPatch{op: 'add'}", false),
        ] {
            assert_eq!(
                compiles(AdmissionVariables::default(), source),
                expected,
                "{source}"
            );
        }
    }

    #[test]
    fn optional_variables_exist_when_they_are_asked_for() {
        let with = |variables: AdmissionVariables, source| assert!(compiles(variables, source));
        let none = AdmissionVariables::default;
        with(
            AdmissionVariables {
                params: true,
                ..none()
            },
            "params.x == 1",
        );
        let source = "authorizer.requestResource.check('get').allowed()";
        with(
            AdmissionVariables {
                authorizer: true,
                ..none()
            },
            source,
        );
        let source = "[JSONPatch{op: 'add', path: jsonpatch.escapeKey('a/b'), value: 1}]";
        with(
            AdmissionVariables {
                patches: true,
                ..none()
            },
            source,
        );
        let source = "Object{spec: Object.spec{replicas: 1}}";
        with(
            AdmissionVariables {
                patches: true,
                ..none()
            },
            source,
        );
    }

    #[test]
    fn request_is_read_by_its_shape() {
        let request = json!({"namespace": "a", "userInfo": {"groups": ["g"]}});
        let namespace = json!({"metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}});
        let variables = [
            (REQUEST, Value::from_json(&request, Some(&**REQUEST_SHAPE))),
            (
                NAMESPACE_OBJECT,
                Value::from_json(&namespace, Some(&**NAMESPACE_SHAPE)),
            ),
        ];
        let environment = create_admission(NEW_EXPRESSIONS, AdmissionVariables::default());
        for source in [
            "request.namespace == 'a' && 'g' in request.userInfo.groups",
            "!has(request.name) && has(request.userInfo)",
            "namespaceObject.metadata.creationTimestamp.getFullYear() == 2026",
        ] {
            let program = environment.compile(source).unwrap();
            let result = program
                .evaluate(&variables, &mut Budget::new(10_000))
                .unwrap();
            assert!(matches!(result, Value::Bool(true)), "{source}");
        }
    }
}
