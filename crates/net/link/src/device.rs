//! Devices: bridges, pairs of veth, VXLAN.

use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVxlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    LinkProtoInfoBridge,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::Error;
use crate::request::Netlink;

/// `IFLA_BRPORT_MODE`: whether a port of a bridge gets its own packets.
const PORT_HAIRPIN: u16 = 4;
/// `IFNAMSIZ`, with the terminating zero.
const NAME_SIZE: usize = 16;

/// Name of a device, valid for the kernel and for rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceName(String);

impl DeviceName {
    /// Returns the name, if it has 1 to 15 letters, digits, `-`, `_` or `.` and is no directory.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = (1..NAME_SIZE).contains(&text.len())
            && !matches!(text, "." | "..")
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        is_name.then(|| Self(text.to_owned()))
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hardware address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, last] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

/// A device of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The kernel's name of its kind, such as `bridge`; empty for hardware.
    pub kind: String,
    /// Its hardware address, if it has one of 6 bytes.
    pub mac: Option<MacAddress>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Number of the bridge whose port it is.
    pub controller: Option<u32>,
    /// It is enabled.
    pub is_up: bool,
    /// It resolves addresses of neighbours, as Ethernet does, and has more than one.
    pub has_neighbours: bool,
    /// Settings, if its kind is VXLAN.
    pub vxlan: Option<VxlanInfo>,
}

/// Settings of a VXLAN device that can't be changed afterwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VxlanInfo {
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Address of this node on the underlying network.
    pub local: Option<IpAddr>,
    /// Addresses are learned from packets.
    pub learns: bool,
}

/// A pair of devices to be created: one here, on a bridge, and one in another namespace.
#[derive(Debug)]
pub struct NewVeth<'a> {
    /// Name of the end here.
    pub name: &'a DeviceName,
    /// Number of the bridge.
    pub bridge: u32,
    /// Namespace of the other end.
    pub namespace: &'a File,
    /// Name of the other end.
    pub peer: &'a DeviceName,
    /// Hardware address of the other end.
    pub peer_mac: MacAddress,
    /// Largest packet in bytes, of both.
    pub mtu: u32,
}

/// A VXLAN device to be created. It learns nothing: entries are added by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVxlan<'a> {
    /// Its name.
    pub name: &'a DeviceName,
    /// Its hardware address.
    pub mac: MacAddress,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Network identifier of 24 bits.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Address of this node on the underlying network.
    pub local: IpAddr,
}

impl Netlink {
    /// Returns the device with a name, or None.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn find_device(&mut self, name: &str) -> Result<Option<Device>, Error> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        self.read_device(format!("read the device {name}"), message)
    }

    /// Returns the device with a number, or None.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn find_device_by_index(&mut self, index: u32) -> Result<Option<Device>, Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.read_device(format!("read the device {index}"), message)
    }

    fn read_device(
        &mut self,
        action: String,
        message: LinkMessage,
    ) -> Result<Option<Device>, Error> {
        let answer = self.request(|| action.clone(), RouteNetlinkMessage::GetLink(message), 0);
        match answer {
            Ok(objects) => Ok(objects.into_iter().find_map(|object| match object {
                RouteNetlinkMessage::NewLink(link) => Some(Device::read(link)),
                _ => None,
            })),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a bridge.
    ///
    /// # Errors
    /// The name is in use, or the kernel has no bridges.
    pub fn create_bridge(
        &mut self,
        name: &DeviceName,
        mac: MacAddress,
        mtu: u32,
    ) -> Result<(), Error> {
        self.create_device(
            || format!("create the bridge {name}"),
            vec![
                LinkAttribute::IfName(name.to_string()),
                // Set here, and not by the kernel from the ports: it would change with them.
                LinkAttribute::Address(mac.0.to_vec()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
            ],
        )
    }

    /// Creates a pair of devices in one request, so that neither end is ever without the other.
    /// The end here is a port of the bridge, and still disabled.
    ///
    /// # Errors
    /// A name is in use, or the namespace no longer exists.
    pub fn create_veth(&mut self, pair: &NewVeth<'_>) -> Result<(), Error> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(pair.peer.to_string()),
            LinkAttribute::Address(pair.peer_mac.0.to_vec()),
            LinkAttribute::Mtu(pair.mtu),
            LinkAttribute::NetNsFd(pair.namespace.as_raw_fd()),
        ];
        self.create_device(
            || format!("create the devices {} and {}", pair.name, pair.peer),
            vec![
                LinkAttribute::IfName(pair.name.to_string()),
                LinkAttribute::Mtu(pair.mtu),
                LinkAttribute::Controller(pair.bridge),
                LinkAttribute::LinkInfo(vec![
                    LinkInfo::Kind(InfoKind::Veth),
                    LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
                ]),
            ],
        )
    }

    /// Creates a VXLAN device.
    ///
    /// # Errors
    /// The name is in use, another device has the same identifier and port, or the kernel has no
    /// VXLAN.
    pub fn create_vxlan(&mut self, device: &NewVxlan<'_>) -> Result<(), Error> {
        let local = match device.local {
            IpAddr::V4(address) => InfoVxlan::Local(address),
            IpAddr::V6(address) => InfoVxlan::Local6(address),
        };
        let mut data = vec![
            InfoVxlan::Id(device.vni),
            InfoVxlan::Port(device.port),
            InfoVxlan::Learning(false),
            local,
        ];
        if device.local.is_ipv4() {
            // As for other tunnels over IPv4: the packets within have checksums.
            data.push(InfoVxlan::UDPCsum(false));
        }
        self.create_device(
            || format!("create the VXLAN device {}", device.name),
            vec![
                LinkAttribute::IfName(device.name.to_string()),
                LinkAttribute::Address(device.mac.0.to_vec()),
                LinkAttribute::Mtu(device.mtu),
                LinkAttribute::LinkInfo(vec![
                    LinkInfo::Kind(InfoKind::Vxlan),
                    LinkInfo::Data(InfoData::Vxlan(data)),
                ]),
            ],
        )
    }

    pub(crate) fn create_device(
        &mut self,
        action: impl Fn() -> String,
        attributes: Vec<LinkAttribute>,
    ) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.attributes = attributes;
        let message = RouteNetlinkMessage::NewLink(message);
        self.request(action, message, NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    /// Enables a device.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn enable_device(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        let message = RouteNetlinkMessage::SetLink(message);
        self.request(|| format!("enable the device {index}"), message, 0)
            .map(drop)
    }

    /// Sets the largest packet of a device, in bytes.
    ///
    /// # Errors
    /// The device does not exist, or can't send such packets.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        let message = RouteNetlinkMessage::SetLink(message);
        let action = || format!("set the MTU of the device {index} to {mtu}");
        self.request(action, message, 0).map(drop)
    }

    /// Lets a port of a bridge get packets that came from it: a pod may be its own peer through a
    /// Service.
    ///
    /// # Errors
    /// The device is no port of a bridge.
    pub fn enable_hairpin(&mut self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        message.header.index = index;
        let mode = DefaultNla::new(PORT_HAIRPIN, vec![1]);
        message.attributes = vec![LinkAttribute::ProtoInfoBridge(vec![
            LinkProtoInfoBridge::Other(mode),
        ])];
        let message = RouteNetlinkMessage::SetLink(message);
        self.request(
            || format!("set hairpin mode of the device {index}"),
            message,
            0,
        )
        .map(drop)
    }

    /// Deletes a device; returns false if there was none.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn delete_device(&mut self, name: &DeviceName) -> Result<bool, Error> {
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_string()));
        let message = RouteNetlinkMessage::DelLink(message);
        match self.request(|| format!("delete the device {name}"), message, 0) {
            Ok(_) => Ok(true),
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Device {
    fn read(link: LinkMessage) -> Self {
        let mut device = Self {
            index: link.header.index,
            name: String::new(),
            kind: String::new(),
            mac: None,
            mtu: 0,
            controller: None,
            is_up: link.header.flags.contains(LinkFlags::Up),
            has_neighbours: !link
                .header
                .flags
                .intersects(LinkFlags::Noarp | LinkFlags::Pointopoint),
            vxlan: None,
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::IfName(name) => device.name = name,
                LinkAttribute::Address(mac) => device.mac = mac.try_into().ok().map(MacAddress),
                LinkAttribute::Mtu(mtu) => device.mtu = mtu,
                LinkAttribute::Controller(bridge) => device.controller = Some(bridge),
                LinkAttribute::LinkInfo(info) => device.read_info(info),
                _ => {}
            }
        }
        device
    }

    fn read_info(&mut self, info: Vec<LinkInfo>) {
        for part in info {
            match part {
                LinkInfo::Kind(kind) => self.kind = kind.to_string(),
                LinkInfo::Data(InfoData::Vxlan(settings)) => {
                    self.vxlan = Some(VxlanInfo::read(&settings));
                }
                _ => {}
            }
        }
    }
}

impl VxlanInfo {
    fn read(settings: &[InfoVxlan]) -> Self {
        let mut info = Self::default();
        for setting in settings {
            match setting {
                InfoVxlan::Id(vni) => info.vni = *vni,
                InfoVxlan::Port(port) => info.port = *port,
                InfoVxlan::Learning(learns) => info.learns = *learns,
                InfoVxlan::Local(address) => info.local = Some((*address).into()),
                InfoVxlan::Local6(address) => info.local = Some((*address).into()),
                _ => {}
            }
        }
        info
    }
}
