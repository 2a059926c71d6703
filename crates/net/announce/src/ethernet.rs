//! Ethernet frames: the header, and numbers that several protocols share.

/// An address of Ethernet.
pub(crate) type Mac = [u8; 6];

/// The address of all hosts of a link.
pub(crate) const BROADCAST: Mac = [0xff; 6];
/// Type of ARP frames.
pub(crate) const ARP: u16 = 0x0806;
/// Type of IPv6 frames.
pub(crate) const IPV6: u16 = 0x86dd;
/// Type of heartbeats: the first of IEEE 802's types for local use, which routers don't forward.
pub(crate) const HEARTBEAT: u16 = 0x88b5;
/// Length of the header.
pub(crate) const HEADER: usize = 14;
/// Least length of a frame without its checksum. Some drivers do not fill shorter ones up.
const SHORTEST: usize = 60;

/// Builds a frame.
pub(crate) fn build_frame(to: Mac, from: Mac, kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST.max(HEADER + payload.len()));
    frame.extend(to);
    frame.extend(from);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    if frame.len() < SHORTEST {
        frame.resize(SHORTEST, 0);
    }
    frame
}

/// Returns the type, the sender and the payload of a frame.
pub(crate) fn parse_frame(frame: &[u8]) -> Option<(u16, Mac, &[u8])> {
    let sender = read_array(frame, 6)?;
    let kind = u16::from_be_bytes(read_array(frame, 12)?);
    Some((kind, sender, frame.get(HEADER..)?))
}

/// Returns the bytes at an offset.
pub(crate) fn read_array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..at.checked_add(N)?)?.try_into().ok()
}
