//! ServiceCIDRs and IPAddresses.

use crate::field::{Errors, Path};
use crate::ip::{canonical_cidr_problems, canonical_ip_problems, is_dual_stack, parse_sloppy_cidr};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, text, texts};
use serde_json::Value;

pub const SERVICE_CIDR: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_service_cidrs(&texts(get(object, "spec"), "cidrs"), errors),
    update: validate_service_cidr_update,
    sub: accept_subresource,
};
pub const IP_ADDRESS: Rules = Rules {
    name: NameRule::Own,
    create: validate_ip_address,
    update: |new, old, errors| {
        validate_ip_address(new, errors);
        let spec = Path::ROOT.child("spec");
        rules::validate_immutable(
            get(new, "spec"),
            get(old, "spec"),
            "parentRef",
            &spec,
            errors,
        );
    },
    sub: accept_subresource,
};

fn validate_service_cidrs(cidrs: &[&str], errors: &mut Errors) {
    let spec = Path::ROOT.child("spec");
    let path = spec.child("cidrs");
    if cidrs.is_empty() {
        return errors.required(&path, "at least one CIDR required");
    }
    // One range for each family. Further ranges are further ServiceCIDR objects (KEP-1880).
    if cidrs.len() > 2 {
        let shown = serde_json::json!({"cidrs": cidrs});
        return errors.invalid(&path, shown, "may only hold up to 2 values");
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        // Two spellings of one range would be two objects that overlap.
        errors.invalid_each(&path.index(i), cidr, canonical_cidr_problems(cidr));
    }
    if let [first, second] = cidrs
        && !is_dual_stack(first, second)
        && parse_sloppy_cidr(first).is_some()
        && parse_sloppy_cidr(second).is_some()
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.invalid(&path, cidrs.to_vec(), detail);
    }
}

/// Addresses of the range are in use, so only a second family may come later.
fn validate_service_cidr_update(new: &Value, old: &Value, errors: &mut Errors) {
    let (n, o) = (
        texts(get(new, "spec"), "cidrs"),
        texts(get(old, "spec"), "cidrs"),
    );
    let spec = Path::ROOT.child("spec");
    let path = spec.child("cidrs");
    let extends = n.len() == 2 && o.len() == 1;
    if n.len() != o.len() && !extends {
        return errors.invalid(&path, n, rules::IMMUTABLE);
    }
    for (i, (cidr, _)) in n.iter().zip(&o).enumerate().filter(|(_, (n, o))| n != o) {
        errors.invalid(&path.index(i), *cidr, rules::IMMUTABLE);
    }
    if extends {
        validate_service_cidrs(&n, errors);
    }
}

fn validate_ip_address(object: &Value, errors: &mut Errors) {
    // The object's name is the lock on the address: with two spellings it could be allocated twice.
    let name = text(get(object, "metadata"), "name");
    if !name.is_empty() {
        let metadata = Path::ROOT.child("metadata");
        errors.invalid_each(&metadata.child("name"), name, canonical_ip_problems(name));
    }
    let spec = Path::ROOT.child("spec");
    let path = spec.child("parentRef");
    let parent = get(get(object, "spec"), "parentRef");
    if parent.is_null() {
        return errors.required(&path, "");
    }
    // Services are in the core group, whose name is empty.
    let group = text(parent, "group");
    if !group.is_empty() {
        errors.invalid_each(&path.child("group"), group, names::dns1123_subdomain(group));
    }
    for field in ["resource", "name", "namespace"] {
        match text(parent, field) {
            "" if field == "namespace" => {}
            "" => errors.required(&path.child(field), ""),
            value => errors.invalid_each(&path.child(field), value, names::path_segment(value)),
        }
    }
}
