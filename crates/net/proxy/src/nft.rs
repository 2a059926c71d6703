//! The proxy's tables in the kernel.

use net_nft::{Family, list_objects};

use crate::base_chains::TABLE;

/// Returns whether the tables exist with their hooks. If `nft` fails, they count as installed.
pub async fn are_installed(families: &[Family]) -> bool {
    for family in families {
        let words = ["list", "chain", family.nft_name(), TABLE, "nat-prerouting"];
        // Only a listing that worked and lacks the jump means that the rules were removed: each
        // wrong result installs everything again.
        if let Ok(output) = list_objects(&words).await
            && !(output.status.success()
                && String::from_utf8_lossy(&output.stdout).contains("jump services"))
        {
            return false;
        }
    }
    true
}

/// Returns all sets with their elements, in JSON; empty if `nft` can't list them.
pub async fn list_sets() -> String {
    match list_objects(&["-j", "list", "sets"]).await {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => {
            let reason = String::from_utf8_lossy(&output.stderr);
            tracing::warn!(
                reason = reason.trim(),
                "sets can't be listed; clients may change endpoints in spite of session affinity"
            );
            String::new()
        }
        Err(_) => String::new(),
    }
}
