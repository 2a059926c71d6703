//! The keys of certificates are not logged, at the highest verbosity either.

use std::io::Write;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::ingress::{ingress, rule};
use crate::setting::Setting;
use crate::tls::grant_certificates;

/// Collects log output.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns parts of a key in the forms that a log could have: lines of text, the base64 of a Secret,
/// and bytes in debug output.
fn list_forms(key: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(key);
    let lines = text.lines().filter(|line| line.len() >= 16);
    let lines = lines.filter(|line| !line.starts_with("-----"));
    // The first bytes are equal for all keys of a kind.
    let end = &key[key.len() - 24..];
    let debug = format!("{end:?}");
    let encoded = STANDARD.encode(key);
    let forms = [
        debug.trim_matches(['[', ']']).to_owned(),
        encoded[encoded.len() - 32..].to_owned(),
    ];
    lines.map(str::to_owned).chain(forms).collect()
}

fn secret(name: &str, certificate: &str, key: &[u8]) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "a"},
        "data": {"tls.crt": STANDARD.encode(certificate), "tls.key": STANDARD.encode(key)}})
}

/// Adds Secrets with keys that can be used or not, each with an Ingress, and returns the keys.
async fn add_keys(setting: &Setting) -> Vec<Vec<u8>> {
    let make = |name: &str| rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let (usable, other) = (make("usable.example.com"), make("other.example.com"));
    let pem = other.signing_key.serialize_pem();
    let cases = [
        ("usable", usable.signing_key.serialize_pem().into_bytes()),
        ("foreign", pem.clone().into_bytes()),
        ("renamed", pem.replace("PRIVATE KEY", "SECRET").into_bytes()),
        ("cut", pem.as_bytes()[..pem.len() / 2].to_vec()),
        ("binary", other.signing_key.serialize_der()),
    ];
    for (name, key) in &cases {
        setting.create(secret(name, &usable.cert.pem(), key)).await;
        let host = format!("{name}.example.com");
        let spec = json!({"rules": [rule(&host, "/", "web")],
            "tls": [{"hosts": [host], "secretName": name}]});
        setting.create(ingress("a", name, spec)).await;
    }
    let file = setting.plane.folder().join("usable.crt");
    std::fs::write(file, usable.cert.pem()).unwrap();
    cases.into_iter().map(|(_, key)| key).collect()
}

/// On one thread, because the log of a thread is recorded.
#[tokio::test]
async fn keys_of_certificates_are_not_logged() {
    // A second subscriber. With a single one, the first thread that reaches a line decides for all
    // threads if it is ever logged, and threads of other tests have no log.
    let _second = tracing_subscriber::registry().set_default();
    let log = Log::default();
    let writer = log.clone();
    let _recording = tracing_subscriber::fmt()
        // The filter decides; without this, the default level would apply as well.
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish()
        .with(base_telemetry::level_filter(10))
        .set_default();
    let setting = Setting::start().await;
    setting.create_namespace("a").await;
    grant_certificates(&setting, "a").await;
    setting.add_backend("a", "web").await;
    let keys = add_keys(&setting).await;
    for name in ["foreign", "renamed", "cut", "binary"] {
        let url = format!("https://{name}.example.com/");
        setting
            .wait_for(&["--insecure", &url], |response| response.status == 200)
            .await;
    }
    let file = setting.plane.folder().join("usable.crt");
    let file = file.display().to_string();
    let usable = ["--cacert", &file, "https://usable.example.com/"];
    setting
        .wait_for(&usable, |response| response.status == 200)
        .await;
    let text = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(
        text.contains("serving requests") && text.contains("DEBUG"),
        "the gateway logged nothing: {} bytes",
        text.len()
    );
    for form in keys.iter().flat_map(|key| list_forms(key)) {
        let line = text.lines().find(|line| line.contains(&form));
        assert!(line.is_none(), "{form:?} was logged");
    }
}
