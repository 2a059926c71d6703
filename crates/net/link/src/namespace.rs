//! Network namespaces of others.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;
use crate::request::Netlink;

/// Runs `work` in a thread of its own in a network namespace. The caller stays in its own.
///
/// # Errors
/// The file is not a network namespace, or the process may not enter it.
pub fn run_in<T: Send>(namespace: &File, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread in the namespace panicked")))
    })
}

/// Connects to the kernel's network of a namespace. A socket stays in the namespace in which it was
/// opened.
///
/// # Errors
/// The file is not a network namespace, or the process may not enter it.
pub fn open_in(namespace: &File) -> Result<Netlink, Error> {
    run_in(namespace, Netlink::open)
        .map_err(|error| Error::new("enter the network namespace", error))?
}

/// Returns whether a file is the network namespace of the calling thread.
///
/// # Errors
/// `/proc` is not mounted, or the file's metadata can't be read.
pub fn is_own_namespace(namespace: &File) -> io::Result<bool> {
    let own = rustix::fs::stat("/proc/thread-self/ns/net")?;
    let other = rustix::fs::fstat(namespace)?;
    Ok((own.st_dev, own.st_ino) == (other.st_dev, other.st_ino))
}
