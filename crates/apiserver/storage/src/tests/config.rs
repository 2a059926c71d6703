use crate::{ConfigError, Store, StoreConfig};
use std::path::PathBuf;

fn error_of(config: StoreConfig) -> ConfigError {
    Store::new(&config).err().unwrap()
}

fn servers(urls: &[&str]) -> StoreConfig {
    StoreConfig {
        servers: urls.iter().map(|url| (*url).to_owned()).collect(),
        ..StoreConfig::default()
    }
}

#[test]
fn at_least_one_server_is_required() {
    assert!(matches!(error_of(servers(&[])), ConfigError::NoServers));
}

#[tokio::test]
async fn server_is_an_http_or_https_url() {
    for url in ["10.0.0.1:2379", "ftp://10.0.0.1", ""] {
        let error = error_of(servers(&["http://10.0.0.1:2379", url]));
        assert!(
            matches!(error, ConfigError::BadUrl { .. }),
            "{url}: {error}"
        );
    }
    assert!(Store::new(&servers(&["http://10.0.0.1:2379", "https://[::1]:2379"])).is_ok());
}

#[test]
fn client_certificate_needs_its_key() {
    let half = StoreConfig {
        key_file: Some(PathBuf::from("/none")),
        ..servers(&["https://10.0.0.1:2379"])
    };
    assert!(matches!(error_of(half), ConfigError::HalfPair));
}

#[test]
fn error_of_an_unreadable_file_names_it() {
    let config = StoreConfig {
        ca_file: Some(PathBuf::from("/nonexistent/ca.crt")),
        ..servers(&["https://10.0.0.1:2379"])
    };
    let error = error_of(config).to_string();
    assert!(error.contains("/nonexistent/ca.crt"), "{error}");
}
