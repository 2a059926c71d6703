//! A connection of HTTP/1.1, which the task of its request drives.
//!
//! As a task of its own, a connection would be woken for each request, and would wake the request
//! for its response.

use super::call::{Call, Reply, SendError, collect_body};
use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

type Driver = Connection<TokioIo<TlsStream<TcpStream>>, Full<Bytes>>;

/// An open connection.
pub struct Http1 {
    sender: SendRequest<Full<Bytes>>,
    /// Moves data between the socket and the request. None once the connection has ended.
    driver: Option<Driver>,
}

impl Http1 {
    /// Begins the protocol; sends nothing.
    pub async fn new(stream: TlsStream<TcpStream>) -> Result<Self, SendError> {
        let (sender, driver) = handshake(TokioIo::new(stream)).await?;
        Ok(Http1 {
            sender,
            driver: Some(driver),
        })
    }

    /// Sends a request and returns its response, and whether the connection may be used again.
    pub async fn send(&mut self, call: &Call<'_>) -> (Result<Reply, SendError>, bool) {
        let done = self.exchange(call).await;
        // Reads what follows the response, such as the end of the connection.
        poll_fn(|context| {
            poll_driver(&mut self.driver, context);
            Poll::Ready(())
        })
        .await;
        let is_reusable = done.is_ok() && self.driver.is_some() && self.sender.is_ready();
        (done, is_reusable)
    }

    async fn exchange(&mut self, call: &Call<'_>) -> Result<Reply, SendError> {
        let (sender, driver) = (&mut self.sender, &mut self.driver);
        let mut exchange = pin!(send_request(sender, call));
        poll_fn(|context| {
            // The request first, so that the connection has something to send.
            if let Poll::Ready(done) = exchange.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            poll_driver(driver, context);
            exchange.as_mut().poll(context)
        })
        .await
    }
}

async fn send_request(
    sender: &mut SendRequest<Full<Bytes>>,
    call: &Call<'_>,
) -> Result<Reply, SendError> {
    let sent = sender.try_send_request(call.build_http1()?).await;
    let response = sent.map_err(|mut error| match error.take_message() {
        // The server has closed the connection while it was idle.
        Some(_) => SendError::Unsent,
        None => SendError::Http1(error.into_error()),
    })?;
    let status = response.status();
    let body = collect_body(response.into_body(), call.max_response).await?;
    Ok(Reply { status, body })
}

fn poll_driver(driver: &mut Option<Driver>, context: &mut Context<'_>) {
    let ended = driver
        .as_mut()
        .is_some_and(|driver| Pin::new(driver).poll(context).is_ready());
    if ended {
        // Dropped at once: a request that it has not sent is then returned.
        *driver = None;
    }
}
