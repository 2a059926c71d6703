//! One request to the kernel, and its answer.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// Attempts of a listing during which the kernel's table changes.
const LISTING_ATTEMPTS: usize = 5;
/// Length of a message's header.
const HEADER: usize = 16;
/// The kernel's messages are aligned to 4 bytes.
const ALIGNMENT: usize = 4;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
#[error("can't {action}: {source}")]
pub struct Error {
    action: String,
    source: io::Error,
}

impl Error {
    /// Returns whether the object exists already.
    #[must_use]
    pub fn is_existing(&self) -> bool {
        self.has_code(rustix::io::Errno::EXIST)
    }

    /// Returns whether the object, or its device, does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        use rustix::io::Errno;
        [
            Errno::NODEV,
            Errno::NOENT,
            Errno::SRCH,
            Errno::ADDRNOTAVAIL,
            Errno::NXIO,
        ]
        .iter()
        .any(|code| self.has_code(*code))
    }

    /// Returns whether the kernel has no route to an address.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        use rustix::io::Errno;
        [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::SRCH]
            .iter()
            .any(|code| self.has_code(*code))
    }

    fn has_code(&self, code: rustix::io::Errno) -> bool {
        self.source.raw_os_error() == Some(code.raw_os_error())
    }

    pub(crate) fn new(action: impl Into<String>, source: io::Error) -> Self {
        Self {
            action: action.into(),
            source,
        }
    }
}

/// A connection to the kernel's network of one namespace.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Connects to the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no netlink sockets.
    pub fn open() -> Result<Self, Error> {
        open_socket()
            .map(|socket| Self {
                socket,
                sequence: 0,
            })
            .map_err(|error| Error::new("open a netlink socket", error))
    }

    /// Sends a request and waits for its acknowledgement. Returns the objects of the answer.
    pub(crate) fn request(
        &mut self,
        action: impl Fn() -> String,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(|answer| answer.objects)
            .map_err(|error| Error::new(action(), error))
    }

    /// Returns all objects of a kind.
    pub(crate) fn list(
        &mut self,
        action: impl Fn() -> String,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
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

    fn exchange(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Answer> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answer = Answer::default();
        loop {
            let (packet, sender) = self.socket.recv_from_full()?;
            // Processes may send to this socket, too.
            if sender.port_number() == 0 && read_packet(&packet, self.sequence, &mut answer)? {
                return Ok(answer);
            }
        }
    }
}

fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    Ok(socket)
}

#[derive(Debug, Default)]
struct Answer {
    objects: Vec<RouteNetlinkMessage>,
    /// The table changed while it was listed.
    is_interrupted: bool,
}

/// Reads the messages of a packet. Returns whether the answer is complete.
fn read_packet(mut rest: &[u8], sequence: u32, answer: &mut Answer) -> io::Result<bool> {
    while rest.len() >= HEADER {
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
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
