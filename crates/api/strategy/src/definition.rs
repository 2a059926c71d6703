//! Strategy of custom resource definitions.

use api_meta::tree::{flag, get, list, make, set};
use serde_json::Value;

/// Adds the storage version to the versions that stored objects may have. Others remain until a
/// migration removes them.
pub(crate) fn add_stored_version(object: &mut Value) {
    let versions = list(get(object, "spec"), "versions");
    let Some(storage) = versions.iter().find(|version| flag(version, "storage")) else {
        return;
    };
    let name = get(storage, "name").clone();
    if let Some(status) = make(object, "status") {
        let mut stored = list(status, "storedVersions").to_vec();
        if !stored.contains(&name) {
            stored.push(name);
            set(status, "storedVersions", stored);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn new_storage_version_is_added_once() {
        let mut object = json!({
            "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
            "status": {"storedVersions": ["v1"]}});
        add_stored_version(&mut object);
        add_stored_version(&mut object);
        assert_eq!(object["status"]["storedVersions"], json!(["v1", "v2"]));
    }
}
