//! The name of this machine.

/// Returns the host name from the kernel, without changes: node names are in lower case, names of
/// leaders are not.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}
