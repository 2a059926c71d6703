#![allow(clippy::unwrap_used)]
use super::*;
use crate::layout::Layout;
use crate::plan::make_plan;
use crate::settings::{Runtime, Settings};

fn plan(settings: &Settings, bin_dir: &str) -> Plan {
    let settings = Settings {
        bin_dir: bin_dir.into(),
        ..settings.clone()
    };
    make_plan(&settings, &Layout::new(&settings.data_dir, false))
}

fn state(phase: Phase, replaced: &[&str], healthy: usize) -> UpgradeState {
    UpgradeState {
        phase,
        replaced: replaced.iter().map(|&name| name.to_owned()).collect(),
        healthy,
        ..UpgradeState::example()
    }
}

fn names(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.name.as_str()).collect()
}

#[test]
fn servers_are_replaced_before_their_clients_on_each_kind_of_machine() {
    let simulated = Settings {
        runtime: Runtime::Simulated,
        ..Settings::with_nodes(2)
    };
    let mut proxied = Settings::example_joined();
    proxied.membership.as_mut().unwrap().has_proxy = true;
    let mut shared = Settings::example_shared();
    shared.control_plane.as_mut().unwrap().joined = None;
    for (settings, expected) in [
        (
            simulated,
            "kvstore kube-apiserver kube-controller-manager kube-scheduler kubelet kubelet-2 cluster-dns",
        ),
        (
            Settings::with_nodes(2),
            "kvstore kube-apiserver kube-controller-manager kube-scheduler kubelet kubelet-2 kube-proxy kube-proxy-2 \
             cluster-dns",
        ),
        (Settings::example_joined(), "kubelet kube-proxy"),
        (proxied, "api-proxy kubelet kube-proxy"),
        (
            shared,
            "kvstore kube-apiserver api-proxy kube-controller-manager kube-scheduler kubelet kube-proxy cluster-dns",
        ),
    ] {
        let (before, after) = (plan(&settings, "/old"), plan(&settings, "/new"));
        // containerd is the distribution's: it stays.
        let steps = order_steps(&before, &after, &before);
        assert_eq!(names(&steps).join(" "), expected, "{settings:?}");
        assert_eq!(order_steps(&after, &after, &after), []);
    }
}

#[test]
fn component_that_only_one_release_has_is_added_or_removed() {
    let settings = Settings::example();
    let (mut before, mut after) = (plan(&settings, "/old"), plan(&settings, "/new"));
    before.processes.retain(|process| process.name != "kubelet");
    after
        .processes
        .retain(|process| process.name != "kube-scheduler");
    let steps = order_steps(&before, &after, &before);
    let find = |name: &str| steps.iter().find(|step| step.name == name).unwrap();
    assert!(find("kubelet").before.is_none() && find("kubelet").after.is_some());
    assert!(find("kube-scheduler").before.is_some() && find("kube-scheduler").after.is_none());
}

#[test]
fn swapped_process_leaves_the_others_as_they_are() {
    let settings = Settings::example();
    let (before, after) = (plan(&settings, "/old"), plan(&settings, "/new"));
    let new = find_process(&after, "kube-scheduler");
    let mixed = swap_process(before.clone(), "kube-scheduler", new);
    let programs: Vec<bool> = mixed
        .processes
        .iter()
        .map(|process| process.argv[0].starts_with("/new"))
        .collect();
    assert_eq!(programs.iter().filter(|is_new| **is_new).count(), 1);
    assert_eq!(find_process(&mixed, "kube-scheduler"), new);
    let old = find_process(&before, "kube-scheduler");
    assert_eq!(swap_process(mixed, "kube-scheduler", old), before);
    let without = swap_process(before.clone(), "kubelet", None);
    assert_eq!(without.processes.len() + 1, before.processes.len());
    assert_eq!(swap_process(without.clone(), "kubelet", None), without);
    let kubelet = find_process(&before, "kubelet");
    let again = swap_process(without, "kubelet", kubelet);
    assert_eq!(find_process(&again, "kubelet"), kubelet);
}

#[test]
fn command_continues_or_undoes_what_was_interrupted() {
    let new = || UpgradeTarget::Directory("/new".into());
    let directory = |path: &str| UpgradeTarget::Directory(path.into());
    let (forward, back) = (state(Phase::Forward, &[], 0), state(Phase::Back, &[], 0));
    for (state, target, expected) in [
        (None, new(), Ok(Start::Begin)),
        (None, directory("/old"), Err("programs of /old already")),
        (
            None,
            UpgradeTarget::Former,
            Err("no upgrade was interrupted"),
        ),
        (Some(&forward), new(), Ok(Start::Continue)),
        (Some(&forward), UpgradeTarget::Former, Ok(Start::RollBack)),
        (Some(&forward), directory("/old"), Ok(Start::RollBack)),
        (
            Some(&forward),
            directory("/other"),
            Err("upgrade to /new was interrupted"),
        ),
        (Some(&back), new(), Ok(Start::RollBack)),
        (Some(&back), UpgradeTarget::Former, Ok(Start::RollBack)),
        (Some(&back), directory("/old"), Ok(Start::RollBack)),
        (
            Some(&back),
            directory("/other"),
            Err("upgrade to /new was interrupted"),
        ),
    ] {
        match (decide_start(state, Path::new("/old"), &target), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{state:?} {target:?}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{error}");
            }
            (found, _) => assert!(found.is_err() == expected.is_err(), "{target:?}: {found:?}"),
        }
    }
}

/// Executes the actions as the command does, with components of which one never becomes healthy,
/// and an interruption after each action. Returns the actions.
fn execute(broken: Option<&str>) -> Vec<String> {
    let mut settings = Settings::example_joined();
    settings.membership.as_mut().unwrap().has_proxy = true;
    let (before, after) = (plan(&settings, "/old"), plan(&settings, "/new"));
    let steps = order_steps(&before, &after, &before);
    let mut present = before;
    let mut state = state(Phase::Forward, &[], 0);
    let mut done = Vec::new();
    loop {
        let name = match next_action(&state, &steps, &present) {
            Action::Commit => {
                done.push("commit".to_owned());
                return done;
            }
            Action::Restore => {
                done.push("restore".to_owned());
                return done;
            }
            Action::RollBack(name) => {
                let name = name.to_owned();
                done.push(format!("-{name}"));
                state.undo_step();
                continue;
            }
            Action::Replace(step) => step.name.clone(),
        };
        done.push(format!("+{name}"));
        state.begin_step(&name);
        // The command was killed and repeated: the same component is next.
        let entry = find_process(&after, &name);
        present = swap_process(present, &name, entry);
        let repeated = next_action(&state, &steps, &present);
        assert!(matches!(repeated, Action::Replace(step) if step.name == name));
        match broken == Some(name.as_str()) {
            true => state.phase = Phase::Back,
            false => state.end_step(&name),
        }
        assert!(done.len() < 20, "{done:?}");
    }
}

#[test]
fn failed_component_and_those_before_it_are_rolled_back_in_reverse_order() {
    for (broken, expected) in [
        (None, "+api-proxy +kubelet +kube-proxy commit"),
        (Some("api-proxy"), "+api-proxy -api-proxy restore"),
        (
            Some("kubelet"),
            "+api-proxy +kubelet -kubelet -api-proxy restore",
        ),
        (
            Some("kube-proxy"),
            "+api-proxy +kubelet +kube-proxy -kube-proxy -kubelet -api-proxy restore",
        ),
    ] {
        assert_eq!(execute(broken).join(" "), expected, "{broken:?}");
    }
}

/// The certificate was renewed, or the program built again, between two runs of the command.
#[test]
fn component_that_has_changed_since_its_replacement_is_replaced_again() {
    let mut settings = Settings::example_joined();
    settings.membership.as_mut().unwrap().has_proxy = true;
    let (before, mut after) = (plan(&settings, "/old"), plan(&settings, "/new"));
    let mut state = state(Phase::Forward, &["api-proxy", "kubelet", "kube-proxy"], 2);
    let present = after.clone();
    for process in &mut after.processes {
        if process.name == "api-proxy" {
            process.stamp = "changed".to_owned();
        }
    }
    let steps = order_steps(&before, &after, &present);
    let mut present = present;
    let mut done = Vec::new();
    while let Action::Replace(step) = next_action(&state, &steps, &present) {
        let name = step.name.clone();
        done.push(name.clone());
        state.begin_step(&name);
        present = swap_process(present, &name, find_process(&after, &name));
        state.end_step(&name);
        assert!(done.len() < 9, "{done:?}");
    }
    assert_eq!(done, ["api-proxy", "kubelet", "kube-proxy"]);
    assert_eq!(state.replaced.len(), 3);
    assert_eq!(present, after);
    // The former entry of a component that the new release leaves alone.
    let changed = order_steps(&before, &before, &after);
    assert_eq!(changed.len(), 3);
}

#[test]
fn component_that_was_never_replaced_keeps_its_stamp() {
    let settings = Settings::example();
    let (mut before, mut present) = (plan(&settings, "/old"), plan(&settings, "/old"));
    for (index, process) in present.processes.iter_mut().enumerate() {
        process.stamp = format!("present {index}");
    }
    for process in &mut before.processes {
        process.stamp = "renewed".to_owned();
    }
    assert_eq!(keep_present(before.clone(), &present), present);
    let replaced = plan(&settings, "/new");
    let kubelet = find_process(&replaced, "kubelet");
    let mixed = swap_process(present, "kubelet", kubelet);
    let kept = keep_present(before, &mixed);
    assert_eq!(find_process(&kept, "kubelet").unwrap().stamp, "renewed");
}
