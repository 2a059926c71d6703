//! Variables of the authentication and authorization configuration.

use std::sync::{Arc, LazyLock};

use crate::program::Environment;
use crate::schema::{JsonForm, JsonSchema};
use crate::types::Type;

use super::create_base;
use super::shape::{Shape, ShapeTypes};

/// Variable: the claims of a token.
pub const CLAIMS: &str = "claims";
/// Variable: the user that the claims were mapped to.
pub const USER: &str = "user";
/// Variable of match conditions: the review that an authorization webhook would get.
pub const REQUEST: &str = "request";

/// Reads claims: JSON of any form, whose names expressions may escape at each level.
#[derive(Debug)]
struct ClaimsSchema;

impl JsonSchema for ClaimsSchema {
    fn form(&self) -> JsonForm {
        JsonForm::Dynamic
    }

    fn property(&self, _name: &str) -> Option<&dyn JsonSchema> {
        None
    }

    fn items(&self) -> Option<&dyn JsonSchema> {
        Some(&ClaimsSchema)
    }

    fn values(&self) -> Option<&dyn JsonSchema> {
        Some(&ClaimsSchema)
    }

    fn unescapes_keys(&self) -> bool {
        true
    }
}

/// Schema of [`CLAIMS`].
pub static CLAIMS_SCHEMA: &dyn JsonSchema = &ClaimsSchema;

/// Creates the type of the user of an admission request.
pub(super) fn user_shape() -> Arc<Shape> {
    create_user_shape(Shape::map(Shape::list(Shape::text())))
}

fn create_user_shape(extra: Arc<Shape>) -> Arc<Shape> {
    let text = Shape::text;
    Shape::object(
        "kubernetes.UserInfo",
        [
            ("username", text()),
            ("uid", text()),
            ("groups", Shape::list(text())),
            ("extra", extra),
        ],
    )
}

/// Type of [`USER`].
pub static USER_SHAPE: LazyLock<Arc<Shape>> =
    LazyLock::new(|| create_user_shape(Shape::escaped_map(Shape::list(Shape::text()))));

/// Type of [`REQUEST`]: the specification of a SubjectAccessReview.
pub static REVIEW_SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let text = Shape::text;
    let requirement = Shape::object(
        "kubernetes.SelectorRequirement",
        [
            ("key", text()),
            ("operator", text()),
            ("values", Shape::list(text())),
        ],
    );
    let selector = |name| {
        let requirements = Shape::list(requirement.clone());
        Shape::object(
            name,
            [("rawSelector", text()), ("requirements", requirements)],
        )
    };
    let resource = Shape::object(
        "kubernetes.ResourceAttributes",
        [
            ("namespace", text()),
            ("verb", text()),
            ("group", text()),
            ("version", text()),
            ("resource", text()),
            ("subresource", text()),
            ("name", text()),
            (
                "fieldSelector",
                selector("kubernetes.FieldSelectorAttributes"),
            ),
            (
                "labelSelector",
                selector("kubernetes.LabelSelectorAttributes"),
            ),
        ],
    );
    let non_resource = Shape::object(
        "kubernetes.NonResourceAttributes",
        [("path", text()), ("verb", text())],
    );
    Shape::object(
        "kubernetes.SubjectAccessReviewSpec",
        [
            ("resourceAttributes", resource),
            ("nonResourceAttributes", non_resource),
            ("user", text()),
            ("groups", Shape::list(text())),
            ("extra", Shape::map(Shape::list(text()))),
            ("uid", text()),
        ],
    )
});

/// Creates the environment of expressions over the claims of a token.
pub fn create_claims(minor: u16) -> Environment {
    // Claims are JSON of any form, so their types are known at run time only.
    create_base(minor).with_variable(CLAIMS, Type::map(Type::String, Type::Dyn))
}

/// Creates the environment of expressions over the user.
pub fn create_user(minor: u16) -> Environment {
    create_base(minor)
        .with_variable(USER, USER_SHAPE.value_type())
        .with_provider(Arc::new(ShapeTypes::new([&*USER_SHAPE])))
}

/// Creates the environment of the match conditions of authorization webhooks.
pub fn create_review(minor: u16) -> Environment {
    create_base(minor)
        .with_variable(REQUEST, REVIEW_SHAPE.value_type())
        .with_provider(Arc::new(ShapeTypes::new([&*REVIEW_SHAPE])))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::hosts::STORED_EXPRESSIONS;

    #[test]
    fn variables_have_declared_fields() {
        let claims = create_claims(STORED_EXPRESSIONS);
        let user = create_user(STORED_EXPRESSIONS);
        let review = create_review(STORED_EXPRESSIONS);
        for (environment, source, expected) in [
            (
                &claims,
                "claims.email_verified == true && claims.sub != ''",
                true,
            ),
            (&claims, "user.username", false),
            (&user, "!user.username.startsWith('system:')", true),
            (&user, "user.extra['a'].size() > 0", true),
            (&user, "user.email", false),
            (&review, "has(request.resourceAttributes)", true),
            (
                &review,
                "request.resourceAttributes.namespace == 'kube-system'",
                true,
            ),
            (
                &review,
                "request.resourceAttributes.labelSelector.requirements.size() == 0",
                true,
            ),
            (&review, "request.nonResourceAttributes.path == '/x'", true),
            (&review, "request.namespace", false),
        ] {
            assert_eq!(environment.compile(source).is_ok(), expected, "{source}");
        }
    }

    #[test]
    fn selected_fields_are_found_in_all_forms() {
        let claims = create_claims(STORED_EXPRESSIONS);
        for (source, expected) in [
            ("claims.email", true),
            ("claims.?email.orValue('')", true),
            ("has(claims.email)", true),
            ("claims.all(name, name == claims.email)", true),
            ("[{'a': claims.email.name}]", true),
            ("claims.other.email", false),
            ("claims['email']", false),
            ("claims.email_verified", false),
            ("claims.filter(claims, claims == 'email').size() > 0", false),
        ] {
            let program = claims.compile(source).unwrap();
            assert_eq!(program.selects_field(CLAIMS, "email"), expected, "{source}");
        }
    }
}
