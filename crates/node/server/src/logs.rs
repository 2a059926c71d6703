//! `/containerLogs`: reads a log file from the requested position, and follows it while its
//! container runs.
//!
//! Rotated files that still exist are read first: a log is complete as far as the node keeps it
//! (stock kubelets return the newest file only). A follower keeps its file open: after a rotation
//! it reads the old file to its end and continues with the new one of the same name.

use crate::backend::{Failure, LogQuery, LogSource};
use crate::reply::Reply;
use base_task::Tasks;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use node_runtime::FolderWatch;
use node_runtime::logs::{find_tail_offset, parse_record};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHUNK: usize = 64 * 1024;
/// Interval at which an idle follower checks that its container still runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Responds with the log.
pub(crate) fn serve_log(
    source: LogSource,
    query: LogQuery,
    tasks: &Tasks,
) -> Result<Reply, Failure> {
    let files = base_task::blocking(|| open_files(&source.path, query.tail))?;
    // A small buffer: a client that reads slowly stops the reading of the file instead of filling
    // the memory.
    let (sender, receiver) = mpsc::channel::<Bytes>(4);
    let shutdown = tasks.shutdown().clone();
    tasks.spawn_isolated("log", async move {
        let reader = Reader {
            left: query.limit.unwrap_or(u64::MAX),
            query,
            pending: Vec::new(),
            fresh: true,
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = send_log(source, files, reader, sender) => {}
        }
    });
    let frames = receiver.map(|data| Ok(Frame::data(data)));
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    Ok(response)
}

/// Opens the files of a log from the requested position, in order, each positioned at its start of
/// reading.
fn open_files(path: &Path, tail: Option<u64>) -> Result<VecDeque<File>, Failure> {
    // Open the newest first: if it is rotated meanwhile it is listed among the others too, and
    // nothing is lost.
    let newest = open_log_file(path);
    let known = newest.as_ref().ok().and_then(read_inode);
    let older = list_rotated(path)
        .into_iter()
        .filter_map(|path| File::open(path).ok());
    let older: Vec<File> = older
        .filter(|file| known.is_none() || read_inode(file) != known)
        .collect();
    let newest = match newest {
        // Rotated; the new file does not exist yet.
        Err(_) if !older.is_empty() => None,
        newest => Some(newest?),
    };
    let mut files = VecDeque::new();
    // From the newest file backwards, until enough lines are found.
    let mut lines_left = tail;
    for mut file in newest.into_iter().chain(older.into_iter().rev()) {
        if let Some(lines) = lines_left {
            let (start, found) =
                find_tail_offset(&mut file, lines).map_err(|e| internal_error(&e))?;
            file.seek(SeekFrom::Start(start))
                .map_err(|e| internal_error(&e))?;
            lines_left = Some(lines - found);
        }
        files.push_front(file);
        if lines_left == Some(0) {
            break;
        }
    }
    Ok(files)
}

/// Lists the rotated files of a log, oldest first, with their rotation time in seconds.
fn list_rotated(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let prefix = format!("{}.", name.to_string_lossy());
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| {
            Some((
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix(&prefix)?
                    .parse()
                    .ok()?,
                entry.path(),
            ))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn read_inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|metadata| metadata.ino())
}

fn open_log_file(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Failure::not_found(format!(
            "failed to open log file {:?}: no such file or directory",
            path.display()
        )),
        _ => internal_error(&e),
    })
}

fn internal_error(e: &std::io::Error) -> Failure {
    Failure::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        format!("failed to read the log: {e}"),
    )
}

async fn send_log(
    source: LogSource,
    mut files: VecDeque<File>,
    mut reader: Reader,
    mut sender: mpsc::Sender<Bytes>,
) {
    let Some(mut file) = files.pop_front() else {
        return;
    };
    // Opened before the first read: a record written in between wakes the follower.
    let mut watch = source
        .path
        .parent()
        .filter(|_| reader.query.follow)
        .and_then(|folder| FolderWatch::new(folder).ok());
    loop {
        // Check before reading: records written before the exit are then read in this round.
        let alive = reader.query.follow && (source.alive)();
        loop {
            let mut buffer = vec![0u8; CHUNK];
            let Ok(count) = base_task::blocking(|| file.read(&mut buffer)) else {
                return;
            };
            if count == 0 {
                break;
            }
            let text = reader.consume(buffer.get(..count).unwrap_or_default());
            // An error means that the client has closed the connection.
            if !text.is_empty() && sender.send(text.into()).await.is_err() {
                return;
            }
            if reader.left == 0 {
                return;
            }
        }
        if let Some(next) = files
            .pop_front()
            .or_else(|| base_task::blocking(|| open_rotated(&file, &source.path)))
        {
            file = next;
            continue;
        }
        if !alive || sender.is_closed() {
            return;
        }
        match &mut watch {
            // The timeout covers a container that exits without a last record.
            Some(watch) => drop(tokio::time::timeout(CHECK_INTERVAL, watch.changed()).await),
            None => tokio::time::sleep(CHECK_INTERVAL).await,
        }
    }
}

/// Returns the new file if the path now names another one than `file`.
fn open_rotated(file: &File, path: &Path) -> Option<File> {
    let next = File::open(path).ok()?;
    (read_inode(file)? != read_inode(&next)?).then_some(next)
}

struct Reader {
    query: LogQuery,
    left: u64,
    pending: Vec<u8>,
    /// The next record begins a line.
    fresh: bool,
}

impl Reader {
    /// Consumes raw bytes of the file; returns the text of the whole records.
    fn consume(&mut self, data: &[u8]) -> Vec<u8> {
        let mut raw = std::mem::take(&mut self.pending);
        raw.extend_from_slice(data);
        let mut text = Vec::new();
        // The writer may be in the middle of a record; the rest waits for the next read.
        let whole = raw.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for line in raw
            .get(..whole)
            .unwrap_or_default()
            .split_inclusive(|b| *b == b'\n')
        {
            self.push_record(line, &mut text);
        }
        self.pending = raw.split_off(whole);
        let limit = usize::try_from(self.left).unwrap_or(usize::MAX);
        text.truncate(limit);
        self.left -= text.len() as u64;
        text
    }

    fn push_record(&mut self, line: &[u8], text: &mut Vec<u8>) {
        let Some(record) = parse_record(line) else {
            return;
        };
        let begins = std::mem::replace(&mut self.fresh, !record.partial);
        if self
            .query
            .stderr
            .is_some_and(|stderr| stderr != record.stderr)
        {
            return;
        }
        // A record at exactly that time is excluded.
        if let Some(since) = self.query.since
            && record
                .time
                .parse::<jiff::Timestamp>()
                .is_ok_and(|t| t <= since)
        {
            return;
        }
        // One time for each line, also if its parts are several records.
        if self.query.timestamps && begins {
            text.extend_from_slice(record.time.as_bytes());
            text.push(b' ');
        }
        text.extend_from_slice(record.text);
        if !record.partial {
            text.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read(query: LogQuery, log: &str) -> String {
        let mut reader = Reader {
            left: query.limit.unwrap_or(u64::MAX),
            query,
            pending: Vec::new(),
            fresh: true,
        };
        let text: Vec<u8> = log
            .as_bytes()
            .chunks(7)
            .flat_map(|c| reader.consume(c))
            .collect();
        String::from_utf8_lossy(&text).into_owned()
    }

    #[test]
    fn log_query_selects_records() {
        let log = "2026-01-01T00:00:01Z stdout F one\n2026-01-01T00:00:02Z stderr P t\n2026-01-01T00:00:02Z stderr F wo\n";
        let since = "2026-01-01T00:00:01Z".parse().ok();
        for (query, want) in [
            (LogQuery::default(), "one\ntwo\n"),
            (
                LogQuery {
                    since,
                    ..LogQuery::default()
                },
                "two\n",
            ),
            (
                LogQuery {
                    limit: Some(5),
                    ..LogQuery::default()
                },
                "one\nt",
            ),
            (
                LogQuery {
                    stderr: Some(false),
                    ..LogQuery::default()
                },
                "one\n",
            ),
            (
                LogQuery {
                    timestamps: true,
                    ..LogQuery::default()
                },
                "2026-01-01T00:00:01Z one\n2026-01-01T00:00:02Z two\n",
            ),
        ] {
            assert_eq!(read(query.clone(), log), want, "{query:?}");
        }
    }

    /// Returns the text served for a rotated log; its lines are numbers, eight of them in three
    /// files.
    async fn of_rotated(query: LogQuery, newest: bool) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let write = |path: &Path, numbers: std::ops::Range<u32>| {
            let lines: String = numbers
                .map(|n| format!("2026-01-01T00:00:0{n}Z stdout F {n}\n"))
                .collect();
            std::fs::write(path, lines).unwrap();
        };
        write(&path.with_extension("log.999"), 0..3);
        write(&path.with_extension("log.1000"), 3..6);
        write(&path.with_extension("log.tmp"), 6..7);
        if newest {
            write(&path, 6..8);
        }
        let source = LogSource {
            path,
            alive: Box::new(|| false),
        };
        let reply = serve_log(
            source,
            query,
            &Tasks::new(base_task::CancellationToken::new()),
        )
        .unwrap_or_else(|_| panic!("refused"));
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&body).replace('\n', "")
    }

    #[tokio::test]
    async fn rotated_log_is_served_whole() {
        assert_eq!(of_rotated(LogQuery::default(), true).await, "01234567");
        assert_eq!(of_rotated(LogQuery::default(), false).await, "012345");
        for (tail, want) in [
            (0, ""),
            (1, "7"),
            (2, "67"),
            (3, "567"),
            (5, "34567"),
            (6, "234567"),
            (9, "01234567"),
        ] {
            assert_eq!(
                of_rotated(
                    LogQuery {
                        tail: Some(tail),
                        ..LogQuery::default()
                    },
                    true
                )
                .await,
                want
            );
        }
    }

    #[test]
    fn rotated_files_are_ordered_by_the_time_of_rotation() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["0.log", "0.log.1000", "0.log.999", "0.log.tmp", "1.log.5"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = list_rotated(&folder.path().join("0.log"));
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["0.log.999", "0.log.1000"]);
    }

    #[test]
    fn missing_log_is_not_found() {
        let folder = tempfile::tempdir().unwrap();
        let failure = open_files(&folder.path().join("0.log"), None).unwrap_err();
        assert_eq!(failure.status, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn follower_reads_records_until_its_container_exits() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicBool, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, "T stdout F one\n").unwrap();
        let running = Arc::new(AtomicBool::new(true));
        let alive = running.clone();
        let source = LogSource {
            path: path.clone(),
            alive: Box::new(move || alive.load(Ordering::Relaxed)),
        };
        let query = LogQuery {
            follow: true,
            ..LogQuery::default()
        };
        let tasks = Tasks::new(base_task::CancellationToken::new());
        let Ok(reply) = serve_log(source, query, &tasks) else {
            unreachable!("the log exists");
        };
        let mut body = reply.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&first[..], b"one\n");
        // A rotation while the log is followed: the rest of the old file, then the new one.
        std::fs::rename(&path, folder.path().join("0.log.1")).unwrap();
        std::fs::write(&path, "T stdout F two\n").unwrap();
        let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&second[..], b"two\n");
        running.store(false, Ordering::Relaxed);
        assert!(body.frame().await.is_none());
    }
}
