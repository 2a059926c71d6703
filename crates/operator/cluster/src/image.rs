//! The two images that need no registry: the sandbox's pause program and a small userland, as OCI
//! archives.
//!
//! They consist of a distribution package (busybox-static) and of code in this crate, so that a
//! cluster starts on a machine without network access.

mod oci;
mod pause;
mod tar;

use std::path::Path;

use crate::error::{Error, Result};
use oci::Config;
use tar::Tar;

/// The sandbox image.
pub const PAUSE: &str = "ironclad.local/pause:1";
/// The example and test image.
pub const BUSYBOX: &str = "ironclad.local/busybox:1";

/// Replacement of busybox's wget. Debian's version has no timeouts and crashes with `-T`. The shell
/// would call its built-in wget, so that one is renamed in the image.
const WGET: &str = r#"#!/bin/busybox sh
n=$# limit=
while [ "$n" -gt 0 ]; do
  case $1 in
    -T) limit=$2; shift 2; n=$((n - 2)) ;;
    -T*) limit=${1#-T}; shift; n=$((n - 1)) ;;
    *) set -- "$@" "$1"; shift; n=$((n - 1)) ;;
  esac
done
[ -n "$limit" ] || exec /bin/busybox wgex "$@"
/bin/busybox wgex "$@" &
wget=$!
(exec >/dev/null 2>&1 </dev/null; /bin/busybox sleep "$limit" & trap "kill $!" TERM; wait && kill "$wget") &
watch=$!
wait "$wget" 2>/dev/null
code=$?
kill "$watch" 2>/dev/null
wait "$watch" 2>/dev/null
[ "$code" -ne 143 ] || { echo "wget: download timed out" >&2; code=1; }
exit "$code"
"#;

/// An image as an importable file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The image's name.
    pub reference: &'static str,
    /// The OCI archive.
    pub data: Vec<u8>,
}

/// Builds the sandbox image. On a processor without machine code in this crate, busybox's shell is
/// the pause program.
pub fn pause_image() -> Result<Archive> {
    let mut layer = Tar::new();
    let command = match pause::pause_program() {
        Some(program) => {
            layer.add_file("pause", 0o755, &program);
            vec!["/pause".to_owned()]
        }
        None => {
            layer.add_file("pause", 0o755, &busybox_binary()?);
            // A shell runs a trap after its foreground command only, but a signal interrupts
            // `wait`.
            let script = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done";
            vec![
                "/pause".to_owned(),
                "sh".to_owned(),
                "-c".to_owned(),
                script.to_owned(),
            ]
        }
    };
    let config = Config {
        entrypoint: command,
        command: Vec::new(),
    };
    Ok(Archive {
        reference: PAUSE,
        data: oci::image_archive(PAUSE, &layer.finish(), &config),
    })
}

/// Builds a userland of busybox: a shell, an HTTP server and client, netcat, nslookup and the rest.
pub fn busybox_image() -> Result<Archive> {
    let mut layer = Tar::new();
    for folder in [
        "bin", "etc", "home", "proc", "root", "sbin", "sys", "usr", "usr/bin", "usr/sbin", "var",
        "var/log",
    ] {
        layer.add_directory(folder, 0o755);
    }
    // Containers that run as another user than root write here.
    layer.add_directory("tmp", 0o1777);
    layer.add_directory("var/tmp", 0o1777);
    layer.add_file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
    );
    layer.add_file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n");
    layer.add_file("etc/nsswitch.conf", 0o644, b"hosts: files dns\n");
    layer.add_file("bin/busybox", 0o755, &rename_applet(busybox_binary()?));
    for applet in crate::command::run_command("busybox", &["--list-full"])?.lines() {
        if !matches!(applet, "" | "bin/busybox" | "usr/bin/wget") {
            // busybox chooses the applet by the name with which it is called.
            layer.add_link(applet.trim_start_matches('/'), "/bin/busybox");
        }
    }
    layer.add_file("usr/bin/wget", 0o755, WGET.as_bytes());
    if let Some(openssl) = crate::command::find_program("openssl") {
        add_with_libraries(&mut layer, &openssl)?;
    }
    let config = Config {
        entrypoint: Vec::new(),
        command: vec!["sh".to_owned()],
    };
    Ok(Archive {
        reference: BUSYBOX,
        data: oci::image_archive(BUSYBOX, &layer.finish(), &config),
    })
}

/// Adds a program with its shared libraries. wget delegates TLS to `openssl` if that exists; its
/// own TLS lacks the signature algorithms that current servers require.
fn add_with_libraries(layer: &mut Tar, program: &Path) -> Result<()> {
    layer.add_file("usr/bin/openssl", 0o755, &read_file(program)?);
    let listing = crate::command::run_command("ldd", &[&program.to_string_lossy()])?;
    for library in listing
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        layer.add_file(
            library.trim_start_matches('/'),
            0o755,
            &read_file(Path::new(library))?,
        );
    }
    Ok(())
}

/// Renames an applet in the program. Applets are found by name in a sorted list, so the new name
/// has the same length and position.
fn rename_applet(mut program: Vec<u8>) -> Vec<u8> {
    const NAMES: (&[u8], &[u8]) = (b"\0wc\0wget\0", b"\0wc\0wgex\0");
    if let Some(at) = program
        .windows(NAMES.0.len())
        .position(|window| window == NAMES.0)
    {
        program.splice(at..at + NAMES.1.len(), NAMES.1.iter().copied());
    }
    program
}

fn busybox_binary() -> Result<Vec<u8>> {
    let path = crate::command::find_program("busybox").ok_or_else(|| {
        Error::Refused(
            "busybox is missing; install it with `apt-get install busybox-static`".into(),
        )
    })?;
    read_file(&path)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(Error::io(path))
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
