//! A client of one version of TLS and one cipher suite, for tests of what a server offers.

use crate::client::AcceptAny;
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ProtocolVersion, SupportedProtocolVersion,
};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Against a server that does not answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shakes hands with the server at `address`, whatever its certificate, and returns what was agreed
/// on. Blocks.
///
/// # Errors
/// The server can't be reached or refuses the version or the suite.
pub fn negotiate(
    address: SocketAddr,
    version: &'static SupportedProtocolVersion,
    suite: CipherSuite,
) -> std::io::Result<(Option<ProtocolVersion>, Option<CipherSuite>)> {
    let mut provider = (*crate::crypto_provider()).clone();
    provider
        .cipher_suites
        .retain(|offered| offered.suite() == suite);
    let provider = Arc::new(provider);
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), address.ip().into())
        .map_err(std::io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    let suite = connection
        .negotiated_cipher_suite()
        .map(|agreed| agreed.suite());
    Ok((connection.protocol_version(), suite))
}
