//! Strategic merge patch.
//!
//! Structs and maps are merged by member. Lists are replaced unless the schema specifies a merge:
//! lists of objects by their merge key, lists of primitives as sets. Directives in the patch
//! (`$patch`, `$retainKeys`, `$deleteFromPrimitiveList/..`, `$setElementOrder/..`) override that.

mod order;

use api_schema::{Field, Message, Shape, Type};
use serde_json::{Map, Value};

use crate::PatchError;
use order::{Positions, in_order, partition_items};
use std::collections::{HashMap, HashSet};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch to an object of the type.
pub fn strategic_merge(
    message: &'static Message,
    original: Value,
    patch: &Value,
) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(
            "the patch must be an object".to_owned(),
        ));
    };
    let original = match original {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    merge_map(original, patch.clone(), At::Struct(message)).map(Value::Object)
}

/// Schema at the current position of the merge.
#[derive(Clone, Copy)]
enum At {
    Struct(&'static Message),
    Map(&'static Type),
    Unknown,
}

impl At {
    fn of(ty: &'static Type) -> Self {
        match ty {
            Type::Map(inner) => At::Map(inner),
            Type::Message(_) | Type::List(_) => match ty.message() {
                Some(message) if message.shape == Shape::Struct => At::Struct(message),
                _ => At::Unknown,
            },
            _ => At::Unknown,
        }
    }

    /// Returns the field of that name and the schema below it.
    fn below(self, key: &str) -> (Option<&'static Field>, At) {
        match self {
            At::Struct(message) => match message.field(key) {
                Some(field) => (Some(field), At::of(&field.ty)),
                None => (None, At::Unknown),
            },
            At::Map(inner) => (None, At::of(inner)),
            At::Unknown => (None, At::Unknown),
        }
    }
}

type Object = Map<String, Value>;

fn bad_patch<T>(text: String) -> Result<T, PatchError> {
    Err(PatchError::Directive(text))
}

fn unknown_type<T>(directive: &Value, map: &Object) -> Result<T, PatchError> {
    let name = directive
        .as_str()
        .map_or_else(|| directive.to_string(), str::to_owned);
    bad_patch(format!(
        "unknown patch type: {name} in map: {}",
        Value::Object(map.clone())
    ))
}

fn merge_map(mut original: Object, mut patch: Object, at: At) -> Result<Object, PatchError> {
    // `$patch` decides about the whole map, before its members are looked at.
    if let Some(directive) = patch.remove(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(without_directives(patch)),
            Some("delete") => Ok(Map::new()),
            Some("merge") => merge_map(original, patch, at),
            _ => unknown_type(&directive, &patch),
        };
    }
    // Before the members: what is removed here must not be merged with a change.
    retain_keys(&mut original, &mut patch)?;
    // Lists with an order directive are taken out of the patch and merged here. kubectl apply sends
    // the directive for every list that it changes.
    merge_ordered_lists(&mut original, &mut patch, at)?;
    for (key, change) in patch {
        if let Some(name) = key.strip_prefix(DELETE_FROM) {
            delete_from_list(&mut original, name, &change)?;
        // Null removes a member, also one that the schema does not know.
        } else if change.is_null() {
            original.remove(&key);
        } else {
            let merged = merge_member(original.remove(&key), change, &key, at)?;
            original.insert(key, merged);
        }
    }
    Ok(original)
}

fn merge_member(
    before: Option<Value>,
    change: Value,
    key: &str,
    at: At,
) -> Result<Value, PatchError> {
    let (field, below) = at.below(key);
    match (before, change) {
        (Some(Value::Object(_)), change @ Value::Object(_))
            // `patchStrategy: replace` is rare: the value of the patch replaces the struct as a
            // whole.
            if field.is_some_and(|field| field.patch_replace) =>
        {
            Ok(change)
        }
        (Some(Value::Object(before)), Value::Object(change)) => {
            merge_map(before, change, below).map(Value::Object)
        }
        (Some(Value::Array(before)), Value::Array(change)) => match field {
            // Lists without a merge strategy are atomic: arguments of a command have an order that
            // no merge would keep.
            Some(field) if field.patch_merge => {
                merge_list(before, change, field.patch_key, below).map(Value::Array)
            }
            _ => Ok(Value::Array(change)),
        },
        // Types differ or nothing was there: the patch wins, without its directives.
        (_, change) => Ok(settle_directives(change)),
    }
}

/// Prepares a value of the patch that has no counterpart: removes nulls and directives.
fn settle_directives(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(without_directives(map)),
        Value::Array(list) => {
            let is_directive = |item: &Value| item.get(PATCH).is_some();
            Value::Array(
                list.into_iter()
                    .filter(|item| !is_directive(item))
                    .map(settle_directives)
                    .collect(),
            )
        }
        value => value,
    }
}

fn without_directives(map: Object) -> Object {
    let keeps = |key: &str, value: &Value| {
        let directive = key == PATCH
            || key == RETAIN_KEYS
            || key.starts_with(DELETE_FROM)
            || key.starts_with(SET_ORDER);
        !directive && !value.is_null()
    };
    map.into_iter()
        .filter(|(key, value)| keeps(key, value))
        .map(|(key, value)| (key, settle_directives(value)))
        .collect()
}

/// Executes `$retainKeys`: removes members that it does not name. The patch must not set others.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(directive) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(list) = &directive else {
        return bad_patch("invalid patch format of retainKeys".to_owned());
    };
    let names: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| names.contains(key);
    let exempt = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch
        .iter()
        // A patch that sets what it does not retain contradicts itself. kubectl never sends one.
        .any(|(key, value)| !value.is_null() && !exempt(key) && !named(key))
    {
        return bad_patch("invalid patch format of retainKeys".to_owned());
    }
    original.retain(|key, _| named(key));
    Ok(())
}

fn delete_from_list(
    original: &mut Object,
    name: &str,
    deleted_values: &Value,
) -> Result<(), PatchError> {
    let Value::Array(deleted_values) = deleted_values else {
        return bad_patch(format!("{DELETE_FROM}{name} is no list"));
    };
    if let Some(Value::Array(list)) = original.get_mut(name) {
        let deleted_values: HashSet<&Value> = deleted_values.iter().collect();
        list.retain(|item| !deleted_values.contains(item));
    }
    Ok(())
}

/// Executes `$setElementOrder`: merges the list and sorts it in that order. Elements that only the
/// server has keep their relative position.
fn merge_ordered_lists(
    original: &mut Object,
    patch: &mut Object,
    at: At,
) -> Result<(), PatchError> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let (Some(Value::Array(order)), Some(name)) =
            (patch.remove(&directive), directive.strip_prefix(SET_ORDER))
        else {
            return bad_patch(format!("{directive} is no list"));
        };
        let (field, below) = at.below(name);
        let key = field.map_or("", |field| field.patch_key);
        let before = as_list(original.remove(name));
        let change = as_list(patch.remove(name));
        // Taken before the merge, which moves elements.
        let server_order = before.clone().unwrap_or_default();
        let merged = match (before, change) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(change)) => {
                as_list(Some(settle_directives(Value::Array(change)))).unwrap_or_default()
            }
            (Some(before), Some(change)) if field.is_some_and(|field| field.patch_merge) => {
                // An element without a place in the order would land at a position that depends on
                // the implementation.
                check_order(&change, &order, key)?;
                merge_list(before, change, key, below)?
            }
            (Some(_), Some(change)) => change,
        };
        let (in_patch, server_only) = partition_items(merged, &order, key);
        original.insert(
            name.to_owned(),
            Value::Array(in_order(in_patch, server_only, &order, &server_order, key)),
        );
    }
    Ok(())
}

fn as_list(value: Option<Value>) -> Option<Vec<Value>> {
    match value {
        Some(Value::Array(list)) => Some(list),
        _ => None,
    }
}

/// Checks that the order list contains every element that the patch sets.
fn check_order(change: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    let is_kept = |item: &&Value| item.get(PATCH).is_none();
    let positions = Positions::read(order, key);
    match change
        .iter()
        .filter(is_kept)
        .find(|item| positions.find(item).is_none())
    {
        Some(item) => bad_patch(format!(
            "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n: {item} is missing",
            Value::from(change.to_vec()),
            Value::from(order.to_vec())
        )),
        None => Ok(()),
    }
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    at: At,
) -> Result<Vec<Value>, PatchError> {
    let objects = original.iter().chain(&patch).any(Value::is_object);
    if !objects {
        // Sets of primitives (finalizers) are merged without a key: equal values are one element.
        let order = original.clone();
        let mut merged: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
        let mut seen = HashSet::with_capacity(original.len() + patch.len());
        for item in original.iter().chain(&patch) {
            if seen.insert(item) {
                merged.push(item.clone());
            }
        }
        drop(seen);
        let (in_patch, server_only) = partition_items(merged, &patch, "");
        return Ok(in_order(in_patch, server_only, &patch, &order, ""));
    }
    if key.is_empty() {
        return bad_patch("cannot merge lists without merge key".to_owned());
    }
    merge_objects(original, patch, key, at)
}

/// The elements of a list's patch.
struct ListPatch {
    changes: Vec<Object>,
    /// Merge keys of deleted elements.
    deleted: HashSet<Value>,
    replace: bool,
}

/// Separates the directives of a list's patch from its elements.
fn read_list_patch(patch: Vec<Value>, key: &str) -> Result<ListPatch, PatchError> {
    let mut read = ListPatch {
        changes: Vec::with_capacity(patch.len()),
        deleted: HashSet::new(),
        replace: false,
    };
    for item in patch {
        let Value::Object(map) = item else {
            return bad_patch("list element is no object".to_owned());
        };
        match map.get(PATCH).map(Value::as_str) {
            None => read.changes.push(map),
            // The directive stands in an element of its own, anywhere in the list.
            Some(Some("replace")) => read.replace = true,
            Some(Some("delete")) => {
                read.deleted.insert(merge_value(&map, key)?.clone());
            }
            Some(Some("merge")) => {
                return bad_patch("merging lists cannot yet be specified in the patch".to_owned());
            }
            Some(_) => return unknown_type(map.get(PATCH).unwrap_or(&Value::Null), &map),
        }
    }
    Ok(read)
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &str,
    at: At,
) -> Result<Vec<Value>, PatchError> {
    let ListPatch {
        changes,
        deleted,
        replace,
    } = read_list_patch(patch, key)?;
    if replace {
        return Ok(changes
            .into_iter()
            .map(without_directives)
            .map(Value::Object)
            .collect());
    }
    // Deletions first, so that a patch may delete an element and add another with the same key.
    if !deleted.is_empty() {
        original.retain(|item| item.get(key).is_none_or(|value| !deleted.contains(value)));
    }
    let server_order = original.clone();
    let mut known: HashMap<Value, usize> = HashMap::with_capacity(original.len());
    for (at, item) in original.iter().enumerate() {
        if let Some(value) = item.get(key) {
            known.entry(value.clone()).or_insert(at);
        }
    }
    // The order of the patch is needed after its elements have been moved into the list.
    let patch_order: Vec<Value> = changes.iter().cloned().map(Value::Object).collect();
    for change in changes {
        let value = merge_value(&change, key)?.clone();
        // A map from key to position: a patch of thousands of elements must not compare each with
        // each.
        match known.get(&value).and_then(|at| original.get_mut(*at)) {
            Some(slot) => {
                let before = slot.as_object_mut().map(std::mem::take).unwrap_or_default();
                *slot = Value::Object(merge_map(before, change, at)?);
            }
            None => {
                known.insert(value, original.len());
                original.push(Value::Object(without_directives(change)));
            }
        }
    }
    let (in_patch, server_only) = partition_items(original, &patch_order, key);
    Ok(in_order(
        in_patch,
        server_only,
        &patch_order,
        &server_order,
        key,
    ))
}

fn merge_value<'a>(map: &'a Object, key: &str) -> Result<&'a Value, PatchError> {
    match map.get(key) {
        Some(value) => Ok(value),
        None => bad_patch(format!(
            "map: {} does not contain declared merge key: {key}",
            Value::Object(map.clone())
        )),
    }
}

#[cfg(test)]
mod tests;
