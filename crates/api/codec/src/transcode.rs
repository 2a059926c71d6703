//! Writes a protobuf message as JSON without building its tree, which takes several times as long.
//!
//! The bytes are those of decoding and encoding. Of a field that occurs several times without being
//! a list, only the last value is read, so that errors in the others are not found.

mod raw;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write as _;

use api_schema::{Field, Message, Omit, Shape, Type};

use crate::json::{write_string, write_typed};
use crate::proto::wire::{Reader, Wire};
use crate::proto::{MAX_DEPTH, read_message, read_text, wrong_wire};
use crate::{DecodeError, canonical, scalars};

/// The type of an object, which is not in its message.
#[derive(Clone, Copy, Debug)]
pub struct TypeMeta<'a> {
    /// `kind`
    pub kind: &'a str,
    /// `apiVersion`
    pub api_version: &'a str,
}

/// Appends the JSON of an object to `out`, given as its message without an envelope. After an
/// error, `out` has a part of it.
///
/// # Errors
/// The bytes are no message of this type, as for [`crate::proto::decode`].
pub fn write_json(
    message: &'static Message,
    bytes: &[u8],
    type_meta: TypeMeta<'_>,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    if message.shape != Shape::Struct {
        write_typed_message(message, bytes, 0, out)?;
        return Ok(());
    }
    let mut transcoder = Transcoder {
        fields: Vec::with_capacity(64),
        out,
    };
    transcoder.write_struct(message, bytes, 0, Some(type_meta))
}

/// Checks that a member, at a path of names in JSON, can be decoded. Others are skipped.
///
/// # Errors
/// The bytes of the member are no value of its type, as for [`crate::proto::decode`].
pub fn check_member(
    message: &'static Message,
    bytes: &[u8],
    path: &[&str],
) -> Result<(), DecodeError> {
    check_member_at(message, bytes, path, 0)
}

fn check_member_at(
    message: &'static Message,
    bytes: &[u8],
    path: &[&str],
    depth: u8,
) -> Result<(), DecodeError> {
    let Some((name, rest)) = path.split_first() else {
        return Ok(());
    };
    let Some(field) = message.field(name) else {
        return Ok(());
    };
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (field.ty.message(), wire) {
            _ if number != field.number => {}
            (Some(inner), Wire::Bytes(bytes)) if !rest.is_empty() => {
                check_member_at(inner, bytes, rest, depth + 1)?;
            }
            _ => check_wire(field, wire, depth)?,
        }
    }
    Ok(())
}

fn check_wire(field: &'static Field, wire: Wire<'_>, depth: u8) -> Result<(), DecodeError> {
    let mut transcoder = Transcoder {
        fields: Vec::with_capacity(8),
        out: &mut Vec::with_capacity(1024),
    };
    match &field.ty {
        Type::List(inner) => transcoder.write_elements(field, inner, wire, (0, depth)),
        // Entries of maps are not needed.
        ty => transcoder.write_value(field, ty, wire, depth),
    }
}

struct Transcoder<'a, 'out> {
    /// The fields on the wire of all messages that are being written, the outermost first.
    fields: Vec<(u32, Wire<'a>)>,
    out: &'out mut Vec<u8>,
}

/// The place of a member: the message that has it, and the JSON object into which it is written.
#[derive(Clone, Copy)]
struct Place {
    /// Positions of the message's fields on the wire.
    from: usize,
    to: usize,
    /// The numbers of these fields, modulo 64, as bits.
    numbers: u64,
    /// Position in the output after the brace of the object.
    object: usize,
    depth: u8,
}

impl<'a> Transcoder<'a, '_> {
    fn write_struct(
        &mut self,
        message: &'static Message,
        bytes: &'a [u8],
        depth: u8,
        type_meta: Option<TypeMeta<'_>>,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::TooDeep("exceeded max depth".to_owned()));
        }
        let from = self.fields.len();
        self.read_fields(bytes)?;
        self.out.push(b'{');
        let object = self.out.len();
        self.write_members(message, (from, object), depth, type_meta)?;
        self.out.push(b'}');
        Ok(())
    }

    fn read_fields(&mut self, bytes: &'a [u8]) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.field()? {
            self.fields.push(field);
        }
        Ok(())
    }

    /// Writes the members of the message whose fields are the last ones from `from` on, and removes
    /// these fields.
    fn write_members(
        &mut self,
        message: &'static Message,
        (from, object): (usize, usize),
        depth: u8,
        type_meta: Option<TypeMeta<'_>>,
    ) -> Result<(), DecodeError> {
        let wires = self.fields.get(from..).unwrap_or_default();
        let place = Place {
            from,
            to: self.fields.len(),
            numbers: wires
                .iter()
                .fold(0, |all, (number, _)| all | number_bit(*number)),
            object,
            depth,
        };
        for field in &message.fields {
            match type_meta {
                Some(meta) if field.number == 0 && field.json == "kind" => {
                    self.write_name(place, field);
                    write_string(meta.kind, self.out);
                }
                Some(meta) if field.number == 0 && field.json == "apiVersion" => {
                    self.write_name(place, field);
                    write_string(meta.api_version, self.out);
                }
                _ => self.write_member(place, field)?,
            }
        }
        self.fields.truncate(from);
        Ok(())
    }

    fn write_name(&mut self, place: Place, field: &Field) {
        if self.out.len() > place.object {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(field.json.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn write_member(&mut self, place: Place, field: &'static Field) -> Result<(), DecodeError> {
        if field.inline {
            return self.write_inline(place, field);
        }
        // Most fields of a message are absent.
        if field.omit != Omit::Never && place.numbers & number_bit(field.number) == 0 {
            return Ok(());
        }
        let before = self.out.len();
        self.write_name(place, field);
        let value = self.out.len();
        let is_present = match &field.ty {
            Type::List(inner) => self.write_list(place, field, inner)?,
            Type::Map(inner) => self.write_map(place, field, inner)?,
            ty => match self.last_wire(place, field) {
                Some(wire) => {
                    self.write_value(field, ty, wire, place.depth)?;
                    true
                }
                None => false,
            },
        };
        let written = self.out.get(value..).unwrap_or_default();
        if is_present && keeps_written(field, written) {
            return Ok(());
        }
        if field.omit != Omit::Never {
            self.out.truncate(before);
            return Ok(());
        }
        self.out.truncate(value);
        match canonical::written_zero(field) {
            Some(zero) => write_typed(&field.ty, &zero, self.out),
            None => self.out.extend_from_slice(b"null"),
        }
        Ok(())
    }

    /// Writes the members of an embedded message into the object of the message that embeds it.
    fn write_inline(&mut self, place: Place, field: &'static Field) -> Result<(), DecodeError> {
        let Some(inner) = field.ty.message() else {
            return Ok(());
        };
        let from = self.fields.len();
        for index in place.from..place.to {
            if let Some((number, Wire::Bytes(bytes))) = self.fields.get(index).copied()
                && number == field.number
            {
                self.read_fields(bytes)?;
            }
        }
        self.write_members(inner, (from, place.object), place.depth + 1, None)
    }

    /// Returns the value that counts: the last one.
    fn last_wire(&self, place: Place, field: &Field) -> Option<Wire<'a>> {
        let mut own = self.fields.get(place.from..place.to)?.iter().rev();
        own.find_map(|(number, wire)| (*number == field.number).then_some(*wire))
    }

    /// Writes a list; returns whether it is there.
    fn write_list(
        &mut self,
        place: Place,
        field: &'static Field,
        inner: &'static Type,
    ) -> Result<bool, DecodeError> {
        let mut is_present = false;
        self.out.push(b'[');
        let start = self.out.len();
        for index in place.from..place.to {
            let Some((number, wire)) = self.fields.get(index).copied() else {
                continue;
            };
            if number == field.number {
                is_present = true;
                self.write_elements(field, inner, wire, (start, place.depth))?;
            }
        }
        self.out.push(b']');
        Ok(is_present)
    }

    fn write_elements(
        &mut self,
        field: &'static Field,
        inner: &'static Type,
        wire: Wire<'a>,
        (start, depth): (usize, u8),
    ) -> Result<(), DecodeError> {
        let is_scalar = matches!(
            inner,
            Type::Bool | Type::Int32 | Type::Int64 | Type::Uint32 | Type::Uint64
        );
        let (true, Wire::Bytes(packed)) = (is_scalar, wire) else {
            self.separate(start);
            return self.write_value(field, inner, wire, depth);
        };
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            self.separate(start);
            let element = Wire::Varint(reader.varint()?);
            self.write_value(field, inner, element, depth)?;
        }
        Ok(())
    }

    fn separate(&mut self, start: usize) {
        if self.out.len() > start {
            self.out.push(b',');
        }
    }

    /// Writes a map, sorted by key; returns whether it is there.
    fn write_map(
        &mut self,
        place: Place,
        field: &'static Field,
        inner: &'static Type,
    ) -> Result<bool, DecodeError> {
        let mut entries: BTreeMap<Cow<'a, str>, Option<Wire<'a>>> = BTreeMap::new();
        for (number, wire) in self.fields.get(place.from..place.to).unwrap_or_default() {
            if *number == field.number {
                let (key, value) = read_entry(field, *wire)?;
                entries.insert(key, value);
            }
        }
        self.out.push(b'{');
        let start = self.out.len();
        for (key, value) in &entries {
            self.separate(start);
            write_string(key, self.out);
            self.out.push(b':');
            match (value, inner) {
                (Some(wire), _) => self.write_value(field, inner, *wire, place.depth)?,
                (None, Type::Bytes) => self.out.extend_from_slice(b"null"),
                (None, _) => {
                    let zero = canonical::zero_value(inner).unwrap_or_default();
                    write_typed(inner, &zero, self.out);
                }
            }
        }
        self.out.push(b'}');
        Ok(!entries.is_empty())
    }

    fn write_value(
        &mut self,
        field: &'static Field,
        ty: &'static Type,
        wire: Wire<'a>,
        depth: u8,
    ) -> Result<(), DecodeError> {
        // Writing to a Vec can't fail.
        let _ = match (ty, wire) {
            (Type::Bool, Wire::Varint(n)) => write!(self.out, "{}", n != 0),
            // Go truncates to 32 bits and reads two's complement.
            (Type::Int32, Wire::Varint(n)) => write!(self.out, "{}", n as i32),
            (Type::Int64, Wire::Varint(n)) => write!(self.out, "{}", n as i64),
            (Type::Uint32, Wire::Varint(n)) => write!(self.out, "{}", n as u32),
            (Type::Uint64, Wire::Varint(n)) => write!(self.out, "{n}"),
            (Type::Double, Wire::Fixed64(bits)) => {
                let number = canonical::double_tree(f64::from_bits(bits));
                write_typed(ty, &number, self.out);
                Ok(())
            }
            (Type::String, Wire::Bytes(bytes)) => {
                write_string(&read_text(bytes), self.out);
                Ok(())
            }
            (Type::Bytes, Wire::Bytes(bytes)) => {
                write_string(&scalars::base64_encode(bytes), self.out);
                Ok(())
            }
            (Type::Message(_), Wire::Bytes(bytes)) => {
                return self.write_message(ty, bytes, depth + 1);
            }
            _ => return Err(wrong_wire(field)),
        };
        Ok(())
    }

    fn write_message(
        &mut self,
        ty: &'static Type,
        bytes: &'a [u8],
        depth: u8,
    ) -> Result<(), DecodeError> {
        match ty.message() {
            Some(message) if message.shape == Shape::Struct => {
                self.write_struct(message, bytes, depth, None)
            }
            Some(message) => write_typed_message(message, bytes, depth, self.out),
            None => {
                self.out.extend_from_slice(b"null");
                Ok(())
            }
        }
    }
}

/// Returns the bit of a field's number in [`Place::numbers`].
fn number_bit(number: u32) -> u64 {
    1 << (number % 64)
}

/// Writes a message of a special shape. JSON in it is copied if it is written as it would be here.
fn write_typed_message(
    message: &'static Message,
    bytes: &[u8],
    depth: u8,
    out: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    if matches!(
        message.shape,
        Shape::FieldsV1 | Shape::RawExtension | Shape::Json
    ) && let Some(json) = raw::find_canonical(bytes)
    {
        out.extend_from_slice(json.as_bytes());
        return Ok(());
    }
    let value = read_message(message, bytes, depth)?;
    crate::json::encode_to(message, &value, out);
    Ok(())
}

/// Returns key and value of an entry, whose members may come in any order.
fn read_entry<'a>(
    field: &Field,
    wire: Wire<'a>,
) -> Result<(Cow<'a, str>, Option<Wire<'a>>), DecodeError> {
    let Wire::Bytes(bytes) = wire else {
        return Err(wrong_wire(field));
    };
    let (mut key, mut value) = (Cow::Borrowed(""), None);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.field()? {
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => key = read_text(bytes),
            (2, wire) => value = Some(wire),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Returns whether a member stays whose value was written like this; [`canonical::keeps_value`] for
/// JSON.
fn keeps_written(field: &Field, json: &[u8]) -> bool {
    let is_empty = matches!(json, b"false" | b"0" | b"\"\"" | b"[]" | b"{}");
    json != b"null" && (field.omit == Omit::Never || field.pointer || !is_empty)
}
