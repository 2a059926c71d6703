//! Owner references: the controller of an object, and references to an owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};

/// Returns the owner references.
pub fn owner_references(metadata: &ObjectMeta) -> &[OwnerReference] {
    metadata.owner_references.as_deref().unwrap_or_default()
}

/// Returns the reference to the owner that manages the object.
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    find_controller(owner_references(metadata))
}

/// Returns the reference to the owner that manages an object with these owners.
pub fn find_controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    // Validation admits one controller at most, so the first is the only one.
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// Returns whether the object with this UID manages the object.
pub fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    // By UID and not by name: an owner that was created again is another object.
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}

/// Returns whether the object with this UID is an owner.
pub fn is_owned_by(metadata: &ObjectMeta, uid: &str) -> bool {
    owner_references(metadata)
        .iter()
        .any(|owner| owner.uid == uid)
}

/// Returns whether foreground deletion of the owner waits for the object.
pub fn blocks_deletion_of(metadata: &ObjectMeta, uid: &str) -> bool {
    owner_references(metadata)
        .iter()
        .any(|owner| owner.uid == uid && owner.block_owner_deletion == Some(true))
}

/// Returns a reference to an owner that manages the object.
pub fn controller_reference<K>(owner: &K) -> OwnerReference
where
    K: Resource + Metadata<Ty = ObjectMeta>,
{
    OwnerReference {
        // Foreground deletion of the owner waits for objects with `blockOwnerDeletion`.
        controller: Some(true),
        block_owner_deletion: Some(true),
        ..owner_reference(owner)
    }
}

/// Returns a reference to an owner that does not manage the object.
pub fn owner_reference<K>(owner: &K) -> OwnerReference
where
    K: Resource + Metadata<Ty = ObjectMeta>,
{
    let metadata = owner.metadata();
    OwnerReference {
        api_version: K::API_VERSION.to_owned(),
        kind: K::KIND.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::{Value, json};

    #[test]
    fn owners_are_read_as_the_table_says() {
        let cases: Vec<Value> = serde_json::from_str(crate::cases::OWNER_REFERENCES).unwrap();
        for case in cases {
            let tree = json!({"metadata": {"ownerReferences": case["ownerReferences"]}});
            let typed: ObjectMeta = serde_json::from_value(tree["metadata"].clone()).unwrap();
            let owners = Some(crate::tree::owner_references(&tree));
            let from_tree = ObjectMeta {
                owner_references: owners,
                ..ObjectMeta::default()
            };
            for metadata in [typed, from_tree] {
                let controller = controller_of(&metadata).map(|owner| owner.uid.as_str());
                assert_eq!(json!(controller), case["controller"], "{case}");
                let uids = ["a", "b", "c"];
                let owned = uids.map(|uid| is_owned_by(&metadata, uid));
                assert_eq!(json!(owned), case["owned"], "{case}");
                let blocks = uids.map(|uid| blocks_deletion_of(&metadata, uid));
                assert_eq!(json!(blocks), case["blocks"], "{case}");
                let controlled = uids.map(|uid| is_controlled_by(&metadata, uid));
                let expect = uids.map(|uid| case["controller"] == uid);
                assert_eq!(controlled, expect, "{case}");
            }
        }
    }

    #[test]
    fn reference_names_kind_version_and_uid_of_the_owner() {
        let owner: ReplicaSet =
            serde_json::from_value(json!({"metadata": {"name": "web", "uid": "u"}})).unwrap();
        let plain =
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"});
        assert_eq!(json!(owner_reference(&owner)), plain);
        let mut controller = plain;
        controller["controller"] = json!(true);
        controller["blockOwnerDeletion"] = json!(true);
        assert_eq!(json!(controller_reference(&owner)), controller);
    }
}
