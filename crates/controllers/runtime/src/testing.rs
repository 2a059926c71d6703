//! A small API server for tests of controllers' reads and writes.

use std::sync::Arc;

use client::{Client, Config};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The received requests, as `METHOD path`.
pub type Requests = Arc<Mutex<Vec<String>>>;

/// Returns the body of the response to `METHOD path`; None sends no response.
type Respond = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Starts the server; returns a client of it and the log of requests.
///
/// # Errors
/// There is no port on the loopback address.
#[allow(
    clippy::disallowed_methods,
    reason = "the server ends with the test's runtime"
)]
pub async fn serve(
    respond: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
) -> std::io::Result<(Client, Requests)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (requests, respond): (_, Arc<Respond>) = (Requests::default(), Arc::new(respond));
    let log = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, respond.clone(), log.clone()));
        }
    });
    Ok((
        Client::new(Config::builder(format!("http://{address}"))),
        requests,
    ))
}

/// Reads requests that fit into one read each, as those of tests do.
async fn converse(mut stream: TcpStream, respond: Arc<Respond>, log: Requests) {
    let mut buffer = vec![0; 65536];
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        let text = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned();
        let Some(line) = text
            .lines()
            .next()
            .and_then(|line| line.strip_suffix(" HTTP/1.1"))
        else {
            continue;
        };
        log.lock().push(line.to_owned());
        let Some(body) = respond(line) else { continue };
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
    }
}
