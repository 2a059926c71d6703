//! Removal of the fields that an applier no longer applies.

use crate::changes::collect_foreign_fields;
use crate::compare::compare_objects;
use crate::managers::{Entry, Identity};
use crate::path::Step;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::versions::ConversionRequest;
use crate::writer::Writer;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Removes from `merged` the fields that the manager applied before, no longer applies, and no
/// other manager owns.
pub(crate) fn prune_abandoned(
    writer: &Writer<'_>,
    entries: &[Entry],
    own: &Identity,
    wanted: &FieldSet,
    mut merged: Value,
) -> Result<Value, ConversionRequest> {
    let Some(last) = entries
        .iter()
        .find(|entry| entry.identity.is_same_owner(own))
    else {
        return Ok(merged);
    };
    let mut kept = collect_foreign_fields(entries, own);
    let own_kept = kept.entry(writer.api_version.to_owned()).or_default();
    *own_kept = std::mem::take(own_kept).union(wanted);
    let is_one_version = kept.len() == 1 && last.identity.api_version == writer.api_version;
    if !is_one_version {
        return prune_across_versions(writer, last, kept, merged);
    }
    let kept = kept.remove(writer.api_version).unwrap_or_default();
    prune_fields(
        Shape::of_object(writer.schema),
        &mut merged,
        &last.fields.difference(&kept),
        &kept,
    );
    Ok(merged)
}

/// Prunes in the version of the last apply. Then restores, in each other version, the fields that
/// have an owner there. Finally removes the fields that are still missing.
fn prune_across_versions(
    writer: &Writer<'_>,
    last: &Entry,
    mut kept: BTreeMap<String, FieldSet>,
    merged: Value,
) -> Result<Value, ConversionRequest> {
    let last_version = last.identity.api_version.as_str();
    let Some(schema) = writer.find_schema(last_version) else {
        return Ok(merged);
    };
    let shape = Shape::of_object(schema);
    let at_last = writer
        .convert(&merged, writer.api_version, last_version)?
        .into_owned();
    let kept_there = kept.remove(last_version).unwrap_or_default();
    let mut pruned = at_last.clone();
    prune_fields(
        shape,
        &mut pruned,
        &last.fields.difference(&kept_there),
        &kept_there,
    );
    if pruned == at_last {
        return Ok(merged);
    }
    let mut whole = at_last.clone();
    let mut at = last_version.to_owned();
    for (version, kept) in kept {
        let Some(schema) = writer.find_schema(&version) else {
            continue;
        };
        let shape = Shape::of_object(schema);
        let mut restored = writer.convert(&whole, &at, &version)?.into_owned();
        let reduced = writer.convert(&pruned, &at, &version)?;
        let lost = compare_objects(shape, &restored, &reduced).removed;
        let converted = restored.clone();
        prune_fields(shape, &mut restored, &lost.difference(&kept), &kept);
        (whole, pruned, at) = (converted, restored, version);
    }
    let pruned = writer.convert(&pruned, &at, last_version)?;
    let removed = compare_objects(shape, &at_last, &pruned).removed;
    let mut result = at_last;
    prune_fields(
        shape,
        &mut result,
        &removed.intersection(&last.fields),
        &FieldSet::default(),
    );
    let result = writer.convert(&result, last_version, writer.api_version)?;
    Ok(result.into_owned())
}

/// Removes abandoned paths, unless a path below them is kept.
fn prune_fields(shape: Shape<'_>, value: &mut Value, abandoned: &FieldSet, kept: &FieldSet) {
    let none = FieldSet::default();
    match value {
        Value::Object(map) if shape.is_map() => {
            for (step, child) in &abandoned.children {
                let Step::Field(name) = step else { continue };
                let keep = kept.children.get(step).unwrap_or(&none);
                if is_abandoned(child, keep) {
                    map.remove(name);
                } else if let Some(member) = map.get_mut(name) {
                    prune_fields(shape.member(name), member, child, keep);
                    // A map that held only abandoned fields goes with them, unless it is owned
                    // itself.
                    let emptied = member.as_object().is_some_and(Map::is_empty)
                        || member.as_array().is_some_and(Vec::is_empty);
                    if emptied && keep.is_empty() {
                        map.remove(name);
                    }
                }
            }
        }
        Value::Array(list) if shape.is_list() => {
            list.retain_mut(|element| {
                let step = shape.step(element);
                let Some(child) = abandoned.children.get(&step) else {
                    return true;
                };
                let keep = kept.children.get(&step).unwrap_or(&none);
                if is_abandoned(child, keep) {
                    return false;
                }
                prune_fields(shape.element(), element, child, keep);
                true
            });
        }
        _ => {}
    }
}

fn is_abandoned(abandoned: &FieldSet, kept: &FieldSet) -> bool {
    // A parent of another manager's field stays, or that field would be lost with it.
    abandoned.member && kept.is_empty()
}
