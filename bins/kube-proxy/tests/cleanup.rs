//! `kube-proxy --cleanup` in a network namespace, with and without the programs of each mode.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::process::{Command, Output};

/// Runs a script in a network namespace of its own; `$only` is an empty directory for programs.
fn run_script(script: &str) -> Output {
    let script = format!("only=$(mktemp -d); trap 'rm -rf $only' EXIT; {script}");
    Command::new("unshare")
        .args(["--net", "sh", "-ec", &script])
        .env("PROXY", env!("CARGO_BIN_EXE_kube-proxy"))
        .output()
        .unwrap()
}

fn has_programs() -> bool {
    let probe = "nft list tables; iptables --version | grep nf_tables; ip6tables --version";
    let works = run_script(probe).status.success();
    if !works {
        println!("skipped: no network namespace, no nft or no iptables of the nft variant");
    }
    works
}

const CHAIN: &str = "iptables -t nat -N KUBE-SERVICES; ";
const TABLE: &str = "nft add table ip kube-proxy; ";
/// Only the programs of one mode are in `PATH`.
const ONLY_NFT: &str = "ln -s $(command -v nft) $only; PATH=$only; ";
const ONLY_IPTABLES: &str = "for name in iptables iptables-save iptables-restore; do ln -s $(command -v $name) $only; \
     ln -s $(command -v $(echo $name | sed s/ip/ip6/)) $only; done; PATH=$only; ";

/// Rules live in the kernel: without the program, they stay, and that is no success.
#[test]
fn cleanup_fails_if_rules_stay_because_a_program_is_absent() {
    if !has_programs() {
        return;
    }
    for (rules, programs, expect) in [
        ("", ONLY_NFT, None),
        ("", ONLY_IPTABLES, None),
        ("", "PATH=$only; ", None),
        (CHAIN, ONLY_NFT, Some("iptables-save can't be run")),
        (TABLE, ONLY_NFT, None),
        (TABLE, ONLY_IPTABLES, Some("nft can't be run")),
        (CHAIN, ONLY_IPTABLES, None),
        (CHAIN, "PATH=$only; ", Some("iptables-save can't be run")),
    ] {
        let rm = "rm=$(command -v rm); trap '$rm -rf $only' EXIT; ";
        let output = run_script(&format!("{rules}{rm}{programs}$PROXY --cleanup"));
        let errors = String::from_utf8_lossy(&output.stderr);
        let case = format!("{rules:?} {programs:?}: {errors}");
        assert_eq!(output.status.success(), expect.is_none(), "{case}");
        assert!(errors.contains(expect.unwrap_or_default()), "{case}");
    }
    let listing = "nft list tables | grep kube-proxy || iptables-save | grep KUBE || true";
    let both = format!("{CHAIN}{TABLE}$PROXY --cleanup; {listing}");
    let left = run_script(&both);
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
    assert!(left.status.success());
}
