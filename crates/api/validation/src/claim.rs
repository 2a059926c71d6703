//! PersistentVolumeClaims and templates of claims.
//!
//! A module beside `storage`, because pods embed claim templates and volumes embed sources of pods.

mod spec;
mod update;

pub(crate) use spec::{
    VOLUME_MODES, validate_claim_spec, validate_claim_template_spec, validate_mode_values,
};

use crate::field::Path;
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use api_meta::tree::get;

pub(crate) const CLAIM: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| {
        validate_claim_spec(get(object, "spec"), &Path::ROOT.child("spec"), errors);
    },
    update: update::validate_claim_update,
    sub: |_, new, _, errors| update::validate_claim_status(new, errors),
};
