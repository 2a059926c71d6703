//! Formats of codes and numbers in texts.

/// Returns whether the text is base64 of at least one byte, with padding.
pub(super) fn is_base64(text: &str) -> bool {
    let plain = text.trim_end_matches('=');
    let padding = text.len() - plain.len();
    let alphabet = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    !text.is_empty() && text.len().is_multiple_of(4) && padding <= 2 && plain.bytes().all(alphabet)
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns whether the digits of the text are a card number of a known issuer.
pub(super) fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let prefix = |n: usize| {
        digits
            .get(..n)
            .and_then(|p| p.parse::<u32>().ok())
            .unwrap_or(0)
    };
    let (two, three, four) = (prefix(2), prefix(3), prefix(4));
    let issuer = match digits.len() {
        13 => digits.starts_with('4'),
        14 => (300..=305).contains(&three) || two == 36 || two == 38,
        15 => matches!(two, 34 | 37) || matches!(four, 2131 | 1800),
        16 => {
            digits.starts_with('4')
                || (51..=55).contains(&two)
                || four == 6011
                || two == 65
                || two == 35
        }
        _ => false,
    };
    issuer && luhn_sum(&digits).is_multiple_of(10)
}

fn luhn_sum(digits: &str) -> u32 {
    let double = |d: u32| if d > 4 { 2 * d - 9 } else { 2 * d };
    let values = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate();
    values
        .map(|(i, d)| if i % 2 == 1 { double(d) } else { d })
        .sum()
}

fn without_separators(text: &str) -> String {
    let separator = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c' | '-');
    text.chars().filter(|c| !separator(*c)).collect()
}

pub(super) fn is_isbn10(text: &str) -> bool {
    let code = without_separators(text);
    let (Some(body), Some(last)) = (code.get(..9), code.get(9..)) else {
        return false;
    };
    let last = match last {
        "X" => 10,
        other if other.len() == 1 && is_digits(other) => other.parse().unwrap_or(0),
        _ => return false,
    };
    let sum: u32 = digits_of(body)
        .iter()
        .zip(1..)
        .map(|(d, weight)| d * weight)
        .sum();
    is_digits(body) && (sum + 10 * last).is_multiple_of(11)
}

pub(super) fn is_isbn13(text: &str) -> bool {
    let code = without_separators(text);
    if code.len() != 13 || !is_digits(&code) {
        return false;
    }
    let weigh = |(i, d): (usize, &u32)| if i % 2 == 0 { *d } else { 3 * d };
    digits_of(&code)
        .iter()
        .enumerate()
        .map(weigh)
        .sum::<u32>()
        .is_multiple_of(10)
}

/// Returns whether the text is a social security number of 11 characters.
pub(super) fn is_ssn(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 11
        && bytes.iter().enumerate().all(|(i, b)| match i {
            3 | 6 => matches!(b, b'-' | b' '),
            _ => b.is_ascii_digit(),
        })
}

pub(super) fn is_hex_color(text: &str) -> bool {
    let code = text.strip_prefix('#').unwrap_or(text);
    matches!(code.len(), 3 | 6) && code.bytes().all(|b| b.is_ascii_hexdigit())
}

pub(super) fn is_rgb_color(text: &str) -> bool {
    let inside = text
        .strip_prefix("rgb(")
        .and_then(|rest| rest.strip_suffix(')'));
    let part = |part: &str| {
        let part = part.trim_matches([' ', '\t', '\n', '\r', '\x0c']);
        let plain = part == "0" || !part.starts_with('0');
        plain && is_digits(part) && part.len() <= 3 && part.parse::<u16>().is_ok_and(|n| n <= 255)
    };
    inside.is_some_and(|inside| inside.split(',').count() == 3 && inside.split(',').all(part))
}

/// Returns whether the text is a UUID, of a version if one is given. Dashes are optional.
pub(super) fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    let mut groups: Vec<&str> = Vec::with_capacity(5);
    for (i, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if i > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(len) else {
            return false;
        };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        groups.push(group);
        rest = after;
    }
    let first = |i: usize| groups.get(i).and_then(|group| group.chars().next());
    let versioned = version.is_none() || first(2) == version;
    // Versions 4 and 5 have the variant of RFC 4122 in the fourth group.
    let variant = !matches!(version, Some('4' | '5'))
        || first(3).is_some_and(|c| matches!(c.to_ascii_lowercase(), '8' | '9' | 'a' | 'b'));
    rest.is_empty() && versioned && variant
}
