//! Cluster IPs and IP families of Services.

use crate::field::{Errors, Path};
use crate::ip::{is_dual_stack, parse_sloppy_ip};
use crate::rules;
use api_meta::tree::{get, list, opt_text, same, text, texts};
use serde_json::Value;
use std::collections::HashSet;

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const FIXED: &str = "may not change once set";

pub(super) fn is_headless(spec: &Value) -> bool {
    texts(spec, "clusterIPs") == ["None"]
}

/// Validates `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` with each other.
pub(super) fn validate_cluster_ips(
    spec: &Value,
    old: Option<&Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // The other end of the name decides about its addresses.
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (one, all) = (text(spec, "clusterIP"), texts(spec, "clusterIPs"));
    let at = path.child("clusterIPs");
    // Clients of releases before dual stack know `clusterIP` only.
    match (one, all.first()) {
        ("", Some(_)) => errors.invalid(
            &at,
            all.clone(),
            "must be empty when `clusterIP` is not specified",
        ),
        ("", None) => {}
        (_, None) => errors.required(&at, ""),
        (one, Some(first)) if *first != one => {
            errors.invalid(&at, all.clone(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    // Families are validated before the addresses, since the errors of the addresses refer to them.
    validate_ip_families(spec, path, errors);
    let known = old.map(|old| texts(get(old, "spec"), "clusterIPs"));
    let before = errors.len();
    validate_each_cluster_ip(&all, &known.unwrap_or_default(), &at, errors);
    let is_valid = errors.len() == before;
    if all.len() > 2 {
        errors.invalid(&at, all.clone(), "may only hold up to 2 values");
    }
    // Families of malformed addresses are unknown, so the comparisons below would only repeat the
    // error.
    if !is_valid {
        return;
    }
    // Two addresses are one of each family.
    if let [first, second, ..] = all.as_slice()
        && (all.len() > 2 || !is_dual_stack(first, second))
    {
        errors.invalid(
            &at,
            all.clone(),
            "may specify no more than one IP for each IP family",
        );
    }
    if !is_headless(spec) {
        validate_families_of_ips(&all, &texts(spec, "ipFamilies"), &at, errors);
    }
}

fn validate_ip_families(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A primary and a secondary family at most: the third value is either unknown or a duplicate.
    let families = texts(spec, "ipFamilies");
    let at = path.child("ipFamilies");
    let mut seen = HashSet::new();
    for (i, family) in families.iter().enumerate() {
        if !FAMILIES.contains(family) {
            errors.not_supported(&at.index(i), *family, &FAMILIES);
        }
        if !seen.insert(*family) {
            errors.duplicate(&at.index(i), *family);
        }
    }
    rules::validate_one_of(spec, "ipFamilyPolicy", &FAMILY_POLICIES, path, errors);
}

fn validate_each_cluster_ip(all: &[&str], known: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for (i, ip) in all.iter().enumerate() {
        // Only the first value can be `None`; at another place it is reported as a malformed
        // address.
        if i == 0 && *ip == "None" {
            if all.len() > 1 {
                errors.invalid(
                    path,
                    all.to_vec(),
                    "'None' must be the first and only value",
                );
            }
        } else if !known.contains(ip) {
            errors.invalid_each(&path.index(i), ip, rules::ip_problems(ip));
        }
    }
}

fn validate_families_of_ips(ips: &[&str], families: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for (i, (ip, family)) in ips.iter().zip(families).enumerate() {
        let found = match parse_sloppy_ip(ip) {
            Some(ip) if ip.is_ipv6() => "IPv6",
            _ => "IPv4",
        };
        // An unknown family has its own error, so the address isn't blamed for it.
        if FAMILIES.contains(family) && found != *family {
            errors.invalid(
                &path.index(i),
                *ip,
                format!("expected an {family} value as indicated by `ipFamilies[{i}]`"),
            );
        }
    }
}

/// Allows adding or releasing a second address. Pods have the first one in their environment, and
/// DNS clients in their caches; only a change to or from `ExternalName` replaces it.
pub(super) fn validate_cluster_ips_update(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let external = |spec| text(spec, "type") == "ExternalName";
    if external(new) || external(old) || (is_headless(new) && is_headless(old)) {
        return;
    }
    let (n, o) = (list(new, "clusterIPs"), list(old, "clusterIPs"));
    let at = path.child("clusterIPs");
    if n.len() == o.len() {
        for (i, _) in n.iter().zip(o).enumerate().filter(|(_, (n, o))| n != o) {
            errors.invalid(&at.index(i), n.to_vec(), FIXED);
        }
        return;
    }
    if n.is_empty() {
        errors.invalid(
            &at.index(0),
            n.to_vec(),
            "primary clusterIP can not be unset",
        );
    }
    if let (Some(n0), Some(o0)) = (n.first(), o.first())
        && n0 != o0
    {
        errors.invalid(&at.index(0), n.to_vec(), FIXED);
    }
    if n.len() < o.len() && n.len() == 1 {
        validate_release_policy(new, "clusterIP", path, errors);
    }
}

fn validate_release_policy(spec: &Value, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let policy = opt_text(spec, "ipFamilyPolicy");
    if policy != Some("SingleStack") {
        errors.invalid(
            &path.child("ipFamilyPolicy"),
            get(spec, "ipFamilyPolicy").clone(),
            format!("must be set to 'SingleStack' when releasing the secondary {what}"),
        );
    }
}

/// Allows adding or releasing a second family.
pub(super) fn validate_ip_families_update(
    new: &Value,
    old: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let external = |spec| text(spec, "type") == "ExternalName";
    // The families of a headless Service say only which endpoints its DNS records list.
    if external(new) || external(old) || is_headless(new) || is_headless(old) {
        return;
    }
    let (n, o) = (list(new, "ipFamilies"), list(old, "ipFamilies"));
    let at = path.child("ipFamilies");
    let at = at.index(0);
    if n.len() == o.len() {
        // One error for each changed family, all at the first: upstream's path.
        for _ in n.iter().zip(o).filter(|(n, o)| n != o) {
            errors.invalid(&at, n.to_vec(), FIXED);
        }
        return;
    }
    let is_released = n.len() < o.len();
    if is_released && list(new, "clusterIPs").is_empty() {
        errors.invalid(&at, n.to_vec(), "primary ipFamily can not be unset");
    }
    if let (Some(n0), Some(o0)) = (n.first(), o.first())
        && n0 != o0
    {
        errors.invalid(&at, list(new, "clusterIPs").to_vec(), FIXED);
    }
    if is_released && n.len() == 1 && !same(new, old, "ipFamilies") {
        validate_release_policy(new, "ipFamily", path, errors);
    }
}
