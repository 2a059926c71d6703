//! Name rules: DNS-1123 labels and subdomains, DNS-1035 labels, qualified names, label values. Each
//! function returns upstream's messages for a bad name, and none for a good one.

use crate::text::truncate_text;

const DNS1123_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS1123_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS1035_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const DOTS: &str = "must not contain dots";

/// Upstream has two generations of these rules: names of DNS count characters, the parts of labels
/// count bytes. Both mean bytes.
fn too_long(max: usize, unit: &str) -> String {
    format!("must be no more than {max} {unit}")
}

fn is_lower_alphanumeric(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_dns_label(s: &str) -> bool {
    let bytes = s.as_bytes();
    let inside = bytes.iter().all(|&b| is_lower_alphanumeric(b) || b == b'-');
    inside
        && bytes.first().is_some_and(|&b| is_lower_alphanumeric(b))
        && bytes.last().is_some_and(|&b| is_lower_alphanumeric(b))
}

fn is_dns_subdomain(s: &str) -> bool {
    s.split('.').all(is_dns_label)
}

fn is_qualified_part(s: &str) -> bool {
    let bytes = s.as_bytes();
    let inside = bytes
        .iter()
        .all(|&b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    inside
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Checks a DNS label: at most 63 bytes of `[a-z0-9-]`.
pub fn dns1123_label(s: &str) -> Vec<String> {
    // DNS limits labels to 63 bytes, and such names become parts of host names.
    let text = if is_dns_subdomain(s) {
        DOTS
    } else {
        DNS1123_LABEL
    };
    check_name(s, 63, "characters", is_dns_label(s), text)
}

/// Checks a DNS subdomain: at most 253 bytes of labels joined by dots.
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    // DNS limits whole names to 253 bytes, and upstream applies the limit to most kinds.
    check_subdomain(s, "characters")
}

/// Checks a DNS label that starts with a letter (Service names).
pub fn dns1035_label(s: &str) -> Vec<String> {
    // RFC 1035 is stricter than RFC 1123: the first character must be a letter.
    let good = is_dns_label(s) && s.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    check_name(s, 63, "characters", good, DNS1035_LABEL)
}

/// Checks a label value: empty, or at most 63 bytes of `[A-Za-z0-9-_.]`.
pub fn label_value(s: &str) -> Vec<String> {
    let good = s.is_empty() || is_qualified_part(s);
    check_name(s, 63, "bytes", good, LABEL_VALUE)
}

/// Checks `name` or `prefix/name`, the form of label and annotation keys.
pub fn qualified_name(s: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = s.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors.extend(
                    check_subdomain(prefix, "bytes")
                        .into_iter()
                        .map(|m| format!("prefix part {m}")),
                );
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {QUALIFIED} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push(format!("name part {}", too_long(63, "bytes")));
    }
    // Upstream reports length and form independently of each other, so a name may have two errors.
    if !is_qualified_part(name) {
        errors.push(format!("name part {QUALIFIED}"));
    }
    errors
}

/// Checks a name that must fit into one path segment (RBAC names and the like).
pub fn path_segment(s: &str) -> Vec<String> {
    // The name is a segment of a URL and of an etcd key, where both would be steps.
    if s == "." || s == ".." {
        return vec![format!("may not be '{s}'")];
    }
    ['/', '%']
        .iter()
        .filter(|c| s.contains(**c))
        .map(|c| format!("may not contain '{c}'"))
        .collect()
}

fn check_subdomain(s: &str, unit: &str) -> Vec<String> {
    check_name(s, 253, unit, is_dns_subdomain(s), DNS1123_SUBDOMAIN)
}

fn check_name(s: &str, max: usize, unit: &str, good: bool, text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if s.len() > max {
        errors.push(too_long(max, unit));
    }
    if !good {
        errors.push(text.to_owned());
    }
    errors
}

/// Bytes of a name that a field path shows. The longest valid key, of a label or an annotation, has
/// 317.
const SHOWN: usize = 320;

/// Returns the part of a name that field paths show. A key of a map may be as long as a request,
/// and the paths of everything below it repeat it.
pub fn shorten_name(name: &str) -> &str {
    truncate_text(name, SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn names_follow_their_rules() {
        let good: [(Check, &str); 8] = [
            (dns1123_label, "a-1"),
            (dns1123_subdomain, "a.b-c.1"),
            (dns1035_label, "a1"),
            (label_value, ""),
            (label_value, "A_b.c"),
            (qualified_name, "example.com/My_Name"),
            (qualified_name, "x"),
            (path_segment, "system:node"),
        ];
        let bad: [(Check, &str); 8] = [
            (dns1123_label, ""),
            (dns1123_label, "A"),
            (dns1123_subdomain, "a..b"),
            (dns1035_label, "1a"),
            (label_value, "-"),
            (qualified_name, "/x"),
            (qualified_name, "a/b/c"),
            (path_segment, "a/b"),
        ];
        good.iter()
            .for_each(|(f, s)| assert!(f(s).is_empty(), "{s}: {:?}", f(s)));
        bad.iter()
            .for_each(|(f, s)| assert!(!f(s).is_empty(), "{s}"));
    }
}
