//! The compiled patterns of the process, with a limit of their memory. Definitions come from
//! clients, and a pattern of ten bytes may take ten megabytes.

use super::compile::compile_within;
use super::input::{PatternError, SIZE_LIMIT};
use parking_lot::Mutex;
use regex::bytes::Regex;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};

/// Limits with which a pattern is compiled in turn. The compiled form does not tell its size, so
/// that the first limit that suffices counts as its size.
const SIZES: [usize; 4] = [64 << 10, 512 << 10, 2 << 20, SIZE_LIMIT];
/// Size of all patterns that are kept, in bytes.
const CACHE_LIMIT: usize = 128 << 20;

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(|| Mutex::new(Cache::new(CACHE_LIMIT)));

struct Cache {
    by_source: HashMap<Box<str>, (Arc<Regex>, usize)>,
    /// Oldest first.
    order: VecDeque<Box<str>>,
    left: usize,
}

impl Cache {
    fn new(limit: usize) -> Self {
        Cache {
            by_source: HashMap::new(),
            order: VecDeque::new(),
            left: limit,
        }
    }

    fn insert(&mut self, source: &str, regex: Arc<Regex>, size: usize) {
        if self.by_source.contains_key(source) {
            return;
        }
        while self.left < size {
            let Some(oldest) = self.order.pop_front() else {
                return;
            };
            if let Some((_, freed)) = self.by_source.remove(&oldest) {
                self.left += freed;
            }
        }
        self.left -= size;
        self.order.push_back(source.into());
        self.by_source.insert(source.into(), (regex, size));
    }
}

/// Returns the compiled pattern and its size in bytes.
pub(super) fn find_or_compile(source: &str) -> Result<(Arc<Regex>, usize), PatternError> {
    if let Some(found) = CACHE.lock().by_source.get(source) {
        return Ok(found.clone());
    }
    // Without the lock: a large pattern takes a tenth of a second.
    for size in SIZES {
        match compile_within(source, size) {
            Err(PatternError::TooLarge) => {}
            Err(error) => return Err(error),
            Ok(regex) => {
                let regex = Arc::new(regex);
                CACHE.lock().insert(source, regex.clone(), size);
                return Ok((regex, size));
            }
        }
    }
    Err(PatternError::TooLarge)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn oldest_patterns_make_room() {
        let regex = Arc::new(Regex::new("a").unwrap());
        let mut cache = Cache::new(100);
        for (source, size) in [("a", 40), ("b", 40), ("b", 40), ("c", 40), ("d", 101)] {
            cache.insert(source, regex.clone(), size);
        }
        assert!(cache.by_source.is_empty(), "no room for d");
        assert_eq!(cache.left, 100);
        cache.insert("e", regex.clone(), 60);
        cache.insert("f", regex, 60);
        assert!(cache.by_source.contains_key("f") && cache.by_source.len() == 1);
    }

    #[test]
    fn size_of_a_pattern_is_known() {
        let size = |source: &str| find_or_compile(source).map(|(_, size)| size);
        assert_eq!(size("^[a-z]+$"), Ok(64 << 10));
        assert!(size("^\\pL{40}$").unwrap() >= 512 << 10);
        assert_eq!(size("\\pL{1000}"), Err(PatternError::TooLarge));
        assert!(matches!(size("["), Err(PatternError::Syntax(_))));
    }
}
