//! Lookup of members by name.

/// The positions of names in a list. One comparison of text finds a name, as a rule: decoders and
/// encoders look up every member of every object.
#[derive(Debug, Default)]
pub(crate) struct NameTable {
    /// An open hash table, at most half full; its length is a power of two.
    slots: Box<[Option<u16>]>,
}

impl NameTable {
    /// Indexes names, which are different from each other.
    pub(crate) fn new<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let length = (2 * names.len()).next_power_of_two();
        let mut slots = vec![None; length].into_boxed_slice();
        for (position, name) in (0..).zip(names) {
            let free = probe(name, length).find(|at| slots.get(*at) == Some(&None));
            if let Some(slot) = free.and_then(|at| slots.get_mut(at)) {
                *slot = Some(position);
            }
        }
        NameTable { slots }
    }

    /// Returns the position of a name; `name_at` returns the name at a position.
    pub(crate) fn find<'a>(&self, name: &str, name_at: impl Fn(u16) -> &'a str) -> Option<u16> {
        probe(name, self.slots.len())
            .map_while(|at| *self.slots.get(at)?)
            .find(|position| name_at(*position) == name)
    }
}

/// Returns the slots of a name in the order in which they are tried.
fn probe(name: &str, length: usize) -> impl Iterator<Item = usize> {
    let mask = length.wrapping_sub(1);
    let first = hash_name(name.as_bytes());
    (0..length).map(move |step| first.wrapping_add(step) & mask)
}

/// Mixes length, first and last bytes: names of members differ in these.
fn hash_name(name: &[u8]) -> usize {
    let (first, last) = match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) => (
                u64::from(u32::from_le_bytes(*first)),
                u64::from(u32::from_le_bytes(*last)),
            ),
            _ => (
                u64::from(name.first().copied().unwrap_or_default()),
                u64::from(name.last().copied().unwrap_or_default()),
            ),
        },
    };
    let mixed = (first ^ name.len() as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(last)
        .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_at_their_positions() {
        let mut names: Vec<String> = (0..50).map(|n| "x".repeat(n)).collect();
        names.extend(["abcd", "abce", "abxxxxcd", "abyyyycd", "abxxxxxxcd"].map(str::to_owned));
        let table = NameTable::new(names.iter().map(String::as_str));
        let find = |name: &str| table.find(name, |at| &names[usize::from(at)]);
        for (position, name) in (0..).zip(&names) {
            assert_eq!(find(name), Some(position), "{name}");
        }
        assert_eq!(find("abcf"), None);
        assert_eq!(NameTable::default().find("a", |_| ""), None);
        assert_eq!(NameTable::new([].into_iter()).find("a", |_| ""), None);
    }
}
