//! Chooses the pool of addresses for load balancers.

use api_address_pool::AddressPool;
use ipnet::IpNet;

use crate::error::{Error, Result};
use crate::ranges::Ranges;
use crate::settings::Settings;
use crate::up::options::UpOptions;

/// Returns the pool of the option, or the stored one. An empty option removes it.
pub(super) fn choose_pool(options: &UpOptions, before: Option<&Settings>) -> Option<String> {
    let known = || before.and_then(|before| before.load_balancer_pool.clone());
    let given = options.load_balancer_pool.clone();
    given.or_else(known).filter(|pool| !pool.is_empty())
}

/// Rejects a pool that can't be used in this cluster.
pub(super) fn check_pool(settings: &Settings) -> Result<()> {
    let Some(text) = &settings.load_balancer_pool else {
        return Ok(());
    };
    let refuse = |problem: String| Error::Refused(format!("--load-balancer-pool: {problem}"));
    let pool: AddressPool = text.parse().map_err(|e| refuse(format!("{e}")))?;
    if !settings.runs_pods() {
        return Err(refuse(
            "simulated nodes announce no addresses; leave the flag out".to_owned(),
        ));
    }
    let networks: Vec<IpNet> = [settings.pod_cidr, settings.service_cidr]
        .iter()
        .flat_map(Ranges::iter)
        .collect();
    if let Some(network) = networks.iter().find(|network| pool.overlaps(network)) {
        return Err(refuse(format!(
            "it has addresses of {network}, the range of pods or Services; take them from the network of the nodes"
        )));
    }
    if let Some(node) = settings.node_addresses().find(|node| pool.contains(*node)) {
        return Err(refuse(format!(
            "it has {node}, the address of this node; take addresses that no host has"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::Runtime;

    fn with_pool(pool: &str) -> Settings {
        Settings {
            load_balancer_pool: Some(pool.to_owned()),
            ..Settings::example()
        }
    }

    #[test]
    fn option_replaces_the_stored_pool_and_an_empty_one_removes_it() {
        let before = with_pool("192.0.2.100");
        for (given, before, expect) in [
            (None, None, None),
            (None, Some(&before), Some("192.0.2.100")),
            (Some("192.0.2.200"), Some(&before), Some("192.0.2.200")),
            (Some("192.0.2.200"), None, Some("192.0.2.200")),
            (Some(""), Some(&before), None),
        ] {
            let options = UpOptions {
                load_balancer_pool: given.map(str::to_owned),
                ..UpOptions::default()
            };
            assert_eq!(
                choose_pool(&options, before).as_deref(),
                expect,
                "{given:?}"
            );
        }
    }

    #[test]
    fn pool_that_can_not_be_announced_is_refused() {
        for (pool, problem) in [
            ("192.0.2.100-192.0.2.110,2001:db8::/120", None),
            ("192.0.2.300", Some("neither a CIDR")),
            ("10.244.255.0/24", Some("10.244.0.0/16")),
            ("10.96.0.7", Some("10.96.0.0/16")),
            ("192.0.2.0/24", Some("192.0.2.2")),
        ] {
            let refused = check_pool(&with_pool(pool)).err().map(|e| e.to_string());
            match (refused, problem) {
                (None, None) => {}
                (Some(text), Some(problem)) if text.contains(problem) => {}
                (found, _) => panic!("{pool}: {found:?}"),
            }
        }
        let simulated = Settings {
            runtime: Runtime::Simulated,
            ..with_pool("192.0.2.100")
        };
        assert!(check_pool(&simulated).is_err());
    }
}
