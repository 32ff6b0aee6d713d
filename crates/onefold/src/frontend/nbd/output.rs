//! Send queue of a connection: headers, data straight from block buffers, zeroes, in order.
//!
//! Invariants: one send is in flight at a time, and it carries everything that was ready when it began, up to the limits of a message; a read's buffers go back
//! to the engine only after the send that carried their last byte has completed.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use engine::{Engine, RequestId};
use nbd::Part;

use crate::io::arena::{Arena, Span, ZEROES};
use crate::io::core::Core;
use crate::io::disk::push_span;
use crate::io::ring::SEND_SPANS;

/// Bytes of one send, about: a client that takes its replies slowly is seen to take them.
const SEND_BYTES: usize = 1 << 20;

/// Answers whose buffers go back to the engine, since their data was sent or dropped, with the bytes of buffers that each held.
pub type Departed = Vec<(RequestId, u64)>;

/// Capacity that a queue keeps when it is empty: entries, and bytes of headers.
const FEW: usize = 16;
const FEW_BYTES: usize = 1024;

enum Item {
    /// The next N bytes of `headers`.
    Headers(usize),
    /// Bytes of a read's answer.
    Data { answer: RequestId, start: usize, length: usize },
    /// Zero bytes.
    Zeroes(usize),
    /// The end of an answer of which nothing more is sent, with the bytes of its buffers.
    Departure(RequestId, u64),
}

/// The queue, and the send in flight.
#[derive(Default)]
pub struct Output {
    items: VecDeque<Item>,
    headers: Vec<u8>,
    /// Number of the bytes of `headers` that were taken.
    headers_taken: usize,
    parts: Vec<Part>,
    sending: Vec<Span>,
    window: Vec<Span>,
    sent: usize,
    to_send: usize,
    in_flight: bool,
    leaving: Departed,
}

impl Output {
    /// Appends what `put` writes.
    pub fn write<T>(&mut self, put: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.headers.len();
        let result = put(&mut self.headers);
        self.push_headers(self.headers.len() - before);
        result
    }

    /// Appends the parts that `plan` writes; their data is in `answer`, whose first byte is byte `start` of the request.
    pub fn plan<T>(
        &mut self,
        answer: Option<(RequestId, u32)>,
        plan: impl FnOnce(&mut Vec<u8>, &mut Vec<Part>) -> T,
    ) -> T {
        let mut parts = std::mem::take(&mut self.parts);
        let result = plan(&mut self.headers, &mut parts);
        for part in parts.drain(..) {
            match (part, answer) {
                (Part::Headers(range), _) => self.push_headers(range.len()),
                (Part::Zeroes(length), _) => self.items.push_back(Item::Zeroes(length as usize)),
                (Part::Data { start, length }, Some((answer, first))) => {
                    let start = (start - first) as usize;
                    self.items.push_back(Item::Data { answer, start, length: length as usize });
                }
                (Part::Data { .. }, None) => unreachable!("only a piece that was read has data"),
            }
        }
        self.parts = parts;
        result
    }

    /// Appends the end of an answer: nothing more of it is sent, and it holds `bytes` bytes of buffers.
    pub fn depart(&mut self, answer: RequestId, bytes: u64) {
        self.items.push_back(Item::Departure(answer, bytes));
    }

    fn push_headers(&mut self, length: usize) {
        match self.items.back_mut() {
            _ if length == 0 => {}
            Some(Item::Headers(last)) => *last += length,
            _ => self.items.push_back(Item::Headers(length)),
        }
    }

    /// Returns true if nothing waits to be sent and no send is in flight.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && !self.in_flight
    }

    /// Returns the number of items, not bytes, that wait to be sent, with 1 for a send in flight.
    pub fn len(&self) -> usize {
        self.items.len() + usize::from(self.in_flight)
    }

    /// Returns the bytes of headers that wait to be sent.
    pub fn header_bytes(&self) -> usize {
        self.headers.len() - self.headers_taken
    }

    /// Returns true if a send is in flight.
    pub fn is_sending(&self) -> bool {
        self.in_flight
    }

    /// Starts a send of the ready items, if none is in flight. Adds to `departed` the answers that needed no sending.
    ///
    /// Takes at most `header_bytes` of headers at once.
    pub fn send(
        &mut self,
        connection: u32,
        socket: RawFd,
        header_bytes: usize,
        core: &mut Core,
        departed: &mut Departed,
    ) {
        if self.in_flight || self.items.is_empty() {
            return;
        }
        self.fill(connection, header_bytes, &core.engine, &mut core.arena);
        if self.sending.is_empty() {
            departed.append(&mut self.leaving);
            return;
        }
        self.in_flight = true;
        core.ring.send(connection, socket, &core.arena, &self.sending);
    }

    /// Takes the result of a send, and sends the rest if it was cut short. Returns true if the connection can continue; adds to `departed` the answers that
    /// have left.
    pub fn completed(
        &mut self,
        result: i32,
        connection: u32,
        socket: RawFd,
        core: &mut Core,
        departed: &mut Departed,
    ) -> bool {
        self.in_flight = false;
        let again = result == -libc::EINTR || result == -libc::EAGAIN;
        if result <= 0 && !again {
            return false;
        }
        self.sent += result.max(0) as usize;
        if self.sent < self.to_send {
            self.window.clear();
            let mut skip = self.sent;
            for span in &self.sending {
                if skip >= span.length {
                    skip -= span.length;
                } else {
                    self.window.push(span.from(skip));
                    skip = 0;
                }
            }
            self.in_flight = true;
            core.ring.send(connection, socket, &core.arena, &self.window);
            return true;
        }
        self.sending.clear();
        departed.append(&mut self.leaving);
        true
    }

    /// Frees memory that only a long queue needs. Not while a send is in flight.
    pub fn shrink(&mut self) {
        for spans in [&mut self.sending, &mut self.window] {
            if spans.is_empty() && spans.capacity() > FEW {
                spans.shrink_to(FEW);
            }
        }
        if self.items.is_empty() && self.items.capacity() > FEW {
            self.items.shrink_to(FEW);
        }
        if self.headers.is_empty() && self.headers.capacity() > FEW_BYTES {
            self.headers.shrink_to(FEW_BYTES);
        }
        if self.parts.capacity() > FEW {
            self.parts.shrink_to(FEW);
        }
    }

    /// Forgets everything; adds to `departed` the answers that were still held. No send may be in flight.
    pub fn clear(&mut self, departed: &mut Departed) {
        assert!(!self.in_flight, "what is being sent is not given back");
        departed.append(&mut self.leaving);
        departed.extend(self.items.drain(..).filter_map(|item| match item {
            Item::Departure(answer, bytes) => Some((answer, bytes)),
            Item::Headers(_) | Item::Data { .. } | Item::Zeroes(_) => None,
        }));
        self.sending.clear();
    }

    /// Takes items from the queue until a message is full.
    fn fill(&mut self, connection: u32, header_bytes: usize, engine: &Engine, arena: &mut Arena) {
        self.sending.clear();
        let mut area = arena.header_area(connection as usize).first(header_bytes);
        let mut space = SEND_BYTES;
        while self.sending.len() < SEND_SPANS {
            // An item that needs no space is never left behind: an answer departs with its last byte.
            if space == 0 && !matches!(self.items.front(), Some(Item::Departure(..))) {
                break;
            }
            let Some(item) = self.items.front_mut() else { break };
            let finished = match item {
                Item::Headers(length) => {
                    let count = area.length.min(*length);
                    if count == 0 {
                        break;
                    }
                    let from = &self.headers[self.headers_taken..self.headers_taken + count];
                    arena.bytes_mut(area.first(count)).copy_from_slice(from);
                    push_span(&mut self.sending, area.first(count));
                    area = area.from(count);
                    self.headers_taken += count;
                    *length -= count;
                    space = space.saturating_sub(count);
                    *length == 0
                }
                Item::Data { answer, start, length } => {
                    let done = add_data(engine, arena, *answer, (*start, space.min(*length)), &mut self.sending);
                    space -= done;
                    assert!(done > 0 || *length == 0, "an answer holds all bytes of its request");
                    (*start, *length) = (*start + done, *length - done);
                    *length == 0
                }
                Item::Zeroes(length) => {
                    let done = add_zeroes(arena, space.min(*length), &mut self.sending);
                    space -= done;
                    *length -= done;
                    *length == 0
                }
                Item::Departure(answer, bytes) => {
                    self.leaving.push((*answer, *bytes));
                    true
                }
            };
            if finished {
                self.items.pop_front();
            }
        }
        if self.headers_taken == self.headers.len() {
            self.headers.clear();
            self.headers_taken = 0;
        } else if self.headers_taken > 1 << 16 {
            self.headers.drain(..self.headers_taken);
            self.headers_taken = 0;
        }
        self.sent = 0;
        self.to_send = self.sending.iter().map(|span| span.length).sum();
    }
}

/// Adds spans for bytes of a read's answer, as many as there is space for; returns how many bytes they hold.
fn add_data(
    engine: &Engine,
    arena: &Arena,
    answer: RequestId,
    (start, length): (usize, usize),
    into: &mut Vec<Span>,
) -> usize {
    let (mut skip, mut done) = (start, 0);
    for segment in engine.data(answer) {
        let bytes = (segment.to - segment.from) as usize;
        if skip >= bytes {
            skip -= bytes;
            continue;
        }
        if done == length || into.len() >= SEND_SPANS {
            break;
        }
        let count = (bytes - skip).min(length - done);
        match segment.buffer {
            Some(buffer) => {
                let span = arena.buffer(buffer).from(segment.from as usize + skip).first(count);
                push_span(into, span);
            }
            None => {
                let added = add_zeroes(arena, count, into);
                if added < count {
                    return done + added;
                }
            }
        }
        done += count;
        skip = 0;
    }
    done
}

/// Adds spans of zeroes, as many as there is space for; returns how many bytes they hold.
fn add_zeroes(arena: &Arena, length: usize, into: &mut Vec<Span>) -> usize {
    let mut done = 0;
    while done < length && into.len() < SEND_SPANS {
        let count = (length - done).min(ZEROES);
        into.push(arena.zeroes().first(count));
        done += count;
    }
    done
}
