//! The addresses of the pool that Services have, and the choice of an address for a Service.
//!
//! The ledger follows the status of all Services. In addition it has the addresses that were
//! granted to a Service and whose write is not visible yet: no other Service gets them meanwhile.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use api_address_pool::AddressPool;

/// A Service that has an address. The order is that of the right to it: the oldest comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    created: i64,
    service: String,
}

/// The wish of one Service.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Key of the Service.
    pub service: String,
    /// Families of the Service, in order: true is IPv6.
    pub families: Vec<bool>,
    /// `spec.loadBalancerIP`.
    pub wish: Option<String>,
}

/// Reason why a Service does not have an address of each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// All addresses of the family are in use.
    PoolExhausted,
    /// The pool has no address of any family of the Service.
    FamilyNotInPool,
    /// `spec.loadBalancerIP` is no address of the pool and of a family of the Service.
    WishOutsidePool,
    /// Another Service, a node or an API server has the address of `spec.loadBalancerIP`.
    WishInUse,
}

impl Problem {
    /// Returns the reason for conditions and events.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PoolExhausted => "PoolExhausted",
            Self::FamilyNotInPool => "FamilyNotInPool",
            Self::WishOutsidePool => "AddressOutsidePool",
            Self::WishInUse => "AddressInUse",
        }
    }

    /// Returns the sentence for conditions and events, with the remedy.
    pub fn message(self) -> &'static str {
        match self {
            Self::PoolExhausted => {
                "all addresses of the pool are in use; delete a Service of type LoadBalancer, or enlarge --load-balancer-pool"
            }
            Self::FamilyNotInPool => {
                "--load-balancer-pool has no address of the Service's IP families; add a range, or change spec.ipFamilies"
            }
            Self::WishOutsidePool => {
                "spec.loadBalancerIP is not an address of --load-balancer-pool and of the Service's IP families; choose one, or remove the field"
            }
            Self::WishInUse => {
                "another Service, a node or an API server has the address of spec.loadBalancerIP; choose another one, or remove the field"
            }
        }
    }

    /// Returns whether the release of an address can solve the problem.
    fn waits_for_release(self) -> bool {
        matches!(self, Self::PoolExhausted | Self::WishInUse)
    }
}

/// The choice for one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Addresses, one for each family at most, in the order of families.
    pub addresses: Vec<IpAddr>,
    /// The first reason why an address is missing.
    pub problem: Option<Problem>,
}

/// The addresses of one Service.
#[derive(Debug, Clone, Default)]
struct Holding {
    created: i64,
    /// Addresses in its status.
    seen: Vec<IpAddr>,
    /// Addresses of the last choice.
    granted: Vec<IpAddr>,
}

impl Holding {
    fn addresses(&self) -> BTreeSet<IpAddr> {
        self.seen.iter().chain(&self.granted).copied().collect()
    }
}

/// Addresses in use.
#[derive(Debug)]
pub struct Ledger {
    pool: AddressPool,
    by_address: BTreeMap<IpAddr, BTreeSet<Claim>>,
    by_service: HashMap<String, Holding>,
    /// Services that wait for the release of an address, with their creation time.
    waiting: HashMap<String, i64>,
    /// The last address of each family that was granted: IPv4, IPv6.
    last: [Option<IpAddr>; 2],
    /// Families without a free address: IPv4, IPv6. So many Services that wait cost no search each.
    is_exhausted: [bool; 2],
}

impl Ledger {
    /// Creates a ledger without Services.
    pub fn new(pool: AddressPool) -> Self {
        Self {
            pool,
            by_address: BTreeMap::new(),
            by_service: HashMap::new(),
            waiting: HashMap::new(),
            last: [None; 2],
            is_exhausted: [false; 2],
        }
    }

    /// Returns the pool.
    pub fn pool(&self) -> &AddressPool {
        &self.pool
    }

    /// Records a Service with its creation time in seconds and the addresses in its status. Returns
    /// the Services to reconcile: those that wait, if an address was released, and those whose
    /// address it has, too.
    pub fn observe(&mut self, service: &str, created: i64, addresses: Vec<IpAddr>) -> Vec<String> {
        let mut holding = self.by_service.remove(service).unwrap_or_default();
        let before = holding.clone();
        holding.created = created;
        holding.seen = addresses;
        holding.seen.retain(|ip| self.pool.contains(*ip));
        self.replace(service, &before, Some(holding))
    }

    /// Removes a Service that was deleted or is none of the pool. Returns the Services that wait,
    /// if an address was released.
    pub fn remove(&mut self, service: &str) -> Vec<String> {
        self.waiting.remove(service);
        let before = self.by_service.remove(service).unwrap_or_default();
        self.replace(service, &before, None)
    }

    /// Releases what a Service that another load balancer serves does not have in its status.
    /// Returns the Services that wait, if an address was released.
    pub fn revoke(&mut self, service: &str) -> Vec<String> {
        self.waiting.remove(service);
        let Some(before) = self.by_service.get(service).cloned() else {
            return Vec::new();
        };
        let after = Holding {
            granted: Vec::new(),
            ..before.clone()
        };
        self.replace(service, &before, Some(after))
    }

    /// Returns the Services that wait, the oldest first, because the addresses of nodes or API
    /// servers have changed.
    pub fn wake_waiting(&mut self) -> Vec<String> {
        self.is_exhausted = [false; 2];
        let mut waiting: Vec<_> = self.waiting.iter().collect();
        waiting.sort_by_key(|(service, created)| (**created, *service));
        waiting.into_iter().map(|(key, _)| key.clone()).collect()
    }

    /// Chooses the addresses of a Service. `is_reserved` is true for those of nodes and API
    /// servers: a Service does not get them, and keeps those that it has. A kubelet may write any
    /// address into the status of its Node.
    ///
    /// Returns the Services that wait, too, if the choice releases an address; None for a Service
    /// that was deleted since the caller read it.
    pub fn assign(
        &mut self,
        request: &Request,
        is_reserved: &dyn Fn(IpAddr) -> bool,
    ) -> Option<(Assignment, Vec<String>)> {
        let before = self.by_service.get(&request.service)?.clone();
        let assignment = self.choose(request, is_reserved);
        let service = &request.service;
        match assignment.problem.is_some_and(Problem::waits_for_release) {
            true => self.waiting.insert(service.clone(), before.created),
            false => self.waiting.remove(service),
        };
        let holding = Holding {
            granted: assignment.addresses.clone(),
            ..before.clone()
        };
        let wake = self.replace(service, &before, Some(holding));
        Some((assignment, wake))
    }

    fn choose(&mut self, request: &Request, is_reserved: &dyn Fn(IpAddr) -> bool) -> Assignment {
        let mut assignment = Assignment::default();
        let families = request.families.iter().copied();
        let families: Vec<_> = families.filter(|f| self.pool.has_family(*f)).collect();
        if families.is_empty() {
            assignment.problem = Some(Problem::FamilyNotInPool);
            return assignment;
        }
        let wish = match request
            .wish
            .as_deref()
            .map(|text| self.parse_wish(text, request))
        {
            None => None,
            Some(Some(wish)) => Some(wish),
            // An address that the author did not ask for would hide the mistake.
            Some(None) => {
                assignment.problem = Some(Problem::WishOutsidePool);
                return assignment;
            }
        };
        for is_ipv6 in families {
            match self.choose_address(request, is_ipv6, wish, is_reserved) {
                Ok(address) => assignment.addresses.push(address),
                Err(problem) => assignment.problem = assignment.problem.or(Some(problem)),
            }
        }
        assignment
    }

    fn parse_wish(&self, text: &str, request: &Request) -> Option<IpAddr> {
        let address: IpAddr = text.parse().ok()?;
        let is_known = request.families.contains(&address.is_ipv6());
        (is_known && self.pool.contains(address)).then_some(address)
    }

    fn choose_address(
        &mut self,
        request: &Request,
        is_ipv6: bool,
        wish: Option<IpAddr>,
        is_reserved: &dyn Fn(IpAddr) -> bool,
    ) -> Result<IpAddr, Problem> {
        let service = &request.service;
        let holding = self.by_service.get(service);
        // The visible address comes first: clients use it already.
        let held = holding.map(|holding| holding.seen.iter().chain(&holding.granted));
        let mut held = held.into_iter().flatten().copied();
        let may_have = |ip: &IpAddr| ip.is_ipv6() == is_ipv6 && self.may_have(service, *ip);
        if let Some(wish) = wish.filter(|wish| wish.is_ipv6() == is_ipv6) {
            let is_free = held.any(|ip| ip == wish) || !is_reserved(wish);
            return Some(wish)
                .filter(|wish| is_free && may_have(wish))
                .ok_or(Problem::WishInUse);
        }
        if let Some(kept) = held.find(may_have) {
            return Ok(kept);
        }
        self.find_free(is_ipv6, is_reserved)
            .ok_or(Problem::PoolExhausted)
    }

    fn find_free(&mut self, is_ipv6: bool, is_reserved: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let family = usize::from(is_ipv6);
        if self.is_exhausted.get(family) != Some(&false) {
            return None;
        }
        let last = self.last.get(family).copied().flatten();
        let is_taken = |ip| self.by_address.contains_key(&ip) || is_reserved(ip);
        let found = self.pool.find_free(is_ipv6, last, is_taken);
        if let (Some(last), Some(is_exhausted)) =
            (self.last.get_mut(family), self.is_exhausted.get_mut(family))
        {
            *last = found.or(*last);
            *is_exhausted = found.is_none();
        }
        found
    }

    /// Returns whether a Service may keep or get an address: it is the first that has it, or
    /// nothing has it.
    fn may_have(&self, service: &str, address: IpAddr) -> bool {
        let claims = self.by_address.get(&address);
        let first = claims.and_then(BTreeSet::first);
        first.is_none_or(|first| first.service == service)
    }

    /// Replaces the addresses of a Service. Returns the Services to reconcile: those that wait, if
    /// it releases an address, and those whose address it has, too.
    fn replace(&mut self, service: &str, before: &Holding, after: Option<Holding>) -> Vec<String> {
        let claim = |created| Claim {
            created,
            service: service.to_owned(),
        };
        let former = before.addresses();
        for address in &former {
            if let Some(claims) = self.by_address.get_mut(address) {
                claims.remove(&claim(before.created));
            }
        }
        let mut wake = Vec::new();
        if let Some(after) = after {
            for address in after.addresses() {
                let claims = self.by_address.entry(address).or_default();
                claims.insert(claim(after.created));
                // All but the oldest Service must get another address.
                if claims.len() > 1 && !former.contains(&address) {
                    wake.extend(claims.iter().map(|claim| claim.service.clone()));
                }
            }
            self.by_service.insert(service.to_owned(), after);
        }
        let before = self.by_address.len();
        for address in former {
            if self
                .by_address
                .get(&address)
                .is_some_and(BTreeSet::is_empty)
            {
                self.by_address.remove(&address);
            }
        }
        if self.by_address.len() < before {
            wake.extend(self.wake_waiting());
        }
        wake
    }
}

#[cfg(test)]
mod tests;
