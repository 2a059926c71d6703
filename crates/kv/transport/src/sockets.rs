//! Unix sockets for clients: `unix://PATH` in the lists of client URLs, as etcd has them.
//!
//! Architecture invariant: a socket has no TLS and no certificates of clients. Only the user of the
//! process may connect.

use anyhow::{Context, Result, bail};
use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

const SCHEME: &str = "unix://";

/// A bound socket. Its file is removed with it.
pub struct Socket {
    /// Accepts connections.
    pub listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens on a path. A file that a stopped process left behind is replaced.
    pub fn bind(path: &Path) -> Result<Socket> {
        let context = || format!("can't listen on {}", socket_url(path));
        if UnixStream::connect(path).is_ok() {
            bail!(
                "{} is in use: stop what listens there, or choose another path",
                socket_url(path)
            );
        }
        if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            std::fs::remove_file(path).with_context(context)?;
        }
        let listener = UnixListener::bind(path).with_context(context)?;
        // Neither TLS nor a certificate keeps other users out, so the file must, whatever the umask
        // is.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).with_context(context)?;
        Ok(Socket {
            listener,
            path: path.to_owned(),
        })
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        socket_url(&self.path)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next start replaces a file that stays.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Returns the URL of the socket at a path.
pub fn socket_url(path: &Path) -> String {
    format!("{SCHEME}{}", path.display())
}

/// Splits a comma-separated list of URLs into the paths of Unix sockets and the list of all others.
pub fn split_sockets(flag: &str, list: &str) -> Result<(Vec<PathBuf>, String)> {
    let (mut paths, mut others) = (Vec::new(), Vec::new());
    for url in list.split(',') {
        match url.strip_prefix(SCHEME) {
            Some("") => bail!("--{flag}: {url:?} has no path"),
            Some(path) => paths.push(PathBuf::from(path)),
            None => others.push(url),
        }
    }
    Ok((paths, others.join(",")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn list_of_urls_is_split() {
        let (paths, others) =
            split_sockets("x", "http://h:1,unix:///run/s,unix://s,https://h:2").unwrap();
        assert_eq!(paths, [Path::new("/run/s"), Path::new("s")]);
        assert_eq!(others, "http://h:1,https://h:2");
        assert_eq!(split_sockets("x", "").unwrap(), (Vec::new(), String::new()));
        assert!(
            split_sockets("x", "unix://")
                .unwrap_err()
                .to_string()
                .contains("no path")
        );
    }

    #[tokio::test]
    async fn file_is_replaced_only_if_nothing_listens() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let refused = Socket::bind(&path).map(drop).unwrap_err().to_string();
        assert!(refused.contains("in use"), "{refused}");
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "no socket").unwrap();
        assert!(Socket::bind(&path).is_err(), "somebody's file");
        assert!(path.exists());
    }
}
