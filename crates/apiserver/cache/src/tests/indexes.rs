//! Lists and watches through indexes give what a scan of all objects gives.
//!
//! Random pods, changes and selectors. A failing run prints its seed; `IRONCLAD_SEED` repeats it.

use super::{new_cache, select, selection};
use crate::{Delivery, Entry, EventType, ResourceCache, Selection, Snapshot};
use api_meta::fields::FieldSelector;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const NAMESPACES: [&str; 4] = ["a", "a-b", "b", "big"];
const LABELS: [&str; 10] = [
    "",
    "app=web",
    "app=db",
    "app in (web,db)",
    "app in (web,web)",
    "app!=web",
    "tier",
    "id=7",
    "app=web,tier=x",
    "app=web,app=db",
];
const FIELDS: [&str; 10] = [
    "",
    "spec.nodeName=n1",
    "spec.nodeName=",
    "spec.nodeName!=n1",
    "metadata.name=p7",
    "metadata.namespace=big",
    "metadata.namespace=b,metadata.name=p9",
    "status.phase=Running",
    "spec.nodeName=n2,status.phase=Running",
    "metadata.name!=p7",
];

struct Run {
    random: StdRng,
    cache: ResourceCache,
    /// The expected objects.
    present: BTreeMap<String, Arc<Entry>>,
    revision: i64,
}

impl Run {
    fn new(seed: u64) -> Self {
        Run {
            random: StdRng::seed_from_u64(seed),
            cache: new_cache("pods"),
            present: BTreeMap::new(),
            revision: 10,
        }
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.random_range(0..from.len())]
    }

    fn change(&mut self) {
        let namespace = self.pick(&["a", "a-b", "b", "big", "big", "big", "big", "big"]);
        let name = format!("p{}", self.random.random_range(0..600));
        let key = format!("{namespace}/{name}");
        self.revision += 1;
        if self.random.random_bool(0.2) {
            self.cache.apply_delete(&key, self.revision);
            self.present.remove(&key);
            return;
        }
        let mut labels = json!({});
        for (label, values) in [("app", ["web", "db", ""]), ("tier", ["x", "y", ""])] {
            match self.pick(&values) {
                "" => {}
                value => labels[label] = value.into(),
            }
        }
        labels["id"] = self.random.random_range(0..300).to_string().into();
        let node = self.pick(&["", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"]);
        let phase = self.pick(&["Pending", "Running"]);
        let pod = json!({
            "metadata": {"namespace": namespace, "name": name, "labels": labels},
            "spec": {"nodeName": node}, "status": {"phase": phase}});
        self.put(&key, &pod);
    }

    fn put(&mut self, key: &str, pod: &Value) {
        let pods = api_kinds::find("", "v1", "pods").unwrap();
        let stored = apiserver_convert::encode_stored(pods, pod);
        self.cache.apply_put(key, &stored, self.revision);
        self.present
            .insert(key.to_owned(), self.cache.get(key).unwrap());
    }

    fn selection(&mut self) -> Selection {
        let namespace = if self.random.random_bool(0.5) {
            self.pick(&NAMESPACES)
        } else {
            ""
        };
        let (labels, fields) = (self.pick(&LABELS), self.pick(&FIELDS));
        let mut selection = selection(namespace, labels, fields);
        if self.random.random_bool(0.1) {
            selection.name = Some("p7".to_owned());
        }
        if self.random.random_bool(0.1) {
            selection.fields = FieldSelector::default();
        }
        selection
    }
}

fn describe<'a>(entries: impl IntoIterator<Item = &'a Arc<Entry>>) -> Vec<(String, i64)> {
    let describe = |entry: &Arc<Entry>| (entry.key.to_string(), entry.revision);
    entries.into_iter().map(describe).collect()
}

fn scan(snapshot: &Snapshot, selection: &Selection, start: &str) -> Vec<(String, i64)> {
    let all = snapshot.range_entries("", start);
    describe(all.filter(|entry| selection.matches(entry)))
}

fn choose_seed() -> u64 {
    let given = std::env::var("IRONCLAD_SEED").ok();
    let seed = given.map_or_else(rand::random, |seed| seed.parse().unwrap());
    eprintln!("IRONCLAD_SEED={seed}");
    seed
}

#[test]
fn selected_objects_equal_those_of_a_scan() {
    let seed = choose_seed();
    let mut run = Run::new(seed);
    let mut past: Vec<Snapshot> = Vec::new();
    for round in 0..25 {
        for _ in 0..100 {
            run.change();
        }
        past.push(run.cache.snapshot(run.revision));
        let known = describe(run.present.values());
        for _ in 0..10 {
            let selection = run.selection();
            let start = match run.random.random_bool(0.3) {
                true => format!(
                    "{}/p{}\0",
                    run.pick(&NAMESPACES),
                    run.random.random_range(0..600)
                ),
                false => String::new(),
            };
            let case = format!("seed {seed}, round {round}, {selection:?} from {start:?}");
            let snapshot = run.cache.snapshot_for(&selection, run.revision);
            assert_eq!(describe(snapshot.range_entries("", "")), known, "{case}");
            let found = snapshot.select_entries(&selection, &start);
            assert_eq!(
                describe(found),
                scan(&snapshot, &selection, &start),
                "{case}"
            );
            // A snapshot has the indexes of its own revision.
            let at = run.random.random_range(0..past.len());
            let old = &past[at];
            let found = describe(&select(old, &selection));
            assert_eq!(
                found,
                scan(old, &selection, ""),
                "{case}, at {}",
                old.revision
            );
            if let Some(rebuilt) = run.cache.snapshot_at(old.revision) {
                assert_eq!(
                    describe(&select(&rebuilt, &selection)),
                    found,
                    "{case}, rebuilt"
                );
            }
        }
    }
}

/// The objects that a client knows after the events of a watch.
#[derive(Default)]
struct Known(BTreeMap<String, i64>);

impl Known {
    fn apply(&mut self, delivery: &Delivery, case: &str) {
        let key = delivery.entry.key.to_string();
        let revision = delivery.entry.revision;
        let before = match delivery.event {
            EventType::Deleted => self.0.remove(&key),
            EventType::Added | EventType::Modified => self.0.insert(key, revision),
        };
        let is_known = delivery.event != EventType::Added;
        assert_eq!(before.is_some(), is_known, "{case}: {:?}", delivery.event);
    }
}

#[test]
fn watched_objects_equal_those_of_a_scan() {
    let seed = choose_seed();
    let mut run = Run::new(seed);
    let mut watches = Vec::new();
    for round in 0..40 {
        for _ in 0..30 {
            run.change();
        }
        for _ in 0..5 {
            let selection = run.selection();
            let resumed = run.random.random_bool(0.5);
            let mut known = Known::default();
            let watch = if resumed {
                let snapshot = run.cache.snapshot(run.revision);
                known.0.extend(describe(&select(&snapshot, &selection)));
                run.change();
                let watch = run
                    .cache
                    .subscribe_after(selection.clone(), snapshot.revision);
                watch.unwrap()
            } else {
                run.cache
                    .subscribe_from_now(selection.clone(), run.revision)
            };
            watches.push((selection, watch, known));
        }
        let snapshot = run.cache.snapshot(run.revision);
        for (selection, watch, known) in &mut watches {
            let case = format!("seed {seed}, round {round}, {selection:?}");
            for delivery in watch.backlog.drain(..) {
                known.apply(&delivery, &case);
            }
            while let Ok(delivery) = watch.changes.try_recv() {
                known.apply(&delivery, &case);
            }
            assert!(!watch.changes.is_closed(), "{case}");
            let known: Vec<_> = known.0.clone().into_iter().collect();
            assert_eq!(known, scan(&snapshot, selection, ""), "{case}");
        }
        // Some clients disconnect.
        watches.retain(|_| run.random.random_bool(0.9));
    }
}

#[test]
fn index_that_is_used_again_and_again_follows_a_relist() {
    let mut run = Run::new(1);
    (0..2000).for_each(|_| run.change());
    let by_node = selection("", "", "spec.nodeName=n1");
    for _ in 0..3 {
        run.cache.snapshot_for(&by_node, run.revision);
    }
    let pods = api_kinds::find("", "v1", "pods").unwrap();
    let pod = json!({"metadata": {"namespace": "a", "name": "p"}, "spec": {"nodeName": "n1"}});
    let stored = apiserver_convert::encode_stored(pods, &pod);
    run.cache
        .replace_all(vec![("a/p".to_owned(), stored.into(), 9000)], 9000);
    let snapshot = run.cache.snapshot_for(&by_node, 9000);
    assert_eq!(
        describe(&select(&snapshot, &by_node)),
        [("a/p".to_owned(), 9000)]
    );
}
