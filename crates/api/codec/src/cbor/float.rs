//! Floating-point numbers of 16, 32 and 64 bits.

use super::error::Error;
use super::head::{Head, SIMPLE};

/// Values of the five low bits of a head.
const HALF: u8 = 25;
const SINGLE: u8 = 26;
const DOUBLE: u8 = 27;

/// Decodes the number of a head, which must be of the major type for simple values and floats.
/// `None`: the head is that of a simple value.
///
/// # Errors
/// NaN and infinity, which JSON does not have.
pub(super) fn decode_float(head: Head) -> Result<Option<f64>, Error> {
    let bits = head.argument.unwrap_or_default();
    // The head's size says how many low bits are used.
    let number = match head.info {
        HALF => half_to_double(bits as u16),
        SINGLE => f64::from(f32::from_bits(bits as u32)),
        DOUBLE => f64::from_bits(bits),
        _ => return Ok(None),
    };
    if number.is_finite() {
        return Ok(Some(number));
    }
    let what = if number.is_nan() { "NaN" } else { "infinity" };
    Err(Error::item(format!(
        "floating-point {what} is not accepted"
    )))
}

/// Writes a number in the shortest of the three forms that keeps its value.
pub(super) fn write_float(number: f64, out: &mut Vec<u8>) {
    let first = |info: u8| SIMPLE << 5 | info;
    // Rounds to the nearest; compared by bits, so that -0.0 stays.
    let single = number as f32;
    if f64::from(single).to_bits() != number.to_bits() {
        out.push(first(DOUBLE));
        out.extend_from_slice(&number.to_be_bytes());
    } else if let Some(half) = single_to_half(single) {
        out.push(first(HALF));
        out.extend_from_slice(&half.to_be_bytes());
    } else {
        out.push(first(SINGLE));
        out.extend_from_slice(&single.to_be_bytes());
    }
}

/// Decodes 1 sign bit, 5 bits of exponent and 10 of fraction (IEEE 754 binary16).
fn half_to_double(bits: u16) -> f64 {
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f64::from(bits & 0x3ff);
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

/// Encodes a finite number in 16 bits; `None` if that changes its value.
fn single_to_half(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    // 1 sign bit, 8 bits of exponent with a bias of 127, 23 of fraction.
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    let fraction = bits & 0x7f_ffff;
    if bits << 1 == 0 {
        return Some(sign);
    }
    let (biased, kept, lost) = match exponent {
        -14..=15 => ((exponent + 15) as u32, fraction >> 13, fraction & 0x1fff),
        // Without an implied first bit: it becomes a part of the fraction.
        -24..=-15 => {
            let whole = fraction | 0x80_0000;
            let shift = (-1 - exponent) as u32;
            (0, whole >> shift, whole & ((1 << shift) - 1))
        }
        _ => return None,
    };
    // Both fit: 5 and 10 bits.
    (lost == 0).then_some(sign | (biased << 10 | kept) as u16)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::head::split_head;
    use super::*;

    #[test]
    fn all_halves_are_read_back() {
        for bits in 0..=u16::MAX {
            let bytes = [0xf9, (bits >> 8) as u8, bits as u8];
            let decoded = decode_float(split_head(&bytes).unwrap().0);
            let Ok(Some(number)) = decoded else {
                assert_eq!(bits >> 10 & 0x1f, 31, "{bits:04x}");
                continue;
            };
            let mut out = Vec::new();
            write_float(number, &mut out);
            assert_eq!(out, bytes, "{number}");
        }
    }

    #[test]
    fn number_is_written_in_the_shortest_form_that_keeps_it() {
        for (number, length) in [
            (0.0, 3),
            (-0.0, 3),
            (65504.0, 3),
            (65505.0, 5),
            (65536.0, 5),
            (5.960_464_477_539_063e-8, 3),
            (2.980_232_238_769_531_5e-8, 5),
            (1.1, 9),
            (100_000.0, 5),
            (1e300, 9),
            (f64::from(f32::MAX), 5),
            (f64::from(f32::MIN_POSITIVE), 5),
            (f64::MIN_POSITIVE, 9),
        ] {
            let mut out = Vec::new();
            write_float(number, &mut out);
            assert_eq!(out.len(), length, "{number}");
            let head = split_head(&out).unwrap().0;
            let back = decode_float(head).unwrap().unwrap();
            assert_eq!(back.to_bits(), number.to_bits(), "{number}");
        }
    }
}
