//! The paths that a backend may read in a path.
//!
//! Servers differ in empty segments (`//admin`), parameters of segments (`/admin;x`), encoded
//! separators (`/x%2fadmin`), encoded ends of the path (`/admin%3fx`) and backslashes. A request
//! whose readings have different routes is refused: a backend of one route could serve what another
//! route protects.

/// Number of combinations of the four changes below, without the path itself.
const COMBINATIONS: u8 = 0b1111;

/// Returns the readings of a path besides itself; empty for a path with one meaning. Characters
/// that need no encoding must have been decoded.
pub(crate) fn list_readings(path: &str) -> Vec<String> {
    let mut readings: Vec<String> = Vec::new();
    if !has_readings(path) {
        return readings;
    }
    for combination in 1..=COMBINATIONS {
        let mut reading = path.to_owned();
        if combination & 0b1000 != 0 {
            reading = cut_at_end(&reading);
        }
        if combination & 0b001 != 0 {
            reading = decode_separators(&reading);
        }
        if combination & 0b010 != 0 {
            reading = remove_parameters(&reading);
        }
        if combination & 0b100 != 0 {
            reading = merge_slashes(&reading);
        }
        if reading != path && !readings.contains(&reading) {
            readings.push(reading);
        }
    }
    readings
}

fn has_readings(path: &str) -> bool {
    path.contains([';', '\\', '%']) || path.contains("//")
}

fn decode_separators(path: &str) -> String {
    let mut decoded = path.replace('\\', "/");
    for (encoded, plain) in [
        ("%2f", "/"),
        ("%2F", "/"),
        ("%5c", "/"),
        ("%5C", "/"),
        ("%3b", ";"),
        ("%3B", ";"),
    ] {
        decoded = decoded.replace(encoded, plain);
    }
    decoded
}

/// Removes what is a query or a fragment for a server that decodes a path before it divides it.
fn cut_at_end(path: &str) -> String {
    let ends = ["%3f", "%3F", "%23"];
    let end = ends.iter().filter_map(|end| path.find(end)).min();
    let kept = end.and_then(|end| path.get(..end));
    kept.unwrap_or(path).to_owned()
}

fn remove_parameters(path: &str) -> String {
    let names = path
        .split('/')
        .map(|segment| segment.split_once(';').map_or(segment, |(name, _)| name));
    names.collect::<Vec<_>>().join("/")
}

fn merge_slashes(path: &str) -> String {
    let mut merged = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !merged.ends_with('/') {
            merged.push(character);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_those_of_lenient_servers() {
        for (path, want) in [
            ("/admin", &[][..]),
            ("/a%20b", &[]),
            ("//admin", &["/admin"]),
            ("/admin;x=1", &["/admin"]),
            ("/a%2fb", &["/a/b"]),
            ("/a%5Cb", &["/a/b"]),
            ("/a\\b", &["/a/b"]),
            ("/;x/admin", &["//admin", "/admin"]),
            ("/a%3Bx/b", &["/a;x/b", "/a/b"]),
            ("/a//b;x", &["/a//b", "/a/b;x", "/a/b"]),
            ("/admin%3fx", &["/admin"]),
            ("/admin%23%3Fx", &["/admin"]),
            ("/a%2fb%3F", &["/a/b%3F", "/a%2fb", "/a/b"]),
        ] {
            assert_eq!(list_readings(path), want, "{path}");
        }
    }
}
