//! Owner references that occur twice.

use crate::write::Write;
use api_meta::Meta;
use api_meta::tree::{get, text};
use serde_json::Value;
use std::collections::HashSet;

/// The object that has duplicates: that of the request, or the one that admission returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Request,
    Admitted,
}

/// Removes equal owner references but the first, and warns about them. Controllers of older
/// releases add a reference each time they adopt an object.
pub(crate) fn remove_duplicate_owners(write: &mut Write, stage: Stage, object: &mut Value) {
    let Some(owners) = object
        .metadata()
        .and_then(|metadata| metadata.get("ownerReferences"))
        .and_then(Value::as_array)
    else {
        return;
    };
    let mut seen = HashSet::with_capacity(owners.len());
    let is_first: Vec<bool> = owners
        .iter()
        .map(|owner| seen.insert(identify_reference(owner)))
        .collect();
    let repeated: Vec<&str> = owners
        .iter()
        .zip(&is_first)
        .filter(|(_, first)| !**first)
        .map(|(owner, _)| text(owner, "uid"))
        .collect();
    if repeated.is_empty() {
        return;
    }
    let place = match stage {
        Stage::Request => "",
        Stage::Admitted => " after mutating admission happens",
    };
    write.warnings.push(format!(
        ".metadata.ownerReferences contains duplicate entries{place}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
    if let Some(owners) = object
        .metadata_mut()
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut)
    {
        let mut first = is_first.into_iter();
        owners.retain(|_| first.next().unwrap_or(true));
    }
}

/// Returns the fields that make two references equal. References of one owner may differ in others
/// than the UID, and then all of them stay.
fn identify_reference(owner: &Value) -> ([&str; 4], [Option<bool>; 2]) {
    (
        ["uid", "apiVersion", "kind", "name"].map(|field| text(owner, field)),
        ["controller", "blockOwnerDeletion"].map(|field| get(owner, field).as_bool()),
    )
}
