//! Options of the mode iptables.

/// Options of the mode iptables beyond those of the base chains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IptablesOptions {
    /// Node ports are open at 127.0.0.0/8, which needs `route_localnet`.
    pub localhost_node_ports: bool,
    /// `MASQUERADE` has the option `--random-fully`.
    pub random_fully: bool,
    /// The kernel accepts TCP packets outside the window, so those of an invalid state are not
    /// dropped.
    pub tcp_be_liberal: bool,
    /// The programs are the variant that translates rules for nftables: many chains are installed
    /// in several transactions.
    pub is_nft_variant: bool,
}
