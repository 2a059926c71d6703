//! Clients that send requests and check the responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::workload::Workload;

/// A response that takes longer counts as lost.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The speed of requests.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// Each client sends its next request after a response.
    Full,
    /// Requests per second of all clients.
    Rate(u32),
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub answered: usize,
    pub lost: usize,
    /// Responses with another code or without answers.
    pub wrong: usize,
    latencies: Vec<Duration>,
}

impl Outcome {
    /// Returns a percentile of the latency in microseconds.
    pub fn percentile(&self, part: f64) -> u128 {
        let index = (self.latencies.len() as f64 * part) as usize;
        let latency = self
            .latencies
            .get(index.min(self.latencies.len().saturating_sub(1)));
        latency.map_or(0, Duration::as_micros)
    }
}

/// Sends requests for `time` and returns the results, with latencies in rising order.
pub async fn run_load(
    server: SocketAddr,
    workload: &Workload,
    clients: u16,
    pace: Pace,
    time: Duration,
) -> anyhow::Result<Outcome> {
    let expected = Expected {
        code: workload.code,
        has_answers: workload.has_answers,
    };
    let requests = Arc::new(workload.requests.clone());
    let end = Instant::now() + time;
    let period = match pace {
        Pace::Full => None,
        Pace::Rate(rate) => Some(Duration::from_secs(1) * u32::from(clients) / rate),
    };
    let mut running = JoinSet::new();
    for number in 0..clients {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        socket.connect(server).await?;
        let client = Client {
            socket,
            requests: requests.clone(),
            expected,
            clients: u32::from(clients),
            number: u32::from(number),
            // Clients ask for different names at one time.
            next: usize::from(number) * requests.len() / usize::from(clients),
        };
        running.spawn(client.run(period, end));
    }
    let mut total = Outcome::default();
    while let Some(outcome) = running.join_next().await {
        let outcome = outcome??;
        total.answered += outcome.answered;
        total.lost += outcome.lost;
        total.wrong += outcome.wrong;
        total.latencies.extend(outcome.latencies);
    }
    total.latencies.sort_unstable();
    Ok(total)
}

#[derive(Debug, Clone, Copy)]
struct Expected {
    code: ResponseCode,
    has_answers: bool,
}

impl Expected {
    fn matches(self, response: &[u8]) -> bool {
        let [_, _, flags, code, _, _, high, low, ..] = response else {
            return false;
        };
        let is_complete = flags & 0b10 == 0;
        let answers = u16::from_be_bytes([*high, *low]);
        is_complete && code & 0xf == self.code.low() && (answers > 0) == self.has_answers
    }
}

struct Client {
    socket: UdpSocket,
    requests: Arc<Vec<Vec<u8>>>,
    expected: Expected,
    clients: u32,
    number: u32,
    next: usize,
}

impl Client {
    async fn run(mut self, period: Option<Duration>, end: Instant) -> anyhow::Result<Outcome> {
        // Not all clients at one time.
        let mut ticks = period.map(|period| {
            let first = tokio::time::Instant::now() + period * self.number / self.clients;
            interval_at(first, period)
        });
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut outcome = Outcome::default();
        while Instant::now() < end {
            if let Some(ticks) = &mut ticks {
                ticks.tick().await;
            }
            let sent = Instant::now();
            match timeout(TIMEOUT, self.exchange()).await {
                Ok(response) => {
                    outcome.answered += 1;
                    outcome.wrong += usize::from(!self.expected.matches(&response?));
                    outcome.latencies.push(sent.elapsed());
                }
                Err(_) => outcome.lost += 1,
            }
        }
        Ok(outcome)
    }

    async fn exchange(&mut self) -> anyhow::Result<Vec<u8>> {
        self.next += 1;
        let index = self.next % self.requests.len().max(1);
        let mut request = self.requests.get(index).cloned().unwrap_or_default();
        let id = (self.next as u16).to_be_bytes();
        request.splice(..2, id);
        self.socket.send(&request).await?;
        let mut response = vec![0; 4096];
        loop {
            let length = self.socket.recv(&mut response).await?;
            // A response to an earlier request, which counted as lost, may arrive late.
            if response.starts_with(&id) {
                response.truncate(length);
                return Ok(response);
            }
        }
    }
}
