//! The operations of this crate as boxed futures. The code of an async function is compiled in the
//! crate that awaits it: here, while cargo compiles other crates, and not in the program, which is
//! compiled last.
//!
//! Those that change the plan of the machine hold one lock from their start to their end.

use std::path::{Path, PathBuf};
use std::time::Instant;

use api_bootstrap::{BootstrapToken, TokenSecret};
use futures::future::LocalBoxFuture;
use operator_pki::CertificateKey;
use tokio_util::sync::CancellationToken;

use crate::backup::{self, BackupOptions, RestoreOptions};
use crate::command_lock::{lock_commands, lock_existing};
use crate::doctor::{self, Diagnosis};
use crate::down::{self, DownOptions};
use crate::error::Result;
use crate::join::{self, JoinOptions, RemovedMachine};
use crate::settings::Settings;
use crate::status::{self, Report};
use crate::token::{self, TokenOptions};
use crate::up::{self, UpOptions};
use crate::upgrade::{self, UpgradeOptions, UpgradeOutcome};
use crate::{api_proxy, kubelet_renewal, supervisor};

/// An operation that has not ended.
pub type Operation<'a, T> = LocalBoxFuture<'a, Result<T>>;

/// Receives the steps of an operation, for people.
pub type ReportProgress<'a> = &'a dyn Fn(&str);

/// Starts the cluster and waits until its nodes are Ready.
pub fn start_cluster<'a>(
    options: &'a UpOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, Settings> {
    let began = Instant::now();
    Box::pin(async move {
        let _lock = lock_commands(&options.data_dir)?;
        up::start_cluster(options, began, report_progress).await
    })
}

/// Replaces the programs of the components one after the other, or undoes that.
pub fn upgrade_cluster<'a>(
    options: &'a UpgradeOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, UpgradeOutcome> {
    Box::pin(async move {
        let _lock = lock_existing(&options.data_dir)?;
        upgrade::upgrade_cluster(options, report_progress).await
    })
}

/// Stops the cluster; returns false if there was none.
pub fn stop_cluster<'a>(
    options: &'a DownOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, bool> {
    Box::pin(async move {
        let _lock = lock_existing(&options.data_dir)?;
        down::stop_cluster(options, report_progress).await
    })
}

/// Joins the cluster, or repairs a machine that has joined, and waits until its node is Ready.
pub fn join_cluster<'a>(
    options: &'a JoinOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, Settings> {
    Box::pin(async move {
        let _lock = lock_commands(&options.data_dir)?;
        join::join_cluster(options, report_progress).await
    })
}

/// Removes this machine from the cluster that it has joined; returns None if it has joined none.
pub fn reset_machine<'a>(
    data_dir: &'a Path,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, Option<RemovedMachine>> {
    Box::pin(async move {
        let _lock = lock_existing(data_dir)?;
        join::reset_machine(data_dir, report_progress).await
    })
}

/// Renews the certificates of the kubelet of a machine that joined as a worker, or those with these
/// names. Returns the names of their files; None on another machine.
pub fn renew_kubelet_certificates<'a>(
    data_dir: &'a Path,
    names: &'a [String],
) -> Operation<'a, Option<Vec<String>>> {
    Box::pin(kubelet_renewal::renew_kubelet_certificates(data_dir, names))
}

/// Saves the objects, keys and settings of a running cluster. Returns the size of the file.
pub fn save_backup<'a>(
    options: &'a BackupOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, u64> {
    Box::pin(backup::save_backup(options, report_progress))
}

/// Makes a data directory from a backup. Returns the directory with the replaced files.
pub fn restore_cluster<'a>(
    options: &'a RestoreOptions,
    report_progress: ReportProgress<'a>,
) -> Operation<'a, Option<PathBuf>> {
    Box::pin(async move {
        let _lock = lock_commands(&options.data_dir)?;
        backup::restore_cluster(options, report_progress).await
    })
}

/// Reads the status of the cluster in `data_dir`.
pub fn cluster_status(data_dir: &Path) -> Operation<'_, Report> {
    Box::pin(status::cluster_status(data_dir))
}

/// Examines the cluster in `data_dir`, or this machine's part of another cluster. Changes nothing.
pub fn diagnose(data_dir: &Path) -> Operation<'_, Diagnosis> {
    Box::pin(doctor::diagnose(data_dir))
}

/// Creates a token with which machines join the cluster in `data_dir`.
pub fn create_token<'a>(
    data_dir: &'a Path,
    options: &'a TokenOptions,
) -> Operation<'a, BootstrapToken> {
    Box::pin(token::create_token(data_dir, options))
}

/// Creates a token with which machines join the control plane, and the key that decrypts the
/// cluster's keys.
pub fn create_control_plane_token<'a>(
    data_dir: &'a Path,
    options: &'a TokenOptions,
) -> Operation<'a, (BootstrapToken, CertificateKey)> {
    Box::pin(token::create_control_plane_token(data_dir, options))
}

/// Returns the tokens of the cluster in `data_dir`, in the order of their IDs.
pub fn list_tokens(data_dir: &Path) -> Operation<'_, Vec<TokenSecret>> {
    Box::pin(token::list_tokens(data_dir))
}

/// Deletes a token of the cluster in `data_dir`.
pub fn delete_token<'a>(data_dir: &'a Path, id: &'a str) -> Operation<'a, ()> {
    Box::pin(token::delete_token(data_dir, id))
}

/// Supervises the cluster of `data_dir` until `shutdown`.
pub fn run_supervisor(data_dir: &Path, shutdown: CancellationToken) -> Operation<'_, ()> {
    Box::pin(supervisor::run_supervisor(data_dir, shutdown))
}

/// Runs the proxy of the cluster in `data_dir` until `shutdown`.
pub fn run_api_proxy(data_dir: &Path, shutdown: CancellationToken) -> Operation<'_, ()> {
    Box::pin(api_proxy::run_api_proxy(data_dir, shutdown))
}
