//! Worker of the benchmark: a connection, a stream of requests, and the content of each of its blocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nbd::wire::Command;

use super::client::Connection;
use super::payload;
use super::uri::Uri;
use crate::dedis::BLOCK;
use crate::dedis::distribution::Distribution;
use crate::dedis::load::{Request, Stream, Turn};
use crate::dedis::summary::Latencies;
use crate::dedis::written::Written;

/// Bytes of a read when all is read back.
const VERIFIED_AT_ONCE: u64 = 1 << 20;

/// Replies of reads that fit into the buffers of any socket.
const UNREAD_BYTES: u64 = 64 << 10;

/// State that all workers share.
pub struct Shared<'a> {
    /// Server and name of the NBD export that the workers load.
    pub uri: &'a Uri,
    /// Distribution of the contents.
    pub distribution: &'a Distribution,
    /// Maximum requests in flight for each worker.
    pub depth: usize,
    /// True if writes are answered when they are durable.
    pub fua: bool,
    /// Bytes that were answered, of all workers.
    pub answered: AtomicU64,
    /// Set when all workers must stop.
    pub stop: &'a AtomicBool,
}

/// A worker between two loads.
pub struct Worker {
    connection: Connection,
    /// Its requests.
    pub stream: Stream,
    /// Contents of its blocks.
    pub written: Written,
}

/// Results of a load for one worker.
#[derive(Default)]
pub struct Done {
    /// Bytes of all requests.
    pub bytes: u64,
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes.
    pub writes: Latencies,
    /// Time from the beginning to the last answer.
    pub time: Duration,
}

struct Flight {
    first: u64,
    writes: bool,
    since: Instant,
}

/// Returns true if a request must first wait for an answer. Either another request is at its blocks, or both sides could deadlock: the server may be unable to
/// send the read data while we send written data.
fn must_wait(request: &Request, flights: &HashMap<u64, Flight>, bytes: u64) -> bool {
    let reads = flights.values().filter(|flight| !flight.writes).count() as u64;
    let could_block = request.writes && reads * bytes > UNREAD_BYTES;
    could_block || flights.values().any(|flight| flight.first == request.first)
}

impl Worker {
    /// Connects to the server, with requests to come and a region where nothing is known.
    pub fn connect(uri: &Uri, stream: Stream, written: Written) -> Result<Worker, String> {
        Ok(Worker { connection: Connection::open(uri)?, stream, written })
    }

    /// Executes all requests of the stream, unless `stop` is set meanwhile.
    pub fn work(&mut self, shared: &Shared<'_>) -> Result<Done, String> {
        let begin = Instant::now();
        let mut done = Done::default();
        let mut flights: HashMap<u64, Flight> = HashMap::new();
        // A request whose blocks are in another request in flight.
        let mut held: Option<Request> = None;
        let (mut cookie, mut data, mut scratch) = (0, Vec::new(), Vec::new());
        loop {
            let mut rest = None;
            while flights.len() < shared.depth {
                let request = match held.take() {
                    Some(request) => request,
                    None if shared.stop.load(Ordering::Relaxed) => break,
                    None => match self.stream.turn(begin.elapsed().as_nanos() as u64) {
                        Turn::Now => self.stream.next(shared.distribution),
                        Turn::At(later) => {
                            rest = Some(Duration::from_nanos(later).saturating_sub(begin.elapsed()));
                            break;
                        }
                        Turn::Ended => break,
                    },
                };
                if must_wait(&request, &flights, self.stream.request_blocks() * BLOCK) {
                    held = Some(request);
                    break;
                }
                cookie += 1;
                self.send(cookie, &request, shared.fua).map_err(|error| self.lost(&error, shared))?;
                flights.insert(cookie, Flight { first: request.first, writes: request.writes, since: Instant::now() });
            }
            if flights.is_empty() {
                match rest {
                    Some(rest) => std::thread::sleep(rest),
                    None => break,
                }
                continue;
            }
            let bytes = (self.stream.request_blocks() * BLOCK) as u32;
            let of_read = |cookie: u64| flights.get(&cookie).is_some_and(|flight| !flight.writes).then_some(bytes);
            let answered = self.connection.reply(&mut data, of_read).map_err(|error| self.lost(&error, shared))?;
            let Some(flight) = flights.remove(&answered) else {
                return Err(format!("the server answers a request that was not sent: {answered}"));
            };
            let latency = flight.since.elapsed().as_nanos() as u64;
            if flight.writes {
                done.writes.add(latency);
            } else {
                self.compare(flight.first, &data, &mut scratch)?;
                done.reads.add(latency);
            }
            done.bytes += u64::from(bytes);
            shared.answered.fetch_add(u64::from(bytes), Ordering::Relaxed);
            done.time = begin.elapsed();
        }
        Ok(done)
    }

    fn lost(&self, error: &std::io::Error, shared: &Shared<'_>) -> String {
        format!("{}: {error}", shared.uri.place)
    }

    fn send(&mut self, cookie: u64, request: &Request, fua: bool) -> std::io::Result<()> {
        let bytes = (self.stream.request_blocks() * BLOCK) as u32;
        let (command, place) = if request.writes { (Command::Write, fua) } else { (Command::Read, false) };
        self.connection.request(command, cookie, (request.first * BLOCK, bytes), place, |output| {
            for &content in &request.contents {
                let start = output.len();
                output.resize(start + BLOCK as usize, 0);
                payload::fill(content, &mut output[start..]);
            }
        })?;
        for (block, &content) in (request.first..).zip(&request.contents) {
            self.written.write(block, content);
        }
        Ok(())
    }

    /// Compares read data with the written contents.
    fn compare(&self, first: u64, data: &[u8], scratch: &mut Vec<u8>) -> Result<(), String> {
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK as usize)) {
            if !payload::is(self.written.content(block), bytes, scratch) {
                return Err(format!("block {block} does not read as it was written"));
            }
        }
        Ok(())
    }

    /// Flushes the written blocks to durable storage.
    pub fn flush(&mut self, shared: &Shared<'_>) -> Result<(), String> {
        self.connection.flush().map_err(|error| self.lost(&error, shared))
    }

    /// Reads back all written blocks, and returns their number.
    pub fn verify(&mut self, shared: &Shared<'_>) -> Result<u64, String> {
        let most = VERIFIED_AT_ONCE.min(u64::from(self.connection.export.most_payload)) / BLOCK;
        let (mut verified, mut data, mut scratch) = (0, Vec::new(), Vec::new());
        let blocks = self.written.blocks();
        let mut first = blocks.start;
        while first < blocks.end && !shared.stop.load(Ordering::Relaxed) {
            let count = most.max(1).min(blocks.end - first);
            let live = (first..first + count).filter(|&block| self.written.content(block) != 0).count() as u64;
            if live > 0 {
                let bytes = (count * BLOCK) as u32;
                let place = (first * BLOCK, bytes);
                let sent = self.connection.request(Command::Read, 0, place, false, |_| {});
                let read = sent.and_then(|()| self.connection.reply(&mut data, |_| Some(bytes)));
                read.map_err(|error| self.lost(&error, shared))?;
                self.compare(first, &data, &mut scratch)?;
                verified += live;
            }
            first += count;
        }
        Ok(verified)
    }

    /// Closes the connection, and returns the record of written blocks.
    pub fn close(self) -> Written {
        self.connection.close();
        self.written
    }
}
