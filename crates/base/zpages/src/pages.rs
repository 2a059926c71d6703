//! The pages.

use std::collections::BTreeSet;
use std::fmt::Write;

use http::header::{CONTENT_TYPE, HeaderValue, WARNING};
use http::{Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::flags::FlagValues;
use crate::negotiate::{CborEncoder, Format, api_version, is_deprecated, negotiate_format};

/// Path of the page about the process.
pub const STATUSZ: &str = "/statusz";
/// Path of the page with the flags.
pub const FLAGZ: &str = "/flagz";

/// Second part of the text's head. Tools of support teams recognise the page by it.
const NOTICE: &str = "Warning: This endpoint is not meant to be machine parseable, has no \
                      formatting compatibility guarantees and is for debugging purposes only.";
/// Folders that upstream leaves out of the list of paths, since they are not for debugging.
const API_FOLDERS: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];
const BINARY_VERSION: &str = concat!("1.36.2+ironclad.", env!("CARGO_PKG_VERSION"));
/// The same as in `/version`: clients expect a version of Go.
const GO_VERSION: &str = "go1.26";

/// Facts about the process that `/statusz` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Start of the process.
    pub started: Timestamp,
    /// Time of the request.
    pub now: Timestamp,
    /// The release that is emulated: its two numbers.
    pub emulated: (u16, u16),
}

impl Process {
    /// Reads the facts about this process.
    pub fn read() -> Self {
        // Whole seconds are enough: upstream shows no more.
        let started = base_telemetry::read_start_time() as i64;
        Self {
            started: Timestamp::from_second(started).unwrap_or_default(),
            now: Timestamp::now(),
            emulated: (1, 36),
        }
    }

    fn emulation_version(self) -> String {
        let (major, minor) = self.emulated;
        format!("{major}.{minor}")
    }

    fn uptime_seconds(self) -> i64 {
        // Not negative after the clock was set back.
        self.now.duration_since(self.started).as_secs().max(0)
    }
}

/// The types that a client accepts and a server has.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedTypes<'a> {
    /// The Accept header, empty for none.
    pub header: &'a str,
    /// The encoder of CBOR, `None` on a server without it.
    pub cbor: Option<CborEncoder>,
}

impl<'a> From<&'a str> for AcceptedTypes<'a> {
    fn from(header: &'a str) -> Self {
        Self { header, cbor: None }
    }
}

/// Responds to `/statusz`. `paths` are the paths of the component's server.
pub fn respond_statusz<'a>(
    component: &str,
    process: Process,
    paths: impl Iterator<Item = &'a str>,
    accept: impl Into<AcceptedTypes<'a>>,
) -> Response<Vec<u8>> {
    let folders = list_folders(paths);
    let format_text = || format_statusz(component, process, &folders);
    let build_object = |version: &str| {
        json!({
            "kind": "Statusz",
            "apiVersion": api_version(version),
            "metadata": {"name": component},
            "startTime": process.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": process.uptime_seconds(),
            "goVersion": GO_VERSION,
            "binaryVersion": BINARY_VERSION,
            "emulationVersion": process.emulation_version(),
            "paths": folders,
        })
    };
    respond_page("Statusz", accept.into(), format_text, build_object)
}

/// Responds to `/flagz`.
pub fn respond_flagz<'a>(
    component: &str,
    flags: &FlagValues,
    accept: impl Into<AcceptedTypes<'a>>,
) -> Response<Vec<u8>> {
    let format_text = || format_flagz(component, flags);
    let build_object = |version: &str| {
        json!({
            "kind": "Flagz",
            "apiVersion": api_version(version),
            "metadata": {"name": component},
            "flags": flags.iter().collect::<std::collections::BTreeMap<_, _>>(),
        })
    };
    respond_page("Flagz", accept.into(), format_text, build_object)
}

fn respond_page(
    kind: &str,
    accept: AcceptedTypes<'_>,
    format_text: impl Fn() -> String,
    build_object: impl Fn(&str) -> Value,
) -> Response<Vec<u8>> {
    let (version, encoding) = match negotiate_format(accept.header, kind, accept.cbor) {
        None => return not_acceptable(accept.cbor.is_some()),
        Some(Format::Text) => {
            let body = format_text().into_bytes();
            return build_response(StatusCode::OK, "text/plain; charset=utf-8", body);
        }
        Some(Format::Object(version, encoding)) => (version, encoding),
    };
    let body = encoding.encode(&build_object(version));
    let mut response = build_response(StatusCode::OK, encoding.media_type(), body);
    if is_deprecated(version) {
        let endpoint = kind.to_lowercase();
        let warning = format!(
            "299 - \"This version of the {endpoint} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = HeaderValue::from_str(&warning) {
            response.headers_mut().insert(WARNING, warning);
        }
    }
    response
}

fn not_acceptable(has_cbor: bool) -> Response<Vec<u8>> {
    let cbor = if has_cbor { ", application/cbor" } else { "" };
    let message = format!(
        "only the following media types are accepted: application/json, application/yaml, text/plain{cbor}"
    );
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NotAcceptable", "code": 406});
    build_response(
        StatusCode::NOT_ACCEPTABLE,
        "application/json",
        status.to_string().into_bytes(),
    )
}

fn build_response(
    status: StatusCode,
    media_type: &'static str,
    body: Vec<u8>,
) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

fn format_statusz(component: &str, process: Process, folders: &BTreeSet<String>) -> String {
    let seconds = process.uptime_seconds();
    let started = process.started.strftime("%a %b %e %H:%M:%S UTC %Y");
    let mut text = format!("\n{component} statusz\n{NOTICE}\n\nStarted: {started}\n");
    // Writing to a String can't fail.
    let _ = writeln!(
        text,
        "Up: {} hr {:02} min {:02} sec",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    );
    let _ = writeln!(
        text,
        "Go version: {GO_VERSION}\nBinary version: {BINARY_VERSION}\nEmulation version: {}",
        process.emulation_version()
    );
    let paths: Vec<&str> = folders.iter().map(String::as_str).collect();
    if !paths.is_empty() {
        let _ = write!(text, "Paths: {}", paths.join(" "));
    }
    text.push('\n');
    text
}

fn format_flagz(component: &str, flags: &FlagValues) -> String {
    let mut text = format!("\n{component} flagz\n{NOTICE}\n");
    for (name, value) in flags.iter() {
        let _ = writeln!(text, "{name}={value}");
    }
    text
}

/// Returns the first segments of paths, in order, each once.
fn list_folders<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    paths
        .filter_map(|path| path.strip_prefix('/')?.split('/').next())
        .filter(|folder| !folder.is_empty())
        .map(|folder| format!("/{folder}"))
        // Upstream registers this page last, so that its own path is not listed.
        .filter(|folder| !API_FOLDERS.contains(&folder.as_str()) && folder != STATUSZ)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HEAD: &str = "This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

    fn process() -> Process {
        Process {
            started: "2026-03-05T07:08:09Z".parse().unwrap(),
            now: "2026-03-06T08:10:12.9Z".parse().unwrap(),
            emulated: (1, 36),
        }
    }

    fn text(page: Response<Vec<u8>>) -> String {
        String::from_utf8(page.into_body()).unwrap()
    }

    fn statusz(accept: &str) -> Response<Vec<u8>> {
        let paths = [
            "/readyz/ping",
            "/metrics",
            "/",
            "/apis/apps/v1",
            "/api",
            "/readyz",
            STATUSZ,
            FLAGZ,
        ];
        respond_statusz("kube-x", process(), paths.into_iter(), accept)
    }

    fn flagz(accept: &str) -> Response<Vec<u8>> {
        let flags = [("v", "2"), ("bootstrap-token", "s3cret"), ("empty", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        respond_flagz("kube-x", &flags.into_iter().collect(), accept)
    }

    #[test]
    fn statusz_as_text_has_upstream_lines() {
        let page = statusz("");
        assert_eq!(page.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            text(page),
            format!(
                "\nkube-x statusz\nWarning: {HEAD}\n\nStarted: Thu Mar  5 07:08:09 UTC 2026\n\
                 Up: 25 hr 02 min 03 sec\nGo version: go1.26\nBinary version: 1.36.2+ironclad.{version}\n\
                 Emulation version: 1.36\nPaths: /flagz /metrics /readyz\n"
            )
        );
    }

    #[test]
    fn flagz_as_text_has_one_line_per_flag_in_order_of_names() {
        assert_eq!(
            text(flagz("*/*")),
            format!("\nkube-x flagz\nWarning: {HEAD}\nbootstrap-token=CLASSIFIED\nempty=\nv=2\n")
        );
    }

    #[test]
    fn statusz_as_json_is_an_object_of_the_requested_version() {
        let page = statusz("application/json;v=v1beta1;g=config.k8s.io;as=Statusz");
        assert_eq!(page.headers()[CONTENT_TYPE], "application/json");
        assert!(!page.headers().contains_key(WARNING));
        let object: Value = serde_json::from_slice(page.body()).unwrap();
        let version = concat!("1.36.2+ironclad.", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            object,
            json!({"kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1", "metadata": {"name": "kube-x"},
                "startTime": "2026-03-05T07:08:09Z", "uptimeSeconds": 90_123, "goVersion": "go1.26",
                "binaryVersion": version, "emulationVersion": "1.36", "paths": ["/flagz", "/metrics", "/readyz"]})
        );
    }

    #[test]
    fn flagz_as_yaml_has_no_secret_and_old_versions_a_warning() {
        let page = flagz("application/yaml;v=v1alpha1;g=config.k8s.io;as=Flagz");
        assert_eq!(page.headers()[CONTENT_TYPE], "application/yaml");
        let warning = page.headers()[WARNING].to_str().unwrap();
        assert!(
            warning.contains("flagz endpoint is deprecated"),
            "{warning}"
        );
        let object: Value = serde_yaml::from_slice(page.body()).unwrap();
        assert_eq!(
            object,
            json!({"kind": "Flagz", "apiVersion": "config.k8s.io/v1alpha1", "metadata": {"name": "kube-x"},
                "flags": {"bootstrap-token": "CLASSIFIED", "empty": "", "v": "2"}})
        );
    }

    #[test]
    fn cbor_is_a_format_of_servers_with_its_encoder() {
        let respond = |header: &str| {
            let accept = AcceptedTypes {
                header,
                cbor: Some(|object| object["kind"].to_string().into_bytes()),
            };
            respond_flagz("kube-x", &FlagValues::default(), accept)
        };
        let page = respond("application/cbor;v=v1beta1;g=config.k8s.io;as=Flagz");
        assert_eq!(page.headers()[CONTENT_TYPE], "application/cbor");
        assert_eq!(text(page), "\"Flagz\"");
        let rejected = text(respond("application/cbor"));
        assert!(
            rejected.contains("text/plain, application/cbor"),
            "{rejected}"
        );
    }

    #[test]
    fn unacceptable_format_is_rejected_with_a_status() {
        for page in [statusz("application/json"), flagz("application/xml")] {
            assert_eq!(page.status(), StatusCode::NOT_ACCEPTABLE);
            let status: Value = serde_json::from_slice(page.body()).unwrap();
            assert_eq!(status["reason"], "NotAcceptable");
        }
    }

    #[test]
    fn uptime_is_not_negative_after_the_clock_was_set_back() {
        let process = process();
        let reversed = Process {
            started: process.now,
            now: process.started,
            ..process
        };
        let page = respond_statusz("kube-x", reversed, std::iter::empty(), "");
        assert!(text(page).contains("\nUp: 0 hr 00 min 00 sec\n"));
    }
}
