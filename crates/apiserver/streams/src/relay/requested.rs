//! The choice of streams.

/// The streams that the client requested.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streams {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error; with a terminal it goes to standard output.
    pub stderr: bool,
    /// A terminal; the client may resize it.
    pub tty: bool,
}
