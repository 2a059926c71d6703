//! Options of containers on Windows.

use super::context::visit_containers;
use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{flag, get, has, opt_text};
use serde_json::Value;

const CREDENTIAL_SPEC_KIB: usize = 64;
const DOMAIN: usize = 256;
const USER: usize = 104;

/// Validates `windowsOptions` of a security context.
pub fn validate_windows_options(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(context, "windowsOptions") {
        return;
    }
    let (options, path) = (get(context, "windowsOptions"), path.child("windowsOptions"));
    // The name of a custom resource that a webhook reads.
    if let Some(name) = opt_text(options, "gmsaCredentialSpecName") {
        let at = path.child("gmsaCredentialSpecName");
        errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    }
    if let Some(spec) = opt_text(options, "gmsaCredentialSpec") {
        let at = path.child("gmsaCredentialSpec");
        if spec.is_empty() {
            errors.invalid(&at, spec, "gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > CREDENTIAL_SPEC_KIB * 1024 {
            let detail = format!("gmsaCredentialSpec size must be under {CREDENTIAL_SPEC_KIB} KiB");
            errors.invalid(&at, spec, detail);
        }
    }
    if let Some(name) = opt_text(options, "runAsUserName") {
        let at = path.child("runAsUserName");
        for problem in find_user_name_problems(name) {
            errors.invalid(&at, name, format!("runAsUserName{problem}"));
        }
    }
}

/// Returns the problems of `DOMAIN\user`, as texts that follow the name of the field.
fn find_user_name_problems(name: &str) -> Vec<String> {
    if name.is_empty() {
        return vec![" cannot be an empty string".to_owned()];
    }
    if name.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters".to_owned()];
    }
    let (domain, user) = match name.split('\\').collect::<Vec<_>>().as_slice() {
        [user] => (None, *user),
        [domain, user] => (Some(*domain), *user),
        _ => return vec![" cannot contain more than one backslash".to_owned()],
    };
    let mut problems = Vec::new();
    if let Some(domain) = domain {
        if domain.len() >= DOMAIN {
            problems.push(format!(
                "'s Domain length must be under {DOMAIN} characters"
            ));
        }
        if !is_net_bios_name(domain) && !is_dns_name(domain) {
            problems.push("'s Domain doesn't match the NetBios nor the DNS format".to_owned());
        }
    }
    if user.is_empty() {
        problems.push("'s User cannot be empty".to_owned());
    } else if user.len() > USER {
        problems.push(format!(
            "'s User length must not be longer than {USER} characters"
        ));
    }
    if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
        problems.push("'s User cannot contain only periods or spaces".to_owned());
    }
    const RESERVED: &str = "\"/\\:;|=,+*?<>@[]";
    if user.contains(|c| RESERVED.contains(c)) {
        problems.push(format!(
            "'s User cannot contain the following characters: {RESERVED}"
        ));
    }
    problems
}

fn is_net_bios_name(name: &str) -> bool {
    (1..=15).contains(&name.chars().count())
        && !name.starts_with('.')
        && !name.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    })
}

/// Checks the pod's containers that run as processes of the host.
pub fn validate_host_process(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let read = |parent: &Value| {
        let options = get(get(parent, "securityContext"), "windowsOptions");
        get(options, "hostProcess").as_bool()
    };
    let of_pod = read(spec);
    let (mut count, mut of_host) = (0, 0);
    visit_containers(spec, path, &mut |container, at| {
        count += 1;
        let own = read(container);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let at = at.child("securityContext");
            let at = at.child("windowsOptions");
            let detail =
                format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.invalid(&at.child("hostProcess"), own, detail);
        }
        of_host += i32::from(own.or(of_pod).unwrap_or(false));
    });
    if of_host == 0 {
        return;
    }
    // Windows has no network namespace for such a process, and no mix of both kinds in one pod.
    if of_host != count {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.invalid(path, "", detail);
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.invalid(&path.child("hostNetwork"), false, detail);
    }
}
