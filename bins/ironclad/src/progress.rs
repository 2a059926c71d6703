//! Progress of commands that take time.

use std::io::Write;

use base_cli::escape_controls;

/// Prints progress to standard error, so that the final output can be piped.
pub fn print_progress(text: &str) {
    // A closed standard error must not stop the start of a cluster.
    let _ = writeln!(std::io::stderr(), "ironclad: {}", escape_controls(text));
}
