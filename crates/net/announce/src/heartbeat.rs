//! Heartbeats: frames by which the announcers of a link find each other.

use crate::ethernet::{BROADCAST, HEARTBEAT, Mac, build_frame, read_array};

/// Name and version of the format.
const MAGIC: [u8; 5] = *b"ICLB\x01";
/// Flag of the last heartbeat of a process.
const LEAVING: u8 = 1;
/// Length of the parts before the name.
const FIXED: usize = 15;
/// Maximum length of a node's name, that of a DNS subdomain.
const MAX_NAME: usize = 253;

/// A heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Identity of the cluster and its pool: those of several clusters may share a link.
    pub(crate) cluster: u64,
    /// Name of the node.
    pub(crate) node: String,
    /// The node releases its addresses.
    pub(crate) is_leaving: bool,
}

impl Heartbeat {
    /// Parses the payload of a frame.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        if read_array(payload, 0)? != MAGIC {
            return None;
        }
        let [flags] = read_array(payload, 5)?;
        let cluster = u64::from_be_bytes(read_array(payload, 6)?);
        let [length] = read_array(payload, FIXED - 1)?;
        let length = usize::from(length);
        let node = payload.get(FIXED..FIXED + length)?;
        let node = std::str::from_utf8(node).ok()?;
        // The name appears in logs.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        ((1..=MAX_NAME).contains(&length) && node.bytes().all(is_name)).then(|| Self {
            cluster,
            node: node.to_owned(),
            is_leaving: flags & LEAVING != 0,
        })
    }

    /// Builds the frame.
    pub(crate) fn build(&self, own: Mac) -> Vec<u8> {
        let mut payload = MAGIC.to_vec();
        payload.push(u8::from(self.is_leaving) * LEAVING);
        payload.extend(self.cluster.to_be_bytes());
        let name = self.node.as_bytes();
        payload.push(u8::try_from(name.len()).unwrap_or_default());
        payload.extend(name);
        build_frame(BROADCAST, own, HEARTBEAT, &payload)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn heartbeat(node: &str) -> Heartbeat {
        Heartbeat {
            cluster: 0x0102_0304_0506_0708,
            node: node.to_owned(),
            is_leaving: true,
        }
    }

    #[test]
    fn frames_are_read_as_written() {
        for node in ["n", "node-1.example.com", &"n".repeat(253)] {
            let sent = heartbeat(node);
            let frame = sent.build([2, 0, 0, 0, 0, 1]);
            assert_eq!(Heartbeat::parse(&frame[14..]), Some(sent));
        }
    }

    #[test]
    fn wrong_frames_are_ignored() {
        for node in ["", &"n".repeat(254), "n\u{1b}[2J", "n\n", "ü"] {
            let frame = heartbeat(node).build([2; 6]);
            assert_eq!(Heartbeat::parse(&frame[14..]), None, "{node:?}");
        }
        let frame = heartbeat("node-1").build([2; 6]);
        for length in 0..FIXED + 6 {
            assert_eq!(Heartbeat::parse(&frame[14..14 + length]), None, "{length}");
        }
        let mut other = frame[14..].to_vec();
        other[4] = 2;
        assert_eq!(Heartbeat::parse(&other), None);
    }
}
