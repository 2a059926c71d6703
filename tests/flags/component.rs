//! One entry per binary, and the treatment of each of upstream's settings.

use base_cli::{Treatment, Unsupported};
use clap::{Command, CommandFactory};

/// A binary and its tables of settings.
#[derive(Debug)]
pub struct Component {
    /// Name of the binary.
    pub name: &'static str,
    /// The project and version that its flags are compared with.
    pub upstream: &'static str,
    /// Upstream's flags, one name per line.
    pub upstream_flags: &'static str,
    /// Returns the flags that are implemented.
    pub command: fn() -> Command,
    /// Flags that are not implemented.
    pub unsupported_flags: &'static [Unsupported],
    /// The configuration file, if there is one.
    pub file: Option<Settings>,
}

/// The fields of a configuration file.
#[derive(Debug)]
pub struct Settings {
    /// Kind of the file.
    pub kind: &'static str,
    /// Upstream's fields, one dotted path per line.
    pub upstream_fields: &'static str,
    /// Returns the dotted paths that are implemented.
    pub honoured: fn() -> Vec<String>,
    /// Fields that are not implemented.
    pub unsupported: &'static [Unsupported],
}

/// The treatment of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Works as upstream documents.
    Honoured,
    /// Not implemented; the table states the consequence.
    Unsupported(&'static Unsupported),
    /// Missing in all tables.
    Unknown,
}

/// Every binary with a stock counterpart.
pub const COMPONENTS: &[Component] = &[
    Component {
        name: "kvstore",
        upstream: "etcd 3.6",
        upstream_flags: include_str!("upstream/etcd.flags"),
        command: kv_service::Flags::command,
        unsupported_flags: kv_service::UPSTREAM_FLAGS,
        file: None,
    },
    Component {
        name: "kube-apiserver",
        upstream: "Kubernetes v1.36",
        upstream_flags: include_str!("upstream/kube-apiserver.flags"),
        command: apiserver_server::ServerOptions::command,
        unsupported_flags: apiserver_server::UPSTREAM_FLAGS,
        file: None,
    },
    Component {
        name: "kube-controller-manager",
        upstream: "Kubernetes v1.36",
        upstream_flags: include_str!("upstream/kube-controller-manager.flags"),
        command: controllers_manager::Options::command,
        unsupported_flags: controllers_manager::UPSTREAM_FLAGS,
        file: None,
    },
    Component {
        name: "kube-scheduler",
        upstream: "Kubernetes v1.36",
        upstream_flags: include_str!("upstream/kube-scheduler.flags"),
        command: scheduler_core::Flags::command,
        unsupported_flags: scheduler_core::UPSTREAM_FLAGS,
        file: Some(Settings {
            kind: "KubeSchedulerConfiguration",
            upstream_fields: include_str!("upstream/kube-scheduler.fields"),
            honoured: scheduler_core::honoured_fields,
            unsupported: scheduler_core::UPSTREAM_FIELDS,
        }),
    },
    Component {
        name: "kubelet",
        upstream: "Kubernetes v1.36",
        upstream_flags: include_str!("upstream/kubelet.flags"),
        command: node_kubelet::Flags::command,
        unsupported_flags: node_kubelet::UPSTREAM_FLAGS,
        file: Some(Settings {
            kind: "KubeletConfiguration",
            upstream_fields: include_str!("upstream/kubelet.fields"),
            honoured: node_kubelet::honoured_fields,
            unsupported: node_kubelet::UPSTREAM_FIELDS,
        }),
    },
    Component {
        name: "kube-proxy",
        upstream: "Kubernetes v1.36",
        upstream_flags: include_str!("upstream/kube-proxy.flags"),
        command: net_proxy::Args::command,
        unsupported_flags: net_proxy::UPSTREAM_FLAGS,
        file: Some(Settings {
            kind: "KubeProxyConfiguration",
            upstream_fields: include_str!("upstream/kube-proxy.fields"),
            honoured: || {
                net_proxy::honoured_fields()
                    .iter()
                    .map(|path| (*path).to_owned())
                    .collect()
            },
            unsupported: net_proxy::UPSTREAM_FIELDS,
        }),
    },
];

/// Returns the treatment of one of upstream's flags. `command` is the component's command line.
pub fn flag_standing(component: &Component, command: &Command, flag: &str) -> Standing {
    let implemented = command.get_arguments().any(|argument| {
        argument.get_long() == Some(flag)
            || argument
                .get_all_aliases()
                .is_some_and(|names| names.contains(&flag))
    });
    match (
        implemented,
        component
            .unsupported_flags
            .iter()
            .find(|row| row.name == flag),
    ) {
        (true, _) => Standing::Honoured,
        (false, Some(row)) => Standing::Unsupported(row),
        // clap implements these two itself.
        (false, None) if matches!(flag, "help" | "version") => Standing::Honoured,
        (false, None) => Standing::Unknown,
    }
}

/// Returns the treatment of one of upstream's fields. A row or an implemented path covers the
/// fields below it.
pub fn field_standing(settings: &Settings, honoured: &[String], field: &str) -> Standing {
    match settings
        .unsupported
        .iter()
        .find(|row| covers(row.name, field))
    {
        Some(row) => Standing::Unsupported(row),
        None if honoured.iter().any(|path| covers(path, field)) => Standing::Honoured,
        None => Standing::Unknown,
    }
}

fn covers(path: &str, field: &str) -> bool {
    field
        .strip_prefix(path)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Standing {
    /// Returns the words of the page.
    pub fn describe(self) -> String {
        match self {
            Self::Honoured => "honoured".to_owned(),
            Self::Unknown => "unknown".to_owned(),
            Self::Unsupported(row) => match row.treatment {
                Treatment::NoEffect => format!("accepted without effect: {}", row.reason),
                Treatment::Refused { except } => {
                    let except: Vec<String> = except
                        .iter()
                        .filter(|value| !value.is_empty())
                        .map(|value| format!("`{value}`"))
                        .collect();
                    let unless = if except.is_empty() {
                        String::new()
                    } else {
                        format!(" except {}", except.join(", "))
                    };
                    format!("refused{unless}: {}", row.reason)
                }
            },
        }
    }
}
