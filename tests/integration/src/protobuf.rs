//! The protobuf encoding of the API, as far as tests need it: the envelope, and fields by number.

/// The first bytes of every protobuf body.
pub const MAGIC: &[u8] = b"k8s\0";

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// Wire type 0.
    Number(u64),
    /// Wire type 2: text, bytes or a message.
    Bytes(Vec<u8>),
}

/// The content of an envelope (`runtime.Unknown`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The API version of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The object, without type.
    pub object: Vec<u8>,
}

impl Envelope {
    /// Reads the body of a response or the object of a watch event.
    ///
    /// # Panics
    /// If it is not an envelope.
    pub fn read(body: &[u8]) -> Self {
        let Some(unknown) = body.strip_prefix(MAGIC) else {
            panic!("not protobuf: {:?}", String::from_utf8_lossy(body));
        };
        let type_meta = read_bytes(unknown, 1);
        let text = |number| String::from_utf8_lossy(&read_bytes(&type_meta, number)).into_owned();
        Self {
            api_version: text(1),
            kind: text(2),
            object: read_bytes(unknown, 2),
        }
    }

    /// Returns the body of a request.
    pub fn write(&self) -> Vec<u8> {
        let mut type_meta = write_bytes(1, self.api_version.as_bytes());
        type_meta.extend(write_bytes(2, self.kind.as_bytes()));
        let mut body = MAGIC.to_vec();
        body.extend(write_bytes(1, &type_meta));
        body.extend(write_bytes(2, &self.object));
        body
    }

    /// Returns `metadata.name` of the object.
    pub fn name(&self) -> String {
        let metadata = read_bytes(&self.object, 1);
        String::from_utf8_lossy(&read_bytes(&metadata, 1)).into_owned()
    }
}

/// Encodes a field of wire type 2.
pub fn write_bytes(number: u64, value: &[u8]) -> Vec<u8> {
    let mut field = write_varint(number << 3 | 2);
    field.extend(write_varint(value.len() as u64));
    field.extend_from_slice(value);
    field
}

/// Returns the first field of this number; empty if there is none.
///
/// # Panics
/// If the message is malformed, like the following function.
pub fn read_bytes(message: &[u8], number: u64) -> Vec<u8> {
    let fields = read_fields(message);
    let found = fields.into_iter().find_map(|field| match field {
        (of, Field::Bytes(bytes)) if of == number => Some(bytes),
        _ => None,
    });
    found.unwrap_or_default()
}

/// Returns the fields of a message with wire types 0 and 2.
///
/// # Panics
/// If the message is malformed.
pub fn read_fields(mut message: &[u8]) -> Vec<(u64, Field)> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = read_varint(&mut message);
        let value = match tag & 7 {
            0 => Field::Number(read_varint(&mut message)),
            2 => {
                let length = read_varint(&mut message) as usize;
                let (value, rest) = message.split_at(length);
                message = rest;
                Field::Bytes(value.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, value));
    }
    fields
}

fn write_varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn read_varint(message: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first().unwrap_or_else(|| panic!("truncated"));
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than 64 bits")
}
