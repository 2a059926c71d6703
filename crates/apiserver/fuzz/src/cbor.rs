//! Target: CBOR, with and without a type.

use crate::choices::Choices;
use crate::typed::{build_object, pick_message};
use crate::values::{MAX_DEPTH, build_value, measure_depth};
use api_codec::{Strictness, cbor, list};
use serde_json::Value;

/// Decodes CBOR: the input itself, an item that a generator writes, or an encoded object with one
/// byte changed.
///
/// # Panics
/// If a result is deeper than a document may be, or an encoded result is read as another one.
pub fn run_cbor(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(4) {
        0 => check_bytes(&mut choices, data),
        1 => {
            let mut bytes = Vec::new();
            write_item(&mut choices, 8, &mut bytes);
            check_bytes(&mut choices, &bytes);
        }
        2 => {
            let value = build_value(&mut choices, MAX_DEPTH);
            let bytes = cbor::encode_value(&value);
            assert!(cbor::parse(&bytes).is_ok(), "not read: {value}");
            let bytes = change(&mut choices, bytes);
            check_bytes(&mut choices, &bytes);
        }
        _ => {
            let Some(message) = pick_message(&mut choices) else {
                return;
            };
            let object = build_object(&mut choices, message, 9, false);
            let bytes = cbor::encode(message, &object);
            let bytes = change(&mut choices, bytes);
            check_bytes(&mut choices, &bytes);
        }
    }
}

fn check_bytes(choices: &mut Choices<'_>, bytes: &[u8]) {
    if let Some(message) = pick_message(choices)
        && let Ok((tree, _)) = cbor::decode(message, bytes, Strictness::Strict)
        // Null is no object of any type, and is written as an empty one.
        && !tree.is_null()
    {
        check_depth(&tree);
        let again = cbor::encode(message, &tree);
        let read = cbor::decode(message, &cbor::mark(&again), Strictness::Strict);
        assert_eq!(read, Ok((tree, Vec::new())), "{bytes:02x?}");
    }
    let Ok(tree) = cbor::parse(bytes) else {
        return;
    };
    check_depth(&tree);
    let again = cbor::encode_value(&tree);
    assert_eq!(cbor::parse(&again).as_ref(), Ok(&tree), "{bytes:02x?}");
    let joined = list::cbor("v1", "L", &list::ListMeta::default(), &[again], true);
    assert!(cbor::parse(&joined).is_ok() || measure_depth(&tree) + 2 > MAX_DEPTH);
}

fn check_depth(tree: &Value) {
    assert!(measure_depth(tree) <= MAX_DEPTH, "too deep: {tree}");
}

/// Returns the bytes with one of them changed, removed or inserted, in most cases.
fn change(choices: &mut Choices<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    let at = choices.below(bytes.len().max(1));
    let byte = u8::try_from(choices.below(256)).unwrap_or_default();
    match choices.below(4) {
        0 => bytes.insert(at.min(bytes.len()), byte),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        2 => bytes
            .iter_mut()
            .skip(at)
            .take(1)
            .for_each(|old| *old = byte),
        _ => {}
    }
    bytes
}

/// Writes an item of any form, well-formed in most cases.
fn write_item(choices: &mut Choices<'_>, depth: usize, out: &mut Vec<u8>) {
    let major = choices.below(8);
    let indefinite = choices.hits(4);
    let length = choices.below(4);
    // A tower of arrays, of definite or indefinite length, or of tags.
    if choices.hits(16) {
        let first = [0x81, 0x9f, 0xd6].get(length % 3).copied().unwrap_or(0x81);
        out.extend(std::iter::repeat_n(first, choices.below(300)));
    }
    match major {
        2 | 3 if indefinite => {
            out.push((major as u8) << 5 | 31);
            for _ in 0..length {
                write_string(choices, major, out);
            }
            out.push(0xff);
        }
        2 | 3 => write_string(choices, major, out),
        4 | 5 if depth > 0 => {
            let items = if major == 5 { length * 2 } else { length };
            if indefinite {
                out.push((major as u8) << 5 | 31);
            } else {
                write_number(choices, major, length, out);
            }
            for at in 0..items {
                if major == 5 && at % 2 == 0 && !choices.hits(8) {
                    write_string(choices, 2, out);
                } else {
                    write_item(choices, depth - 1, out);
                }
            }
            if indefinite {
                out.push(0xff);
            }
        }
        6 if depth > 0 => {
            let tags = [0, 1, 2, 4, 21, 22, 23, 55799];
            let tag = tags.get(choices.below(tags.len())).copied();
            write_number(choices, 6, tag.unwrap_or_default(), out);
            write_item(choices, depth - 1, out);
        }
        7 => {
            let info = [20, 21, 22, 23, 24, 25, 26, 27];
            let info: u8 = info.get(choices.below(info.len())).copied().unwrap_or(22);
            out.push(7 << 5 | info);
            let size = match info {
                24..=27 => 1 << (info - 24),
                _ => 0,
            };
            out.extend((0..size).map(|_| choices.below(256) as u8));
        }
        _ => {
            let number = choices.below(1 << 16);
            write_number(choices, major & 1, number, out);
        }
    }
}

fn write_string(choices: &mut Choices<'_>, major: usize, out: &mut Vec<u8>) {
    let texts = [
        "",
        "a",
        "spec",
        "metadata",
        "name",
        "AQI=",
        "2024-01-01T00:00:00Z",
        "ü",
    ];
    let text = choices.pick(&texts);
    write_number(choices, major, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a head in one of its forms, which need not be the shortest.
fn write_number(choices: &mut Choices<'_>, major: usize, number: usize, out: &mut Vec<u8>) {
    let first = (major as u8) << 5;
    let bytes = (number as u64).to_be_bytes();
    let shortest = match number {
        0..=23 => 0,
        24..=255 => 1,
        256..=65_535 => 2,
        _ => 3,
    };
    let (info, used) = match shortest.max(choices.below(5)) {
        0 => (number as u8, 0),
        1 => (24, 1),
        2 => (25, 2),
        3 => (26, 4),
        _ => (27, 8),
    };
    out.push(first | info);
    out.extend_from_slice(bytes.get(8 - used..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn some_items_are_well_formed() {
        let read = (0..500).filter(|seed| {
            let bytes = random_bytes(*seed);
            let mut item = Vec::new();
            write_item(&mut Choices::new(&bytes), 8, &mut item);
            cbor::parse(&item).is_ok()
        });
        let count = read.count();
        assert!((100..450).contains(&count), "{count} of 500");
    }
}
