//! The metric of the expiration of a component's certificates: that of its client, and files.

use base_telemetry::MetricsPage;
use base_tls::CertificateFiles;
use client::Client;

/// The end of a page in the OpenMetrics format.
const END: &str = "# EOF\n";

/// A sample: flag, file, and expiration in seconds since 1970.
type Expiration = (&'static str, String, i64);

/// Appends the expirations of the client certificate of new connections and of `files` to a page of
/// metrics. The client has none without a certificate, and before the first connection.
pub(crate) fn append_expirations(
    page: String,
    client: &Client,
    files: &CertificateFiles,
) -> String {
    let mut all = base_task::blocking(|| files.read_expirations());
    all.extend(find_client_expiration(client));
    match all.is_empty() {
        true => page,
        false => append_samples(&page, &all),
    }
}

fn find_client_expiration(client: &Client) -> Option<Expiration> {
    let end = base_tls::find_first_expiration(&client.certificate()?)?;
    let file = client.config().kubeconfig.as_ref();
    let file = file.map_or_else(String::new, |file| file.path.display().to_string());
    Some(("kubeconfig", file, end))
}

fn append_samples(page: &str, all: &[Expiration]) -> String {
    let mut added = MetricsPage::default();
    added.add_certificate_expirations(all);
    let added = added.finish();
    match page.strip_suffix(END) {
        Some(page) => format!("{page}{added}{END}"),
        None => format!("{page}{added}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use client::Config;

    #[test]
    fn sample_is_before_the_end_of_the_page() {
        let line = "\nironclad_certificate_expiration_timestamp_seconds{flag=\"kubeconfig\",file=\"/k\"} 2000000000\n";
        for (page, end) in [("a 1\n# EOF\n", "# EOF\n"), ("a 1\n", "")] {
            let found = append_samples(page, &[("kubeconfig", "/k".to_owned(), 2_000_000_000)]);
            assert!(found.starts_with("a 1\n# HELP "), "{found}");
            assert!(found.ends_with(&format!("{line}{end}")), "{found}");
        }
    }

    #[test]
    fn client_without_a_certificate_has_no_sample() {
        let client = Client::new(Config::builder("https://127.0.0.1:1"));
        let append = |files| append_expirations("a 1\n".to_owned(), &client, &files);
        assert_eq!(append(CertificateFiles::default()), "a 1\n");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.crt");
        let made = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
        std::fs::write(&path, made.cert.pem()).unwrap();
        let found = append(CertificateFiles::new(vec![("root-ca-file", path)]));
        assert!(found.contains("{flag=\"root-ca-file\",file="), "{found}");
    }
}
