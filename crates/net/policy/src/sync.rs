//! Applies the changes of the state, and closes the namespace whose policies make a transaction
//! fail.

use std::future::Future;

use base_task::blocking;
use net_nft::Error;

use crate::state::PolicyState;

/// Applies all changes of the state with `apply`, or all of its rules.
///
/// # Errors
/// A transaction failed, so that all rules must be installed. A failure of that installation has
/// another reason than the policies of a namespace.
pub(crate) async fn apply_state<F, R>(
    state: &mut PolicyState,
    is_full: bool,
    apply: F,
) -> Result<(), Error>
where
    F: Fn(String) -> R,
    R: Future<Output = Result<(), Error>>,
{
    if !is_full {
        let commands = blocking(|| state.take_changes());
        apply(commands.change).await?;
        apply(commands.removal).await?;
        state.confirm_applied();
        return Ok(());
    }
    loop {
        let commands = blocking(|| state.install_commands());
        let bytes = commands.len();
        let Err(error) = apply(commands).await else {
            state.confirm_applied();
            let policies = state.policy_count();
            tracing::info!(policies, bytes, "rules of NetworkPolicies installed");
            return Ok(());
        };
        if !error.is_rejection() {
            return Err(error);
        }
        let Some(namespace) = blocking(|| state.close_suspect()) else {
            return Err(error);
        };
        tracing::error!(
            %error,
            namespace,
            "rules of NetworkPolicies could not be applied; the policies of the namespace allow nothing for now"
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;

    use net_nft::Family;
    use serde_json::json;

    use super::*;
    use crate::{GuardedNetwork, Policy, PolicyPod};

    /// A state with an isolated pod in each of some namespaces, which allows a port.
    fn build_state(namespaces: &[&str]) -> PolicyState {
        let mut state = PolicyState::new(vec![Family::V4], GuardedNetwork::default());
        for (number, namespace) in namespaces.iter().enumerate() {
            let pod = json!({ "metadata": { "namespace": namespace, "name": "p", "uid": namespace },
                "spec": { "nodeName": "n1", "containers": [] },
                "status": { "phase": "Running", "podIP": format!("10.244.0.{}", number + 2) } });
            let pod = PolicyPod::new(&serde_json::from_value(pod).unwrap(), "n1");
            state.set_pod(&format!("{namespace}/p"), pod);
            set_policy(&mut state, namespace, 80);
        }
        state
    }

    fn set_policy(state: &mut PolicyState, namespace: &str, port: u16) {
        let policy = json!({ "metadata": { "namespace": namespace, "name": "p" },
            "spec": { "podSelector": {}, "ingress": [{ "ports": [{ "port": port }] }] } });
        let policy = Policy::new(&serde_json::from_value(policy).unwrap());
        state.set_policy(&format!("{namespace}/p"), Some(policy));
    }

    /// Applies the state to a kernel that rejects transactions with a port; returns the last one.
    async fn apply(state: &mut PolicyState, is_full: bool, rejected: u16) -> Result<String, Error> {
        let last = RefCell::new(String::new());
        let word = format!("dport {{ {rejected} }}");
        let kernel = |commands: String| {
            let result = match commands.contains(&word) {
                true => Err(Error::Rejected("as the test wants".to_owned())),
                false => {
                    last.borrow_mut().push_str(&commands);
                    Ok(())
                }
            };
            std::future::ready(result)
        };
        apply_state(state, is_full, kernel).await?;
        Ok(last.into_inner())
    }

    #[tokio::test]
    async fn namespace_that_makes_transactions_fail_is_closed_and_others_are_applied() {
        let mut state = build_state(&["a", "b", "c"]);
        apply(&mut state, true, 0).await.unwrap();
        set_policy(&mut state, "b", 666);
        set_policy(&mut state, "c", 81);
        apply(&mut state, false, 666).await.unwrap_err();
        let installed = apply(&mut state, true, 666).await.unwrap();
        assert!(installed.contains("dport { 80 }"), "a: {installed}");
        let closed = |state: &mut PolicyState| {
            let closed = state.take_newly_closed().into_iter();
            closed.map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert!(closed(&mut state).contains(&"b/p".to_owned()));
        // Another namespace that was suspected first is opened again.
        state.retry_closed();
        let installed = apply(&mut state, false, 666).await.unwrap();
        assert_eq!(state.count_closed_policies(), 1);
        assert!(installed.contains("dport { 81 }"), "c: {installed}");
        // The offending one is tried again after a change only.
        state.retry_closed();
        assert_eq!(apply(&mut state, false, 666).await.unwrap(), "");
        set_policy(&mut state, "b", 82);
        assert_eq!(
            apply(&mut state, false, 666).await.unwrap(),
            "",
            "not before a retry"
        );
        state.retry_closed();
        let installed = apply(&mut state, false, 666).await.unwrap();
        assert!(installed.contains("dport { 82 }"), "b: {installed}");
        assert_eq!(state.count_closed_policies(), 0);
    }

    #[tokio::test]
    async fn failure_for_another_reason_closes_no_namespace() {
        let mut state = build_state(&["a", "b"]);
        let failing = |_: String| std::future::ready(Err(Error::Rejected("always".to_owned())));
        apply_state(&mut state, true, failing).await.unwrap_err();
        let missing =
            |_: String| std::future::ready(Err(Error::Run(std::io::ErrorKind::NotFound.into())));
        apply_state(&mut state, true, missing).await.unwrap_err();
        apply(&mut state, true, 0).await.unwrap();
        assert_eq!(state.count_closed_policies(), 0);
    }
}
