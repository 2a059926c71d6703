//! Format of etcd's records and of the end of its files.

use sha2::{Digest, Sha256};
use std::io::{self, Read};

/// Size in bytes of the hash at the end of a file.
pub(crate) const HASH: u64 = 32;
const BUFFER: usize = 1 << 20;

/// etcd's record of a lease.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseRecord {
    #[prost(int64, tag = "1")]
    pub id: i64,
    #[prost(int64, tag = "2")]
    pub ttl: i64,
    #[prost(int64, tag = "3")]
    pub remaining: i64,
}

/// Computes the SHA-256 of the rest of a file.
pub(crate) fn hash_of(file: &mut impl Read) -> io::Result<[u8; HASH as usize]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}
