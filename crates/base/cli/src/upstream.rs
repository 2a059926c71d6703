//! Flags and configuration fields of the stock component that this one does not implement.
//!
//! Invariant: nothing is ignored silently. A setting either has no effect, with a reason that is
//! logged at start, or prevents the start unless its value equals the component's behaviour.
//! `docs/flags.md` is generated from these tables.

/// Reaction to a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Treatment {
    /// Accepted. A warning states the consequence.
    NoEffect,
    /// Prevents the start unless its value is one of these.
    Refused {
        /// Values that equal the component's behaviour, usually upstream's default.
        except: &'static [&'static str],
    },
}

/// A flag (its name without dashes) or a configuration field (its path with dots) that is not
/// implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported {
    /// The name or path.
    pub name: &'static str,
    /// The reaction.
    pub treatment: Treatment,
    /// Reason for having no effect, or the consequence of ignoring it. Half a sentence, without a
    /// full stop.
    pub reason: &'static str,
}

/// Result for one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The value equals the component's behaviour.
    Pass,
    /// Log this warning.
    Warn(String),
    /// Exit with this error.
    Stop(String),
}

impl Unsupported {
    /// Returns a setting that is accepted with a warning.
    pub const fn no_effect(name: &'static str, reason: &'static str) -> Self {
        Self {
            name,
            treatment: Treatment::NoEffect,
            reason,
        }
    }

    /// Returns a setting that stops the start unless its value is one of `except`.
    pub const fn refused(
        name: &'static str,
        except: &'static [&'static str],
        reason: &'static str,
    ) -> Self {
        Self {
            name,
            treatment: Treatment::Refused { except },
            reason,
        }
    }

    /// Evaluates a value. `shown` is the setting as the user wrote it, such as `--profiling`.
    pub fn evaluate_value(&self, shown: &str, value: &str) -> Verdict {
        match self.treatment {
            Treatment::NoEffect => Verdict::Warn(format!("{shown} has no effect: {}", self.reason)),
            // Installers set flags to their defaults explicitly. That asks for nothing that is
            // missing.
            Treatment::Refused { except } if except.contains(&value) => Verdict::Pass,
            Treatment::Refused { except } => {
                // The message must contain the way out: a component that does not start is usually
                // met in the middle of an installation.
                let remedy = match except.iter().find(|value| !value.is_empty()) {
                    Some(value) => format!("leave it out or set it to {value:?}"),
                    None => "leave it out".to_owned(),
                };
                Verdict::Stop(format!(
                    "{shown} is not supported: {}; {remedy}",
                    self.reason
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_setting_passes_only_with_a_value_that_changes_nothing() {
        let setting = Unsupported::refused(
            "tls-min-version",
            &["", "VersionTLS12"],
            "TLS 1.2 and 1.3 are offered",
        );
        assert_eq!(
            setting.evaluate_value("--tls-min-version", "VersionTLS12"),
            Verdict::Pass
        );
        assert_eq!(
            setting.evaluate_value("--tls-min-version", "VersionTLS13"),
            Verdict::Stop(
                "--tls-min-version is not supported: TLS 1.2 and 1.3 are offered; leave it out or set it to \
                 \"VersionTLS12\""
                    .to_owned()
            )
        );
    }

    #[test]
    fn setting_without_effect_is_named_with_its_reason() {
        let setting = Unsupported::no_effect("kube-api-qps", "the client has no rate limit");
        let expect = "--kube-api-qps has no effect: the client has no rate limit".to_owned();
        assert_eq!(
            setting.evaluate_value("--kube-api-qps", "50"),
            Verdict::Warn(expect)
        );
    }
}
