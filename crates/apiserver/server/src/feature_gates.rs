//! Feature gates of the stock API server.
//!
//! The data file has the stages and defaults of each release. A gate has a switch if it stands for
//! a kind, for fields of kinds, or for one of a few other features. Another gate is accepted if
//! upstream's API server does not read it, and rejected otherwise: a feature that the operator
//! believes to be off must not stay on. Features without a switch are those of the current release
//! whatever release is emulated. Features that no component implements (`unimplemented`) are
//! shown as off, whatever the default of their gate is; their fields are accepted unless the gate
//! disables them.

mod owners;
mod unimplemented;

pub use unimplemented::UNIMPLEMENTED_GATES;

use api_kinds::Release;
use base_cli::{FeatureGatePairError, parse_feature_gate};
use base_telemetry::{MetricsPage, format_labels};
use std::collections::BTreeMap;
use thiserror::Error;

const DATA: &str = include_str!("../data/feature-gates-v1.36.txt");
/// Serves and stores CBOR.
pub(crate) const CBOR: &str = "CBORServingAndStorage";
/// Evaluates MutatingAdmissionPolicies.
pub(crate) const MUTATING_POLICIES: &str = "MutatingAdmissionPolicy";
/// Gates of features that can be switched on and off, apart from those of resources.
const SWITCHES: [&str; 2] = [CBOR, MUTATING_POLICIES];
/// Gates that set all gates of a stage which are not set by name.
const STAGES: [(&str, &str); 2] = [("AllAlpha", "alpha"), ("AllBeta", "beta")];

/// The stage of a gate that the emulated release does not have.
const NOT_INTRODUCED: &str = "pre-alpha";

/// A value of `--feature-gates` that can't be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum FeatureGateError {
    #[error(transparent)]
    Pair(#[from] FeatureGatePairError),
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {name} to {value}, feature is locked to {}", !value)]
    Locked { name: &'static str, value: bool },
    #[error(
        "cannot set feature gate {name} to {value}, feature is PreAlpha at emulated version {release}"
    )]
    NotIntroduced {
        name: &'static str,
        value: bool,
        release: Release,
    },
    #[error("cannot set feature gate {name} to true: not implemented: {}", missing.join(", "))]
    NotImplemented {
        name: &'static str,
        missing: Vec<&'static str>,
    },
    #[error(
        "cannot set feature gate {name} to false: these features have no switch: {}; remove the gate from --feature-gates",
        features.join(", ")
    )]
    NoSwitch {
        name: &'static str,
        features: Vec<&'static str>,
    },
    #[error("{gate} is enabled, but depends on features that are disabled: [{dependency}]")]
    Dependency {
        gate: &'static str,
        dependency: &'static str,
    },
}

/// Gates with a switch that need another one.
const DEPENDENCIES: [(&str, &str); 1] = [(
    "InPlacePodLevelResourcesVerticalScaling",
    "PodLevelResources",
)];

/// A gate in a release.
#[derive(Clone, Copy, Debug)]
struct Gate {
    name: &'static str,
    stage: &'static str,
    default: bool,
    locked: bool,
    enabled: bool,
}

impl Gate {
    fn is_switch(&self) -> bool {
        SWITCHES.contains(&self.name)
            || api_kinds::is_resource_gate(self.name)
            || api_strategy::field_gates().any(|gate| gate == self.name)
            || owners::find_owner(self.name).is_some()
    }

    fn is_implemented(&self) -> bool {
        unimplemented::find_consequence(self.name).is_none()
    }

    /// Returns the consequence of what is missing, if `value` enables a feature that no component
    /// implements.
    fn find_missing(&self, value: bool) -> Option<&'static str> {
        unimplemented::find_consequence(self.name).filter(|_| value)
    }
}

/// The gates of this server in the release that is emulated.
pub struct FeatureGates {
    gates: Vec<Gate>,
    release: Release,
}

impl FeatureGates {
    /// Checks pairs of the form `NAME=BOOL`. Of several pairs with one name, the last one counts.
    pub(crate) fn parse<'a>(
        pairs: impl IntoIterator<Item = &'a str>,
        release: Release,
    ) -> Result<Self, FeatureGateError> {
        let gates = DATA.lines().filter_map(|line| parse_gate(line, release));
        let mut gates = Self {
            gates: gates.collect(),
            release,
        };
        let mut given = BTreeMap::new();
        for pair in pairs.into_iter().filter(|pair| !pair.is_empty()) {
            let (gate, value) = gates.parse_pair(pair)?;
            given.insert(gate.name, (gate, value));
        }
        for (gate, value) in given.values() {
            gates.check_value(*gate, *value, |name| given.contains_key(name))?;
        }
        for gate in gates.gates.iter_mut().filter(|gate| gate.is_switch()) {
            let stage = STAGES.iter().find(|(_, stage)| *stage == gate.stage);
            let of_stage = stage.and_then(|(name, _)| given.get(name));
            if let Some((_, value)) = given.get(gate.name).or(of_stage) {
                gate.enabled = *value;
            }
        }
        gates.check_dependencies()?;
        Ok(gates)
    }

    fn check_dependencies(&self) -> Result<(), FeatureGateError> {
        let broken = DEPENDENCIES
            .into_iter()
            .find(|(gate, needed)| self.is_enabled(gate) && !self.is_enabled(needed));
        match broken {
            Some((gate, dependency)) => Err(FeatureGateError::Dependency { gate, dependency }),
            None => Ok(()),
        }
    }

    /// Returns whether a feature is on.
    pub(crate) fn is_enabled(&self, name: &str) -> bool {
        self.gates
            .iter()
            .any(|gate| gate.name == name && gate.enabled)
    }

    fn parse_pair(&self, pair: &str) -> Result<(Gate, bool), FeatureGateError> {
        let (name, enabled) = parse_feature_gate(pair)?;
        let gate = self.gates.iter().find(|gate| gate.name == name);
        let gate = gate.ok_or_else(|| FeatureGateError::Unknown(name.to_owned()))?;
        Ok((*gate, enabled))
    }

    fn check_value(
        &self,
        gate: Gate,
        value: bool,
        is_given: impl Fn(&str) -> bool,
    ) -> Result<(), FeatureGateError> {
        let name = gate.name;
        if gate.stage == NOT_INTRODUCED {
            return Err(FeatureGateError::NotIntroduced {
                name,
                value,
                release: self.release,
            });
        }
        if gate.locked && value != gate.default {
            return Err(FeatureGateError::Locked { name, value });
        }
        if matches!(gate.stage, "ga" | "deprecated") {
            tracing::warn!(name, "the feature gate will be removed in a future release");
        }
        let stage = STAGES.iter().find(|(all, _)| *all == name);
        if let Some(owner) = owners::find_owner(name).filter(|_| value != gate.default) {
            tracing::info!(name, owner, "the feature gate has no effect on API servers");
        }
        if let Some(consequence) = gate.find_missing(value) {
            let problem = if gate.is_switch() {
                "no component acts on the fields of the feature gate"
            } else {
                "the feature gate has no effect: the feature is not implemented"
            };
            tracing::warn!(name, consequence, "{problem}");
        }
        let is_changed = |other: &&Gate| match stage {
            _ if other.is_switch() => false,
            // Off already.
            _ if !value && !other.is_implemented() => false,
            Some((_, stage)) => {
                other.stage == *stage
                    && !STAGES.iter().any(|(all, _)| *all == other.name)
                    && !is_given(other.name)
                    // `AllBeta=false` is a default, too, but it turns off what is on.
                    && !other.locked
                    && other.default != value
            }
            None => other.name == name && other.default != value,
        };
        let changed: Vec<&'static str> = self
            .gates
            .iter()
            .filter(is_changed)
            .map(|g| g.name)
            .collect();
        match (changed.is_empty(), value) {
            (true, _) => Ok(()),
            (false, true) => Err(FeatureGateError::NotImplemented {
                name,
                missing: changed,
            }),
            (false, false) => Err(FeatureGateError::NoSwitch {
                name,
                features: changed,
            }),
        }
    }

    /// Writes a gauge for each gate.
    pub(crate) fn write_metrics(&self, page: &mut MetricsPage) {
        const NAME: &str = "kubernetes_feature_enabled";
        page.head(NAME, "gauge", "Stage and enablement of a feature.");
        let introduced = self
            .gates
            .iter()
            .filter(|gate| gate.stage != NOT_INTRODUCED);
        for gate in introduced {
            let stage = match gate.stage {
                "ga" => String::new(),
                stage => stage.to_uppercase(),
            };
            let labels = format_labels(&[("name", gate.name), ("stage", stage.as_str())]);
            let is_on = gate.enabled && gate.is_implemented();
            page.sample(NAME, &labels, f64::from(u8::from(is_on)));
        }
    }
}

/// Parses `NAME RELEASE:STAGE:on|off[:locked]..`, with the oldest stage first; `None` for a comment.
fn parse_gate(line: &'static str, release: Release) -> Option<Gate> {
    let mut words = line.split(' ').filter(|_| !line.starts_with('#'));
    let name = words.next()?;
    let stages: Vec<Stage> = words.filter_map(parse_stage).collect();
    let in_release = |release| stages.iter().rev().find(|stage| stage.since <= release);
    let mut gate = Gate {
        name,
        stage: NOT_INTRODUCED,
        default: false,
        locked: true,
        enabled: false,
    };
    if let Some(stage) = in_release(release) {
        gate.stage = stage.name;
        gate.default = stage.on;
        gate.locked = stage.locked;
    }
    if !gate.is_switch() {
        gate.default = in_release(Release::CURRENT).is_some_and(|stage| stage.on);
    }
    gate.enabled = gate.default;
    Some(gate)
}

/// The stage of a gate from a release on.
struct Stage {
    since: Release,
    name: &'static str,
    on: bool,
    locked: bool,
}

fn parse_stage(word: &'static str) -> Option<Stage> {
    let mut parts = word.split(':');
    Some(Stage {
        since: parts.next()?.parse().ok()?,
        name: parts.next()?,
        on: parts.next()? == "on",
        locked: parts.next() == Some("locked"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reject(pairs: &[&str]) -> Option<String> {
        let parsed = FeatureGates::parse(pairs.iter().copied(), Release::CURRENT);
        parsed.err().map(|error| error.to_string())
    }

    #[test]
    fn every_line_makes_a_gate() {
        let parse = |line| parse_gate(line, Release::CURRENT);
        let gates: Vec<Gate> = DATA.lines().filter_map(parse).collect();
        assert_eq!(gates.len(), DATA.lines().count() - 1);
        for (line, word) in DATA
            .lines()
            .skip(1)
            .flat_map(|line| line.split(' ').skip(1).map(move |word| (line, word)))
        {
            assert!(parse_stage(word).is_some(), "{line}");
        }
        for gate in gates {
            let stages = ["alpha", "beta", "ga", "deprecated"];
            assert!(stages.contains(&gate.stage), "{gate:?}");
            // Alpha features are off by default.
            assert!(gate.stage != "alpha" || !gate.default, "{gate:?}");
        }
    }

    #[test]
    fn defaults_can_be_given() {
        assert_eq!(reject(&[]), None);
        assert_eq!(
            reject(&["CBORServingAndStorage=false", "kube:AllAlpha=false"]),
            None
        );
        assert_eq!(reject(&["WatchList=true", ":APIServerTracing=T"]), None);
        assert_eq!(
            reject(&["CBORServingAndStorage=true", "CBORServingAndStorage=false"]),
            None
        );
    }

    #[test]
    fn wrong_gates_are_rejected() {
        for (pair, error) in [
            ("Bogus=true", "unrecognized feature gate: Bogus"),
            ("WatchList", "missing bool value for WatchList"),
            ("WatchList=yes", "invalid value of WatchList=yes"),
            ("x:WatchList=true", "component not registered: x"),
            (
                "APIServerTracing=false",
                "cannot set feature gate APIServerTracing to false, feature is locked to true",
            ),
            (
                "ConstrainedImpersonation=maybe",
                "invalid value of ConstrainedImpersonation=maybe",
            ),
            (
                "APIServingWithRoutine=true",
                "cannot set feature gate APIServingWithRoutine to true: not implemented: \
                 APIServingWithRoutine",
            ),
        ] {
            assert_eq!(reject(&[pair]).as_deref(), Some(error), "{pair}");
        }
    }

    #[test]
    fn gates_are_those_of_the_emulated_release() {
        let parse = |pair: &'static str, minor| {
            let gates = FeatureGates::parse([pair], Release::new(1, minor));
            gates.map_err(|error| error.to_string())
        };
        // Its kind came as beta in 1.35, and the gate as alpha in 1.34.
        let pair = "PodCertificateRequest=true";
        assert_eq!(
            parse(pair, 33).err().as_deref(),
            Some(
                "cannot set feature gate PodCertificateRequest to true, feature is PreAlpha at emulated version 1.33"
            )
        );
        assert!(parse(pair, 34).is_ok_and(|gates| gates.is_enabled("PodCertificateRequest")));
        // Locked in a later release only; in an earlier one it has no switch.
        for (minor, why) in [(36, "locked to true"), (33, "no switch: Anonymous")] {
            let error = parse("AnonymousAuthConfigurableEndpoints=false", minor).err();
            assert!(error.is_some_and(|error| error.contains(why)), "{minor}");
        }
    }

    #[test]
    fn gates_of_resources_are_switches() {
        for (pairs, expect) in [
            (&[][..], false),
            (&["ClusterTrustBundle=true"], true),
            (
                &["ClusterTrustBundle=true", "ClusterTrustBundle=false"],
                false,
            ),
        ] {
            let gates = FeatureGates::parse(pairs.iter().copied(), Release::CURRENT);
            let enabled = gates.map(|gates| gates.is_enabled("ClusterTrustBundle"));
            assert_eq!(enabled, Ok(expect), "{pairs:?}");
        }
    }

    #[test]
    fn feature_that_stays_on_is_rejected() {
        let error = reject(&["WatchList=false"]).unwrap_or_default();
        assert!(
            error.contains("no switch: WatchList; remove the gate"),
            "{error}"
        );
        let error = reject(&["AllBeta=false"]).unwrap_or_default();
        assert!(error.contains("WatchList"), "{error}");
        for switched in ["HostnameOverride", "GracefulNodeShutdown,"] {
            assert!(!error.contains(switched), "{error}");
        }
    }

    #[test]
    fn gates_of_fields_and_of_other_components_are_accepted() {
        let own = api_strategy::field_gates().filter(|gate| *gate != "PodLevelResources");
        for gate in own.chain(owners::owned_gates()) {
            let pair = format!("{gate}=false");
            let gates = FeatureGates::parse([pair.as_str()], Release::CURRENT);
            let enabled = gates.map(|gates| gates.is_enabled(gate));
            assert_eq!(enabled, Ok(false), "{gate}");
            assert!(
                DATA.lines()
                    .any(|line| line.starts_with(&format!("{gate} "))),
                "{gate}"
            );
        }
        let pair = ["PodLevelResources=false"];
        assert_eq!(
            reject(&pair).as_deref(),
            Some(
                "InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: [PodLevelResources]"
            )
        );
        assert_eq!(
            reject(&[pair[0], "InPlacePodLevelResourcesVerticalScaling=false"]),
            None
        );
    }

    #[test]
    fn gate_of_a_stage_names_what_it_would_enable() {
        let error = reject(&["AllAlpha=true"]).unwrap_or_default();
        assert!(error.contains("APIServingWithRoutine"), "{error}");
        assert!(!error.contains("CBORServingAndStorage"), "{error}");
        let error = reject(&["AllBeta=true"]).unwrap_or_default();
        assert!(error.contains("MaxUnavailableStatefulSet"), "{error}");
        for switched in ["ClusterTrustBundle,", "PodCertificateRequest"] {
            assert!(!error.contains(switched), "{error}");
        }
    }

    #[test]
    fn feature_with_a_switch_is_as_given() {
        for (pairs, want) in [
            (&[][..], false),
            (&["CBORServingAndStorage=true"], true),
            (
                &["CBORServingAndStorage=true", "CBORServingAndStorage=false"],
                false,
            ),
            (&["kube:CBORServingAndStorage=1"], true),
            (&["AllAlpha=false", "CBORServingAndStorage=true"], true),
        ] {
            let gates = FeatureGates::parse(pairs.iter().copied(), Release::CURRENT);
            let enabled = gates.is_ok_and(|gates| gates.is_enabled(CBOR));
            assert_eq!(enabled, want, "{pairs:?}");
        }
    }

    #[test]
    fn metrics_have_the_gates_of_the_emulated_release() {
        let text = metrics_of(Release::new(1, 33), &[]);
        assert!(!text.contains("PRE-ALPHA"), "{text}");
        assert!(!text.contains("PodCertificateRequest"), "{text}");
        let policies =
            "kubernetes_feature_enabled{name=\"MutatingAdmissionPolicy\",stage=\"ALPHA\"} 0\n";
        assert!(text.contains(policies), "{text}");
    }

    fn metrics(pairs: &[&str]) -> String {
        metrics_of(Release::CURRENT, pairs)
    }

    fn metrics_of(release: Release, pairs: &[&str]) -> String {
        let mut page = MetricsPage::default();
        if let Ok(gates) = FeatureGates::parse(pairs.iter().copied(), release) {
            gates.write_metrics(&mut page);
        }
        page.finish()
    }

    #[test]
    fn metrics_have_the_stage_and_the_value() {
        let on = metrics(&["CBORServingAndStorage=true"]);
        let line = "kubernetes_feature_enabled{name=\"CBORServingAndStorage\",stage=\"ALPHA\"} 1\n";
        assert!(on.contains(line), "{on}");
        let text = metrics(&[]);
        for line in [
            "kubernetes_feature_enabled{name=\"CBORServingAndStorage\",stage=\"ALPHA\"} 0\n",
            "kubernetes_feature_enabled{name=\"WatchList\",stage=\"BETA\"} 1\n",
            "kubernetes_feature_enabled{name=\"AggregatedDiscoveryRemoveBetaType\",stage=\"DEPRECATED\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn gates_of_missing_features_are_shown_as_off() {
        let text = metrics(&["ConstrainedImpersonation=true"]);
        for (name, stage) in [
            ("APIServerTracing", ""),
            ("ConstrainedImpersonation", "BETA"),
            ("DRAExtendedResource", "BETA"),
            ("GracefulNodeShutdown", "BETA"),
            ("PodTopologyLabelsAdmission", "BETA"),
            ("UserNamespacesSupport", ""),
        ] {
            let line =
                format!("kubernetes_feature_enabled{{name=\"{name}\",stage=\"{stage}\"}} 0\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn gates_of_missing_features_may_be_disabled_unless_they_are_locked() {
        for pair in ["ConstrainedImpersonation=false", "EnvFiles=false"] {
            assert_eq!(reject(&[pair]), None, "{pair}");
        }
        let error = reject(&["UserNamespacesSupport=false"]).unwrap_or_default();
        assert!(error.contains("locked to true"), "{error}");
        let error = reject(&["AllBeta=false"]).unwrap_or_default();
        assert!(!error.contains("ConstrainedImpersonation"), "{error}");
    }

    #[test]
    fn gates_of_missing_features_are_on_by_default_upstream() {
        let names: Vec<&str> = UNIMPLEMENTED_GATES.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        let parse = |line| parse_gate(line, Release::CURRENT);
        let gates: Vec<Gate> = DATA.lines().filter_map(parse).collect();
        for name in names {
            let gate = gates.iter().find(|gate| gate.name == name);
            assert!(gate.is_some_and(|gate| gate.default), "{name}");
            assert!(gate.is_some_and(|gate| gate.find_missing(true).is_some()));
            assert_eq!(gate.and_then(|gate| gate.find_missing(false)), None);
        }
    }
}
