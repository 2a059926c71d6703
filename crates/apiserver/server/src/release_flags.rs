//! The flags of the release that is emulated.

use anyhow::{Context as _, bail, ensure};
use api_kinds::{EmulatedRelease, Release};

/// The oldest release that can be emulated is that of three minor releases before, as upstream.
const OLDEST: Release = Release::CURRENT.before(3);

/// The flags of the release that is emulated. Each is optional, so that defaults can depend on
/// another one.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ReleaseFlags {
    /// Release whose API versions and feature gates are served, [kube=]1.33 to [kube=]1.36
    #[arg(long, value_delimiter = ',', value_name = "RELEASE")]
    emulated_version: Vec<String>,
    /// Oldest release that can read what is stored, [kube=]1.33 to the emulated version (default
    /// the one before)
    #[arg(long, value_delimiter = ',', value_name = "RELEASE")]
    min_compatibility_version: Vec<String>,
    /// Serve newer versions of resources that the emulated version has in an older one
    #[arg(long)]
    emulation_forward_compatible: bool,
    /// Serve versions and resources that --runtime-config names and the emulated version lacks
    #[arg(long)]
    runtime_config_emulation_forward_compatible: bool,
}

impl ReleaseFlags {
    /// Returns the release that is emulated.
    ///
    /// # Errors
    /// A malformed release, or one that can't be emulated.
    pub(crate) fn emulated_release(&self) -> anyhow::Result<EmulatedRelease> {
        let release = parse_release(&self.emulated_version).context("--emulated-version")?;
        let release = release.unwrap_or(Release::CURRENT);
        ensure!(
            (OLDEST..=Release::CURRENT).contains(&release),
            "--emulated-version: {release} is not between {OLDEST} and {}",
            Release::CURRENT
        );
        let compatible = parse_release(&self.min_compatibility_version)
            .context("--min-compatibility-version")?;
        let compatible = compatible.unwrap_or_else(|| release.before(1).max(OLDEST));
        ensure!(
            (OLDEST..=release).contains(&compatible),
            "--min-compatibility-version: {compatible} is not between {OLDEST} and {release}"
        );
        Ok(EmulatedRelease {
            release,
            min_compatibility: compatible,
            emulation_forward_compatible: self.emulation_forward_compatible,
            runtime_config_forward_compatible: self.runtime_config_emulation_forward_compatible,
        })
    }
}

/// Parses at most one value of the form `[kube=]1.35`; as upstream, `v1.35.0` is the same.
fn parse_release(values: &[String]) -> anyhow::Result<Option<Release>> {
    let mut release = None;
    for value in values.iter().filter(|value| !value.is_empty()) {
        let (component, text) = value.split_once('=').unwrap_or(("kube", value));
        if component.trim() != "kube" {
            bail!("component not registered: {}", component.trim());
        }
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let parsed = match text.rsplit_once('.') {
            Some((release, "0")) if release.contains('.') => release.parse()?,
            _ => text.parse()?,
        };
        if let Some(first) = release.replace(parsed) {
            bail!("duplicate version flag, kube={first} and kube={parsed}");
        }
    }
    Ok(release)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(emulated: &[&str], compatible: &[&str]) -> Result<(String, String), String> {
        let owned = |values: &[&str]| values.iter().map(|text| (*text).to_owned()).collect();
        let flags = ReleaseFlags {
            emulated_version: owned(emulated),
            min_compatibility_version: owned(compatible),
            ..ReleaseFlags::default()
        };
        let emulated = flags
            .emulated_release()
            .map_err(|error| format!("{error:#}"))?;
        Ok((
            emulated.release.to_string(),
            emulated.min_compatibility.to_string(),
        ))
    }

    #[test]
    fn compatible_release_is_the_one_before() {
        for (emulated, compatible, expect) in [
            (&[][..], &[][..], ("1.36", "1.35")),
            (&["1.35"], &[], ("1.35", "1.34")),
            (&["kube=1.34"], &["kube=1.33"], ("1.34", "1.33")),
            (&["1.33"], &[], ("1.33", "1.33")),
            (&["1.36"], &["1.36"], ("1.36", "1.36")),
            (&["v1.35.0"], &["v1.34"], ("1.35", "1.34")),
        ] {
            let expect = (expect.0.to_owned(), expect.1.to_owned());
            assert_eq!(flags(emulated, compatible), Ok(expect));
        }
    }

    #[test]
    fn other_releases_are_rejected() {
        for (emulated, compatible, error) in [
            (
                "1.32",
                "",
                "--emulated-version: 1.32 is not between 1.33 and 1.36",
            ),
            (
                "1.37",
                "",
                "--emulated-version: 1.37 is not between 1.33 and 1.36",
            ),
            (
                "1.35.1",
                "",
                "--emulated-version: \"1.35.1\" is no release of the form 1.35",
            ),
            (
                "x=1.35",
                "",
                "--emulated-version: component not registered: x",
            ),
            (
                "1.34",
                "1.35",
                "--min-compatibility-version: 1.35 is not between 1.33 and 1.34",
            ),
            (
                "",
                "1.32",
                "--min-compatibility-version: 1.32 is not between 1.33 and 1.36",
            ),
        ] {
            assert_eq!(flags(&[emulated], &[compatible]), Err(error.to_owned()));
        }
        let twice = flags(&["1.35", "kube=1.34"], &[]);
        assert_eq!(
            twice,
            Err("--emulated-version: duplicate version flag, kube=1.35 and kube=1.34".to_owned())
        );
    }
}
