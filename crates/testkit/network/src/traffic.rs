//! Servers in the namespaces, and connections to them.

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_ipv6_v6only, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketType, bind, connect as connect_socket, ipproto, listen, socket,
};

use crate::node_network::{NodeNetwork, run_script};

/// Ports of the servers, TCP and UDP.
pub const PORTS: [u16; 2] = [8080, 8081];
/// Deadline of connections that should work.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// Time after which a connection counts as dropped. The kernel repeats a lost packet after 1 s, so
/// that a longer time would show nothing more.
pub const DROPPED: Duration = Duration::from_millis(400);

/// Protocols of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A connection, and a message in both directions.
    Tcp,
    /// A datagram in both directions.
    Udp,
    /// An association, and a message in both directions. The kernel may lack it:
    /// [`NodeNetwork::serve_sctp`].
    Sctp,
}

impl NodeNetwork {
    /// Starts servers in a namespace that return what they receive, and waits until they listen.
    ///
    /// # Panics
    /// If a server can't be started.
    pub fn serve(&self, place: &str) {
        for port in PORTS {
            let (ready, is_ready) = mpsc::channel();
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            // The threads end with the test's process.
            self.run_inside(place, move || {
                // Both families: a socket of IPv6 serves IPv4, too.
                let tcp = TcpListener::bind(address).unwrap();
                let udp = UdpSocket::bind(address).unwrap();
                std::thread::spawn(move || echo_datagrams(&udp));
                ready.send(()).unwrap();
                for stream in tcp.incoming().map_while(Result::ok) {
                    std::thread::spawn(move || echo_stream(stream));
                }
            });
            is_ready.recv().unwrap();
        }
    }

    /// Starts servers of SCTP in a namespace, as [`NodeNetwork::serve`] does of the others.
    ///
    /// # Errors
    /// The kernel has no SCTP.
    ///
    /// # Panics
    /// If a server can't be started.
    pub fn serve_sctp(&self, place: &str) -> Result<(), String> {
        for port in PORTS {
            let (ready, is_ready) = mpsc::channel();
            let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
            self.run_inside(place, move || {
                let opened = open_sctp(AddressFamily::INET6);
                let Ok(server) = opened.map_err(|error| ready.send(Err(error.to_string()))) else {
                    return;
                };
                bind(&server, &address).unwrap();
                listen(&server, 16).unwrap();
                ready.send(Ok(())).unwrap();
                // The sockets of SCTP have the calls of those of TCP.
                for stream in TcpListener::from(server).incoming().map_while(Result::ok) {
                    std::thread::spawn(move || echo_stream(stream));
                }
            });
            is_ready.recv().unwrap()?;
        }
        Ok(())
    }

    /// Returns whether a server answers. `expect` gives the time to wait: 10 s if it should, and
    /// 400 ms if packets should be dropped.
    ///
    /// # Panics
    /// If `to` is no address with a port.
    pub fn reaches(&self, from: &str, to: &str, transport: Transport, expect: bool) -> bool {
        let to: SocketAddr = to.parse().unwrap();
        let timeout = if expect { DEADLINE } else { DROPPED };
        let attempt = self.run_inside(from, move || match transport {
            Transport::Tcp => connect(to, timeout).is_some(),
            Transport::Udp => exchange_datagram(to, timeout),
            Transport::Sctp => connect_sctp(to, timeout).is_some(),
        });
        attempt.join().unwrap()
    }

    /// Opens a connection, for a test that uses it later.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn open(&self, from: &str, to: &str) -> TcpStream {
        let to: SocketAddr = to.parse().unwrap();
        let opened = self.run_inside(from, move || connect(to, DEADLINE));
        opened.join().unwrap().expect("connected")
    }

    /// Opens a connection from a fixed port; returns None if the server does not answer in time.
    ///
    /// # Panics
    /// If `to` is no address with a port, or the port of the client is not free.
    pub fn open_from_port(
        &self,
        from: &str,
        port: u16,
        to: &str,
        timeout: Duration,
    ) -> Option<TcpStream> {
        let to: SocketAddr = to.parse().unwrap();
        let opened = self.run_inside(from, move || connect_from_port(port, to, timeout));
        opened.join().unwrap()
    }

    /// Opens a socket of UDP that has exchanged a packet with a server.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn open_datagrams(&self, from: &str, to: &str) -> UdpSocket {
        let to: SocketAddr = to.parse().unwrap();
        let opened = self.run_inside(from, move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(to).unwrap();
            let wait = Duration::from_millis(100);
            socket.set_read_timeout(Some(wait)).unwrap();
            socket
        });
        let socket = opened.join().unwrap();
        assert!(exchange_datagrams(&socket, DEADLINE));
        socket
    }

    /// Returns the link-local address of a pod, with the scope of another pod's device.
    ///
    /// # Panics
    /// If the pod has none.
    pub fn link_local(&self, pod: &str, seen_from: &str) -> SocketAddr {
        let read = |place: &str, command: &str| {
            let name = self.name(place);
            run_script(&format!("ip netns exec {name} {command}")).unwrap()
        };
        let listing = read(pod, "ip -6 -o addr show dev eth0 scope link");
        let address = listing.split_whitespace().nth(3).unwrap();
        let ip: IpAddr = address.split('/').next().unwrap().parse().unwrap();
        let index = read(seen_from, "cat /sys/class/net/eth0/ifindex");
        let IpAddr::V6(ip) = ip else { panic!("{ip}") };
        SocketAddrV6::new(ip, 8080, 0, index.trim().parse().unwrap()).into()
    }
}

fn connect(to: SocketAddr, timeout: Duration) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&to, timeout).ok()?;
    stream.set_read_timeout(Some(timeout)).ok()?;
    exchange(&mut stream).then_some(stream)
}

fn connect_from_port(port: u16, to: SocketAddr, timeout: Duration) -> Option<TcpStream> {
    let (family, any) = if to.is_ipv4() {
        (AddressFamily::INET, IpAddr::from(Ipv4Addr::UNSPECIFIED))
    } else {
        (AddressFamily::INET6, IpAddr::from(Ipv6Addr::UNSPECIFIED))
    };
    let client = socket(family, SocketType::STREAM, None).unwrap();
    if to.is_ipv6() {
        // The same port of IPv4 may be in use.
        set_ipv6_v6only(&client, true).unwrap();
    }
    // This limits `connect`, too.
    set_socket_timeout(&client, Timeout::Send, Some(timeout)).unwrap();
    bind(&client, &SocketAddr::from((any, port))).unwrap();
    connect_socket(&client, &to).ok()?;
    let mut stream = TcpStream::from(client);
    stream.set_read_timeout(Some(timeout)).ok()?;
    exchange(&mut stream).then_some(stream)
}

/// Opens a socket of SCTP in the style of TCP (RFC 6458, section 4).
fn open_sctp(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket(family, SocketType::STREAM, Some(ipproto::SCTP))
}

fn connect_sctp(to: SocketAddr, timeout: Duration) -> Option<TcpStream> {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let client = open_sctp(family).unwrap();
    if to.is_ipv6() {
        // Else the association would also have the IPv4 addresses of the namespace.
        set_ipv6_v6only(&client, true).unwrap();
    }
    // This limits `connect`, too.
    set_socket_timeout(&client, Timeout::Send, Some(timeout)).unwrap();
    connect_socket(&client, &to).ok()?;
    let mut stream = TcpStream::from(client);
    stream.set_read_timeout(Some(timeout)).ok()?;
    exchange(&mut stream).then_some(stream)
}

/// Returns whether a connection still carries data in both directions.
pub fn exchange(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 4];
    stream.write_all(b"ping").is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == *b"ping"
}

fn exchange_datagram(to: SocketAddr, timeout: Duration) -> bool {
    let local = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let local = if to.is_ipv4() {
        "0.0.0.0:0".parse().unwrap()
    } else {
        local
    };
    let socket = UdpSocket::bind(local).unwrap();
    socket.set_broadcast(true).unwrap();
    let wait = Duration::from_millis(100);
    socket.set_read_timeout(Some(wait)).unwrap();
    let began = Instant::now();
    let mut answer = [0; 16];
    while began.elapsed() < timeout {
        // Not connected: the answer to a broadcast has another source.
        let sent = socket.send_to(b"ping", to);
        if sent.is_ok() && socket.recv_from(&mut answer).is_ok() {
            return true;
        }
    }
    false
}

/// Returns whether a connected socket still gets answers.
pub fn exchange_datagrams(socket: &UdpSocket, timeout: Duration) -> bool {
    let began = Instant::now();
    let mut answer = [0; 16];
    while began.elapsed() < timeout {
        if socket.send(b"ping").is_ok() && socket.recv(&mut answer).is_ok() {
            return true;
        }
    }
    false
}

fn echo_datagrams(socket: &UdpSocket) {
    let mut data = [0; 16];
    while let Ok((length, from)) = socket.recv_from(&mut data) {
        let _ = socket.send_to(&data[..length], from);
    }
}

fn echo_stream(mut stream: TcpStream) {
    let mut data = [0; 16];
    while let Ok(length) = stream.read(&mut data) {
        if length == 0 || stream.write_all(&data[..length]).is_err() {
            return;
        }
    }
}
