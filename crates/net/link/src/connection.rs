//! One request to the kernel, and its answer, in any protocol of netlink.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};

use crate::error::Error;

/// Attempts of a listing during which the kernel's table changes.
const LISTING_ATTEMPTS: usize = 5;
/// Length of a message's header.
const HEADER: usize = 16;
/// The kernel's messages are aligned to 4 bytes.
const ALIGNMENT: usize = 4;

/// A socket of one protocol, in one network namespace.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    /// Connects to the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no such sockets.
    pub(crate) fn open(protocol: isize) -> Result<Self, Error> {
        open_socket(protocol)
            .map(|socket| Self {
                socket,
                sequence: 0,
            })
            .map_err(|error| Error::new("open a netlink socket", error))
    }

    /// Sends a request and waits for its acknowledgement. Returns the objects of the answer.
    pub(crate) fn request<M: NetlinkSerializable + NetlinkDeserializable>(
        &mut self,
        action: impl Fn() -> String,
        message: M,
        flags: u16,
    ) -> Result<Vec<M>, Error> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|answer| answer.objects)
            .map_err(|error| Error::new(action(), error))
    }

    /// Returns all objects of a kind.
    pub(crate) fn list<M: NetlinkSerializable + NetlinkDeserializable + Clone>(
        &mut self,
        action: impl Fn() -> String,
        message: &M,
    ) -> Result<Vec<M>, Error> {
        for _ in 0..LISTING_ATTEMPTS {
            let answer = self
                .exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)
                .map_err(|error| Error::new(action(), error))?;
            if !answer.is_interrupted {
                return Ok(answer.objects);
            }
        }
        let reason = "the kernel's table changes all the time";
        Err(Error::new(action(), io::Error::other(reason)))
    }

    fn exchange<M: NetlinkSerializable + NetlinkDeserializable>(
        &mut self,
        message: M,
        flags: u16,
    ) -> io::Result<Answer<M>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answer = Answer {
            objects: Vec::new(),
            is_interrupted: false,
        };
        loop {
            let (packet, sender) = self.socket.recv_from_full()?;
            // Processes may send to this socket, too.
            if sender.port_number() == 0 && read_packet(&packet, self.sequence, &mut answer)? {
                return Ok(answer);
            }
        }
    }
}

fn open_socket(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

struct Answer<M> {
    objects: Vec<M>,
    /// The table changed while it was listed.
    is_interrupted: bool,
}

/// Reads the messages of a packet. Returns whether the answer is complete.
fn read_packet<M: NetlinkDeserializable>(
    mut rest: &[u8],
    sequence: u32,
    answer: &mut Answer<M>,
) -> io::Result<bool> {
    while rest.len() >= HEADER {
        let message = NetlinkMessage::<M>::deserialize(rest)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
        let length = usize::try_from(message.header.length).unwrap_or(usize::MAX);
        rest = rest
            .get(length.max(HEADER).next_multiple_of(ALIGNMENT)..)
            .unwrap_or_default();
        if message.header.sequence_number != sequence {
            continue;
        }
        answer.is_interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
        match message.payload {
            NetlinkPayload::InnerMessage(object) => answer.objects.push(object),
            NetlinkPayload::Done(done) if done.code < 0 => {
                return Err(io::Error::from_raw_os_error(done.code.saturating_neg()));
            }
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}
