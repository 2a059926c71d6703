//! Doubles of a container for tests: commands with scripted results, and an HTTP server with
//! scripted replies.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use crate::check::CommandRunner;
use async_trait::async_trait;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

type CommandResult = Result<(i32, Vec<u8>), (String, bool)>;

/// Returns its results one after the other, and then waits without limit.
#[derive(Default)]
pub(crate) struct ScriptedCommands(Mutex<VecDeque<CommandResult>>);

impl ScriptedCommands {
    pub(crate) fn new(results: Vec<CommandResult>) -> Self {
        Self(Mutex::new(results.into()))
    }
}

#[async_trait]
impl CommandRunner for ScriptedCommands {
    async fn run_command(&self, _: &[String], _: Duration) -> CommandResult {
        let next = self.0.lock().unwrap().pop_front();
        match next {
            Some(result) => result,
            None => std::future::pending().await,
        }
    }
}

/// Accepts one connection for each reply; returns the requests that it received.
pub(crate) async fn serve_once(replies: Vec<String>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut requests = Vec::new();
        for reply in replies {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            stream.write_all(reply.as_bytes()).await.unwrap();
        }
        requests
    });
    (address, server)
}
