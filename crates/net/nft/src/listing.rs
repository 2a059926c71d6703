//! Lists tables and chains by netlink. This works without the program `nft`: rules stay in the
//! kernel after it was removed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::monitor::{
    BOTH_HEADERS, BUFFER, HEADER, IPV4, IPV6, SUBSYSTEM, TABLE_NAME, find_attribute, split_message,
};
use crate::terms::Family;

/// `NFT_MSG_GETTABLE` and `NFT_MSG_GETCHAIN`: the lower byte of the request's type.
const GET_TABLES: u8 = 1;
const GET_CHAINS: u8 = 4;
/// The attribute with the name of a chain.
const CHAIN_NAME: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`, with an error number after the header.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;

const TIMEOUT_SECONDS: i64 = 5;

/// A chain of nftables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedChain {
    /// Family of the table.
    pub family: Family,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
}

/// Lists the tables of both families; empty if the kernel has no nftables.
///
/// # Errors
/// The process lacks `CAP_NET_ADMIN`, or the kernel does not respond in time.
pub fn list_tables() -> io::Result<Vec<(Family, String)>> {
    let messages = dump(GET_TABLES)?;
    let parse = |message: &Vec<u8>| Some((read_family(message)?, read_name(message, TABLE_NAME)?));
    Ok(messages.iter().filter_map(parse).collect())
}

/// Lists the chains of both families; empty if the kernel has no nftables.
///
/// # Errors
/// As for [`list_tables`].
pub fn list_chains() -> io::Result<Vec<ListedChain>> {
    let parse = |message: &Vec<u8>| {
        Some(ListedChain {
            family: read_family(message)?,
            table: read_name(message, TABLE_NAME)?,
            chain: read_name(message, CHAIN_NAME)?,
        })
    };
    Ok(dump(GET_CHAINS)?.iter().filter_map(parse).collect())
}

fn dump(request: u8) -> io::Result<Vec<Vec<u8>>> {
    match dump_objects(request) {
        // The kernel has no netfilter sockets, or no nftables.
        Err(Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP | Errno::EINVAL) => {
            Ok(Vec::new())
        }
        listed => Ok(listed?),
    }
}

fn dump_objects(request: u8) -> nix::Result<Vec<Vec<u8>>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(TIMEOUT_SECONDS))?;
    let kernel = NetlinkAddr::new(0, 0);
    let message = write_request(request);
    sendto(socket.as_raw_fd(), &message, &kernel, MsgFlags::empty())?;
    read_responses(&socket)
}

/// Builds the request for all objects of a kind, in all families.
fn write_request(request: u8) -> [u8; BOTH_HEADERS] {
    let mut out = [0; BOTH_HEADERS];
    let kind = u16::from(SUBSYSTEM) << 8 | u16::from(request);
    out[..4].copy_from_slice(&20_u32.to_ne_bytes());
    out[4..6].copy_from_slice(&kind.to_ne_bytes());
    out[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    out
}

fn read_responses(socket: &OwnedFd) -> nix::Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        let (length, sender) = match recvfrom::<NetlinkAddr>(socket.as_raw_fd(), &mut buffer) {
            Err(Errno::EINTR) => continue,
            received => received?,
        };
        // A privileged process can send to the socket, too; the kernel's port is 0.
        if sender.is_none_or(|sender| sender.pid() != 0) {
            continue;
        }
        let mut messages = buffer.get(..length).unwrap_or_default();
        while let Some((message, rest)) = split_message(messages) {
            messages = rest;
            match read_type(message) {
                DONE | ERROR => {
                    return match read_error(message) {
                        0 => Ok(found),
                        number => Err(Errno::from_raw(number)),
                    };
                }
                _ => found.push(message.to_vec()),
            }
        }
    }
}

pub(crate) fn read_type(message: &[u8]) -> u16 {
    let bytes = message.get(4..6).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u16::from_ne_bytes)
}

/// Returns the error number of a response or at the end of a dump; 0 for success.
pub(crate) fn read_error(message: &[u8]) -> i32 {
    let bytes = message.get(HEADER..HEADER + 4);
    let number = bytes.and_then(|bytes| bytes.try_into().ok());
    number.map_or(0, |bytes| i32::from_ne_bytes(bytes).saturating_neg())
}

fn read_family(message: &[u8]) -> Option<Family> {
    match *message.get(HEADER)? {
        IPV4 => Some(Family::V4),
        IPV6 => Some(Family::V6),
        _ => None,
    }
}

fn read_name(message: &[u8], attribute: u16) -> Option<String> {
    let name = find_attribute(message, attribute)?;
    let name = name.strip_suffix(&[0]).unwrap_or(name);
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout)]
    use super::*;

    /// Runs in a network namespace of its own.
    #[test]
    fn tables_and_chains_are_those_that_nft_made() {
        let thread = std::thread::spawn(|| {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                return println!("skipped: no network namespace: {error}");
            }
            assert_eq!(list_tables().unwrap(), Vec::new());
            let commands = "add table ip6 t; add chain ip6 t c; add table inet u";
            let made = std::process::Command::new("nft").arg(commands).status();
            if !made.is_ok_and(|status| status.success()) {
                return println!("skipped: no nft");
            }
            assert_eq!(list_tables().unwrap(), [(Family::V6, "t".to_owned())]);
            let chain = ListedChain {
                family: Family::V6,
                table: "t".to_owned(),
                chain: "c".to_owned(),
            };
            assert_eq!(list_chains().unwrap(), [chain]);
        });
        thread.join().unwrap();
    }
}
