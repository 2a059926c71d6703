//! Heads of data items: the major type and its argument (RFC 8949, section 3).

use super::error::Error;

/// Major types.
pub(super) const UNSIGNED: u8 = 0;
pub(super) const NEGATIVE: u8 = 1;
pub(super) const BYTES: u8 = 2;
pub(super) const TEXT: u8 = 3;
pub(crate) const ARRAY: u8 = 4;
pub(crate) const MAP: u8 = 5;
pub(super) const TAG: u8 = 6;
pub(super) const SIMPLE: u8 = 7;

/// Ends an item of indefinite length.
pub(super) const BREAK: u8 = 0xff;

/// The head of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) major: u8,
    /// Low five bits of the first byte: the argument itself, or the size of the argument.
    pub(super) info: u8,
    /// The argument; `None` for an indefinite length.
    pub(super) argument: Option<u64>,
}

/// Splits the head off the bytes.
///
/// # Errors
/// The head is cut off, or not well-formed.
pub(super) fn split_head(bytes: &[u8]) -> Result<(Head, &[u8]), Error> {
    let (first, rest) = bytes.split_first().ok_or(Error::End)?;
    let (major, info) = (first >> 5, first & 0x1f);
    let size = match info {
        0..=23 => 0,
        24 => 1,
        25 => 2,
        26 => 4,
        27 => 8,
        31 if matches!(major, BYTES | TEXT | ARRAY | MAP) => {
            let argument = None;
            let head = Head {
                major,
                info,
                argument,
            };
            return Ok((head, rest));
        }
        31 if major == SIMPLE => return Err(Error::item("unexpected \"break\" code")),
        _ => {
            let text = format!("invalid additional information {info} for major type {major}");
            return Err(Error::item(text));
        }
    };
    let (bytes, rest) = rest.split_at_checked(size).ok_or(Error::End)?;
    let argument = match size {
        0 => u64::from(info),
        _ => bytes
            .iter()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    };
    // Two bytes for what fits in one: the only longer form that is not well-formed.
    if major == SIMPLE && info == 24 && argument < 32 {
        return Err(Error::item(format!("invalid simple value {argument}")));
    }
    let head = Head {
        major,
        info,
        argument: Some(argument),
    };
    Ok((head, rest))
}

/// Writes a head in its shortest form.
pub(crate) fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let major = major << 5;
    let bytes = argument.to_be_bytes();
    // Bytes of the argument in front of the ones that are needed.
    let (info, unused) = match argument {
        0..=23 => {
            // Below 24, so that the conversion is exact.
            out.push(major | argument as u8);
            return;
        }
        24..=0xff => (24, 7),
        0x100..=0xffff => (25, 6),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 0),
    };
    out.push(major | info);
    out.extend_from_slice(bytes.get(unused..).unwrap_or_default());
}

/// Returns the bytes after the first item. For what this crate encoded: nesting is not limited, and
/// indefinite lengths are unknown.
fn skip_item(mut bytes: &[u8]) -> Option<&[u8]> {
    // Items that are still to be skipped, instead of a recursion.
    let mut left: u64 = 1;
    while left > 0 {
        let (head, rest) = split_head(bytes).ok()?;
        let argument = head.argument?;
        bytes = rest;
        left -= 1;
        match head.major {
            BYTES | TEXT => bytes = bytes.get(usize::try_from(argument).ok()?..)?,
            ARRAY => left = left.checked_add(argument)?,
            MAP => left = left.checked_add(argument.checked_mul(2)?)?,
            TAG => left += 1,
            _ => {}
        }
    }
    Some(bytes)
}

/// Splits a map into its members: the text of each key, and the bytes of key and value. For what
/// this crate encoded.
pub(crate) fn split_members(map: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let (head, mut rest) = split_head(map).ok()?;
    let count = head.argument.filter(|_| head.major == MAP)?;
    let mut members = Vec::new();
    for _ in 0..count {
        let (key, after) = split_head(rest).ok()?;
        let key = after.get(..usize::try_from(key.argument?).ok()?)?;
        let after = skip_item(after.get(key.len()..)?)?;
        members.push((key, rest.get(..rest.len() - after.len())?));
        rest = after;
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn written_head_is_the_shortest_and_is_read_back() {
        for (argument, length) in [
            (0, 1),
            (23, 1),
            (24, 2),
            (0xff, 2),
            (0x100, 3),
            (0xffff, 3),
            (0x1_0000, 5),
            (0xffff_ffff, 5),
            (0x1_0000_0000, 9),
            (u64::MAX, 9),
        ] {
            let mut out = Vec::new();
            write_head(MAP, argument, &mut out);
            assert_eq!(out.len(), length, "{argument}");
            let (head, rest) = split_head(&out).unwrap();
            assert_eq!((head.major, head.argument), (MAP, Some(argument)));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn malformed_heads_are_rejected() {
        for bytes in [
            &[][..],
            &[0x18],
            &[0x1b, 0, 0],
            &[0x1c],
            &[0x1f],
            &[0x3f],
            &[0xdf],
            &[0xfc],
            &[0xf8, 20],
            &[BREAK],
        ] {
            assert!(split_head(bytes).is_err(), "{bytes:02x?}");
        }
    }

    #[test]
    fn skipped_item_ends_before_the_next() {
        // [1, {'a': 22(h'0102')}], 7
        let bytes = [0x82, 0x01, 0xa1, 0x41, b'a', 0xd6, 0x42, 1, 2, 0x07];
        assert_eq!(skip_item(&bytes), Some(&[0x07][..]));
        assert_eq!(skip_item(&bytes[..8]), None);
        assert_eq!(
            skip_item(&[0x9b, 255, 255, 255, 255, 255, 255, 255, 255]),
            None
        );
    }
}
