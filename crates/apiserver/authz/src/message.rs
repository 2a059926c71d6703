//! Messages of denied requests, in upstream's words.

use api_meta::{ApiError, Reason, status::Details, status::qualified};
use apiserver_request::Attributes;

/// Builds the 403 for a request that no authorizer allowed. `reason` is the chain's; it may be
/// empty.
pub fn forbidden_error(attributes: &Attributes, reason: &str) -> ApiError {
    let what = forbidden_message(attributes);
    let why = if reason.is_empty() {
        what
    } else {
        format!("{what}: {reason}")
    };
    // A path has no resource that the details of the Status could name.
    if !attributes.is_resource {
        return ApiError::new(Reason::Forbidden, format!("forbidden: {why}"))
            .with_details(Details::default());
    }
    ApiError::forbidden(
        &attributes.group,
        &attributes.resource,
        &attributes.name,
        &why,
    )
}

fn forbidden_message(a: &Attributes) -> String {
    let user = &a.user.name;
    if !a.is_resource {
        return format!("User {user:?} cannot {} path {:?}", a.verb, a.path);
    }
    let resource = if a.subresource.is_empty() {
        a.resource.clone()
    } else {
        format!("{}/{}", a.resource, a.subresource)
    };
    let scope = if a.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {:?}", a.namespace)
    };
    format!(
        "User {user:?} cannot {} resource {resource:?} in API group {:?} {scope}",
        a.verb, a.group
    )
}

/// Formats `roles.rbac.authorization.k8s.io "x" not found`, for reasons.
pub fn not_found_message(group: &str, kind: &str, name: &str) -> String {
    format!("{} {name:?} not found", qualified(kind, group))
}

/// Joins errors as upstream's aggregate: equal ones once, and several in brackets.
pub fn aggregate_errors(errors: &[String]) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for error in errors {
        if !unique.contains(&error.as_str()) {
            unique.push(error);
        }
    }
    match unique.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver_request::User;

    #[test]
    fn messages_name_user_verb_and_target() {
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        let list = Attributes {
            user: user.clone(),
            verb: "list".into(),
            resource: "configmaps".into(),
            namespace: "n".into(),
            is_resource: true,
            ..Attributes::default()
        };
        assert_eq!(
            forbidden_error(&list, "").message,
            "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"n\""
        );
        let path = Attributes {
            user,
            verb: "get".into(),
            path: "/metrics".into(),
            ..Attributes::default()
        };
        assert_eq!(
            forbidden_error(&path, "").message,
            "forbidden: User \"jane\" cannot get path \"/metrics\""
        );
    }

    #[test]
    fn message_of_a_subresource_at_the_cluster_scope_ends_with_the_reason() {
        let request = Attributes {
            user: User {
                name: "jane".into(),
                ..User::default()
            },
            verb: "patch".into(),
            group: "apps".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            name: "web".into(),
            is_resource: true,
            ..Attributes::default()
        };
        assert_eq!(
            forbidden_error(&request, "RBAC: no").message,
            "deployments.apps \"web\" is forbidden: User \"jane\" cannot patch resource \"deployments/scale\" in API group \"apps\" at the cluster scope: RBAC: no"
        );
    }
}
