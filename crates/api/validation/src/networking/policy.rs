//! NetworkPolicies.

use crate::field::{Errors, Path};
use crate::ip::parse_sloppy_cidr;
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::tree::{get, has, int, list, text, texts};
use serde_json::Value;
use std::collections::HashSet;

pub const NETWORK_POLICY: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_network_policy(object, None, errors),
    update: |new, old, errors| validate_network_policy(new, Some(old), errors),
    sub: accept_subresource,
};

/// Rules of both directions, with the field of their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// Rules that the old object lifts.
struct Options<'a> {
    allows_values: bool,
    cidrs: HashSet<&'a str>,
}

fn read_options(old: Option<&Value>) -> Options<'_> {
    let Some(spec) = old.map(|old| get(old, "spec")) else {
        return Options {
            allows_values: false,
            cidrs: HashSet::new(),
        };
    };
    // Blocks of both directions are known, so that one may move from ingress to egress unchanged.
    let peers = DIRECTIONS.iter().flat_map(|(direction, peers)| {
        let rules = list(spec, direction).iter();
        rules.flat_map(move |rule| list(rule, peers))
    });
    Options {
        // Upstream derives the exemption from the pod selector alone and applies it to the peers as
        // well.
        allows_values: selector::has_invalid_values(get(spec, "podSelector")),
        cidrs: peers
            .map(|peer| get(peer, "ipBlock"))
            .flat_map(|block| {
                let mut all = texts(block, "except");
                all.push(text(block, "cidr"));
                all
            })
            .collect(),
    }
}

fn validate_network_policy(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let options = read_options(old);
    selector::validate_selector_leniently(
        get(spec, "podSelector"),
        options.allows_values,
        &path.child("podSelector"),
        errors,
    );
    for (direction, peers) in DIRECTIONS {
        let at = path.child(direction);
        for (i, rule) in list(spec, direction).iter().enumerate() {
            let at = at.index(i);
            let ports = at.child("ports");
            for (j, port) in list(rule, "ports").iter().enumerate() {
                validate_policy_port(port, &ports.index(j), errors);
            }
            let at = at.child(peers);
            for (j, peer) in list(rule, peers).iter().enumerate() {
                validate_policy_peer(peer, &options, &at.index(j), errors);
            }
        }
    }
    let at = path.child("policyTypes");
    let types = texts(spec, "policyTypes");
    // Upstream stops here, so unknown types of a long list are not reported.
    if types.len() > 2 {
        return errors.invalid(&at, types, "may not specify more than two policyTypes");
    }
    for (i, kind) in types.iter().enumerate() {
        if !["Ingress", "Egress"].contains(kind) {
            errors.not_supported(&at.index(i), *kind, &["Ingress", "Egress"]);
        }
    }
}

fn validate_policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    rules::validate_one_of(port, "protocol", &["TCP", "UDP", "SCTP"], path, errors);
    let (number, end) = (get(port, "port"), int(port, "endPort"));
    let at = path.child("endPort");
    if has(port, "port") {
        rules::validate_port_number_or_name(number, &path.child("port"), errors);
    }
    // A range starts at a number. A name may stand for different numbers in different pods.
    match (end, number) {
        (None, _) => {}
        (Some(end), Value::Null) => errors.invalid(
            &at,
            end,
            "may not be specified when `port` is not specified",
        ),
        (Some(end), Value::String(_)) => {
            errors.invalid(&at, end, "may not be specified when `port` is non-numeric");
        }
        (Some(end), number) => {
            let start = number.as_i64().unwrap_or(0);
            if end < start {
                // Upstream shows the value of `port` at the path of `endPort`.
                errors.invalid(&at, start, "must be greater than or equal to `port`");
            }
            if let Some(problem) = rules::port_number_problem(end) {
                errors.invalid(&at, end, problem);
            }
        }
    }
}

fn validate_policy_peer(peer: &Value, options: &Options<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut found = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if has(peer, field) {
            found += 1;
            let at = path.child(field);
            selector::validate_selector_leniently(
                get(peer, field),
                options.allows_values,
                &at,
                errors,
            );
        }
    }
    if has(peer, "ipBlock") {
        found += 1;
        let at = path.child("ipBlock");
        validate_ip_block(get(peer, "ipBlock"), &options.cidrs, &at, errors);
    }
    // An absent list of peers allows everyone, an empty peer would be read as nothing or as
    // everything.
    if found == 0 {
        errors.required(path, "must specify a peer");
    // Two selectors intersect. A block names addresses outside of the cluster, where no selector
    // applies.
    } else if found > 1 && has(peer, "ipBlock") {
        errors.forbidden(path, "may not specify both ipBlock and another peer");
    }
}

fn validate_ip_block(block: &Value, known: &HashSet<&str>, path: &Path<'_>, errors: &mut Errors) {
    let cidr = text(block, "cidr");
    let at = path.child("cidr");
    // Without a block, the exceptions have nothing to be compared with.
    if cidr.is_empty() {
        return errors.required(&at, "");
    }
    if !known.contains(cidr) {
        errors.invalid_each(&at, cidr, rules::cidr_problems(cidr));
    }
    // The tolerant parser is used for comparisons, so that old blocks with leading zeros are still
    // compared.
    let Some(outer) = parse_sloppy_cidr(cidr) else {
        return;
    };
    let at = path.child("except");
    for (i, except) in texts(block, "except").into_iter().enumerate() {
        let at = at.index(i);
        if !known.contains(except) {
            errors.invalid_each(&at, except, rules::cidr_problems(except));
        }
        // An exception outside of the block excepts nothing, and one of equal size leaves nothing.
        if let Some(inner) = parse_sloppy_cidr(except)
            && (!outer.contains(&inner.network()) || inner.prefix_len() <= outer.prefix_len())
        {
            errors.invalid(&at, except, "must be a strict subset of `cidr`");
        }
    }
}
