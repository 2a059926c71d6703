//! Messages of generic netlink (`linux/genetlink.h`): families that the kernel registers by name.

use std::convert::Infallible;

use netlink_packet_core::{
    NLA_F_NESTED, NLA_TYPE_MASK, NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::connection::Connection;
use crate::error::Error;

/// Length of the header: command, version, two reserved bytes.
const HEADER: usize = 4;
/// Length of an attribute's header: its length and its kind.
const ATTRIBUTE_HEADER: usize = 4;
/// Attributes are aligned to 4 bytes.
const ALIGNMENT: usize = 4;
/// `GENL_ID_CTRL`: the family that finds the others, with `CTRL_CMD_GETFAMILY`.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const CONTROLLER_VERSION: u8 = 2;
/// `CTRL_ATTR_FAMILY_ID` and `CTRL_ATTR_FAMILY_NAME`.
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A message of a family. It has no `Debug`, because attributes can be secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct GenericMessage {
    /// Number of the family.
    pub(crate) family: u16,
    pub(crate) command: u8,
    pub(crate) version: u8,
    pub(crate) attributes: Attributes,
}

impl NetlinkSerializable for GenericMessage {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER + self.attributes.0.len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let head = [self.command, self.version, 0, 0];
        let bytes = head.iter().chain(&self.attributes.0);
        for (place, byte) in buffer.iter_mut().zip(bytes) {
            *place = *byte;
        }
    }
}

impl NetlinkDeserializable for GenericMessage {
    type Error = Infallible;

    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Infallible> {
        let byte = |place: usize| payload.get(place).copied().unwrap_or_default();
        let attributes = payload.get(HEADER..).unwrap_or_default();
        Ok(Self {
            family: header.message_type,
            command: byte(0),
            version: byte(1),
            attributes: Attributes(attributes.to_vec()),
        })
    }
}

/// Attributes in the kernel's encoding.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    /// Returns the attributes with another one. A value of more than 65,531 bytes is cut, which the
    /// kernel refuses.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0
            .extend(value.iter().take(usize::from(length) - ATTRIBUTE_HEADER));
        self.0.resize(self.0.len().next_multiple_of(ALIGNMENT), 0);
        self
    }

    /// Returns the attributes with another one that consists of attributes.
    pub(crate) fn with_nested(self, kind: u16, value: &Self) -> Self {
        self.with(kind | NLA_F_NESTED, &value.0)
    }

    /// Returns the kind and the value of each attribute, up to the first damaged one.
    pub(crate) fn iterate(&self) -> impl Iterator<Item = (u16, &[u8])> {
        iterate_attributes(&self.0)
    }
}

/// Returns the kind and the value of each attribute, up to the first damaged one.
pub(crate) fn iterate_attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let number = |from: usize| {
            let bytes = rest.get(from..from + 2)?;
            bytes.try_into().ok().map(u16::from_ne_bytes)
        };
        let length = usize::from(number(0)?);
        let kind = number(2)? & NLA_TYPE_MASK;
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest
            .get(length.next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        Some((kind, value))
    })
}

/// A connection to a family of generic netlink, in one network namespace.
#[derive(Debug)]
pub(crate) struct GenericConnection {
    connection: Connection,
    family: u16,
    version: u8,
}

impl GenericConnection {
    /// Connects to a family in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such family.
    pub(crate) fn open(name: &str, version: u8) -> Result<Self, Error> {
        let mut connection = Connection::open(NETLINK_GENERIC)?;
        let request = GenericMessage {
            family: CONTROLLER,
            command: GET_FAMILY,
            version: CONTROLLER_VERSION,
            attributes: Attributes::default().with(FAMILY_NAME, &terminate(name)),
        };
        let action = || format!("find the kernel's {name}");
        let answer = connection.request(action, request, 0)?;
        let family = answer.iter().find_map(read_family).ok_or_else(|| {
            let reason = std::io::Error::from_raw_os_error(rustix::io::Errno::NOENT.raw_os_error());
            Error::new(action(), reason)
        })?;
        Ok(Self {
            connection,
            family,
            version,
        })
    }

    /// Sends a command and waits for its acknowledgement.
    pub(crate) fn request(
        &mut self,
        action: impl Fn() -> String,
        command: u8,
        attributes: Attributes,
    ) -> Result<(), Error> {
        let message = self.build_message(command, attributes);
        self.connection.request(action, message, 0).map(drop)
    }

    /// Returns the attributes of all messages of a listing.
    pub(crate) fn list(
        &mut self,
        action: impl Fn() -> String,
        command: u8,
        attributes: Attributes,
    ) -> Result<Vec<Attributes>, Error> {
        let message = self.build_message(command, attributes);
        let answer = self.connection.list(action, &message)?;
        Ok(answer.into_iter().map(|part| part.attributes).collect())
    }

    fn build_message(&self, command: u8, attributes: Attributes) -> GenericMessage {
        GenericMessage {
            family: self.family,
            command,
            version: self.version,
            attributes,
        }
    }
}

/// Returns a text as the kernel's, with a zero at its end.
fn terminate(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn read_family(message: &GenericMessage) -> Option<u16> {
    let mut attributes = message.attributes.iterate();
    let (_, value) = attributes.find(|(kind, _)| *kind == FAMILY_NUMBER)?;
    value.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Lengths count the header and the value, but not the padding (`nla_put`).
    #[test]
    fn attributes_are_encoded_as_the_kernel_reads_them() {
        let inner = Attributes::default().with(7, &[1, 2, 3]);
        let outer = Attributes::default().with_nested(8, &inner).with(9, &[]);
        let mut expect = Vec::new();
        for (length, kind) in [(12u16, 0x8008u16), (7, 7)] {
            expect.extend(length.to_ne_bytes());
            expect.extend(kind.to_ne_bytes());
        }
        expect.extend([1, 2, 3, 0]);
        expect.extend(4u16.to_ne_bytes());
        expect.extend(9u16.to_ne_bytes());
        assert_eq!(outer.0, expect);
        let read: Vec<_> = outer.iterate().collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].0, read[1]), (8, (9, &[][..])));
        let nested: Vec<_> = iterate_attributes(read[0].1).collect();
        assert_eq!(nested, [(7, &[1, 2, 3][..])]);
    }

    #[test]
    fn damaged_attribute_ends_the_list() {
        let whole = Attributes::default().with(1, &[1]).with(2, &[2; 8]);
        for length in 0..whole.0.len() {
            let cut = Attributes(whole.0[..length].to_vec());
            assert!(cut.iterate().count() <= 1, "{length}");
        }
        // A length that is shorter than its own header.
        assert_eq!(Attributes(vec![1, 0, 1, 0]).iterate().count(), 0);
    }

    #[test]
    fn message_has_its_command_before_the_attributes() {
        let message = GenericMessage {
            family: 30,
            command: 1,
            version: 2,
            attributes: Attributes::default().with(2, &[9]),
        };
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        assert_eq!(&bytes[..4], [1, 2, 0, 0]);
        let mut header = NetlinkHeader::default();
        header.message_type = 30;
        let read = GenericMessage::deserialize(&header, &bytes).unwrap();
        assert!(read == message);
    }

    /// Each kernel has this family.
    #[test]
    fn family_is_found_by_its_name() {
        let found = GenericConnection::open("nlctrl", 2).unwrap();
        assert_eq!(found.family, CONTROLLER);
        let absent = GenericConnection::open("no-such-family", 1).unwrap_err();
        assert!(absent.is_missing(), "{absent}");
    }
}
