//! Protobuf wire format: varints, tags and length-delimited fields, with limits and without panics.

use crate::DecodeError;

/// A value on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
    /// A group, which no Kubernetes type has; skipped.
    Group,
}

/// Iterates over the fields of a message.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

fn truncated_error() -> DecodeError {
    DecodeError::Syntax("unexpected EOF".to_owned())
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field, or `None` at the end.
    pub(crate) fn field(&mut self) -> Result<Option<(u32, Wire<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire) = self.tag()?;
        let value = match wire {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                // The length is compared with the bytes that are left before anything is allocated.
                let length = usize::try_from(self.varint()?).map_err(|_| truncated_error())?;
                Wire::Bytes(self.take(length)?)
            }
            3 => {
                self.skip_group(0)?;
                Wire::Group
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => {
                return Err(DecodeError::Syntax(format!(
                    "proto: illegal wireType {wire}"
                )));
            }
        };
        Ok(Some((number, value)))
    }

    fn tag(&mut self) -> Result<(u32, u64), DecodeError> {
        let tag = self.varint()?;
        match u32::try_from(tag >> 3) {
            // Protobuf limits numbers to 29 bits and reserves zero.
            Ok(number) if number > 0 && number < 1 << 29 => Ok((number, tag & 7)),
            _ => Err(DecodeError::Syntax(format!(
                "proto: illegal tag {} (wire type {})",
                tag >> 3,
                tag & 7
            ))),
        }
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        // 64 bits need ten bytes of seven. gogo ignores bits beyond 64 in the tenth byte, and so
        // does the shift.
        for (index, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = self.rest.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        if self.rest.len() >= 10 {
            Err(DecodeError::Syntax("proto: integer overflow".to_owned()))
        } else {
            Err(truncated_error())
        }
    }

    /// Returns the number of bytes that are not read yet.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(truncated_error)?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| truncated_error())
    }

    fn skip_group(&mut self, depth: u8) -> Result<(), DecodeError> {
        // Groups nest by themselves, without a length that would bound them.
        if depth > 32 {
            return Err(DecodeError::TooDeep(
                "proto: groups nested too deeply".to_owned(),
            ));
        }
        loop {
            let (_, wire) = self.tag()?;
            match wire {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| truncated_error())?;
                    self.take(length)?;
                }
                3 => self.skip_group(depth + 1)?,
                4 => return Ok(()),
                5 => drop(self.take(4)?),
                _ => {
                    return Err(DecodeError::Syntax(format!(
                        "proto: illegal wireType {wire}"
                    )));
                }
            }
        }
    }
}

/// Writes a varint.
pub fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        // The mask limits the value to seven bits.
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes of a varint.
pub fn varint_length(value: u64) -> usize {
    // Seven bits in each byte, and one byte for zero.
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes the tag of a field.
pub fn write_tag(number: u32, wire: u8, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | u64::from(wire), out);
}

/// Writes a length-delimited field.
pub fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_tag(number, 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a varint field.
pub fn write_int(number: u32, value: u64, out: &mut Vec<u8>) {
    write_tag(number, 0, out);
    write_varint(value, out);
}

/// Writes a length-delimited field whose content `body` appends. The length is inserted afterwards.
pub fn write_nested(number: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    write_tag(number, 2, out);
    // Most messages are shorter than 128 bytes, so one byte is reserved for the length. Longer ones
    // move their content once.
    let start = out.len();
    out.push(0);
    body(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        if let Some(byte) = out.get_mut(start) {
            *byte = length as u8;
        }
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    write_varint(length as u64, &mut prefix);
    out.splice(start..=start, prefix);
}
