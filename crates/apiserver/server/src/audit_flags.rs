//! The flags of audit, and the audit that they describe.

use crate::durations::parse_duration;
use anyhow::{Context as _, bail};
use apiserver_audit::{
    AuditMetrics, Auditor, BackendError, Backoff, Batching, EventLimits, LineFormat, LogFile, Mode,
    Policy, PostEvents, Rate, Rotation, Sink, Webhook,
};
use apiserver_config::ConfigFileError;
use apiserver_request::Objects;
use apiserver_webhook_client::{ClusterIpResolver, Credentials, Endpoint, Kubeconfig, Transport};
use base_task::Tasks;
use bytes::Bytes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Batches of events that a webhook is sent at the same time.
const CONCURRENT: usize = 16;
/// Upstream's timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Events that a buffer may hold.
const MAX_BUFFER: usize = 10_000_000;
const MEGABYTE: u64 = 1024 * 1024;

/// The flags of audit.
#[derive(clap::Args, Clone, Debug)]
pub struct AuditFlags {
    /// File with the audit policy
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    webhook: WebhookFlags,
}

#[derive(clap::Args, Clone, Debug)]
struct LogFlags {
    /// Audit log; - is standard output
    #[arg(long)]
    audit_log_path: Option<PathBuf>,
    /// Format of the audit log: json, or legacy for one text line per event
    #[arg(long, default_value = "json")]
    audit_log_format: String,
    /// Days that a rotated audit log is kept, 0 keeps them all
    #[arg(long, default_value_t = 366)]
    audit_log_maxage: u32,
    /// Rotated audit logs that are kept, 0 for all
    #[arg(long, default_value_t = 100)]
    audit_log_maxbackup: usize,
    /// Megabytes after which the audit log is rotated, 0 for never
    #[arg(long, default_value_t = 100)]
    audit_log_maxsize: u64,
    /// Compress rotated audit logs by gzip
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    audit_log_compress: bool,
    /// Mode of the audit log: batch, blocking (requests wait) or blocking-strict (a failure rejects
    /// the request)
    #[arg(long, default_value = "blocking")]
    audit_log_mode: String,
    /// Events that wait for the audit log in mode batch; more are dropped
    #[arg(long, default_value_t = 10_000)]
    audit_log_batch_buffer_size: usize,
    /// Events of a batch for the audit log
    #[arg(long, default_value_t = 1)]
    audit_log_batch_max_size: usize,
    /// Maximum time before a partial batch is written to the audit log
    #[arg(long, default_value = "0s")]
    audit_log_batch_max_wait: String,
    /// Limit the rate of batches for the audit log
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    audit_log_batch_throttle_enable: bool,
    /// Batches per second for the audit log
    #[arg(long, default_value_t = 0.0)]
    audit_log_batch_throttle_qps: f64,
    /// Batches at once for the audit log after a pause
    #[arg(long, default_value_t = 0)]
    audit_log_batch_throttle_burst: u32,
    /// Leave the bodies out of events for the audit log that are too large
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    audit_log_truncate_enabled: bool,
    /// Bytes of an event for the audit log
    #[arg(long, default_value_t = 102_400)]
    audit_log_truncate_max_event_size: usize,
    /// At least the bytes of an event for the audit log; batches are limited by their number of
    /// events
    #[arg(long, default_value_t = 10_485_760)]
    audit_log_truncate_max_batch_size: usize,
    /// Version of events in the audit log
    #[arg(long, default_value = "audit.k8s.io/v1")]
    audit_log_version: String,
}

#[derive(clap::Args, Clone, Debug)]
struct WebhookFlags {
    /// Kubeconfig with the server that receives audit events
    #[arg(long)]
    audit_webhook_config_file: Option<PathBuf>,
    /// Time until a failed call of the audit webhook is repeated
    #[arg(
        long,
        visible_alias = "audit-webhook-batch-initial-backoff",
        default_value = "10s"
    )]
    audit_webhook_initial_backoff: String,
    /// Mode of the audit webhook: batch, blocking (requests wait) or blocking-strict (a failure
    /// rejects the request)
    #[arg(long, default_value = "batch")]
    audit_webhook_mode: String,
    /// Events that wait for the audit webhook in mode batch; more are dropped
    #[arg(long, default_value_t = 10_000)]
    audit_webhook_batch_buffer_size: usize,
    /// Events of a batch for the audit webhook
    #[arg(long, default_value_t = 400)]
    audit_webhook_batch_max_size: usize,
    /// Maximum time before a partial batch is sent to the audit webhook
    #[arg(long, default_value = "30s")]
    audit_webhook_batch_max_wait: String,
    /// Limit the rate of batches for the audit webhook
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    audit_webhook_batch_throttle_enable: bool,
    /// Batches per second for the audit webhook
    #[arg(long, default_value_t = 10.0)]
    audit_webhook_batch_throttle_qps: f64,
    /// Batches at once for the audit webhook after a pause
    #[arg(long, default_value_t = 15)]
    audit_webhook_batch_throttle_burst: u32,
    /// Leave the bodies out of events for the audit webhook that are too large
    #[arg(long, num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    audit_webhook_truncate_enabled: bool,
    /// Bytes of an event for the audit webhook
    #[arg(long, default_value_t = 102_400)]
    audit_webhook_truncate_max_event_size: usize,
    /// At least the bytes of an event for the audit webhook; batches are limited by their number of
    /// events
    #[arg(long, default_value_t = 10_485_760)]
    audit_webhook_truncate_max_batch_size: usize,
    /// Version of events for the audit webhook
    #[arg(long, default_value = "audit.k8s.io/v1")]
    audit_webhook_version: String,
}

/// The flags that both backends have.
struct SinkFlags<'a> {
    backend: &'static str,
    mode: &'a str,
    buffer: usize,
    batch: usize,
    wait: &'a str,
    throttle: Option<Rate>,
    concurrent: usize,
    truncates: bool,
    event: usize,
    total: usize,
    version: &'a str,
}

impl AuditFlags {
    /// Builds the audit; None without a policy or without a backend.
    ///
    /// # Errors
    /// A file or value that can't be used.
    pub fn build_auditor(
        &self,
        objects: &Arc<dyn Objects>,
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
    ) -> anyhow::Result<Option<Arc<Auditor>>> {
        let policy = match &self.audit_policy_file {
            Some(path) => Some(read_policy(path)?),
            None => None,
        };
        let (log, webhook) = (&self.log, &self.webhook);
        let has_backend =
            log.audit_log_path.is_some() || webhook.audit_webhook_config_file.is_some();
        let Some(policy) = policy else {
            if has_backend {
                tracing::warn!("without --audit-policy-file, no audit events are recorded");
            }
            return Ok(None);
        };
        let mut sinks = Vec::new();
        if let Some(path) = &log.audit_log_path {
            sinks.push(log.build_sink(path, metrics, tasks)?);
        }
        if let Some(path) = &webhook.audit_webhook_config_file {
            sinks.push(webhook.build_sink(path, objects, metrics, tasks)?);
        }
        if sinks.is_empty() {
            tracing::warn!(
                "without --audit-log-path or --audit-webhook-config-file, no audit events are recorded"
            );
            return Ok(None);
        }
        Ok(Some(Auditor::new(policy, sinks, metrics.clone())))
    }
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("--audit-policy-file: can't read {}", path.display()))?;
    Policy::parse(&bytes)
        .with_context(|| format!("--audit-policy-file: {} can't be used", path.display()))
}

fn read_kubeconfig(path: &Path) -> Result<(Endpoint, Credentials), ConfigFileError> {
    let config = Kubeconfig::read_file(path)?;
    Ok((config.endpoint()?, config.credentials()?))
}

impl LogFlags {
    fn build_sink(
        &self,
        path: &Path,
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
    ) -> anyhow::Result<Sink> {
        let format = match self.audit_log_format.as_str() {
            "json" => LineFormat::Json,
            "legacy" => LineFormat::Legacy,
            other => bail!("--audit-log-format: {other:?} is not json or legacy"),
        };
        let flags = SinkFlags {
            backend: "log",
            mode: &self.audit_log_mode,
            buffer: self.audit_log_batch_buffer_size,
            batch: self.audit_log_batch_max_size,
            wait: &self.audit_log_batch_max_wait,
            throttle: self.audit_log_batch_throttle_enable.then_some(Rate {
                qps: self.audit_log_batch_throttle_qps,
                burst: self.audit_log_batch_throttle_burst,
            }),
            concurrent: 1,
            truncates: self.audit_log_truncate_enabled,
            event: self.audit_log_truncate_max_event_size,
            total: self.audit_log_truncate_max_batch_size,
            version: &self.audit_log_version,
        };
        let (mode, limits) = (flags.parse_mode()?, flags.parse_limits()?);
        let rotation = Rotation {
            size: self.audit_log_maxsize.saturating_mul(MEGABYTE),
            days: self.audit_log_maxage,
            files: self.audit_log_maxbackup,
            compress: self.audit_log_compress,
        };
        let log = LogFile::open(path, format, rotation, tasks)
            .with_context(|| format!("--audit-log-path: can't open {}", path.display()))?;
        Ok(Sink::new(Arc::new(log), mode, limits, metrics, tasks))
    }
}

impl WebhookFlags {
    fn build_sink(
        &self,
        path: &Path,
        objects: &Arc<dyn Objects>,
        metrics: &Arc<AuditMetrics>,
        tasks: &Tasks,
    ) -> anyhow::Result<Sink> {
        let flags = SinkFlags {
            backend: "webhook",
            mode: &self.audit_webhook_mode,
            buffer: self.audit_webhook_batch_buffer_size,
            batch: self.audit_webhook_batch_max_size,
            wait: &self.audit_webhook_batch_max_wait,
            throttle: self.audit_webhook_batch_throttle_enable.then_some(Rate {
                qps: self.audit_webhook_batch_throttle_qps,
                burst: self.audit_webhook_batch_throttle_burst,
            }),
            concurrent: CONCURRENT,
            truncates: self.audit_webhook_truncate_enabled,
            event: self.audit_webhook_truncate_max_event_size,
            total: self.audit_webhook_truncate_max_batch_size,
            version: &self.audit_webhook_version,
        };
        let (mode, limits) = (flags.parse_mode()?, flags.parse_limits()?);
        let backoff = Backoff {
            initial: parse_duration(
                "audit-webhook-initial-backoff",
                &self.audit_webhook_initial_backoff,
            )?,
        };
        let resolver = Arc::new(ClusterIpResolver(objects.clone()));
        let (endpoint, credentials) =
            read_kubeconfig(path).context("--audit-webhook-config-file")?;
        let client = WebhookClient {
            endpoint,
            transport: Transport::new(tasks.clone(), resolver, credentials),
        };
        let webhook = Webhook::new(client, backoff);
        Ok(Sink::new(Arc::new(webhook), mode, limits, metrics, tasks))
    }
}

impl SinkFlags<'_> {
    fn parse_mode(&self) -> anyhow::Result<Mode> {
        let backend = self.backend;
        if self.version != "audit.k8s.io/v1" {
            bail!("--audit-{backend}-version: the only version is audit.k8s.io/v1");
        }
        match self.mode {
            "blocking" => return Ok(Mode::Blocking),
            "blocking-strict" => return Ok(Mode::BlockingStrict),
            "batch" => {}
            other => {
                bail!("--audit-{backend}-mode: {other:?} is not batch, blocking or blocking-strict")
            }
        }
        if !(1..=MAX_BUFFER).contains(&self.buffer) || self.batch == 0 {
            bail!(
                "--audit-{backend}-batch-buffer-size must be between 1 and {MAX_BUFFER}, and -max-size positive"
            );
        }
        if let Some(Rate { qps, burst }) = self.throttle
            && (qps <= 0.0 || !qps.is_finite() || burst == 0)
        {
            bail!("--audit-{backend}-batch-throttle-qps and -burst must be positive");
        }
        Ok(Mode::Batch(Batching {
            buffer: self.buffer,
            batch: self.batch,
            wait: parse_duration(&format!("audit-{backend}-batch-max-wait"), self.wait)?,
            throttle: self.throttle,
            concurrent: self.concurrent,
        }))
    }

    fn parse_limits(&self) -> anyhow::Result<Option<EventLimits>> {
        let backend = self.backend;
        if self.event == 0 || self.total < self.event {
            bail!(
                "--audit-{backend}-truncate-max-event-size must be positive, and at most -max-batch-size"
            );
        }
        Ok(self.truncates.then_some(EventLimits { event: self.event }))
    }
}

/// Posts events to the server of a kubeconfig.
struct WebhookClient {
    endpoint: Endpoint,
    transport: Arc<Transport>,
}

#[async_trait::async_trait]
impl PostEvents for WebhookClient {
    async fn post_events(&self, body: Bytes) -> Result<(), BackendError> {
        let posted = self
            .transport
            .post_json(&self.endpoint, body, TIMEOUT)
            .await;
        let posted = posted.map(drop);
        posted.map_err(|error| BackendError::Post(error.to_string()))
    }
}
