//! Upstream's plugins that are not implemented, and the effect of naming them in a flag.

/// Reason for rejecting a plugin that would restrict requests.
const UNRESTRICTED: &str = "it is not implemented, so that what it forbids would be allowed";
/// Reason for rejecting a plugin that would change objects.
const UNCHANGED: &str =
    "it is not implemented, so that objects would not be changed as it promises";

// Every plugin of upstream that the table of this crate lacks. Installers pass explicit lists, so
// an unknown name would keep a server from starting.
enum Treatment {
    /// Upstream enables the plugin by default and installers list it: only a log line states the
    /// consequence.
    Warned(&'static str),
    /// The plugin is off by default upstream, so naming it is deliberate, and the server fails to
    /// start.
    Refused(&'static str),
    /// Requests are admitted in the same way without the plugin.
    Harmless,
}
use Treatment::{Harmless, Refused, Warned};

const ABSENT: [(&str, Treatment); 17] = [
    (
        "PodTopologyLabels",
        Warned("pods do not get their node's topology labels"),
    ),
    ("PodGroupProtection", Harmless),
    ("JobValidation", Harmless),
    ("AlwaysAdmit", Harmless),
    (
        "OwnerReferencesPermissionEnforcement",
        Refused(UNRESTRICTED),
    ),
    ("AlwaysDeny", Refused(UNRESTRICTED)),
    ("EventRateLimit", Refused(UNRESTRICTED)),
    ("ImagePolicyWebhook", Refused(UNRESTRICTED)),
    ("LimitPodHardAntiAffinityTopology", Refused(UNRESTRICTED)),
    ("NamespaceExists", Refused(UNRESTRICTED)),
    ("PodNodeSelector", Refused(UNRESTRICTED)),
    ("PodTolerationRestriction", Refused(UNRESTRICTED)),
    ("SecurityContextDeny", Refused(UNRESTRICTED)),
    ("ExtendedResourceToleration", Refused(UNCHANGED)),
    ("NamespaceAutoProvision", Refused(UNCHANGED)),
    ("PersistentVolumeLabel", Harmless),
    ("PodSecurityPolicy", Refused(UNRESTRICTED)),
];

/// Reports whether upstream has a plugin of this name that is not implemented here.
pub fn is_absent(name: &str) -> bool {
    ABSENT.iter().any(|(absent, _)| *absent == name)
}

/// Returns why a plugin must not be enabled; None if it may.
pub fn rejection_reason(name: &str) -> Option<&'static str> {
    ABSENT
        .iter()
        .find_map(|(absent, treatment)| match treatment {
            Refused(why) if *absent == name => Some(*why),
            _ => None,
        })
}

/// Returns the consequence of a missing plugin that was enabled by name.
pub fn consequence_of_absence(name: &str) -> Option<&'static str> {
    ABSENT
        .iter()
        .find_map(|(absent, treatment)| match treatment {
            Warned(what) if *absent == name => Some(*what),
            _ => None,
        })
}
