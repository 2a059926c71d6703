//! Constants of the format, and the checksum.

pub(crate) const PAGE: usize = 4096;
pub(crate) const PAGE_HEAD: usize = 16;
pub(crate) const ELEMENT: usize = 16;
pub(crate) const BRANCH: u16 = 0x01;
pub(crate) const LEAF: u16 = 0x02;
pub(crate) const META: u16 = 0x04;
pub(crate) const FREELIST: u16 = 0x10;
pub(crate) const BUCKET: u32 = 0x01;
pub(crate) const MAGIC: u32 = 0xED0C_DAED;
pub(crate) const VERSION: u32 = 2;
/// Number of bytes of a meta page covered by its checksum.
pub(crate) const META_SUMMED: usize = 56;

/// Computes the 64-bit FNV-1a hash.
pub(crate) fn compute_checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
