//! Impersonation: `Impersonate-*` headers, each of which needs its own permission.

use crate::credentials;
use crate::server::Server;
use api_meta::ApiError;
use apiserver_authz::forbidden_error;
use apiserver_request::{Attributes, Authorizer, Decision, User};
use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

const ACCOUNT: &str = "system:serviceaccount:";
const EXTRA: &str = "impersonate-extra-";

/// Removes the impersonation headers and returns the requested user, if any.
pub fn take_target(headers: &mut HeaderMap) -> Result<Option<User>, ApiError> {
    // The headers are removed even if they are invalid, so that no backend sees them.
    let target = target_user(headers);
    // With underscores, too: they are dashes to some backends.
    credentials::take_all(headers, |name| {
        name.as_str().replace('_', "-").starts_with("impersonate-")
    });
    target
}

fn target_user(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    // A value that is left out would change the user: without its name, the request would be the
    // caller's own.
    let all = |name: &str| -> Result<Vec<String>, ApiError> {
        let values = headers.get_all(name).iter();
        let text = |value: &HeaderValue| String::from_utf8(value.as_bytes().to_vec());
        let texts: Result<_, _> = values.map(text).collect();
        texts.map_err(|_| ApiError::bad_request(format!("header {name:?} is not valid UTF-8")))
    };
    // Upstream uses the first of several user names; groups may repeat.
    let one = |name: &str| all(name).map(|all| all.into_iter().next().unwrap_or_default());
    let mut user = User {
        name: one("impersonate-user")?,
        uid: one("impersonate-uid")?,
        groups: all("impersonate-group")?,
        ..User::default()
    };
    for name in headers.keys() {
        if let Some(key) = name.as_str().strip_prefix(EXTRA) {
            // Clients escape keys, because header names allow few characters.
            let key = percent_decode_str(key).decode_utf8_lossy().into_owned();
            user.extra
                .entry(key)
                .or_default()
                .extend(all(name.as_str())?);
        }
    }
    let requested = !user.uid.is_empty() || !user.groups.is_empty() || !user.extra.is_empty();
    match (user.name.is_empty(), requested) {
        // Groups without a user would extend the caller's own rights instead of replacing them.
        (true, true) => Err(ApiError::bad_request(
            "requested impersonation without impersonating a user",
        )),
        (true, false) => Ok(None),
        (false, _) => Ok(Some(user)),
    }
}

/// Returns the impersonated user with its implicit groups, if `user` may impersonate it.
pub async fn switch_user(server: &Server, user: &User, mut other: User) -> Result<User, ApiError> {
    // Each part needs a permission: a user with fewer groups or extras would be another one.
    for attributes in needed_attributes(user, &other) {
        let reason = match server.authz.authorize(&attributes).await {
            Decision::Allow(_) => continue,
            Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
            // As upstream, also an error is a 403 here.
            Decision::Failed(failure) => failure.reason,
        };
        return Err(forbidden_error(&attributes, &reason));
    }
    add_own_groups(&mut other);
    Ok(other)
}

fn needed_attributes(user: &User, other: &User) -> Vec<Attributes> {
    let base = Attributes {
        user: user.clone(),
        verb: "impersonate".into(),
        is_resource: true,
        ..Attributes::default()
    };
    let mut all = Vec::new();
    match parse_account(&other.name) {
        // Namespaced, so that a role in one namespace can allow its service accounts.
        Some((namespace, name)) => all.push(Attributes {
            resource: "serviceaccounts".into(),
            namespace: namespace.into(),
            name: name.into(),
            ..base.clone()
        }),
        None => all.push(Attributes {
            resource: "users".into(),
            name: other.name.clone(),
            ..base.clone()
        }),
    }
    for group in &other.groups {
        all.push(Attributes {
            resource: "groups".into(),
            name: group.clone(),
            ..base.clone()
        });
    }
    // RBAC rules name these groups: users and groups are in the core group, extras and uids are
    // not.
    let authentication = Attributes {
        group: "authentication.k8s.io".into(),
        version: "v1".into(),
        ..base
    };
    // The key is the subresource, so that a role can allow single keys (`userextras/scopes`).
    for (key, values) in &other.extra {
        let subresource = key.clone();
        all.extend(values.iter().map(|value| Attributes {
            resource: "userextras".into(),
            subresource: subresource.clone(),
            name: value.clone(),
            ..authentication.clone()
        }));
    }
    if !other.uid.is_empty() {
        all.push(Attributes {
            resource: "uids".into(),
            name: other.uid.clone(),
            ..authentication
        });
    }
    all
}

/// Returns namespace and name of a ServiceAccount's user name. A name that no ServiceAccount can
/// have belongs to a plain user.
fn parse_account(user: &str) -> Option<(&str, &str)> {
    let part = |text: &str| {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !text.is_empty() && text.chars().all(known)
    };
    user.strip_prefix(ACCOUNT)?
        .split_once(':')
        .filter(|(namespace, name)| part(namespace) && part(name))
}

fn add_own_groups(user: &mut User) {
    // Requested groups replace the implicit ones of a service account, as upstream.
    if user.groups.is_empty()
        && let Some((namespace, _)) = parse_account(&user.name)
    {
        user.groups = vec![
            "system:serviceaccounts".into(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    // The default bindings of discovery are to these groups, which authentication would have added.
    let own = if user.name == User::ANONYMOUS {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    let has = user
        .groups
        .iter()
        .any(|g| g == "system:authenticated" || g == "system:unauthenticated");
    if !has {
        user.groups.push(own.into());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn take(pairs: &[(&'static str, &[u8])]) -> Result<Option<User>, u16> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let taken = take_target(&mut headers).map_err(|error| error.code());
        assert!(headers.is_empty());
        taken
    }

    #[test]
    fn name_outside_ascii_is_not_the_caller() {
        let user = take(&[("impersonate-user", "jürgen".as_bytes())]).unwrap();
        assert_eq!(user.unwrap().name, "jürgen");
        let groups = [
            ("impersonate-user", &b"jane"[..]),
            ("impersonate-group", "prüfer".as_bytes()),
        ];
        assert_eq!(take(&groups).unwrap().unwrap().groups, ["prüfer"]);
        for name in [
            "impersonate-user",
            "impersonate-group",
            "impersonate-extra-a",
        ] {
            let pairs = [("impersonate-user", &b"jane"[..]), (name, b"\xff")];
            let pairs = if name == "impersonate-user" {
                &pairs[1..]
            } else {
                &pairs[..]
            };
            assert_eq!(take(pairs), Err(400), "{name}");
        }
    }

    #[test]
    fn account_has_a_namespace_and_a_name() {
        assert_eq!(
            parse_account("system:serviceaccount:ns:name"),
            Some(("ns", "name"))
        );
        for user in [
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount::a",
            "system:serviceaccount:ns:",
            "ns:a",
        ] {
            assert_eq!(parse_account(user), None, "{user}");
        }
    }

    fn needed(user: User) -> Vec<String> {
        let attributes = needed_attributes(&User::default(), &user);
        let describe = |a: &Attributes| {
            let resource = match a.subresource.as_str() {
                "" => a.resource.clone(),
                subresource => format!("{}/{subresource}", a.resource),
            };
            assert_eq!(a.verb, "impersonate");
            format!("{} {resource} {}/{}", a.group, a.namespace, a.name)
        };
        attributes.iter().map(describe).collect()
    }

    #[test]
    fn every_part_of_the_identity_needs_its_own_permission() {
        let extra = [("scopes".to_owned(), vec!["a".to_owned(), "b".to_owned()])];
        let user = User {
            name: "jane".into(),
            uid: "7".into(),
            groups: vec!["dev".into()],
            extra: extra.into_iter().collect(),
        };
        let expect = [
            " users /jane",
            " groups /dev",
            "authentication.k8s.io userextras/scopes /a",
            "authentication.k8s.io userextras/scopes /b",
            "authentication.k8s.io uids /7",
        ];
        assert_eq!(needed(user), expect);
    }

    #[test]
    fn service_account_is_impersonated_as_an_object_of_its_namespace() {
        let user = User {
            name: "system:serviceaccount:ns:name".into(),
            ..User::default()
        };
        assert_eq!(needed(user), [" serviceaccounts ns/name"]);
    }

    #[test]
    fn impersonated_user_gets_its_implicit_groups() {
        let groups = |name: &str, groups: &[&str]| {
            let mut user = User {
                name: name.into(),
                groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                ..User::default()
            };
            add_own_groups(&mut user);
            user.groups.join(" ")
        };
        assert_eq!(groups("jane", &["dev"]), "dev system:authenticated");
        assert_eq!(groups("system:anonymous", &[]), "system:unauthenticated");
        assert_eq!(
            groups("system:serviceaccount:ns:name", &[]),
            "system:serviceaccounts system:serviceaccounts:ns system:authenticated"
        );
        assert_eq!(
            groups("jane", &["system:unauthenticated"]),
            "system:unauthenticated",
            "the requested group decides"
        );
    }
}
