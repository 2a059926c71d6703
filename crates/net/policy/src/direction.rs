//! Directions of packets.

/// Direction of packets, seen from the selected pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Packets to the pod.
    Ingress,
    /// Packets from the pod.
    Egress,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::Ingress, Self::Egress];

    /// Returns the name in chains and maps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    /// Returns the position in arrays with an entry for each direction.
    #[must_use]
    pub fn index(self) -> usize {
        match self {
            Self::Ingress => 0,
            Self::Egress => 1,
        }
    }
}
