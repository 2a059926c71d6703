//! Host names of requests, and the patterns of listeners, routes and Ingresses.

use std::collections::HashMap;

/// Maximum length of a DNS name in characters.
const MAX_NAME: usize = 253;
/// Maximum length of a label in characters.
const MAX_LABEL: usize = 63;

/// A set of host names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This name.
    Exact(String),
    /// Names with exactly one label before this suffix: a wildcard of an Ingress.
    OneLabel(String),
    /// Names with one or more labels before this suffix: a wildcard of the Gateway API.
    Labels(String),
    /// All names, and requests without one.
    Any,
}

impl HostPattern {
    /// Parses a host of an Ingress; `None` if it is not one.
    pub fn parse_ingress(host: &str) -> Option<Self> {
        Self::parse(host, Self::OneLabel)
    }

    /// Parses a hostname of the Gateway API; `None` if it is not one.
    pub fn parse_gateway(host: &str) -> Option<Self> {
        Self::parse(host, Self::Labels)
    }

    fn parse(host: &str, wildcard: impl Fn(String) -> Self) -> Option<Self> {
        match host.strip_prefix("*.") {
            _ if host.is_empty() => Some(Self::Any),
            Some(suffix) if is_name(suffix) => Some(wildcard(suffix.to_owned())),
            None if is_name(host) => Some(Self::Exact(host.to_owned())),
            _ => None,
        }
    }

    /// Returns the names that both patterns of the Gateway API contain; `None` if there are none.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if self.contains(other) {
            Some(other.clone())
        } else {
            other.contains(self).then(|| self.clone())
        }
    }

    fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Labels(suffix), Self::Exact(name)) => is_below(name, suffix),
            (Self::Labels(suffix), Self::Labels(inner)) => {
                inner == suffix || is_below(inner, suffix)
            }
            _ => self == other,
        }
    }

    /// Returns the patterns that include this one, itself and then the most specific ones first.
    /// [`HostPattern::Any`] and wildcards of a top-level domain include only wildcards of the same
    /// domain here: they have the requests that no other pattern matches.
    pub(crate) fn including_patterns(&self) -> Vec<Self> {
        let mut found = vec![self.clone()];
        if let Self::OneLabel(suffix) = self {
            // The same names and more, so that this is no narrower claim below a top-level domain.
            found.push(Self::Labels(suffix.clone()));
        }
        let suffix = match self {
            Self::Exact(name) => {
                let Some((_, parent)) = name.split_once('.') else {
                    return found;
                };
                if parent.contains('.') {
                    found.push(Self::OneLabel(parent.to_owned()));
                }
                parent
            }
            Self::OneLabel(suffix) | Self::Labels(suffix) => {
                suffix.split_once('.').map_or("", |(_, parent)| parent)
            }
            Self::Any => "",
        };
        let domains = suffixes(suffix).filter(|suffix| suffix.contains('.'));
        found.extend(domains.map(|suffix| Self::Labels(suffix.to_owned())));
        found
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::OneLabel(suffix) | Self::Labels(suffix) => write!(f, "*.{suffix}"),
            Self::Any => f.write_str("*"),
        }
    }
}

/// Returns a name and its parents, the longest first.
fn suffixes(name: &str) -> impl Iterator<Item = &str> {
    let first = (!name.is_empty()).then_some(name);
    std::iter::successors(first, |name| name.split_once('.').map(|(_, parent)| parent))
}

fn is_below(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix)
        .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// Returns the host of an authority (`host[:port]`) in the form in which it is compared: lower
/// case, without the port and the final dot. `None` if it can't be a host.
pub fn normalize_host(authority: &str) -> Option<String> {
    let host = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            is_port_suffix(port).then_some(())?;
            return address
                .parse::<std::net::Ipv6Addr>()
                .ok()
                .map(|address| format!("[{address}]"));
        }
        None => match authority.split_once(':') {
            Some((host, port)) => port.bytes().all(|b| b.is_ascii_digit()).then_some(host)?,
            None => authority,
        },
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    // Underscores are no part of DNS host names, but clients in clusters use them.
    is_name(&host.replace('_', "-")).then_some(host)
}

fn is_port_suffix(rest: &str) -> bool {
    rest.is_empty()
        || rest
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Values by host pattern.
#[derive(Clone, Debug)]
pub struct HostMap<T> {
    exact: HashMap<String, T>,
    one_label: HashMap<String, T>,
    labels: HashMap<String, T>,
    any: Option<T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self {
            exact: HashMap::new(),
            one_label: HashMap::new(),
            labels: HashMap::new(),
            any: None,
        }
    }
}

impl<T> HostMap<T> {
    /// Returns the value of the most specific pattern that matches a normalized host: the exact
    /// name, then the longest wildcard, then any.
    pub fn find(&self, host: &str) -> Option<&T> {
        if let Some(found) = self.exact.get(host) {
            return Some(found);
        }
        let parent = host.split_once('.').map_or("", |(_, parent)| parent);
        if let Some(found) = self.one_label.get(parent) {
            return Some(found);
        }
        suffixes(parent)
            .find_map(|suffix| self.labels.get(suffix))
            .or(self.any.as_ref())
    }

    /// Returns the value of a pattern, after inserting the default if there is none.
    pub fn get_or_default(&mut self, pattern: &HostPattern) -> &mut T
    where
        T: Default,
    {
        match pattern {
            HostPattern::Exact(name) => self.exact.entry(name.clone()).or_default(),
            HostPattern::OneLabel(suffix) => self.one_label.entry(suffix.clone()).or_default(),
            HostPattern::Labels(suffix) => self.labels.entry(suffix.clone()).or_default(),
            HostPattern::Any => self.any.get_or_insert_with(T::default),
        }
    }

    /// Returns all values.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let maps = [&mut self.exact, &mut self.one_label, &mut self.labels];
        let named = maps.into_iter().flat_map(HashMap::values_mut);
        named.chain(self.any.as_mut())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pattern_is_a_name_or_a_wildcard_before_a_name() {
        for (host, is_valid) in [
            ("", true),
            ("a", true),
            ("a.example.com", true),
            ("*.example.com", true),
            ("*", false),
            ("*.", false),
            ("a.*.com", false),
            ("A.example.com", false),
            ("a..com", false),
            ("a.com\r\nx", false),
            ("-a.com", false),
        ] {
            assert_eq!(
                HostPattern::parse_gateway(host).is_some(),
                is_valid,
                "{host:?}"
            );
            assert_eq!(
                HostPattern::parse_ingress(host).is_some(),
                is_valid,
                "{host:?}"
            );
        }
    }

    #[test]
    fn authority_is_reduced_to_its_host() {
        for (authority, host) in [
            ("Example.COM", Some("example.com")),
            ("example.com.:8080", Some("example.com")),
            ("10.0.0.1:80", Some("10.0.0.1")),
            ("[FD00::1]:80", Some("[fd00::1]")),
            ("my_app.example", Some("my_app.example")),
            ("", None),
            ("a:b", None),
            ("[::1", None),
            ("[::1]x", None),
            ("user@example.com", None),
            ("a b", None),
        ] {
            assert_eq!(normalize_host(authority).as_deref(), host, "{authority:?}");
        }
    }

    #[test]
    fn most_specific_pattern_is_found() {
        let mut map = HostMap::<&str>::default();
        for pattern in ["a.example.com", "*.example.com", "*.b.example.com", ""] {
            *map.get_or_default(&HostPattern::parse_gateway(pattern).unwrap()) = pattern;
        }
        for (host, pattern) in [
            ("a.example.com", "a.example.com"),
            ("x.example.com", "*.example.com"),
            ("x.y.example.com", "*.example.com"),
            ("x.b.example.com", "*.b.example.com"),
            ("b.example.com", "*.example.com"),
            ("example.com", ""),
            ("", ""),
        ] {
            assert_eq!(map.find(host), Some(&pattern), "{host}");
        }
        // The table of the Ingress documentation: a wildcard stands for one label.
        let mut map = HostMap::<u8>::default();
        *map.get_or_default(&HostPattern::parse_ingress("*.foo.com").unwrap()) = 1;
        for (host, is_found) in [
            ("bar.foo.com", true),
            ("baz.bar.foo.com", false),
            ("foo.com", false),
        ] {
            assert_eq!(map.find(host).is_some(), is_found, "{host}");
        }
    }

    #[test]
    fn intersection_is_the_more_specific_pattern() {
        for (listener, route, both) in [
            ("", "a.com", Some("a.com")),
            ("a.com", "", Some("a.com")),
            ("*.a.com", "x.a.com", Some("x.a.com")),
            ("*.a.com", "x.y.a.com", Some("x.y.a.com")),
            ("*.a.com", "a.com", None),
            ("x.a.com", "*.a.com", Some("x.a.com")),
            ("*.a.com", "*.b.a.com", Some("*.b.a.com")),
            ("*.b.a.com", "*.a.com", Some("*.b.a.com")),
            ("*.a.com", "*.ba.com", None),
            ("a.com", "b.com", None),
        ] {
            let parse = |host| HostPattern::parse_gateway(host).unwrap();
            let found = parse(listener).intersect(&parse(route));
            assert_eq!(found, both.map(parse), "{listener} and {route}");
        }
    }
}
