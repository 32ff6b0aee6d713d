//! Read-only HTTP server beside a pool: the operator's page for browsers, and metrics for monitoring.
//!
//! A thread of its own answers requests, and another asks the reactor for figures: at most once in [`figures::FRESH`], however many ask, and with the same
//! request as `onefold status`. Nothing here can change anything.
//!
//! Invariants: a connection has one request and a bounded time; when there are too many, the oldest goes. So a reader that never sends, or never reads, delays
//! neither another reader nor a client, whose reactor knows nothing of readers.

mod answer;
mod chart;
mod figures;
mod page;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use crate::clock;
use crate::frontend::nbd::listen::{Address, Service, bind_ports};
use crate::operators::control::Sending;
use answer::Site;
use figures::Figures;

/// Number of connections at a time: when more come, the oldest goes.
const CONNECTIONS_MAX: usize = 64;
/// Time that a connection may take: for its request, its answer, and to read that.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Time that a request's head may take.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Bytes that a request's head may have, and lines.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEAD_LINES_MAX: usize = 64;
/// Time from a failed accept to the next one (too many open files).
const RETRY: Duration = Duration::from_millis(100);

/// Sockets that listen for readers.
pub struct Listening {
    sockets: Vec<(TcpListener, SocketAddr)>,
    allow_remote: bool,
}

impl Listening {
    /// Listens at the address of `--http`.
    pub fn bind(address: &Address, allow_remote: bool) -> anyhow::Result<Listening> {
        let Address::Tcp { host, port } = address else { bail!("the page needs a TCP port") };
        let shown = address.to_string();
        let what = format!("--http {}", shown.trim_start_matches("tcp:"));
        Ok(Listening { sockets: bind_ports((host, *port), &what, Service::Http, allow_remote)?, allow_remote })
    }

    /// Returns the URLs of the page, one for each socket.
    pub fn urls(&self) -> Vec<String> {
        self.sockets.iter().map(|(_, address)| format!("http://{address}/")).collect()
    }

    /// Answers readers from here on, until the process ends, with `pool` as the name of the pool.
    pub fn start(self, pool: String, sending: Sending) -> anyhow::Result<()> {
        let figures = Figures::start(sending)?;
        let site = Arc::new(Site { figures, pool, any_host: self.allow_remote });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.context("cannot begin to answer HTTP")?;
        let mut sockets = Vec::new();
        for (socket, _) in self.sockets {
            socket.set_nonblocking(true).context("cannot make a socket non-blocking")?;
            let _within = runtime.enter();
            sockets.push(tokio::net::TcpListener::from_std(socket).context("cannot use a socket for HTTP")?);
        }
        let serve = move || {
            runtime.block_on(async {
                let open = Arc::new(Open::default());
                let mut listeners: JoinSet<()> =
                    sockets.into_iter().map(|socket| accept(socket, site.clone(), open.clone())).collect();
                while listeners.join_next().await.is_some() {}
            });
        };
        std::thread::Builder::new().name("http".into()).spawn(serve).context("cannot start a thread")?;
        Ok(())
    }
}

/// Connections of readers that were accepted, the oldest first.
#[derive(Default)]
struct Open {
    connections: Mutex<VecDeque<AbortHandle>>,
}

impl Open {
    /// Makes space for one more connection: aborts the oldest while there are [`CONNECTIONS_MAX`].
    fn make_space(&self) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.is_finished());
        while connections.len() >= CONNECTIONS_MAX {
            if let Some(oldest) = connections.pop_front() {
                oldest.abort();
            }
        }
    }

    fn add(&self, connection: AbortHandle) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push_back(connection);
    }
}

async fn accept(socket: tokio::net::TcpListener, site: Arc<Site>, open: Arc<Open>) {
    loop {
        let Ok((stream, _)) = socket.accept().await else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        open.make_space();
        open.add(tokio::spawn(connection(stream, site.clone())).abort_handle());
    }
}

/// Answer while the clock of the host is before 1970: the library has no date for its answers then, and panics.
const BEFORE_1970: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: text/plain\r\n\r\n\
    the clock of this host is before 1970: set it, and this page answers again\n";

/// Answers that the clock is wrong.
async fn refuse_clock(stream: TcpStream) {
    let mut head = [0; 1024];
    let said = async {
        // A socket with unread bytes is reset, and the answer lost.
        stream.readable().await?;
        let _ = stream.try_read(&mut head);
        stream.writable().await?;
        stream.try_write(BEFORE_1970)
    };
    let _ = tokio::time::timeout(HEAD_TIME, said).await;
}

/// Serves one request of a connection, within [`CONNECTION_TIME`].
async fn connection(stream: TcpStream, site: Arc<Site>) {
    if clock::is_before_1970() {
        return refuse_clock(stream).await;
    }
    let answer = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, std::convert::Infallible>(site.answer(&request).await) }
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(false);
    protocol.max_buf_size(HEAD_BYTES_MAX).max_headers(HEAD_LINES_MAX);
    let served = protocol.serve_connection(TokioIo::new(stream), answer);
    // How it ended is the reader's affair.
    let _ = tokio::time::timeout(CONNECTION_TIME, served).await;
}
