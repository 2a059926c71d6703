//! Digests of requests and clients, for the cache and the places.

use apiserver_request::{Attributes, User};
use sha2::{Digest as _, Sha256};

/// SHA-256 of a request, or of the name of a client.
pub type Key = [u8; 32];

/// Paths of probes, which have places of their own: all requests without credentials are of one
/// client, and a failed probe restarts the server.
const PROBES: [&str; 3] = ["/livez", "/readyz", "/healthz"];

/// Returns the key of the client for places and the cache.
pub fn digest_client(attributes: &Attributes) -> Key {
    let is_probe = !attributes.is_resource && PROBES.contains(&attributes.path.as_str());
    let purpose = if is_probe { "probe:" } else { "request:" };
    let name = attributes.caller().limit_name();
    let digest = Sha256::new_with_prefix(purpose).chain_update(name);
    digest.finalize().into()
}

/// Returns the key of the decision about a request. Without the caller: the decision is about the
/// user. Nothing is built, so that a cached decision costs no allocation.
pub fn digest_request(attributes: &Attributes) -> Key {
    // Without `..`: a new field has to be considered here.
    let Attributes {
        user:
            User {
                name: user,
                uid,
                groups,
                extra,
            },
        verb,
        group,
        version,
        namespace,
        resource,
        subresource,
        name,
        path,
        is_resource,
        field_selector,
        label_selector,
        caller: _,
    } = attributes;
    let mut digest = Sha256::new_with_prefix([u8::from(*is_resource)]);
    // A review of a resource has no path.
    let path = if *is_resource { "" } else { path };
    let texts = [
        user.as_str(),
        uid,
        verb,
        group,
        version,
        namespace,
        resource,
        subresource,
        name,
        path,
        field_selector,
        label_selector,
    ];
    for text in texts {
        add_text(&mut digest, text);
    }
    add_list(&mut digest, groups);
    add_count(&mut digest, extra.len());
    for (key, values) in extra {
        add_text(&mut digest, key);
        add_list(&mut digest, values);
    }
    digest.finalize().into()
}

fn add_list(digest: &mut Sha256, list: &[String]) {
    add_count(digest, list.len());
    for text in list {
        add_text(digest, text);
    }
}

fn add_text(digest: &mut Sha256, text: &str) {
    add_count(digest, text.len());
    digest.update(text);
}

/// Adds the length of what follows: without it, texts could be divided in another way.
fn add_count(digest: &mut Sha256, count: usize) {
    digest.update((count as u64).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_attribute_and_its_limits_are_part_of_the_digest() {
        type Change = fn(&mut Attributes);
        let changes: [Change; 20] = [
            |_| {},
            |a| a.user.name = "x".into(),
            |a| a.user.uid = "x".into(),
            |a| a.user.groups = vec!["x".into()],
            |a| a.user.groups = vec!["x".into(), String::new()],
            |a| a.user.groups = vec![String::new(), "x".into()],
            |a| a.user.extra = [("x".into(), vec![])].into(),
            |a| a.user.extra = [("x".into(), vec!["x".into()])].into(),
            |a| a.user.extra = [("xx".into(), vec![String::new()])].into(),
            |a| a.verb = "x".into(),
            |a| a.group = "x".into(),
            |a| a.version = "x".into(),
            |a| a.namespace = "x".into(),
            |a| a.resource = "x".into(),
            |a| a.subresource = "x".into(),
            |a| a.name = "x".into(),
            |a| a.path = "x".into(),
            |a| a.is_resource = true,
            |a| a.field_selector = "x".into(),
            |a| a.label_selector = "x".into(),
        ];
        let digest = |change: &Change| {
            let mut attributes = Attributes::default();
            change(&mut attributes);
            digest_request(&attributes)
        };
        let digests: BTreeSet<Key> = changes.iter().map(digest).collect();
        assert_eq!(digests.len(), changes.len());
        let other = Attributes {
            caller: Some(User::default()),
            ..Attributes::default()
        };
        assert!(digests.contains(&digest_request(&other)));
    }
}
