//! Recovery: reads the segments back and distinguishes torn writes from other damage.

use crate::disk::{Disk, FileSystem};
use crate::files;
use crate::frame::{self, FrameDiagnosis, Record};
use crate::shared::Place;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// Reasons why a log can't be used.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    /// The file system returned an error.
    #[error("the log in {path} can't be {doing}: {source}{}", crate::files::suggest_remedy(.source))]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// `opened`, `read` or `written`.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// A frame that may have been acknowledged is damaged.
    #[error(
        "the log is corrupt: checksum mismatch in {path} at byte {offset}, {evidence}; \
         this member can't prove what it has acknowledged. Restore it from a snapshot (kvstore snapshot restore), or, in a \
         cluster, remove it with `member remove`, empty its data folder and add it again"
    )]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Offset of the damage in bytes.
        offset: u64,
        /// Reason why it is not a torn write.
        evidence: &'static str,
    },
    /// The directory has no segments.
    #[error(
        "there is no log in {path}; restore this member from a snapshot (kvstore snapshot restore), or, in a cluster, \
         remove it with `member remove`, empty its data folder and add it again"
    )]
    Empty {
        /// The directory.
        path: PathBuf,
    },
    /// A segment is missing.
    #[error(
        "the log is corrupt: a segment is missing before {path}; restore this member from a snapshot \
         (kvstore snapshot restore)"
    )]
    Missing {
        /// The segment after the gap.
        path: PathBuf,
    },
}

/// Content of a log when it was opened.
#[derive(Debug, Default)]
pub struct Contents {
    /// The last vote.
    pub vote: Option<Bytes>,
    /// Index and data of the last purge.
    pub purged: Option<(u64, Bytes)>,
    /// Entries from the first one that was not purged.
    pub entries: VecDeque<(u64, Bytes)>,
    /// Number of bytes of a torn last write that were removed.
    pub torn: Option<u64>,
}

/// State from which the writer continues.
pub(crate) struct RecoveredLog {
    pub contents: Contents,
    pub places: VecDeque<Place>,
    pub segments: Vec<u64>,
    /// Sequence number of the next frame.
    pub sequence: u64,
    /// Offset of the next frame in the last segment.
    pub offset: u64,
    /// End of non-zero bytes after that offset, if there are any.
    pub remains: Option<u64>,
}

/// Reads a whole file.
pub(crate) type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Bytes>;

/// Reads a log without changing or locking anything. Returns an error if the directory has no log.
pub fn read_log(folder: &Path) -> Result<Contents, WalError> {
    let failed = |source| WalError::Io {
        path: folder.to_path_buf(),
        doing: "read",
        source,
    };
    if !folder.exists()
        || files::list_segments(&FileSystem, folder)
            .map_err(failed)?
            .is_empty()
    {
        return Err(WalError::Empty {
            path: folder.to_path_buf(),
        });
    }
    let read = |path: &Path| std::fs::read(path).map(Bytes::from);
    recover_log(&FileSystem, folder, &read).map(|found| found.contents)
}

pub(crate) fn recover_log(
    disk: &dyn Disk,
    folder: &Path,
    read: ReadFile<'_>,
) -> Result<RecoveredLog, WalError> {
    let failed = |source| WalError::Io {
        path: folder.to_path_buf(),
        doing: "read",
        source,
    };
    let segments = files::list_segments(disk, folder).map_err(failed)?;
    let mut found = RecoveredLog {
        contents: Contents::default(),
        places: VecDeque::new(),
        sequence: segments.first().copied().unwrap_or(1),
        segments,
        offset: 0,
        remains: None,
    };
    for (number, first) in found.segments.clone().into_iter().enumerate() {
        let path = files::segment_path(folder, first);
        if first != found.sequence {
            // The previous segment ends early: the missing frames were acknowledged.
            return Err(WalError::Missing { path });
        }
        let next = found.segments.get(number + 1).copied();
        read_segment(read, &mut found, &path, first, next)?;
    }
    Ok(found)
}

pub(crate) fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Bytes> {
    let file = disk.open(path)?;
    let mut bytes = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes.into())
}

fn read_segment(
    read: ReadFile<'_>,
    found: &mut RecoveredLog,
    path: &Path,
    first: u64,
    next: Option<u64>,
) -> Result<(), WalError> {
    let failed = |source| WalError::Io {
        path: path.to_path_buf(),
        doing: "read",
        source,
    };
    let bytes = read(path).map_err(failed)?;
    let mut offset = 0;
    let mut sealed = false;
    while let Some(frame) = next_frame(&bytes, offset, found.sequence) {
        for (at, record) in frame.records {
            let place = Place {
                segment: first,
                offset: (offset + at) as u64,
                size: 0,
            };
            take_record(found, record, place);
        }
        found.sequence += 1;
        offset += frame.size;
        sealed = frame.sealed;
    }
    // The next segment continues the sequence. The rest of this one was preallocated and never
    // written.
    if next == Some(found.sequence) {
        return Ok(());
    }
    let end = SegmentEnd {
        bytes: &bytes,
        offset,
        sequence: found.sequence,
        sealed,
    };
    let torn = end.is_torn().map_err(|evidence| {
        let path = path.to_path_buf();
        WalError::Corrupt {
            path,
            offset: offset as u64,
            evidence,
        }
    })?;
    if next.is_none() {
        found.offset = offset as u64;
        found.remains = end.remains_end();
        found.contents.torn = found.remains.filter(|_| torn).map(|end| end - found.offset);
    }
    Ok(())
}

fn next_frame(bytes: &Bytes, offset: usize, sequence: u64) -> Option<frame::Found> {
    frame::decode_frame(bytes, offset).filter(|frame| frame.sequence == sequence)
}

/// End of a segment's frames.
struct SegmentEnd<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Sequence number of the frame that is missing.
    sequence: u64,
    /// True if the previous frame has a seal.
    sealed: bool,
}

impl SegmentEnd<'_> {
    /// Returns whether a write was torn here, or the reason why it can't have been.
    fn is_torn(&self) -> Result<bool, &'static str> {
        if self.offset == 0 {
            return Err("at its head, without which no segment gets its name");
        }
        // A frame is written only after the one before it is synced. A valid later frame proves
        // that this one was durable and was damaged afterwards.
        if self.has_later_frame() {
            return Err("with valid records behind it");
        }
        match frame::diagnose_frame(self.rest_bytes(), self.offset, self.sequence, self.sealed) {
            FrameDiagnosis::Absent => Ok(false),
            FrameDiagnosis::Torn => Ok(true),
            FrameDiagnosis::Damaged => Err("in a record that was written whole"),
        }
    }

    fn rest_bytes(&self) -> &[u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    /// Returns whether a valid later frame follows.
    fn has_later_frame(&self) -> bool {
        // Frames are padded to multiples of 8 bytes.
        let mut places = (self.offset..self.bytes.len()).step_by(8);
        places.any(|at| {
            frame::check_frame(&self.bytes[at..], at)
                .is_some_and(|(found, _)| found >= self.sequence)
        })
    }

    fn remains_end(&self) -> Option<u64> {
        let last = self.rest_bytes().iter().rposition(|byte| *byte != 0)?;
        Some((self.offset + last + 1) as u64)
    }
}

fn take_record(found: &mut RecoveredLog, record: Record, place: Place) {
    let contents = &mut found.contents;
    match record {
        Record::Vote(vote) => contents.vote = Some(vote),
        Record::Entry(index, data) => {
            // The same rules as in `State::push`: recovery must end with what readers saw before
            // the crash.
            truncate_entries(contents, &mut found.places, index);
            if contents
                .entries
                .back()
                .is_some_and(|(last, _)| last + 1 != index)
            {
                contents.entries.clear();
                found.places.clear();
            }
            let size = (frame::RECORD_HEADER + data.len()) as u32;
            contents.entries.push_back((index, data));
            found.places.push_back(Place { size, ..place });
        }
        Record::Truncate(from) => truncate_entries(contents, &mut found.places, from),
        Record::Purge(upto, data) => {
            while contents
                .entries
                .front()
                .is_some_and(|(first, _)| *first <= upto)
            {
                contents.entries.pop_front();
                found.places.pop_front();
            }
            if contents
                .purged
                .as_ref()
                // The head of a segment repeats an earlier purge, which must not replace a later
                // one.
                .is_none_or(|(last, _)| *last <= upto)
            {
                contents.purged = Some((upto, data));
            }
        }
    }
}

fn truncate_entries(contents: &mut Contents, places: &mut VecDeque<Place>, from: u64) {
    while contents
        .entries
        .back()
        .is_some_and(|(last, _)| *last >= from)
    {
        contents.entries.pop_back();
        places.pop_back();
    }
}
