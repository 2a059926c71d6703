//! Changes elements of sets and maps by netlink, without the program `nft`.
//!
//! A change of a few elements takes the kernel a tenth of a millisecond. The start of `nft`, which
//! lists all tables, chains and sets before each change, takes several milliseconds.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::sockopt::SndBufForce;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto,
    setsockopt, socket,
};

use crate::listing::{DONE, ERROR, read_error, read_type};
use crate::monitor::{BUFFER, IPV4, IPV6, SUBSYSTEM, TABLE_NAME, split_message};
use crate::program::Error;
use crate::terms::Family;

/// `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`: the types of the messages around a transaction.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
/// `NFT_MSG_NEWSETELEM` and `NFT_MSG_DELSETELEM`: the lower byte of a message's type.
const NEW_ELEMENT: u8 = 12;
const DELETE_ELEMENT: u8 = 14;
/// `NLM_F_REQUEST`, `NLM_F_ACK` and `NLM_F_CREATE`.
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400;
/// `NLA_F_NESTED`.
const NESTED: u16 = 0x8000;
/// Attributes of a message: the set, and its elements (`NFTA_SET_ELEM_LIST_*`).
const SET_NAME: u16 = 2;
const ELEMENTS: u16 = 3;
/// Attributes of an element (`NFTA_LIST_ELEM`, `NFTA_SET_ELEM_*`).
const ELEMENT: u16 = 1;
const KEY: u16 = 1;
const DATA: u16 = 2;
/// Attributes of keys and data (`NFTA_DATA_*`), and of verdicts (`NFTA_VERDICT_*`).
const VALUE: u16 = 1;
const VERDICT: u16 = 2;
const CODE: u16 = 1;
const CHAIN: u16 = 2;
/// `NFT_GOTO` and `NF_DROP`.
const GOTO: i32 = -4;
const DROP: i32 = 0;

/// The most elements in one transaction. More are a transaction of `nft`.
pub const MAX_ELEMENTS: usize = 500;
/// The kernel's buffer in bytes. A message has at most 400 bytes: two names of 128 and two values.
const SEND_BUFFER: usize = 512 * 1024;

/// A change of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElementChange<'a> {
    /// Family of the table.
    pub family: Family,
    /// Set or map.
    pub set: &'a str,
    /// The kind of the change.
    pub action: Action,
    /// The key, as [`push_field`] writes it.
    pub key: Vec<u8>,
    /// The data of a map's element.
    pub data: ElementData<'a>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Adds the element.
    Add,
    /// Deletes the element.
    Delete,
}

/// The data of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElementData<'a> {
    /// None: the element of a set.
    None,
    /// A value, as [`push_field`] writes it.
    Value(Vec<u8>),
    /// A verdict that leads to a chain.
    Goto(&'a str),
    /// A verdict that drops packets.
    Drop,
}

/// Adds a field of a key or value: the kernel has them in registers of 4 bytes.
pub fn push_field(to: &mut Vec<u8>, field: &[u8]) {
    to.extend_from_slice(field);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Applies changes of elements of a table in one transaction: all of them, in their order, or
/// nothing.
///
/// # Errors
/// The process lacks `CAP_NET_ADMIN`, or the kernel rejects the transaction, for instance because
/// the set does not exist.
pub fn change_elements(table: &str, changes: &[ElementChange<'_>]) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let sent = send_transaction(&write_transaction(table, changes));
    sent.map_err(|error| match error {
        Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT | Errno::EPERM => {
            Error::Netlink(io::Error::from(error))
        }
        rejected => Error::Rejected(format!(
            "{} elements of {table} can't be changed: {}",
            changes.len(),
            rejected.desc()
        )),
    })
}

fn send_transaction(messages: &[u8]) -> nix::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkNetFilter,
    )?;
    // The default may be smaller than the messages; without the right, they may fit nevertheless.
    let _ = setsockopt(&socket, SndBufForce, &SEND_BUFFER);
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), messages, &kernel, MsgFlags::empty())?;
    // The kernel has done its work, and its responses are in the socket's buffer.
    read_result(&socket)
}

/// Reads the responses. The last change has an acknowledgement, which the kernel sends after the
/// commit.
fn read_result(socket: &OwnedFd) -> nix::Result<()> {
    let mut acknowledged = false;
    let mut buffer = vec![0; BUFFER];
    loop {
        let (length, sender) = match recvfrom::<NetlinkAddr>(socket.as_raw_fd(), &mut buffer) {
            Err(Errno::EINTR) => continue,
            Err(Errno::EAGAIN) if acknowledged => return Ok(()),
            Err(Errno::EAGAIN) => return Err(Errno::EIO),
            received => received?,
        };
        // A privileged process can send to the socket, too; the kernel's port is 0.
        if sender.is_none_or(|sender| sender.pid() != 0) {
            continue;
        }
        let mut messages = buffer.get(..length).unwrap_or_default();
        while let Some((message, rest)) = split_message(messages) {
            messages = rest;
            if matches!(read_type(message), ERROR | DONE) {
                match read_error(message) {
                    0 => acknowledged = true,
                    number => return Err(Errno::from_raw(number)),
                }
            }
        }
    }
}

fn write_transaction(table: &str, changes: &[ElementChange<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    // Not of a family: the resource is the subsystem, in network order.
    let whole = [0, 0, 0, SUBSYSTEM];
    write_message(&mut out, BATCH_BEGIN, REQUEST, whole, |_| {});
    for (left, change) in (0..changes.len()).rev().zip(changes) {
        let (kind, flags) = match change.action {
            Action::Add => (NEW_ELEMENT, REQUEST | CREATE),
            Action::Delete => (DELETE_ELEMENT, REQUEST),
        };
        let flags = if left == 0 {
            flags | ACKNOWLEDGE
        } else {
            flags
        };
        let family = match change.family {
            Family::V4 => IPV4,
            Family::V6 => IPV6,
        };
        let kind = u16::from(SUBSYSTEM) << 8 | u16::from(kind);
        write_message(&mut out, kind, flags, [family, 0, 0, 0], |out| {
            write_text(out, TABLE_NAME, table);
            write_text(out, SET_NAME, change.set);
            nest(out, ELEMENTS, |out| {
                nest(out, ELEMENT, |out| write_element(out, change));
            });
        });
    }
    write_message(&mut out, BATCH_END, REQUEST, whole, |_| {});
    out
}

fn write_element(out: &mut Vec<u8>, change: &ElementChange<'_>) {
    nest(out, KEY, |out| write_attribute(out, VALUE, &change.key));
    let verdict = match &change.data {
        ElementData::None => return,
        ElementData::Value(value) => {
            nest(out, DATA, |out| write_attribute(out, VALUE, value));
            return;
        }
        ElementData::Goto(chain) => (GOTO, Some(*chain)),
        ElementData::Drop => (DROP, None),
    };
    let (code, chain) = verdict;
    nest(out, DATA, |out| {
        nest(out, VERDICT, |out| {
            write_attribute(out, CODE, &code.to_be_bytes());
            if let Some(chain) = chain {
                write_text(out, CHAIN, chain);
            }
        });
    });
}

/// Writes a message with its headers.
fn write_message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    netfilter: [u8; 4],
    content: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([0; 8]);
    out.extend(netfilter);
    content(out);
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_ne_bytes());
    }
}

fn nest(out: &mut Vec<u8>, kind: u16, content: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    content(&mut inner);
    write_attribute(out, kind | NESTED, &inner);
}

/// Writes a name with its terminating zero.
fn write_text(out: &mut Vec<u8>, kind: u16, text: &str) {
    write_attribute(out, kind, &[text.as_bytes(), &[0]].concat());
}

fn write_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The longest value is a name.
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    out.extend(length.to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    push_field(out, value);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stdout)]
    use super::*;

    const TABLE: &str = "add table ip t
        add chain ip t c
        add set ip t pairs { type ipv4_addr . ipv4_addr; }
        add map ip t verdicts { type ipv4_addr . inet_proto . inet_service : verdict; }
        add map ip t targets { type inet_proto . inet_service : ipv4_addr . inet_service; }
        ";

    fn fields(all: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        all.iter().for_each(|field| push_field(&mut out, field));
        out
    }

    fn change<'a>(set: &'a str, key: &[&[u8]], data: ElementData<'a>) -> ElementChange<'a> {
        ElementChange {
            family: Family::V4,
            set,
            action: Action::Add,
            key: fields(key),
            data,
        }
    }

    fn run_nft(words: &str) -> String {
        let output = std::process::Command::new("nft").arg(words).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Runs in a network namespace of its own.
    #[test]
    fn elements_are_changed_as_nft_does_all_or_none() {
        let thread = std::thread::spawn(|| {
            if let Err(error) = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET) {
                return println!("skipped: no network namespace: {error}");
            }
            let made = std::process::Command::new("nft").arg(TABLE).status();
            if !made.is_ok_and(|status| status.success()) {
                return println!("skipped: no nft");
            }
            let (ip, tcp, port) = ([10, 0, 0, 1], [6], 80_u16.to_be_bytes());
            let target = ElementData::Value(fields(&[&ip, &port]));
            let all = [
                change("pairs", &[&ip, &ip], ElementData::None),
                change("verdicts", &[&ip, &tcp, &port], ElementData::Goto("c")),
                change("verdicts", &[&ip, &tcp, &[0, 81]], ElementData::Drop),
                change("targets", &[&tcp, &port], target),
            ];
            change_elements("t", &all).unwrap();
            let listing = run_nft("list table ip t");
            let mut deleted = all.clone();
            deleted.iter_mut().for_each(|c| c.action = Action::Delete);
            change_elements("t", &deleted).unwrap();
            assert!(!run_nft("list table ip t").contains("elements"));
            for command in [
                "pairs { 10.0.0.1 . 10.0.0.1 }",
                "verdicts { 10.0.0.1 . tcp . 80 : goto c, 10.0.0.1 . tcp . 81 : drop }",
                "targets { tcp . 80 : 10.0.0.1 . 80 }",
            ] {
                run_nft(&format!("add element ip t {command}"));
            }
            assert_eq!(listing, run_nft("list table ip t"));

            // The last one is absent, so that none is deleted.
            let mut wrong = deleted.clone();
            wrong[3].key = fields(&[&tcp, &[0, 99]]);
            assert!(change_elements("t", &wrong).is_err());
            assert!(change_elements("other", &all).is_err());
            assert_eq!(listing, run_nft("list table ip t"));
        });
        thread.join().unwrap();
    }
}
