//! A process of the plan.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config_file::ConfigFile;
use crate::settings::Settings;

/// A readiness check of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ready {
    /// The process accepts connections at this address.
    Tcp(SocketAddr),
    /// The process accepts connections at this address inside the namespaces of a node.
    TcpInside(PathBuf, SocketAddr),
    /// The process accepts connections on this socket.
    Unix(PathBuf),
    /// The process has been started.
    Started,
}

/// Returns the flag with the addresses of load balancers. The controller manager allocates them,
/// and kube-proxy announces them.
pub(super) fn pool_argument(settings: &Settings) -> Option<String> {
    let pool = settings.load_balancer_pool.as_ref()?;
    Some(format!("--load-balancer-pool={pool}"))
}

/// A process to keep running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Name of the process and of its log.
    pub name: String,
    /// Name of its node.
    #[serde(default)]
    pub node: String,
    /// The node's namespaces; None for those of the machine.
    #[serde(default)]
    pub namespaces: Option<PathBuf>,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Processes that should be ready before it starts.
    pub after: Vec<String>,
    /// The part of [`Self::after`] without which the process never starts.
    #[serde(default)]
    pub required: Vec<String>,
    /// Start only if its data are still where it had some.
    #[serde(default)]
    pub needs_data: bool,
    /// Address at which the supervisor listens for it. The process has the socket as its standard
    /// input, and the port stays taken while it restarts.
    #[serde(default)]
    pub socket: Option<SocketAddr>,
    /// Readiness check.
    pub ready: Ready,
    /// Files whose change requires a restart. Of a kubeconfig, all but CA and client certificate.
    pub inputs: Vec<PathBuf>,
    /// Digest of the program, arguments and inputs; set when the plan is written.
    #[serde(default)]
    pub stamp: String,
}

#[cfg(test)]
impl Process {
    /// Returns a process that depends on nothing.
    pub(crate) fn example(name: &str, argv: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            node: String::new(),
            namespaces: None,
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            after: Vec::new(),
            required: Vec::new(),
            needs_data: false,
            socket: None,
            ready: Ready::Started,
            inputs: Vec::new(),
            stamp: String::new(),
        }
    }
}

impl Process {
    /// Returns the name of the program's file.
    pub(crate) fn program_name(&self) -> Option<&str> {
        let program = self.argv.first().map(Path::new)?;
        program.file_name()?.to_str()
    }

    /// Returns whether it is a kubelet.
    pub(super) fn is_kubelet(&self) -> bool {
        self.program_name() == Some("kubelet")
    }

    /// Returns whether the program is not one of the directory of binaries.
    pub(crate) fn is_foreign(&self) -> bool {
        self.program_name() == Some("containerd")
    }
}

/// Returns a digest of the program, arguments and inputs. `pending` are files that are not written
/// yet.
pub(super) fn process_stamp(process: &Process, pending: &[ConfigFile]) -> String {
    // No argument can contain the separator, so different lists have different stamps.
    let mut all = process.argv.join("\0");
    if let Some(meta) = process
        .argv
        .first()
        .and_then(|program| std::fs::metadata(program).ok())
    {
        // Size and time instead of the content: the programs are large, and a build always changes
        // the time.
        let modified = meta
            .modified()
            .ok()
            .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        all.push_str(&format!("\0{} {:?}", meta.len(), modified));
    }
    for input in &process.inputs {
        all.push('\0');
        // By content, because only a changed content needs a restart of the process.
        let content = match pending.iter().find(|file| file.path == *input) {
            Some(file) => file.content.clone().into_bytes(),
            None => std::fs::read(input).unwrap_or_default(),
        };
        let content = match is_kubeconfig(input) {
            true => remove_certificates(&content),
            false => content,
        };
        all.push_str(&crate::files::digest_hex(&content));
    }
    crate::files::digest_hex(all.as_bytes())
}

fn is_kubeconfig(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "kubeconfig")
}

/// Returns a kubeconfig of this program without the CA, the certificate and its key, which
/// processes follow without a restart. Its server is read once.
fn remove_certificates(content: &[u8]) -> Vec<u8> {
    let lines = content.split_inclusive(|byte| *byte == b'\n');
    let followed: [&[u8]; 3] = [
        b"certificate-authority-data:",
        b"client-certificate-data:",
        b"client-key-data:",
    ];
    let kept = lines.filter(|line| {
        let line = line.trim_ascii_start();
        !followed.iter().any(|field| line.starts_with(field))
    });
    kept.flatten().copied().collect()
}

/// Returns a path as text, for an argument.
pub(super) fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
