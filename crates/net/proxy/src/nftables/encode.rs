//! Encodes changes of elements for the kernel.

use std::net::IpAddr;

use net_nft::{Action, ElementChange, ElementData, Family, MAX_ELEMENTS, push_field};

use crate::difference::{Difference, Element};
use crate::picks::{ENDPOINTS, NODE_PORT_ENDPOINTS};

/// Returns the changes of elements, in their order, if the differences have no others and are few.
/// Chains, rules and sets are changed by `nft`.
pub(crate) fn encode_changes(changes: &[Difference]) -> Option<Vec<ElementChange<'_>>> {
    let mut out = Vec::new();
    for (family, changed) in changes.iter().flatten() {
        if !changed.changes_elements_only() {
            return None;
        }
        for (action, elements) in [
            (Action::Delete, &changed.deleted_elements),
            (Action::Add, &changed.added_elements),
        ] {
            for element in elements {
                out.push(encode_change(*family, action, element)?);
            }
        }
        if out.len() > MAX_ELEMENTS {
            return None;
        }
    }
    Some(out)
}

fn encode_change(family: Family, action: Action, element: &Element) -> Option<ElementChange<'_>> {
    let value = element.value.as_str();
    let data = match value.strip_prefix("goto ") {
        Some(chain) => ElementData::Goto(chain),
        None if value == "drop" => ElementData::Drop,
        None if value.is_empty() => ElementData::None,
        None => ElementData::Value(encode_fields(value, false)?),
    };
    let is_numbered = [ENDPOINTS, NODE_PORT_ENDPOINTS].contains(&element.set);
    Some(ElementChange {
        family,
        set: element.set,
        action,
        key: encode_fields(&element.key, is_numbered)?,
        data,
    })
}

/// Encodes addresses, protocols and ports; if `is_numbered`, the last field is a number.
fn encode_fields(text: &str, is_numbered: bool) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(32);
    let mut fields = text.split(" . ").peekable();
    while let Some(field) = fields.next() {
        let is_number = is_numbered && fields.peek().is_none();
        match (field, field.parse::<IpAddr>()) {
            // `numgen` writes its number in the byte order of the machine.
            _ if is_number => push_field(&mut out, &field.parse::<u32>().ok()?.to_ne_bytes()),
            (_, Ok(IpAddr::V4(ip))) => push_field(&mut out, &ip.octets()),
            (_, Ok(IpAddr::V6(ip))) => push_field(&mut out, &ip.octets()),
            // The numbers of the Internet protocols (IANA).
            ("tcp", _) => push_field(&mut out, &[6]),
            ("udp", _) => push_field(&mut out, &[17]),
            ("sctp", _) => push_field(&mut out, &[132]),
            (port, _) => push_field(&mut out, &port.parse::<u16>().ok()?.to_be_bytes()),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_registers_of_four_bytes() {
        for (text, is_numbered, expect) in [
            ("10.0.0.1", false, Some(vec![10, 0, 0, 1])),
            ("udp . 258", false, Some(vec![17, 0, 0, 0, 1, 2, 0, 0])),
            (
                "sctp . 80 . 258",
                true,
                Some([&[132, 0, 0, 0, 0, 80, 0, 0][..], &258_u32.to_ne_bytes()].concat()),
            ),
            ("10.0.0.1 . x", false, None),
            ("tcp . 65536", false, None),
            ("tcp . 80 . x", true, None),
            ("", false, None),
        ] {
            assert_eq!(encode_fields(text, is_numbered), expect, "{text}");
        }
        let v6 = encode_fields("fd00::7 . tcp . 80", false).unwrap_or_default();
        assert_eq!((v6.len(), v6[15], v6[16]), (24, 7, 6));
    }
}
