//! Chooses the plugin of the pod network.

use crate::cni_plugin::CniPlugin;
use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::settings::Runtime;

/// Returns the plugin of an option, or the stored one, or for a new machine one that has the
/// families of `pods`.
///
/// # Errors
/// The option differs from the stored plugin, or has not the families.
pub(crate) fn choose_plugin(
    given: Option<CniPlugin>,
    stored: Option<CniPlugin>,
    pods: &Ranges,
    runtime: &Runtime,
) -> Result<CniPlugin> {
    let usual = match (pods.v6(), runtime) {
        (Some(_), Runtime::Own) => CniPlugin::Ironclad,
        _ => CniPlugin::Bridge,
    };
    let plugin = CniPlugin::keep(given, stored)?.unwrap_or(usual);
    let has_v4_only = match runtime {
        Runtime::Own => plugin == CniPlugin::Bridge,
        Runtime::Endpoint(_) => true,
        Runtime::Simulated => false,
    };
    if pods.v6().is_some() && has_v4_only {
        return Err(Error::Refused(
            "IPv6 addresses of pods need --cni ironclad, or --cni none and a network that you install; the others have \
             IPv4 only"
                .to_owned(),
        ));
    }
    Ok(plugin)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plugin_of_a_cluster_does_not_change_and_has_its_families() {
        let (bridge, own, none) = (CniPlugin::Bridge, CniPlugin::Ironclad, CniPlugin::None);
        let (v4, dual) = ("10.244.0.0/16", "10.244.0.0/16,fd00::/48");
        for (given, stored, pods, expect) in [
            (None, None, v4, Some(bridge)),
            (Some(own), None, v4, Some(own)),
            (None, Some(own), v4, Some(own)),
            (Some(own), Some(own), v4, Some(own)),
            (Some(bridge), Some(own), v4, None),
            (Some(own), Some(bridge), v4, None),
            (None, None, dual, Some(own)),
            (Some(none), None, dual, Some(none)),
            (Some(bridge), None, dual, None),
            (None, Some(bridge), dual, None),
        ] {
            let pods: Ranges = pods.parse().unwrap();
            let found = choose_plugin(given, stored, &pods, &Runtime::Own).ok();
            assert_eq!(found, expect, "{given:?} {stored:?} {pods}");
        }
        let foreign = Runtime::Endpoint("unix:///c.sock".into());
        let dual: Ranges = dual.parse().unwrap();
        assert!(choose_plugin(None, None, &dual, &foreign).is_err());
        assert!(choose_plugin(None, None, &dual, &Runtime::Simulated).is_ok());
    }
}
