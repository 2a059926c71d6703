//! The records of attachments on disk: which addresses and host ports each has.
//!
//! A record is a file of JSON that is complete or absent, whenever the process or the machine
//! stops. Its name is a digest of the attachment, from which the name of the device follows too.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::DEFAULT_BRIDGE;
use crate::environment::{Attachment, is_identifier};
use crate::error::PluginError;
use crate::port_mapping::HostPort;

/// Limit of the size of a record in bytes. A host port needs about 100.
const MAX_RECORD_BYTES: u64 = 1 << 20;
/// Digits of a record's name.
const KEY_DIGITS: usize = 32;
/// Digits of the key in the name of a device, which has 15 characters.
const DEVICE_DIGITS: usize = 11;
const EXTENSION: &str = "json";

/// Key of an attachment: digits of a digest of its network, container and interface.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RecordKey(String);

impl RecordKey {
    pub(crate) fn new(network: &str, container: &str, interface: &str) -> Self {
        let mut digest = Sha256::new();
        for part in [network, container, interface] {
            digest.update(part.as_bytes());
            // No part has this byte, so that different parts have different digests.
            digest.update([0]);
        }
        let mut digits = HEXLOWER.encode(&digest.finalize());
        digits.truncate(KEY_DIGITS);
        Self(digits)
    }

    pub(crate) fn of_attachment(network: &str, attachment: &Attachment) -> Self {
        let interface = attachment.interface.as_str();
        Self::new(network, &attachment.container, interface)
    }

    fn parse(text: &str) -> Option<Self> {
        let is_key = text.len() == KEY_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_key.then(|| Self(text.to_owned()))
    }

    /// Returns the name of the device for what the pod sends, if its rate is limited.
    pub(crate) fn redirect_name(&self) -> String {
        format!("ifb{}", self.0.get(..DEVICE_DIGITS).unwrap_or(&self.0))
    }

    /// Returns the name of the attachment's device on the node.
    pub(crate) fn device_name(&self) -> String {
        format!("veth{}", self.0.get(..DEVICE_DIGITS).unwrap_or(&self.0))
    }
}

/// Addresses and host ports of an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) container: String,
    pub(crate) interface: String,
    pub(crate) addresses: Vec<IpAddr>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) host_ports: Vec<HostPort>,
    /// The bridge, in whose table its host ports are.
    #[serde(default = "default_bridge")]
    pub(crate) bridge: String,
}

fn default_bridge() -> String {
    DEFAULT_BRIDGE.to_owned()
}

/// The locked records of a network. Dropping it unlocks them.
#[derive(Debug)]
pub(crate) struct Records {
    dir: PathBuf,
    _lock: Option<File>,
}

impl Records {
    /// Locks the records of all networks, and makes the directory of one. Waits for other
    /// processes; the kernel unlocks what a killed one held, as soon as the programs have ended
    /// that it had started: a transaction of `nft` must not follow one of the next process.
    ///
    /// # Errors
    /// The directory can't be used.
    pub(crate) fn lock(data_dir: &Path, network: &str) -> Result<Self, PluginError> {
        let dir = data_dir.join(network);
        let locked = || -> io::Result<File> {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)?;
            // Not a name of a network.
            let lock = open_new(&data_dir.join(".lock"))?;
            flock(&lock, FlockOperation::LockExclusive)?;
            // Programs that are started meanwhile keep the lock.
            fcntl_setfd(&lock, FdFlags::empty())?;
            Ok(lock)
        };
        let lock = locked().map_err(describe(&dir, "records can't be locked in"))?;
        Ok(Self {
            dir,
            _lock: Some(lock),
        })
    }

    /// Checks that records can be made.
    ///
    /// # Errors
    /// There is something else in the place of the directory, or it can't be read.
    pub(crate) fn check_dir(data_dir: &Path) -> Result<(), PluginError> {
        match fs::read_dir(data_dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(describe(data_dir, "records can't be kept in")(error))
            }
            // The first addition makes it.
            _ => Ok(()),
        }
    }

    /// Returns the records of the other networks. Those that can't be read are left out: a network
    /// must not stop another one.
    pub(crate) fn read_others(&self) -> Vec<(RecordKey, Record)> {
        let entries = self.dir.parent().and_then(|dir| fs::read_dir(dir).ok());
        let names = entries.into_iter().flatten().flatten();
        names
            .filter(|entry| entry.file_name().to_str().is_some_and(is_identifier))
            .map(|entry| Self {
                dir: entry.path(),
                _lock: None,
            })
            .filter(|other| other.dir != self.dir)
            .flat_map(|other| other.read_valid())
            .collect()
    }

    /// Returns the records that can be read.
    pub(crate) fn read_valid(&self) -> Vec<(RecordKey, Record)> {
        let keys = self.list_keys().unwrap_or_default();
        keys.into_iter()
            .filter_map(|key| Some((key.clone(), self.read(&key).ok()??)))
            .collect()
    }

    /// Returns all records.
    ///
    /// # Errors
    /// A record can't be read. Then nothing may be allocated: its addresses are unknown.
    pub(crate) fn read_all(&self) -> Result<Vec<(RecordKey, Record)>, PluginError> {
        let keys = self.list_keys()?.into_iter();
        keys.map(|key| {
            let record = self.read(&key)?;
            Ok(record.map(|record| (key, record)))
        })
        .filter_map(Result::transpose)
        .collect()
    }

    /// Returns the keys of all records, of unreadable ones too.
    ///
    /// # Errors
    /// The directory can't be read.
    pub(crate) fn list_keys(&self) -> Result<Vec<RecordKey>, PluginError> {
        let listed = || -> io::Result<Vec<RecordKey>> {
            let mut keys = Vec::new();
            for entry in fs::read_dir(&self.dir)? {
                let path = PathBuf::from(entry?.file_name());
                if path.extension().is_some_and(|found| found == EXTENSION) {
                    let stem = path.file_stem().and_then(|stem| stem.to_str());
                    keys.extend(stem.and_then(RecordKey::parse));
                }
            }
            keys.sort();
            Ok(keys)
        };
        listed().map_err(describe(&self.dir, "records can't be listed in"))
    }

    /// Returns a record, or None.
    ///
    /// # Errors
    /// It can't be read.
    pub(crate) fn read(&self, key: &RecordKey) -> Result<Option<Record>, PluginError> {
        let path = self.path(key);
        let mut bytes = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(MAX_RECORD_BYTES).read_to_end(&mut bytes));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(describe(&path, "a record can't be read:")(error)),
            Ok(_) => {}
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            PluginError::input_output(format!(
                "the record {} is damaged: {error}; its addresses are unknown, so that no pod gets one: delete the file \
                 if the container runtime has no pod with the device {}",
                path.display(),
                key.device_name()
            ))
        })
    }

    /// Writes a record, durably.
    ///
    /// # Errors
    /// The disk is full, or fails.
    pub(crate) fn write(&self, key: &RecordKey, record: &Record) -> Result<(), PluginError> {
        let path = self.path(key);
        let written = || -> io::Result<()> {
            let bytes = serde_json::to_vec(record).map_err(io::Error::other)?;
            // One name for all, under the lock: what a killed process left is written over.
            let temporary = self.dir.join("record.new");
            let mut file = open_new(&temporary)?;
            file.set_len(0)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            self.sync()
        };
        written().map_err(describe(&path, "a record can't be written:"))
    }

    /// Removes a record; one that does not exist is no error.
    ///
    /// # Errors
    /// The directory can't be written.
    pub(crate) fn remove(&self, key: &RecordKey) -> Result<(), PluginError> {
        let path = self.path(key);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(describe(&path, "a record can't be removed:")(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the addresses that were chosen last. They are a hint, which may be lost.
    pub(crate) fn read_last(&self) -> Vec<IpAddr> {
        let text = fs::read_to_string(self.dir.join("last")).unwrap_or_default();
        text.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    }

    pub(crate) fn write_last(&self, addresses: &[IpAddr]) {
        let words: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
        let _ = fs::write(self.dir.join("last"), words.join(" "));
    }

    fn path(&self, key: &RecordKey) -> PathBuf {
        self.dir.join(format!("{}.{EXTENSION}", key.0))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}

/// Returns the addresses of records.
pub(crate) fn taken_addresses(records: &[(RecordKey, Record)]) -> BTreeSet<IpAddr> {
    records
        .iter()
        .flat_map(|(_, record)| record.addresses.iter().copied())
        .collect()
}

fn open_new(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn describe(path: &Path, problem: &str) -> impl FnOnce(io::Error) -> PluginError {
    move |error| PluginError::input_output(format!("{problem} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn record(address: &str) -> Record {
        Record {
            container: "c".into(),
            interface: "eth0".into(),
            addresses: vec![address.parse().unwrap()],
            host_ports: Vec::new(),
            bridge: default_bridge(),
        }
    }

    #[test]
    fn keys_of_different_attachments_differ() {
        let keys = [("n", "ab", "c"), ("n", "a", "bc"), ("na", "b", "c")]
            .map(|(network, container, interface)| RecordKey::new(network, container, interface));
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        assert_eq!(keys[0].device_name().len(), 15);
        assert_eq!(RecordKey::parse(&keys[0].0).as_ref(), Some(&keys[0]));
    }

    /// A process that was killed while it wrote leaves an incomplete file with another name.
    #[test]
    fn incomplete_record_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::lock(dir.path(), "n").unwrap();
        let longer = "x".repeat(10_000);
        fs::write(dir.path().join("n/record.new"), longer).unwrap();
        assert_eq!(records.read_all().unwrap(), []);
        let key = RecordKey::new("n", "c", "eth0");
        records.write(&key, &record("10.0.0.2")).unwrap();
        assert_eq!(
            records.read_all().unwrap(),
            [(key.clone(), record("10.0.0.2"))]
        );
        records.remove(&key).unwrap();
        records.remove(&key).unwrap();
        assert_eq!(records.read(&key).unwrap(), None);
    }

    #[test]
    fn damaged_record_stops_the_allocation_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::lock(dir.path(), "n").unwrap();
        let key = RecordKey::new("n", "c", "eth0");
        fs::write(records.path(&key), "{").unwrap();
        let error = records.read_all().unwrap_err().to_string();
        assert!(
            error.contains("delete the file") && error.contains("veth"),
            "{error}"
        );
        assert_eq!(records.list_keys().unwrap(), [key]);
    }
}
