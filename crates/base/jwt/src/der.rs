//! A reader of the few DER elements that ring does not expose.

const INTEGER: u8 = 2;
const SEQUENCE: u8 = 0x30;

/// Returns the content of the element at the start of `input` and the bytes after the element.
fn split_element(tag: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Two bytes of length cover 65,535 bytes. An RSA key of 16,384 bits has less than 10,000.
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        let length = match *bytes {
            [low] => usize::from(low),
            [high, low] => usize::from(high) << 8 | usize::from(low),
            _ => return None,
        };
        (length, rest)
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

/// Returns the digits of a positive integer, without leading zeros.
fn split_positive(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, rest) = split_element(INTEGER, input)?;
    let negative = content.first()? & 0x80 != 0;
    let digits = strip_zeros(content);
    (!negative && !digits.is_empty()).then_some((digits, rest))
}

/// Returns big-endian digits without leading zeros.
pub fn strip_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|byte| **byte == 0).count();
    digits.get(zeros..).unwrap_or_default()
}

/// Returns the modulus and the public exponent of an `RSAPrivateKey` (RFC 8017, appendix A.1.2).
pub fn read_rsa_public_part(private: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sequence, _) = split_element(SEQUENCE, private)?;
    let (_version, rest) = split_element(INTEGER, sequence)?;
    let (modulus, rest) = split_positive(rest)?;
    let (exponent, rest) = split_positive(rest)?;
    // A public key has no further integer. Without a version, its numbers would be mixed up.
    split_positive(rest)?;
    Some((modulus, exponent))
}

/// Returns the number of bits of digits without leading zeros.
pub fn count_bits(digits: &[u8]) -> usize {
    let unused = digits.first().map_or(0, |byte| byte.leading_zeros());
    digits.len() * 8 - usize::try_from(unused).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_rsa_key_has_no_public_part() {
        // SEQUENCE { 0, 0x00f1, 3, 5 }
        let key = [0x30, 13, 2, 1, 0, 2, 2, 0, 0xf1, 2, 1, 3, 2, 1, 5];
        assert_eq!(
            read_rsa_public_part(&key),
            Some(([0xf1].as_slice(), [3].as_slice()))
        );
        for end in 0..key.len() {
            assert_eq!(read_rsa_public_part(&key[..end]), None, "{end} bytes");
        }
        for (index, value) in [(0, 0x31), (1, 0x84), (2, 3), (5, 4), (6, 0x80), (7, 0x80)] {
            let mut damaged = key;
            damaged[index] = value;
            assert_eq!(read_rsa_public_part(&damaged), None, "{index}: {value}");
        }
    }

    #[test]
    fn bits_are_counted_from_the_highest_one() {
        for (digits, bits) in [(&[][..], 0), (&[1], 1), (&[0x80, 0], 16), (&[0x7f, 0], 15)] {
            assert_eq!(count_bits(digits), bits, "{digits:?}");
        }
    }
}
