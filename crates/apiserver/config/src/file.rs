//! A file whose changes are loaded while the server runs.

use crate::metrics::ConfigMetrics;
use std::path::PathBuf;
use std::sync::Arc;

/// A file, and its last content, whether usable or not.
pub struct ConfigFile {
    path: PathBuf,
    content: Vec<u8>,
    subject: &'static str,
    metrics: Arc<ConfigMetrics>,
    is_readable: bool,
}

impl ConfigFile {
    /// Creates a file whose content is in use. `subject` names the configuration in the log.
    pub fn new(
        path: PathBuf,
        content: Vec<u8>,
        subject: &'static str,
        metrics: Arc<ConfigMetrics>,
    ) -> Self {
        metrics.record_config(&content);
        ConfigFile {
            path,
            content,
            subject,
            metrics,
            is_readable: true,
        }
    }

    /// Returns what `load` makes of a changed content; `None` if it has not changed or can't be
    /// used, which is logged.
    ///
    /// # Errors
    /// The file can't be read. The first error of several is logged. The caller has to try again,
    /// also if the file looks the same by then.
    pub fn load_changed<T>(
        &mut self,
        load: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, std::io::Error> {
        let content = match std::fs::read(&self.path) {
            Ok(content) => content,
            Err(error) => {
                self.metrics.record_reload(false);
                if std::mem::replace(&mut self.is_readable, false) {
                    self.log_error(&format!("can't read {}: {error}", self.path.display()));
                }
                return Err(error);
            }
        };
        self.is_readable = true;
        if content == self.content {
            return Ok(None);
        }
        // Kept even if it can't be used: the same content is not tried again.
        self.content = content;
        match load(&self.content) {
            Ok(loaded) => {
                self.metrics.record_config(&self.content);
                self.metrics.record_reload(true);
                tracing::info!("reloaded the {} configuration", self.subject);
                Ok(Some(loaded))
            }
            Err(why) => {
                self.metrics.record_reload(false);
                self.log_error(&why);
                Ok(None)
            }
        }
    }

    fn log_error(&self, why: &str) {
        tracing::error!(
            why,
            "the changed {} configuration can't be used; the former one stays in use",
            self.subject
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base_telemetry::MetricsPage;

    fn load(content: &[u8]) -> Result<String, String> {
        match content {
            b"broken" => Err("broken".to_owned()),
            _ => Ok(String::from_utf8_lossy(content).into_owned()),
        }
    }

    #[test]
    fn only_a_changed_and_usable_content_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "one").unwrap();
        let metrics = Arc::new(ConfigMetrics::new("authorization", "server"));
        let mut file = ConfigFile::new(path.clone(), b"one".into(), "test", metrics.clone());
        for (content, expect) in [
            (Some("one"), None),
            (Some("two"), Some("two")),
            (Some("broken"), None),
            (Some("broken"), None),
            (None, None),
            (None, None),
            (Some("two"), Some("two")),
        ] {
            match content {
                Some(content) => std::fs::write(&path, content).unwrap(),
                None => drop(std::fs::remove_file(&path)),
            }
            let loaded = file.load_changed(load);
            assert_eq!(loaded.is_err(), content.is_none(), "{content:?}");
            let loaded = loaded.unwrap_or_default();
            assert_eq!(loaded.as_deref(), expect, "{content:?}");
        }
        let mut page = MetricsPage::default();
        metrics.write_metrics(&mut page);
        let text = page.finish();
        let count = |status: &str, count: u32| {
            let start = "apiserver_authorization_config_controller_automatic_reloads_total";
            let line = |line: &&str| line.starts_with(start) && line.contains(status);
            let found = text.lines().find(line).unwrap();
            assert!(found.ends_with(&format!(" {count}")), "{found}");
        };
        count("success", 2);
        count("failure", 3);
        assert!(text.contains(&hash_of("two")), "{text}");
    }

    fn hash_of(content: &str) -> String {
        crate::hash_content(content.as_bytes())
    }
}
