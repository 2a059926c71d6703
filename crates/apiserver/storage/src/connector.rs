//! Connections to the members, with TLS from files that may change.
//!
//! tonic's own TLS is fixed when a channel is built. Here the connector performs the TLS
//! handshake, so that each new connection uses the current certificate and CA. Open connections
//! stay as they are.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base_serve::WriteCoalescer;
use base_tls::rustls::ClientConfig;
use base_tls::rustls::pki_types::ServerName;
use base_tls::{ClientTls, Followed, TlsError, client_config};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::addresses::connect_host;

/// The protocol of gRPC in ALPN.
const HTTP2: &[u8] = b"h2";
/// Port of an `https` URL without one, as in HTTP.
const HTTPS_PORT: u16 = 443;
/// Port of an `http` URL without one.
const HTTP_PORT: u16 = 80;

/// TLS of new connections, which follows the files of the flags.
pub(crate) type StoreTls = Arc<Followed<Arc<ClientConfig>>>;

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Certificate and key of the client.
pub(crate) struct ClientCertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Reads the CA of the members and the client's certificate and key.
///
/// # Errors
/// A file is missing or can't be used.
pub(crate) fn load_tls(
    ca: Option<PathBuf>,
    pair: Option<ClientCertificateFiles>,
) -> Result<Followed<Arc<ClientConfig>>, TlsError> {
    let paths: Vec<PathBuf> = ca
        .iter()
        .chain(pair.iter().flat_map(|pair| [&pair.certificate, &pair.key]))
        .cloned()
        .collect();
    let build = move |_: &[PathBuf]| build_client_config(ca.as_ref(), pair.as_ref());
    Followed::load(paths, build)
}

fn build_client_config(
    ca: Option<&PathBuf>,
    pair: Option<&ClientCertificateFiles>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let ca = ca.map(|path| {
        let pem = base_tls::read_file(path)?;
        // Here for the error, which names the file.
        base_tls::parse_certificates(&pem, path).map(|_| pem)
    });
    let identity = pair.map(|files| {
        let (cert, key) = (
            base_tls::read_file(&files.certificate)?,
            base_tls::read_file(&files.key)?,
        );
        base_tls::parse_certificates(&cert, &files.certificate)?;
        base_tls::parse_private_key(&key, &files.key)?;
        Ok::<_, TlsError>((cert, key))
    });
    client_config(&ClientTls {
        ca: ca.transpose()?,
        identity: identity.transpose()?,
        insecure: false,
        alpn: vec![HTTP2.to_vec()],
    })
}

/// Creates a channel to an `http` member, as [`build_tls_channel`] does.
pub(crate) fn build_plain_channel(
    uri: &Uri,
    configure: impl Fn(Endpoint) -> Endpoint,
) -> Option<Channel> {
    let authority = uri.authority()?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let port = authority.port_u16().unwrap_or(HTTP_PORT);
    let connector = tower::service_fn(move |_: Uri| {
        let host = host.clone();
        async move { open_plain_stream(&host, port).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from(uri.clone());
    Some(configure(endpoint).connect_with_connector_lazy(connector))
}

async fn open_plain_stream(host: &str, port: u16) -> io::Result<WriteCoalescer<TcpStream>> {
    Ok(WriteCoalescer::new(connect_host(host, port).await?))
}

/// Creates a channel to an `https` member. It connects on first use, and again as needed.
///
/// `configure` sets the timeouts of the endpoint. Returns None if the URL has no host that a
/// certificate can name.
pub(crate) fn build_tls_channel(
    uri: &Uri,
    tls: &StoreTls,
    configure: impl Fn(Endpoint) -> Endpoint,
) -> Option<Channel> {
    let authority = uri.authority()?.clone();
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host.clone()).ok()?;
    let port = authority.port_u16().unwrap_or(HTTPS_PORT);
    // tonic refuses `https` without TLS of its own. Requests have the real scheme.
    let endpoint = Endpoint::from_shared(format!("http://{authority}"))
        .ok()?
        .origin(uri.clone());
    let tls = tls.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let (host, name, tls) = (host.clone(), name.clone(), tls.clone());
        async move { open_stream(&host, port, name, &tls).await.map(TokioIo::new) }
    });
    Some(configure(endpoint).connect_with_connector_lazy(connector))
}

async fn open_stream(
    host: &str,
    port: u16,
    name: ServerName<'static>,
    tls: &StoreTls,
) -> io::Result<Box<dyn Stream>> {
    let stream = connect_host(host, port).await?;
    // Reads the files if they have changed.
    let config = base_task::blocking(|| tls.current());
    let config = TlsConnector::from(config.as_ref().clone());
    let stream = config.connect(name, stream).await?;
    if stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
        return Err(io::Error::other("the member does not offer HTTP/2"));
    }
    Ok(Box::new(WriteCoalescer::new(stream)))
}
