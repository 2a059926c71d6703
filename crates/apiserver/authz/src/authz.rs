//! The authorizer of the server: a chain that a changed configuration replaces.

use crate::abac::{Abac, PolicyFileError};
use crate::chain::{Chain, Member};
use crate::config::{AuthorizerSpec, LoadedConfig, load_content};
use crate::fixed::{AlwaysAllow, AlwaysDeny};
use crate::metrics::AuthzMetrics;
use crate::mode::Mode;
use crate::webhook::{ConnectServer, WebhookAuthorizer, WebhookSpec};
use crate::{EscalationCheck, NodeAuthorizer, Rbac};
use apiserver_config::ConfigFileError;
use apiserver_config::{ConfigFile, ConfigMetrics};
use apiserver_request::{
    Attributes, Authorizer, DecisionFuture, LocalAuthorizer, Objects, User, UserRules,
};
use arc_swap::ArcSwap;
use base_task::CancellationToken;
use base_telemetry::MetricsPage;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Authorizers that can't be built.
#[derive(Debug, thiserror::Error)]
pub enum AuthzError {
    /// The server of a webhook.
    #[error("the authorization webhook {name:?} can't be used")]
    Webhook {
        /// Name of the webhook.
        name: String,
        /// The cause.
        #[source]
        source: ConfigFileError,
    },
    /// The policies of ABAC.
    #[error(transparent)]
    Policies(#[from] PolicyFileError),
    /// ABAC without policies.
    #[error("the authorizer ABAC needs --authorization-policy-file")]
    NoPolicyFile,
    /// An authorizer that is only possible from the start.
    #[error(
        "the authorizer {0} is not allowed if it was not enabled when the server started; restart \
         the server to add it"
    )]
    NotAtStart(&'static str),
    /// An authorizer that may not be removed while the server runs.
    #[error("missing required types: {0}; restart the server to remove them")]
    Missing(String),
}

/// The parts that an authorizer is built of.
pub struct AuthzSetup<'a> {
    /// The authorizers in order.
    pub authorizers: &'a [AuthorizerSpec],
    /// The watch caches.
    pub objects: &'a Arc<dyn Objects>,
    /// Opens connections to webhooks.
    pub connections: Arc<dyn ConnectServer>,
    /// The policies of ABAC.
    pub policy_file: Option<&'a Path>,
    /// The metrics of the configuration file, if there is one.
    pub config_metrics: Option<Arc<ConfigMetrics>>,
}

/// The authorizers in order. The first one with an opinion decides.
pub struct Authz {
    chain: ArcSwap<Chain>,
    parts: Parts,
}

/// The parts of a new chain.
struct Parts {
    rbac: Option<Arc<Rbac>>,
    node: Option<Arc<NodeAuthorizer>>,
    abac: Option<Arc<Abac>>,
    /// Every request may be allowed. Only from the start: requests without credentials are then
    /// rejected.
    allows_all: bool,
    /// Types of the start, which a changed configuration must have.
    required: Vec<Mode>,
    connections: Arc<dyn ConnectServer>,
    metrics: Arc<AuthzMetrics>,
    config_metrics: Option<Arc<ConfigMetrics>>,
}

impl Authz {
    /// Builds the chain after the group `system:masters`, which is always allowed; subscribes it to
    /// the watch caches.
    ///
    /// # Errors
    /// The server of a webhook or the policies of ABAC can't be used.
    pub fn new(setup: AuthzSetup<'_>) -> Result<Arc<Authz>, AuthzError> {
        let authorizers = setup.authorizers;
        let has = |mode| authorizers.iter().any(|spec| spec.mode == mode);
        let modes = authorizers.iter().map(|spec| spec.mode);
        let abac = match (has(Mode::Abac), setup.policy_file) {
            (false, _) => None,
            (true, Some(path)) => Some(Arc::new(Abac::read_file(path)?)),
            (true, None) => return Err(AuthzError::NoPolicyFile),
        };
        let objects = &**setup.objects;
        let parts = Parts {
            rbac: has(Mode::Rbac).then(|| Rbac::observing(objects)),
            node: has(Mode::Node).then(|| NodeAuthorizer::observing(objects)),
            abac,
            allows_all: has(Mode::AlwaysAllow),
            required: modes.filter(|mode| *mode != Mode::Webhook).collect(),
            connections: setup.connections,
            metrics: Arc::default(),
            config_metrics: setup.config_metrics,
        };
        let chain = ArcSwap::new(parts.build_chain(authorizers)?);
        Ok(Arc::new(Authz { chain, parts }))
    }

    /// Returns the RBAC authorizer, if that mode is on.
    pub fn rbac(&self) -> Option<Arc<Rbac>> {
        self.parts.rbac.clone()
    }

    /// Returns the check of writes to roles and bindings: an admission plugin that runs after all
    /// others. None without RBAC.
    pub fn escalation_check(
        self: &Arc<Self>,
        objects: &Arc<dyn Objects>,
    ) -> Option<Arc<EscalationCheck>> {
        Some(Arc::new(EscalationCheck::new(
            self.rbac()?,
            self.clone(),
            objects.clone(),
        )))
    }

    /// Follows the configuration file until `shutdown`. A change that can't be used is logged, and
    /// the former chain stays in use.
    pub async fn follow_config(
        self: Arc<Self>,
        loaded: LoadedConfig,
        interval: Duration,
        shutdown: CancellationToken,
    ) {
        let Some(metrics) = self.parts.config_metrics.clone() else {
            return;
        };
        let mut file = ConfigFile::new(loaded.path, loaded.content, "authorization", metrics);
        while shutdown
            .run_until_cancelled(tokio::time::sleep(interval))
            .await
            .is_some()
        {
            // Compiling the conditions of many webhooks takes its time.
            base_task::blocking(|| self.reload(&mut file));
        }
    }

    /// Replaces the chain if the file has changed. One that can't be read is read again at the next
    /// check.
    pub(crate) fn reload(&self, file: &mut ConfigFile) {
        let loaded = file.load_changed(|content| {
            let authorizers = load_content(content)?;
            self.parts.check_required(&authorizers)?;
            self.parts
                .build_chain(&authorizers)
                .map_err(|error| describe_error(&error))
        });
        if let Ok(Some(chain)) = loaded {
            self.chain.store(chain);
        }
    }

    /// Writes the metrics.
    pub fn write_metrics(&self, page: &mut MetricsPage) {
        self.parts.metrics.write_metrics(page);
        if let Some(metrics) = &self.parts.config_metrics {
            metrics.write_metrics(page);
        }
    }
}

/// Returns the texts of an error and its causes.
fn describe_error(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Parts {
    fn build_chain(&self, authorizers: &[AuthorizerSpec]) -> Result<Arc<Chain>, AuthzError> {
        let members: Result<Vec<Member>, AuthzError> = authorizers
            .iter()
            .map(|spec| self.build_member(spec))
            .collect();
        Ok(Chain::new(members?))
    }

    fn build_member(&self, spec: &AuthorizerSpec) -> Result<Member, AuthzError> {
        let missing = || AuthzError::NotAtStart(spec.mode.name());
        let counts = self.metrics.decision_counts(spec.mode.name(), &spec.name);
        let local: Arc<dyn LocalAuthorizer> = match (spec.mode, &spec.webhook) {
            (Mode::Webhook, Some(webhook)) => {
                return Ok(Member::webhook(self.connect(&spec.name, webhook)?, counts));
            }
            (Mode::Rbac, _) => self.rbac.clone().ok_or_else(missing)?,
            (Mode::Node, _) => self.node.clone().ok_or_else(missing)?,
            (Mode::Abac, _) => self.abac.clone().ok_or_else(missing)?,
            (Mode::AlwaysAllow, _) if !self.allows_all => return Err(missing()),
            (Mode::AlwaysAllow, _) => Arc::new(AlwaysAllow),
            // A webhook without its settings is not built by this crate. It allows nothing.
            (Mode::AlwaysDeny | Mode::Webhook, _) => Arc::new(AlwaysDeny),
        };
        Ok(Member::local(local, counts))
    }

    fn connect(
        &self,
        name: &str,
        webhook: &WebhookSpec,
    ) -> Result<Arc<WebhookAuthorizer>, AuthzError> {
        let server = self.connections.connect(&webhook.kubeconfig);
        let server = server.map_err(|source| AuthzError::Webhook {
            name: name.to_owned(),
            source,
        })?;
        let (name, metrics) = (name.to_owned(), self.metrics.clone());
        Ok(WebhookAuthorizer::new(
            name,
            webhook.clone(),
            server,
            metrics,
        ))
    }

    /// Checks that no authorizer of the start was removed.
    fn check_required(&self, authorizers: &[AuthorizerSpec]) -> Result<(), String> {
        let is_absent = |mode: &&Mode| !authorizers.iter().any(|spec| spec.mode == **mode);
        let absent: Vec<&str> = self
            .required
            .iter()
            .filter(is_absent)
            .map(|mode| mode.name())
            .collect();
        if absent.is_empty() {
            return Ok(());
        }
        Err(AuthzError::Missing(absent.join(", ")).to_string())
    }
}

impl Authorizer for Authz {
    fn authorize<'a>(&'a self, attributes: &'a Attributes) -> DecisionFuture<'a> {
        self.chain.load().authorize(attributes)
    }

    fn rules(&self, user: &User, namespace: &str) -> UserRules {
        self.chain.load().rules(user, namespace)
    }
}
