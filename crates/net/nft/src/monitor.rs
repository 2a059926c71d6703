//! Notifications of the kernel about changes of a table, whichever program makes them.
//!
//! The kernel sends the objects of a transaction when it commits it, and one message for its end
//! (`NFT_MSG_NEWGEN`). Both are in the socket's buffer before the program that made the change
//! continues. So the transactions of one `nft` call can be counted after it has ended. Packets that
//! add elements to sets, and timeouts of elements, cause no notification. `nft monitor` was
//! rejected: another process for each listener, and a text without the end of a transaction.

use std::future::Future;
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, setsockopt,
    socket,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// `NFNLGRP_NFTABLES` is group 7; the address has a bit for each group.
const GROUP: u32 = 1 << 6;
/// `NFNL_SUBSYS_NFTABLES`: the upper byte of a message's type.
pub(crate) const SUBSYSTEM: u8 = 10;
/// `NFT_MSG_NEWGEN`: the lower byte of the message at the end of a transaction.
const GENERATION: u8 = 15;
/// The attribute with the name of the table is the first of all kinds of objects, and of tables.
pub(crate) const TABLE_NAME: u16 = 1;
/// Length of a message's header (`nlmsghdr`), and of that header with the netfilter's (`nfgenmsg`).
pub(crate) const HEADER: usize = 16;
pub(crate) const BOTH_HEADERS: usize = 20;
/// Families of tables (`NFPROTO_*`): the first byte of the netfilter's header.
pub(crate) const IPV4: u8 = 2;
pub(crate) const IPV6: u8 = 10;
/// The kernel's messages have at most 16 KiB.
pub(crate) const BUFFER: usize = 32 * 1024;
/// The kernel's buffer in bytes: the commit of a transaction sends all notifications of it at once,
/// about 100 bytes for each rule and element. Memory is used until they are read.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Limit of the notifications of one read: more than the kernel's buffer holds. A program that
/// changes tables all the time must not keep the reader busy.
const MAX_NOTIFICATIONS: usize = 20_000;

/// Changes since the last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableChanges {
    /// Transactions that changed the table.
    pub transactions: usize,
    /// Notifications were lost, because the buffer was full.
    pub lost: bool,
}

impl TableChanges {
    /// Returns whether anything may have changed.
    #[must_use]
    pub fn any(self) -> bool {
        self.transactions > 0 || self.lost
    }
}

/// A socket with the notifications about one table name, of both families.
#[derive(Debug)]
pub struct TableMonitor {
    /// A netlink socket. The type `UdpSocket` has the runtime's calls for any datagram socket.
    socket: UdpSocket,
    reader: Reader,
    buffer: Vec<u8>,
    /// The last read ended at its limit, and not at the end of the notifications.
    has_more: bool,
}

impl TableMonitor {
    /// Subscribes to changes of a table in the network namespace of the caller.
    ///
    /// # Errors
    /// The process lacks `CAP_NET_ADMIN`, or the kernel has no netfilter sockets.
    pub fn open(table: &str) -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkNetFilter,
        )?;
        // Without it, the loss of notifications is more frequent, and is reported.
        let _ = setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER);
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUP))?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            reader: Reader::new(table),
            buffer: vec![0; BUFFER],
            has_more: false,
        })
    }

    /// Waits for the end of a transaction that changed the table.
    ///
    /// # Errors
    /// The socket fails. The loss of notifications is no error but a change.
    pub async fn wait_for_change(&mut self) -> io::Result<TableChanges> {
        loop {
            if self.has_more {
                tokio::task::yield_now().await;
            } else {
                self.socket.readable().await?;
                // Clears the runtime's readiness before the read and not after it, so that a
                // notification that arrives during the read sets it again.
                let clear = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = self.socket.try_io(Interest::READABLE, clear);
            }
            let changes = self.read_changes()?;
            if changes.any() {
                return Ok(changes);
            }
        }
    }

    /// Returns the changes that the socket has notifications of, without waiting. At the limit of
    /// one read, the remaining ones count as lost until the next read.
    ///
    /// # Errors
    /// The socket fails.
    pub fn read_changes(&mut self) -> io::Result<TableChanges> {
        // The socket itself and not its readiness: the runtime learns of a notification later than
        // this call, if that follows the change.
        let socket = self.socket.as_raw_fd();
        let receive = |buffer: &mut [u8]| recvfrom::<NetlinkAddr>(socket, buffer);
        let changes = self.reader.read_all(&mut self.buffer, receive);
        self.has_more = self.reader.stopped_at_limit;
        changes
    }

    /// Runs a future, and returns its result with the changes during it. Notifications are read
    /// meanwhile, so that those of a large transaction do not fill the buffer.
    ///
    /// # Errors
    /// The socket fails; the future has ended nevertheless.
    pub async fn watch_during<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> (T, io::Result<TableChanges>) {
        let mut changes = TableChanges::default();
        let mut work = std::pin::pin!(work);
        let (result, failure) = loop {
            tokio::select! {
                biased;
                result = &mut work => break (result, None),
                seen = self.wait_for_change() => match seen {
                    Ok(seen) => changes.add(seen),
                    Err(error) => break (work.await, Some(error)),
                },
            }
        };
        let last = match failure {
            Some(error) => Err(error),
            None => self.read_changes(),
        };
        let changes = last.map(|last| {
            changes.add(last);
            changes
        });
        (result, changes)
    }
}

impl TableChanges {
    fn add(&mut self, more: Self) {
        self.transactions += more.transactions;
        self.lost |= more.lost;
    }
}

/// The parser of notifications. A transaction may be split into several reads.
#[derive(Debug)]
struct Reader {
    /// The name with the terminating zero, as in messages.
    table: Vec<u8>,
    touched: bool,
    stopped_at_limit: bool,
}

impl Reader {
    fn new(table: &str) -> Self {
        Self {
            table: [table.as_bytes(), &[0]].concat(),
            touched: false,
            stopped_at_limit: false,
        }
    }

    /// Reads until there is no more, or the limit is reached.
    fn read_all(
        &mut self,
        buffer: &mut [u8],
        receive: impl Fn(&mut [u8]) -> nix::Result<(usize, Option<NetlinkAddr>)>,
    ) -> io::Result<TableChanges> {
        let mut changes = TableChanges::default();
        self.stopped_at_limit = true;
        for _ in 0..MAX_NOTIFICATIONS {
            match receive(buffer) {
                // A privileged process can send to the socket, too; the kernel's port is 0.
                Ok((length, Some(sender))) if sender.pid() == 0 => {
                    let messages = buffer.get(..length).unwrap_or_default();
                    changes.transactions += self.count_transactions(messages);
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.stopped_at_limit = false;
                    break;
                }
                Err(Errno::ENOBUFS) => changes.lost = true,
                Err(error) => return Err(error.into()),
            }
        }
        changes.lost |= self.stopped_at_limit;
        // The end may be among the lost ones; the next one would be that of another transaction.
        self.touched &= !changes.lost;
        Ok(changes)
    }

    /// Returns the number of transactions that end in these messages and changed the table.
    fn count_transactions(&mut self, mut messages: &[u8]) -> usize {
        let mut count = 0;
        while let Some((message, rest)) = split_message(messages) {
            messages = rest;
            if message.get(5) != Some(&SUBSYSTEM) {
                continue;
            }
            if message.get(4) == Some(&GENERATION) {
                count += usize::from(std::mem::take(&mut self.touched));
            } else {
                // Tables of `inet` or `bridge` with this name are those of other programs.
                let is_ip = matches!(message.get(HEADER), Some(&IPV4 | &IPV6));
                self.touched |= is_ip && find_attribute(message, TABLE_NAME) == Some(&self.table);
            }
        }
        count
    }
}

/// Splits off the first message with its header; None at the end, or if its length is not valid.
pub(crate) fn split_message(messages: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(messages.get(..4)?.try_into().ok()?);
    let length = usize::try_from(length).ok().filter(|l| *l >= HEADER)?;
    // The kernel pads messages to 4 bytes, except the last.
    let padded = length.checked_next_multiple_of(4)?;
    let rest = messages.get(padded..).unwrap_or_default();
    Some((messages.get(..length)?, rest))
}

/// Returns the value of an attribute of a message of nftables.
pub(crate) fn find_attribute(message: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut attributes = message.get(BOTH_HEADERS..)?;
    loop {
        let length = usize::from(read_u16(attributes, 0)?);
        let kind = read_u16(attributes, 2)?;
        if kind == wanted {
            return attributes.get(4..length);
        }
        let padded = length.checked_next_multiple_of(4).filter(|l| *l > 0)?;
        attributes = attributes.get(padded..)?;
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds a message of nftables with the attributes.
    fn message(kind: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![2, 0, 0, 0];
        for (kind, value) in attributes {
            body.extend((u16::try_from(value.len() + 4).unwrap_or(0)).to_ne_bytes());
            body.extend(kind.to_ne_bytes());
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        let length = u32::try_from(body.len() + HEADER).unwrap_or(0);
        let mut out = length.to_ne_bytes().to_vec();
        out.extend([kind, SUBSYSTEM, 0, 0]);
        out.extend([0; 8]);
        out.extend(body);
        out
    }

    #[test]
    fn transactions_of_the_table_are_counted() {
        let own = message(6, &[(1, b"kube-proxy\0")]);
        let later = message(6, &[(7, b"x\0"), (1, b"kube-proxy\0")]);
        let other = message(6, &[(1, b"kube-proxy2\0")]);
        let end = message(GENERATION, &[(1, &[0, 0, 0, 9])]);
        let mut foreign = own.clone();
        foreign[5] = 1;
        for (messages, expect) in [
            (vec![&own, &end], 1),
            (vec![&own, &own, &end, &other, &end], 1),
            (vec![&own, &end, &later, &end], 2),
            (vec![&other, &end], 0),
            (vec![&foreign, &end], 0),
            (vec![&own], 0),
            (vec![&end], 0),
        ] {
            let text: Vec<u8> = messages.iter().copied().flatten().copied().collect();
            let count = Reader::new("kube-proxy").count_transactions(&text);
            assert_eq!(count, expect, "{messages:?}");
        }
    }

    #[test]
    fn transaction_in_two_reads_is_counted_once() {
        let mut reader = Reader::new("kube-proxy");
        let own = message(2, &[(1, b"kube-proxy\0")]);
        assert_eq!(reader.count_transactions(&own), 0);
        let end = message(GENERATION, &[]);
        assert_eq!(reader.count_transactions(&end), 1);
        assert_eq!(reader.count_transactions(&end), 0);
    }

    #[test]
    fn only_messages_of_the_kernel_are_read_and_not_without_end() {
        let whole = [
            message(6, &[(1, b"kube-proxy\0")]),
            message(GENERATION, &[]),
        ]
        .concat();
        for (sender, count, transactions, lost) in [
            (Some(0), 1, 1, false),
            (Some(7), 1, 0, false),
            (None, 1, 0, false),
            (Some(0), usize::MAX, MAX_NOTIFICATIONS, true),
            (Some(7), usize::MAX, 0, true),
        ] {
            let left = std::cell::Cell::new(count);
            let mut reader = Reader::new("kube-proxy");
            let receive = |buffer: &mut [u8]| {
                let next = left.get().checked_sub(1).ok_or(Errno::EAGAIN)?;
                left.set(next);
                buffer[..whole.len()].copy_from_slice(&whole);
                Ok((whole.len(), sender.map(|pid| NetlinkAddr::new(pid, 0))))
            };
            let found = reader.read_all(&mut vec![0; BUFFER], receive);
            let expect = TableChanges { transactions, lost };
            assert_eq!(found.ok(), Some(expect), "{sender:?} {count}");
            assert_eq!(reader.stopped_at_limit, lost, "{sender:?} {count}");
        }
    }

    #[test]
    fn table_of_another_family_is_that_of_another_program() {
        for (family, expected) in [(IPV4, 1), (IPV6, 1), (1, 0), (5, 0), (7, 0)] {
            let mut change = message(6, &[(1, b"kube-proxy\0")]);
            change[HEADER] = family;
            let whole = [change, message(GENERATION, &[])].concat();
            let found = Reader::new("kube-proxy").count_transactions(&whole);
            assert_eq!(found, expected, "family {family}");
        }
    }

    #[test]
    fn messages_with_wrong_lengths_end_the_parse() {
        let whole = [
            message(6, &[(1, b"kube-proxy\0")]),
            message(GENERATION, &[]),
        ]
        .concat();
        for (at, byte) in [(0, 0), (0, 15), (1, 255), (20, 0), (20, 255), (20, 3)] {
            let mut wrong = whole.clone();
            wrong[at] = byte;
            assert!(
                Reader::new("kube-proxy").count_transactions(&wrong) <= 1,
                "{at} {byte}"
            );
        }
        for end in 0..whole.len() - 1 {
            let count = Reader::new("kube-proxy").count_transactions(&whole[..end]);
            assert_eq!(count, 0, "{end}");
        }
    }
}
