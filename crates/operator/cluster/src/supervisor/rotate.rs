//! Log rotation. Logs are copied and truncated rather than renamed, because the writers hold them
//! open and must not depend on the supervisor (which rules out pipes).

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

const MAX_LOG_BYTES: u64 = 20 << 20;
const ROTATED_LOGS: u32 = 3;
/// A multiple of file systems' block sizes: the unit in which the start of a file can be removed.
const BLOCK: u64 = 64 << 10;

/// Rotates the logs that are too large.
pub(crate) fn rotate_logs(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let large = entry
            .metadata()
            .is_ok_and(|meta| meta.is_file() && meta.len() > MAX_LOG_BYTES);
        if large
            && path.extension().is_some_and(|extension| extension == "log")
            && let Err(error) = rotate_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "log can't be rotated");
        }
    }
}

fn rotate_file(path: &Path) -> io::Result<()> {
    let numbered = |n: u32| path.with_extension(format!("log.{n}"));
    // From the oldest: each name is free when it is needed.
    for n in (1..ROTATED_LOGS).rev() {
        let _ = fs::rename(numbered(n), numbered(n + 1));
    }
    let mut log = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut old = fs::File::create(numbered(1))?;
    // COLLAPSE_RANGE removes whole blocks of the file system only.
    let whole = log.metadata()?.len() / BLOCK * BLOCK;
    io::copy(&mut (&mut log).take(whole), &mut old)?;
    cut_log(&mut log, &mut old, whole)
}

/// Removes the first `copied` bytes of a log that another process appends to.
///
/// ext4 and xfs remove them in one step, and a line that is written meanwhile stays in the log. On
/// other file systems the rest is copied until nothing is left, and only a line written right
/// before the truncation is lost.
fn cut_log(log: &mut fs::File, old: &mut fs::File, copied: u64) -> io::Result<()> {
    if copied > 0 && fallocate(&*log, FallocateFlags::COLLAPSE_RANGE, 0, copied).is_ok() {
        return Ok(());
    }
    while io::copy(log, old)? > 0 {}
    log.set_len(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;

    use super::*;

    #[test]
    fn only_large_logs_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (large, small) = (dir.path().join("a.log"), dir.path().join("b.log"));
        fs::File::create(&large)
            .unwrap()
            .set_len(MAX_LOG_BYTES + 1)
            .unwrap();
        fs::write(&small, "x").unwrap();
        rotate_logs(dir.path());
        let (left, old) = (
            fs::metadata(&large).unwrap().len(),
            fs::metadata(dir.path().join("a.log.1")).unwrap().len(),
        );
        assert!(left < BLOCK, "{left}");
        assert_eq!(left + old, MAX_LOG_BYTES + 1);
        assert_eq!(fs::read_to_string(&small).unwrap(), "x");
    }

    /// Data written between two reads of the rotation is in one of the two files.
    #[test]
    fn rotation_loses_no_line_that_was_written_before_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old_path) = (dir.path().join("a.log"), dir.path().join("a.log.1"));
        let mut writer = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .unwrap();
        let lines =
            |range: std::ops::Range<u32>| range.map(|n| format!("{n:09}\n")).collect::<String>();
        writer.write_all(lines(0..20_000).as_bytes()).unwrap();
        let mut log = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let mut old = fs::File::create(&old_path).unwrap();
        let copied = log.metadata().unwrap().len() / BLOCK * BLOCK;
        io::copy(&mut (&mut log).take(copied), &mut old).unwrap();
        writer.write_all(lines(20_000..20_100).as_bytes()).unwrap();
        cut_log(&mut log, &mut old, copied).unwrap();
        writer.write_all(lines(20_100..20_200).as_bytes()).unwrap();
        let all = fs::read_to_string(&old_path).unwrap() + &fs::read_to_string(&path).unwrap();
        assert!(
            all == lines(0..20_200),
            "{} bytes of {}",
            all.len(),
            lines(0..20_200).len()
        );
    }
}
