//! The conditions that explain why a namespace still exists.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::content::Content;

/// Writes the result into the conditions; returns true if that changes anything.
pub fn update_conditions(
    namespace: &mut Namespace,
    content: &Content,
    discovery: &[String],
    now: Timestamp,
) -> bool {
    let conditions = namespace
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    let mut changed = false;
    for mut fresh in compute_conditions(content, discovery) {
        fresh.last_transition_time = Some(Time(now));
        match conditions.iter_mut().find(|c| c.type_ == fresh.type_) {
            Some(old) if is_same_condition(old, &fresh) => {}
            Some(old) => {
                if old.status == fresh.status {
                    // The time is that of a change of the status: a new message alone is no
                    // transition.
                    fresh.last_transition_time = old.last_transition_time.take();
                }
                *old = fresh;
                changed = true;
            }
            None => {
                conditions.push(fresh);
                changed = true;
            }
        }
    }
    changed
}

/// Returns upstream's five conditions, in upstream's order and words.
fn compute_conditions(content: &Content, discovery: &[String]) -> [NamespaceCondition; 5] {
    [
        make_condition(
            "NamespaceDeletionDiscoveryFailure",
            (
                "DiscoveryFailed",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (!discovery.is_empty()).then(|| {
                let list = discovery.join(", ");
                format!(
                    "Discovery failed for some groups, {} failing: {list}",
                    discovery.len()
                )
            }),
        ),
        make_condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            (
                "GroupVersionParsingFailed",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            None,
        ),
        make_condition(
            "NamespaceDeletionContentFailure",
            (
                "ContentDeletionFailed",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            (!content.failures.is_empty()).then(|| {
                let list = content.failures.join(", ");
                format!(
                    "Failed to delete all resource types, {} remaining: {list}",
                    content.failures.len()
                )
            }),
        ),
        make_condition(
            "NamespaceContentRemaining",
            (
                "SomeResourcesRemain",
                "ContentRemoved",
                "All content successfully removed",
            ),
            format_counts("Some resources are remaining: ", &content.remaining, "has"),
        ),
        make_condition(
            "NamespaceFinalizersRemaining",
            (
                "SomeFinalizersRemain",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            format_counts(
                "Some content in the namespace has finalizers remaining: ",
                &content.finalizers,
                "in",
            ),
        ),
    ]
}

fn is_same_condition(a: &NamespaceCondition, b: &NamespaceCondition) -> bool {
    a.status == b.status && a.reason == b.reason && a.message == b.message
}

fn make_condition(
    kind: &str,
    words: (&str, &str, &str),
    problem: Option<String>,
) -> NamespaceCondition {
    let (bad, good, text) = words;
    NamespaceCondition {
        type_: kind.to_owned(),
        status: if problem.is_some() { "True" } else { "False" }.to_owned(),
        reason: Some(if problem.is_some() { bad } else { good }.to_owned()),
        message: Some(problem.unwrap_or_else(|| text.to_owned())),
        last_transition_time: None,
    }
}

fn format_counts(
    head: &str,
    counts: &std::collections::BTreeMap<String, usize>,
    verb: &str,
) -> Option<String> {
    let each = counts
        .iter()
        .map(|(name, n)| format!("{name} {verb} {n} resource instances"));
    (!counts.is_empty()).then(|| format!("{head}{}", each.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn conditions_name_remaining_resources_and_finalizers() {
        let mut namespace = Namespace::default();
        let mut content = Content::default();
        content.remaining.insert("configmaps.".to_owned(), 1);
        content.finalizers.insert("example.com/hold".to_owned(), 1);
        let now = Timestamp::UNIX_EPOCH;
        assert!(update_conditions(&mut namespace, &content, &[], now));
        assert!(!update_conditions(&mut namespace, &content, &[], now));
        let conditions = namespace.status.unwrap().conditions.unwrap();
        let text = |kind: &str| {
            conditions
                .iter()
                .find(|c| c.type_ == kind)
                .unwrap()
                .message
                .clone()
                .unwrap()
        };
        assert_eq!(
            text("NamespaceContentRemaining"),
            "Some resources are remaining: configmaps. has 1 resource instances"
        );
        assert!(
            text("NamespaceFinalizersRemaining")
                .ends_with("example.com/hold in 1 resource instances")
        );
        assert_eq!(
            text("NamespaceDeletionDiscoveryFailure"),
            "All resources successfully discovered"
        );
    }

    #[test]
    fn transition_time_changes_only_with_the_status() {
        let mut namespace = Namespace::default();
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let find = |n: &Namespace| {
            let all = n.status.clone().unwrap().conditions.unwrap();
            let mut found = all
                .into_iter()
                .filter(|c| c.type_ == "NamespaceContentRemaining");
            found.next().unwrap()
        };
        let mut content = Content::default();
        content.remaining.insert("pods.".to_owned(), 2);
        update_conditions(&mut namespace, &content, &[], time("2026-01-01T00:00:00Z"));
        content.remaining.insert("pods.".to_owned(), 1);
        update_conditions(&mut namespace, &content, &[], time("2026-01-01T00:01:00Z"));
        let changed = find(&namespace);
        assert_eq!(
            changed.last_transition_time.unwrap().0,
            time("2026-01-01T00:00:00Z")
        );
        update_conditions(
            &mut namespace,
            &Content::default(),
            &[],
            time("2026-01-01T00:02:00Z"),
        );
        let done = find(&namespace);
        assert_eq!(
            (done.status.as_str(), done.reason.as_deref()),
            ("False", Some("ContentRemoved"))
        );
        assert_eq!(
            done.last_transition_time.unwrap().0,
            time("2026-01-01T00:02:00Z")
        );
    }

    #[test]
    fn failed_discovery_is_a_condition() {
        let mut namespace = Namespace::default();
        let failures = ["x.io/v1: down".to_owned()];
        update_conditions(
            &mut namespace,
            &Content::default(),
            &failures,
            Timestamp::UNIX_EPOCH,
        );
        let all = namespace.status.unwrap().conditions.unwrap();
        assert_eq!(all[0].status, "True");
        assert_eq!(all[0].reason.as_deref(), Some("DiscoveryFailed"));
    }
}
