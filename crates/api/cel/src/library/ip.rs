//! Libraries of Kubernetes for IP addresses and networks.

use std::any::Any;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use crate::cost::{CallEstimate, CallSite, Range, STRING_TRAVERSAL_FACTOR, scale_cost};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Object, Value};

use super::address::{Network, parse_cidr, parse_ip};
use super::costs::{
    argument_size, estimate_once, estimate_twice, size_at, traverse_once, traverse_twice,
};

/// An address as a value.
struct Ip(IpAddr);

/// A network as a value.
struct Cidr(Network);

impl fmt::Debug for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ip({})", self.0)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cidr({})", self.0)
    }
}

fn ip_type() -> Type {
    Type::opaque("net.IP")
}

fn cidr_type() -> Type {
    Type::opaque("net.CIDR")
}

impl Object for Ip {
    fn object_type(&self) -> Type {
        ip_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&Ip> = other.as_any().downcast_ref();
        other.is_some_and(|other| self.0 == other.0)
    }

    fn size(&self) -> Option<u64> {
        Some(if self.0.is_ipv4() { 4 } else { 16 })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Object for Cidr {
    fn object_type(&self) -> Type {
        cidr_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&Cidr> = other.as_any().downcast_ref();
        other.is_some_and(|other| self.0 == other.0)
    }

    fn size(&self) -> Option<u64> {
        // Only the bytes of the prefix are compared, and cost something.
        Some(u64::from(self.0.prefix).div_ceil(8))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the library of addresses.
pub fn ip_library() -> Library {
    let getter = |name, id, result, run: Implementation| {
        Function::new(
            name,
            vec![Overload::receiver(id, vec![ip_type()], result, run)],
        )
    };
    let parse = Overload::global("string_to_ip", vec![Type::String], ip_type(), string_to_ip);
    let is_ip = Overload::global("is_ip", vec![Type::String], Type::Bool, is_ip);
    let canonical = Overload::global("ip_is_canonical", vec![Type::String], Type::Bool, canonical);
    let to_string = Overload::global("ip_to_string", vec![ip_type()], Type::String, ip_to_string);
    Library {
        name: "kubernetes.net.ip",
        since: 30,
        types: vec![ip_type()],
        functions: vec![
            Function::new("ip", vec![parse.with_cost(traverse_once, estimate_once)]),
            Function::new("isIP", vec![is_ip.with_cost(traverse_once, estimate_once)]),
            Function::new(
                "ip.isCanonical",
                vec![canonical.with_cost(traverse_twice, estimate_twice)],
            ),
            Function::new("string", vec![to_string]),
            getter("family", "ip_family", Type::Int, family),
            getter(
                "isUnspecified",
                "ip_is_unspecified",
                Type::Bool,
                is_unspecified,
            ),
            getter("isLoopback", "ip_is_loopback", Type::Bool, is_loopback),
            getter(
                "isLinkLocalMulticast",
                "ip_is_link_local_multicast",
                Type::Bool,
                is_link_local_multicast,
            ),
            getter(
                "isLinkLocalUnicast",
                "ip_is_link_local_unicast",
                Type::Bool,
                is_link_local_unicast,
            ),
            getter(
                "isGlobalUnicast",
                "ip_is_global_unicast",
                Type::Bool,
                is_global_unicast,
            ),
        ],
        ..Library::default()
    }
}

/// Returns the library of networks.
pub fn cidr_library() -> Library {
    let getter = |name, id, result, run: Implementation| {
        Function::new(
            name,
            vec![Overload::receiver(id, vec![cidr_type()], result, run)],
        )
    };
    let [contains_ip, contains_cidr] = containment_functions();
    let parse = Overload::global(
        "string_to_cidr",
        vec![Type::String],
        cidr_type(),
        string_to_cidr,
    );
    let is_cidr = Overload::global("is_cidr", vec![Type::String], Type::Bool, is_cidr);
    let to_string = Overload::global(
        "cidr_to_string",
        vec![cidr_type()],
        Type::String,
        cidr_to_string,
    );
    Library {
        name: "kubernetes.net.cidr",
        since: 30,
        types: vec![cidr_type()],
        functions: vec![
            Function::new("cidr", vec![parse.with_cost(traverse_once, estimate_once)]),
            Function::new(
                "isCIDR",
                vec![is_cidr.with_cost(traverse_once, estimate_once)],
            ),
            Function::new("string", vec![to_string]),
            contains_ip,
            contains_cidr,
            // Unlike `ip()` of a text, this reads a field, so it costs 1.
            getter("ip", "cidr_ip", ip_type(), cidr_to_ip),
            getter("masked", "cidr_masked", cidr_type(), masked),
            getter(
                "prefixLength",
                "cidr_prefix_length",
                Type::Int,
                prefix_length,
            ),
        ],
        ..Library::default()
    }
}

/// Returns `containsIP` and `containsCIDR`, each for a text and for a parsed value.
fn containment_functions() -> [Function; 2] {
    let overload = |id, other, run: Implementation| {
        Overload::receiver(id, vec![cidr_type(), other], Type::Bool, run)
    };
    let ip = vec![
        overload("cidr_contains_ip_string", Type::String, contains_ip)
            .with_cost(contains_ip_text_cost, estimate_contains_ip_text),
        overload("cidr_contains_ip_ip", ip_type(), contains_ip)
            .with_cost(contains_ip_cost, estimate_contains_ip),
    ];
    let cidr = vec![
        overload("cidr_contains_cidr_string", Type::String, contains_cidr)
            .with_cost(contains_cidr_text_cost, estimate_contains_cidr_text),
        overload("cidr_contains_cidr", cidr_type(), contains_cidr)
            .with_cost(contains_cidr_cost, estimate_contains_cidr),
    ];
    [
        Function::new("containsIP", ip),
        Function::new("containsCIDR", cidr),
    ]
}

fn take_text<'a>(values: &'a [Value<'_>]) -> Result<&'a str, EvalError> {
    match values {
        [Value::String(text)] => Ok(text),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn take_ip(values: &[Value<'_>]) -> Result<IpAddr, EvalError> {
    let ip: Option<&Ip> = values.first().and_then(Value::downcast);
    ip.map(|ip| ip.0).ok_or(EvalError::NoSuchOverload)
}

fn take_cidr(values: &[Value<'_>]) -> Result<Network, EvalError> {
    let cidr: Option<&Cidr> = values.first().and_then(Value::downcast);
    cidr.map(|cidr| cidr.0).ok_or(EvalError::NoSuchOverload)
}

fn string_to_ip<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let address = parse_ip(take_text(values)?).map_err(|error| EvalError::message(error.0))?;
    Ok(Value::object(Ip(address)))
}

fn is_ip<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(parse_ip(take_text(values)?).is_ok()))
}

fn canonical<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = take_text(values)?;
    let address = parse_ip(text).map_err(|error| EvalError::message(error.0))?;
    Ok(Value::Bool(address.to_string() == text))
}

fn ip_to_string<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_ip(values)?.to_string()))
}

fn family<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(if take_ip(values)?.is_ipv4() { 4 } else { 6 }))
}

fn is_unspecified<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(take_ip(values)?.is_unspecified()))
}

fn is_loopback<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(take_ip(values)?.is_loopback()))
}

fn is_link_local_multicast_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

fn is_link_local_multicast<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(is_link_local_multicast_address(take_ip(
        values,
    )?)))
}

fn is_link_local_unicast<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(is_link_local_unicast_address(take_ip(values)?)))
}

fn is_global_unicast<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let address = take_ip(values)?;
    // Private addresses are global unicast addresses too.
    let is_other = address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local_unicast_address(address)
        || address == IpAddr::V4(Ipv4Addr::BROADCAST);
    Ok(Value::Bool(!is_other))
}

fn string_to_cidr<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::object(Cidr(parse_network_text(take_text(values)?)?)))
}

fn parse_network_text(text: &str) -> Result<Network, EvalError> {
    parse_cidr(text).map_err(|error| {
        // Upstream has the same words twice.
        let prefix = "network address parse error during conversion from string";
        EvalError::message(format!("{prefix}: {error}"))
    })
}

fn is_cidr<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(parse_cidr(take_text(values)?).is_ok()))
}

fn cidr_to_string<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::string(take_cidr(values)?.to_string()))
}

fn cidr_to_ip<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::object(Ip(take_cidr(values)?.address)))
}

fn masked<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::object(Cidr(take_cidr(values)?.masked())))
}

fn prefix_length<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(take_cidr(values)?.prefix.into()))
}

fn contains_ip<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let network = take_cidr(values)?;
    let address = match values.get(1) {
        // Upstream loses the message of the parser here.
        Some(Value::String(text)) => parse_ip(text).map_err(|_| EvalError::NoSuchOverload)?,
        other => take_ip(other.map(std::slice::from_ref).unwrap_or_default())?,
    };
    Ok(Value::Bool(network.contains(address)))
}

fn contains_cidr<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let network = take_cidr(values)?;
    let other = match values.get(1) {
        Some(Value::String(text)) => parse_network_text(text)?,
        other => take_cidr(other.map(std::slice::from_ref).unwrap_or_default())?,
    };
    Ok(Value::Bool(network.contains_network(&other)))
}

/// Bytes of an address of either family.
const ADDRESS_SIZE: Range = Range::new(4, 16);

fn contains_ip_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    // Bytes up to the prefix length are compared, of the network and of the address.
    Some(scale_cost(
        size_at(values, 0).saturating_mul(2),
        STRING_TRAVERSAL_FACTOR,
    ))
}

fn text_cost(values: &[Value<'_>]) -> u64 {
    scale_cost(size_at(values, 1), STRING_TRAVERSAL_FACTOR)
}

fn contains_ip_text_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    Some(contains_ip_cost(values, result)?.saturating_add(text_cost(values)))
}

fn contains_cidr_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    // The network is masked first.
    let mask = scale_cost(size_at(values, 0), STRING_TRAVERSAL_FACTOR).saturating_add(1);
    Some(contains_ip_cost(values, result)?.saturating_add(mask))
}

fn contains_cidr_text_cost<'v>(values: &[Value<'v>], result: &Value<'v>) -> Option<u64> {
    Some(contains_cidr_cost(values, result)?.saturating_add(text_cost(values)))
}

fn comparison_range() -> Range {
    ADDRESS_SIZE
        .add(ADDRESS_SIZE)
        .scale(STRING_TRAVERSAL_FACTOR)
}

fn masked_comparison_range() -> Range {
    let mask = ADDRESS_SIZE
        .scale(STRING_TRAVERSAL_FACTOR)
        .add(Range::fixed(1));
    comparison_range().add(mask)
}

fn text_range(site: &CallSite) -> Range {
    argument_size(site, 0).scale(STRING_TRAVERSAL_FACTOR)
}

fn estimate_contains_ip(_: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(comparison_range()))
}

fn estimate_contains_ip_text(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(comparison_range().add(text_range(site))))
}

fn estimate_contains_cidr(_: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(masked_comparison_range()))
}

fn estimate_contains_cidr_text(site: &CallSite) -> Option<CallEstimate> {
    Some(CallEstimate::new(
        masked_comparison_range().add(text_range(site)),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn ip(text: &str) -> Value<'static> {
        string_to_ip(&[Value::string(text)]).unwrap()
    }

    fn holds(run: Implementation, values: &[Value<'static>]) -> bool {
        matches!(run(values).unwrap(), Value::Bool(true))
    }

    #[test]
    fn addresses_belong_to_their_classes() {
        let classes: [(Implementation, &[&str], &[&str]); 5] = [
            (is_unspecified, &["0.0.0.0", "::"], &["::1"]),
            (is_loopback, &["127.1.2.3", "::1"], &["128.0.0.1", "::2"]),
            (
                is_link_local_multicast,
                &["224.0.0.9", "ff12::1"],
                &["224.0.1.0", "ff01::1"],
            ),
            (
                is_link_local_unicast,
                &["169.254.0.1", "febf::1"],
                &["fec0::1", "10.0.0.1"],
            ),
            (
                is_global_unicast,
                &["10.0.0.1", "fd00::1"],
                &["255.255.255.255", "ff00::1", "::"],
            ),
        ];
        for (run, members, others) in classes {
            for text in members {
                assert!(holds(run, &[ip(text)]), "{text}");
            }
            for text in others {
                assert!(!holds(run, &[ip(text)]), "{text}");
            }
        }
    }

    #[test]
    fn canonical_form_is_told_from_others() {
        assert!(holds(canonical, &[Value::string("2001:db8::68")]));
        assert!(!holds(canonical, &[Value::string("2001:DB8::68")]));
        assert!(canonical(&[Value::string("x")]).is_err());
    }

    #[test]
    fn network_contains_texts_and_addresses() {
        let network = string_to_cidr(&[Value::string("10.0.0.0/8")]).unwrap();
        assert!(holds(contains_ip, &[network.clone(), ip("10.1.1.1")]));
        assert!(holds(
            contains_ip,
            &[network.clone(), Value::string("10.1.1.1")]
        ));
        assert!(holds(
            contains_cidr,
            &[network.clone(), Value::string("10.1.0.0/16")]
        ));
        assert!(!holds(
            contains_cidr,
            &[network.clone(), Value::string("0.0.0.0/0")]
        ));
        assert_eq!(
            contains_ip(&[network.clone(), Value::string("x")]).err(),
            Some(EvalError::NoSuchOverload)
        );
        assert!(contains_ip(&[network]).is_err());
    }

    #[test]
    fn cost_counts_bytes_up_to_the_prefix() {
        let network = string_to_cidr(&[Value::string("192.168.0.0/16")]).unwrap();
        let values = [network, Value::string("192.169.169.250")];
        assert_eq!(contains_ip_cost(&values, &Value::Null), Some(1));
        assert_eq!(contains_ip_text_cost(&values, &Value::Null), Some(3));
        assert_eq!(contains_cidr_text_cost(&values, &Value::Null), Some(5));
    }
}
