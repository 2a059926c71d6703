//! Log files stay within bounds. They are copied and cut rather than renamed, because the writers hold them open and
//! must not depend on the supervisor living (which rules out pipes).

use std::fs;
use std::io;
use std::path::Path;

const LARGEST: u64 = 20 << 20;
const KEPT: u32 = 3;

/// Rotates what has grown too large.
pub(crate) fn rotate(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let large = entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > LARGEST);
        if large
            && path.extension().is_some_and(|extension| extension == "log")
            && let Err(error) = one(&path)
        {
            tracing::warn!(path = %path.display(), %error, "log can't be rotated");
        }
    }
}

fn one(path: &Path) -> io::Result<()> {
    let numbered = |n: u32| path.with_extension(format!("log.{n}"));
    for n in (1..KEPT).rev() {
        let _ = fs::rename(numbered(n), numbered(n + 1));
    }
    fs::copy(path, numbered(1))?;
    fs::OpenOptions::new().write(true).open(path)?.set_len(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_large_logs_are_cut() {
        let dir = tempfile::tempdir().unwrap();
        let (large, small) = (dir.path().join("a.log"), dir.path().join("b.log"));
        fs::File::create(&large).unwrap().set_len(LARGEST + 1).unwrap();
        fs::write(&small, "x").unwrap();
        rotate(dir.path());
        assert_eq!(fs::metadata(&large).unwrap().len(), 0);
        assert_eq!(fs::metadata(dir.path().join("a.log.1")).unwrap().len(), LARGEST + 1);
        assert_eq!(fs::read_to_string(&small).unwrap(), "x");
    }
}
