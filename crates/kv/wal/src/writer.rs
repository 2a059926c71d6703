//! The writer: combines all waiting requests into one frame, writes it, syncs once, and then
//! acknowledges them.

use crate::disk::DiskFile;
use crate::files::{self, SegmentMaintenance};
use crate::frame::{self, Record};
use crate::shared::{Done, Entry, Place, Shared, SyncObserver};
use bytes::{Bytes, BytesMut};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// Size in bytes at which a frame is closed.
const FRAME_BYTES: usize = 8 << 20;
/// Size in bytes by which unwritten blocks are written ahead. A sync of a block that was written
/// before needs no journal entry of the file system and takes a fraction of the time.
const AHEAD: u64 = 1 << 20;

pub(crate) enum Request {
    Append(Vec<Entry>, Done),
    Vote(Bytes, Done),
    Truncate(u64, Done),
    Purge(u64, Bytes, Done),
}

/// Executes requests. In production, a thread or the caller runs all steps at once; a simulation
/// runs them with time passing in between.
pub struct Writer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: Receiver<Request>,
    pub(crate) segment_bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) segments: Vec<u64>,
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
    /// Offset up to which blocks have been written, by this or an earlier process.
    pub(crate) written: u64,
    pub(crate) vote: Option<Bytes>,
    pub(crate) purged: Option<(u64, Bytes)>,
    pub(crate) observer: SyncObserver,
    /// A segment was started or others became unused, so that maintenance is due.
    pub(crate) due: bool,
}

/// A frame in progress, and the callbacks of its requests.
pub struct Frame {
    records: Vec<Record>,
    places: Vec<usize>,
    size: u64,
    done: Vec<Done>,
}

impl Frame {
    /// Acknowledges the requests: the frame is on disk.
    pub fn acknowledge(&mut self) {
        for done in self.done.drain(..) {
            done();
        }
    }
}

impl Writer {
    /// Executes all waiting requests. An error exits the process.
    pub(crate) fn drain_queue(&mut self) {
        while let Some(mut frame) = self.next_frame() {
            // After a failed sync the kernel may drop the dirty pages and report success the next
            // time. So there is no second attempt.
            if let Err(e) = self
                .write_frame(&mut frame)
                .and_then(|()| self.sync_frame(&frame))
            {
                files::exit_on_failure(&self.shared, &e);
            }
            frame.acknowledge();
            if let Some(upkeep) = self.take_maintenance() {
                files::run_maintenance(upkeep);
            }
        }
    }

    /// Returns the maintenance, if it is due.
    pub fn take_maintenance(&mut self) -> Option<SegmentMaintenance> {
        let due = std::mem::take(&mut self.due);
        due.then(|| SegmentMaintenance {
            shared: self.shared.clone(),
            size: self.segment_bytes,
        })
    }

    /// Combines the waiting requests into a frame. Returns `None` if there are none.
    pub fn next_frame(&mut self) -> Option<Frame> {
        let first = self.inbox.try_recv().ok()?;
        Some(self.build_frame(first))
    }

    fn build_frame(&mut self, first: Request) -> Frame {
        let mut records = Vec::new();
        let mut done = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(request) = next {
            bytes += self.take_request(request, &mut records, &mut done);
            next = if bytes < FRAME_BYTES {
                self.inbox.try_recv().ok()
            } else {
                None
            };
        }
        Frame {
            records,
            places: Vec::new(),
            size: 0,
            done,
        }
    }

    fn take_request(
        &mut self,
        request: Request,
        records: &mut Vec<Record>,
        done: &mut Vec<Done>,
    ) -> usize {
        match request {
            Request::Append(entries, then) => {
                done.push(then);
                let bytes = entries.iter().map(|(_, data)| data.len()).sum();
                records.extend(
                    entries
                        .into_iter()
                        .map(|(index, data)| Record::Entry(index, data)),
                );
                bytes
            }
            Request::Vote(vote, then) => {
                done.push(then);
                // Each new segment repeats vote and purge in its head, because the segment with
                // this record may be purged.
                self.vote = Some(vote.clone());
                records.push(Record::Vote(vote));
                0
            }
            Request::Truncate(from, then) => {
                done.push(then);
                records.push(Record::Truncate(from));
                0
            }
            Request::Purge(upto, data, then) => {
                done.push(then);
                self.purged = Some((upto, data.clone()));
                records.push(Record::Purge(upto, data));
                0
            }
        }
    }

    /// Writes a frame to the newest segment.
    pub fn write_frame(&mut self, frame: &mut Frame) -> io::Result<()> {
        // Checked before a frame and not after one, so a segment ends with the frame that fills it.
        if self.offset >= self.segment_bytes {
            self.roll_segment()?;
        }
        let mut bytes = BytesMut::new();
        frame.places = frame::encode_frame(
            &mut bytes,
            self.offset as usize,
            self.sequence,
            &frame.records,
        );
        frame.size = bytes.len() as u64;
        let end = self.offset + frame.size;
        if end > self.written {
            // Zeros are no frame: recovery stops before them.
            self.written = (end + AHEAD).min(self.segment_bytes).max(end);
            bytes.resize((self.written - self.offset) as usize, 0);
        }
        self.file.write_at(&bytes, self.offset)
    }

    /// Makes the last written frame durable. Requests must not be acknowledged before.
    pub fn sync_frame(&mut self, frame: &Frame) -> io::Result<()> {
        let before = Instant::now();
        self.file.sync_data()?;
        (self.observer)(before.elapsed());
        // Only after the sync. Until then readers take the entries from memory.
        self.set_places(&frame.records, &frame.places);
        self.offset += frame.size;
        self.sequence += 1;
        if frame
            .records
            .iter()
            .any(|record| matches!(record, Record::Purge(..)))
        {
            self.release_segments();
        }
        Ok(())
    }

    /// Sets the locations of the entries for readers.
    fn set_places(&self, records: &[Record], places: &[usize]) {
        let segment = self.segments.last().copied().unwrap_or_default();
        let mut state = self.shared.state.write();
        let (first, end) = (state.first, state.end_index());
        for (record, at) in records.iter().zip(places) {
            if let Record::Entry(index, data) = record
                && (first..end).contains(index)
                && let Some(place) = state.places.get_mut((index - first) as usize)
            {
                *place = Place {
                    segment,
                    offset: self.offset + *at as u64,
                    size: (frame::RECORD_HEADER + data.len()) as u32,
                };
            }
        }
    }

    fn roll_segment(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        head.extend(self.vote.clone().map(Record::Vote));
        head.extend(
            self.purged
                .clone()
                .map(|(upto, data)| Record::Purge(upto, data)),
        );
        let made = files::create_segment(
            &*self.shared.disk,
            &self.shared.folder,
            self.sequence,
            &head,
            self.segment_bytes,
        )?;
        self.file = made.file;
        self.written = made.written;
        self.due = true;
        self.segments.push(self.sequence);
        self.sequence += 1;
        self.offset = made.size;
        Ok(())
    }

    /// Marks segments without needed entries for recycling, except the newest one.
    fn release_segments(&mut self) {
        let mut state = self.shared.state.write();
        // Entries are stored in log order, so the first needed entry is in the first segment to
        // keep.
        let newest = self.segments.last().copied().unwrap_or_default();
        let keep = state
            .places
            .iter()
            .map(|place| place.segment)
            .find(|segment| *segment != 0)
            .unwrap_or(newest);
        let dead: Vec<u64> = self
            .segments
            .iter()
            .copied()
            .filter(|segment| *segment < keep)
            .collect();
        for segment in &dead {
            state.files.remove(segment);
        }
        drop(state);
        self.segments.retain(|segment| *segment >= keep);
        self.due |= !dead.is_empty();
        self.shared.dead.lock().extend(dead);
    }
}
