//! The log: one line for each event, in a file that is rotated or on standard output.

use crate::backend::{Backend, BackendError};
use crate::event::Event;
use crate::log_line::LineFormat;
use crate::rotation::{Names, Rotation};
use base_task::{CancellationToken, Tasks, blocking};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Batches of lines that wait for the writer.
const WAITING: usize = 1024;
/// Suffix of a file that is being compressed.
const PART: &str = ".part";
/// Bytes that are written at once.
const CHUNK: usize = 1024 * 1024;

/// A backend that writes lines to a file or to standard output.
pub struct LogFile {
    format: LineFormat,
    lines: mpsc::Sender<Lines>,
}

/// Lines that a request waits for.
struct Lines {
    bytes: Vec<u8>,
    written: oneshot::Sender<Result<(), BackendError>>,
}

impl LogFile {
    /// Opens the log and starts its writer. The path `-` is standard output.
    ///
    /// # Errors
    /// The file or its directory can't be made.
    pub fn open(
        path: &Path,
        format: LineFormat,
        rotation: Rotation,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let target = match path.to_str() {
            Some("-") => Target::Output,
            _ => Target::File(RotatedFile::open(path, rotation, tasks.clone())?),
        };
        let (lines, receiver) = mpsc::channel(WAITING);
        let shutdown = tasks.shutdown().clone();
        tasks.spawn("audit log", write_lines(target, receiver, shutdown));
        Ok(LogFile { format, lines })
    }
}

#[async_trait::async_trait]
impl Backend for LogFile {
    fn name(&self) -> &'static str {
        "log"
    }

    async fn process_events(&self, events: &[Arc<Event>]) -> Result<(), BackendError> {
        let mut bytes = Vec::new();
        for event in events {
            self.format.write_line(event, &mut bytes);
        }
        let (written, outcome) = oneshot::channel();
        let lines = Lines { bytes, written };
        self.lines
            .send(lines)
            .await
            .map_err(|_| BackendError::Closed)?;
        outcome.await.map_err(|_| BackendError::Closed)?
    }
}

/// Writes lines until `shutdown`, then those that wait.
async fn write_lines(
    mut target: Target,
    mut waiting: mpsc::Receiver<Lines>,
    shutdown: CancellationToken,
) {
    let mut batch: Vec<Lines> = Vec::new();
    loop {
        tokio::select! {
            biased;
            received = waiting.recv_many(&mut batch, WAITING) => if received == 0 { return },
            () = shutdown.cancelled(), if !waiting.is_closed() => waiting.close(),
        }
        // One system call for all that arrived during the last one.
        blocking(|| write_batch(&mut target, &mut batch));
    }
}

fn write_batch(target: &mut Target, batch: &mut Vec<Lines>) {
    let mut rest = batch.drain(..).peekable();
    while rest.peek().is_some() {
        let mut bytes = Vec::new();
        let mut written = Vec::new();
        while let Some(lines) =
            rest.next_if(|next| bytes.is_empty() || bytes.len() + next.bytes.len() <= CHUNK)
        {
            bytes.extend_from_slice(&lines.bytes);
            written.push(lines.written);
        }
        let outcome = target.write(&bytes);
        let outcome = outcome.map_err(|error| BackendError::Write(Arc::new(error)));
        for written in written {
            // The request may have ended meanwhile.
            let _ = written.send(outcome.clone());
        }
    }
}

enum Target {
    Output,
    File(RotatedFile),
}

impl Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes)?;
                output.flush()
            }
            Target::File(file) => file.write(bytes),
        }
    }
}

/// Compresses and removes rotated files, in one thread at a time: two would compress the same
/// files.
#[derive(Default)]
struct Tidying {
    running: Mutex<()>,
    is_due: AtomicBool,
}

impl Tidying {
    /// Tidies, unless another thread does; that one then does it once more.
    fn run(&self, names: &Names, rotation: &Rotation) {
        self.is_due.store(true, Ordering::SeqCst);
        // Again after the lock is released: another thread may have failed to get it before.
        while self.is_due.load(Ordering::SeqCst) {
            let Some(_running) = self.running.try_lock() else {
                return;
            };
            if self.is_due.swap(false, Ordering::SeqCst)
                && let Err(error) = tidy_rotated(names, rotation)
            {
                tracing::warn!(%error, "rotated audit logs can't be compressed or removed");
            }
        }
    }
}

/// A file that is renamed when it is full.
struct RotatedFile {
    path: PathBuf,
    names: Names,
    rotation: Rotation,
    file: File,
    length: u64,
    /// The last write has failed, possibly in the middle of a line.
    is_torn: bool,
    tidying: Arc<Tidying>,
    tasks: Tasks,
}

impl RotatedFile {
    fn open(path: &Path, rotation: Rotation, tasks: Tasks) -> io::Result<Self> {
        let names = Names::new(path);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(names.directory())?;
        let file = open_log(path)?;
        let length = file.metadata()?.len();
        Ok(RotatedFile {
            path: path.to_path_buf(),
            names,
            rotation,
            file,
            length,
            is_torn: false,
            tidying: Arc::default(),
            tasks,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.is_torn {
            // A part of a line stays in the file. The next line must not become a part of it.
            self.file.write_all(b"\n")?;
            self.is_torn = false;
        }
        let added = bytes.len() as u64;
        let is_full = self.rotation.size > 0 && self.length + added > self.rotation.size;
        // A line that is longer than a file has a file of its own.
        if is_full
            && self.length > 0
            && let Err(error) = self.rotate()
        {
            // The lines go to the file that is open, whatever its name is now.
            tracing::warn!(%error, path = %self.path.display(), "the audit log can't be rotated");
            // Tried again after the bytes of another file.
            self.length = 0;
        }
        let written = self.file.write_all(bytes);
        self.is_torn = written.is_err();
        self.length += added;
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        match std::fs::rename(&self.path, self.names.rotated(Timestamp::now())) {
            // Another program has moved or removed the file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            renamed => renamed?,
        }
        self.file = open_log(&self.path)?;
        self.length = 0;
        let (names, rotation) = (self.names.clone(), self.rotation);
        let tidying = self.tidying.clone();
        // Beside the writer: the compression of a full file takes seconds.
        self.tasks.spawn_isolated("audit log rotation", async move {
            blocking(|| tidying.run(&names, &rotation));
        });
        Ok(())
    }
}

/// Opens a log for appending. Only the owner may read it: events have the content of requests.
fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// Removes surplus files and compresses the others.
fn tidy_rotated(names: &Names, rotation: &Rotation) -> io::Result<()> {
    let mut rotated = Vec::new();
    for entry in std::fs::read_dir(names.directory())? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        rotated.extend(names.parse(&name));
        // A compression was interrupted.
        if let Some(part) = name.strip_suffix(PART).and_then(|name| names.parse(name)) {
            let mut path = part.path.into_os_string();
            path.push(PART);
            remove_present(Path::new(&path))?;
        }
    }
    for path in rotation.find_surplus(rotated.clone(), Timestamp::now()) {
        rotated.retain(|file| file.path != path);
        remove_present(&path)?;
    }
    if rotation.compress {
        let plain = rotated
            .iter()
            .filter(|file| file.path.extension() != Some("gz".as_ref()));
        for file in plain {
            compress_file(&file.path)?;
        }
    }
    Ok(())
}

fn compress_file(path: &Path) -> io::Result<()> {
    let mut source = match File::open(path) {
        // Another program has removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let with_suffix = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    // Under a name that no rotated file has, so that an interrupted one does not count.
    let part = with_suffix(PART);
    let target = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    // Durable before the original is removed.
    encoder.finish()?.sync_all()?;
    std::fs::rename(part, with_suffix(".gz"))?;
    remove_present(path)
}

/// Removes a file, which another program may have removed.
fn remove_present(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
