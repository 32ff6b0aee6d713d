//! Replies made of the engine's answers: a finished piece of a read is planned at once, everything else when its last piece is done.
//!
//! Invariants: an answer that is not sent goes back to the engine at once; a reply in several parts holds the stream, and answers that come meanwhile are
//! deferred until it is complete.

use engine::{Error, Event, Full, Reply};
use nbd::{Command, ErrorCode, Extent, ExtentState, Failure, Run};
use tracing::warn;

use super::Server;
use crate::frontend::nbd::connection::{Connection, Deferred, State};
use crate::frontend::nbd::end::End;
use crate::frontend::nbd::incoming::Shared;
use crate::frontend::nbd::request::{Entry, explain, from_token, touched_bytes};
use crate::io::arena::BLOCK;
use crate::io::core::Core;
use crate::log::Failures;

impl Server {
    /// Takes an answer of the engine.
    pub fn reply(&mut self, token: u64, result: Result<Reply, Error>, core: &mut Core) {
        let (place, piece) = from_token(token);
        let entry = self.shared.table.get(place);
        entry.outstanding -= 1;
        let slot = entry.connection;
        if let Err(error) = result {
            report(&mut self.failures, entry, error, core);
        }
        let Some(connection) = self.connections[slot as usize].as_mut() else {
            unreachable!("a connection stays until its requests are answered")
        };
        // All but data goes back to the engine at once.
        if !matches!(result, Ok(Reply::Data(_))) || connection.state == State::Dead {
            connection.pieces -= 1;
            self.shared.places_taken -= 1;
        }
        if connection.state == State::Dead {
            if let Ok(Reply::Data(answer) | Reply::Extents(answer)) = result {
                core.engine.handle(core.now, Event::Sent(answer));
            }
            if entry.outstanding == 0 && entry.submitted {
                self.shared.table.remove(place);
                connection.requests -= 1;
            }
            self.ready.push(slot);
            return;
        }
        match &mut entry.read {
            Some(read) => {
                read.answers[piece as usize] = Some(match result {
                    Ok(Reply::Data(answer)) => Ok(answer),
                    Ok(Reply::Done | Reply::Extents(_)) => unreachable!("a read is answered with data"),
                    Err(error) => Err(error),
                });
                self.continue_read(place, core);
                self.continue_deferred(slot, core);
            }
            None => finish_plain(place, result, connection, &mut self.shared, core),
        }
        // It may have stopped because too much was outstanding.
        self.advance(slot, core);
    }

    /// Plans as much of a read's reply as can be sent now.
    fn continue_read(&mut self, place: u32, core: &mut Core) {
        let entry = self.shared.table.get(place);
        let Some(connection) = self.connections[entry.connection as usize].as_mut() else { return };
        let Some(read) = entry.read.as_mut() else { return };
        if connection.holder.is_some_and(|holder| holder != place) {
            let known = |deferred: &Deferred| matches!(deferred, Deferred::Request(known) if *known == place);
            if !connection.deferred.iter().any(known) {
                connection.deferred.push_back(Deferred::Request(place));
            }
            return;
        }
        let complete = entry.submitted && entry.outstanding == 0;
        if read.collect && !complete {
            return;
        }
        let mut failed = None;
        if read.collect
            && let Some(error) = read.answers.iter().find_map(|answer| answer.and_then(Result::err))
        {
            // Nothing was sent yet: the whole read fails, and its good pieces only go back.
            failed = Some(error);
        }
        let mut cut = false;
        while !cut && (read.next as usize) < read.answers.len() {
            let Some(answer) = read.answers[read.next as usize].take() else { break };
            let (offset, length) = entry.pieces.get(read.next);
            let bytes = touched_bytes(offset, length, BLOCK as u64);
            read.next += 1;
            if let Some(error) = failed.take().or(answer.err())
                && !read.reply.is_finished()
            {
                let (code, text) = explain(error, full(error, core));
                let reply = &mut read.reply;
                cut = connection.output.plan(None, |headers, parts| reply.fail(code, text, headers, parts))
                    == Failure::HardDisconnect;
            }
            match answer {
                Ok(answer) if !read.reply.is_finished() => {
                    fill_runs(core.engine.data(answer), &mut self.runs);
                    let first = (offset - entry.request.offset) as u32;
                    let (reply, runs) = (&mut read.reply, &self.runs);
                    connection.output.plan(Some((answer, first)), |headers, parts| reply.piece(runs, headers, parts));
                    connection.output.depart(answer, bytes);
                }
                Ok(answer) => {
                    self.shared.read_bytes -= bytes;
                    connection.read_bytes -= bytes;
                    connection.pieces -= 1;
                    self.shared.places_taken -= 1;
                    core.engine.handle(core.now, Event::Sent(answer));
                }
                Err(_) => {
                    self.shared.read_bytes -= bytes;
                    connection.read_bytes -= bytes;
                }
            }
        }
        if cut {
            connection.kill(End::ReadFailed);
        }
        connection.holder = read.reply.holds_stream().then_some(place);
        if complete && read.next as usize == read.answers.len() {
            self.shared.latencies.add(entry.request.command, core.now - entry.since);
            self.shared.table.remove(place);
            connection.requests -= 1;
        }
    }

    /// Plans the replies that waited for one in several parts, if that is complete.
    fn continue_deferred(&mut self, slot: u32, core: &mut Core) {
        loop {
            let Some(connection) = self.connections[slot as usize].as_mut() else { return };
            if connection.holder.is_some() || connection.state == State::Dead {
                return;
            }
            match connection.deferred.pop_front() {
                Some(Deferred::Bytes(bytes)) => connection.output.write(|output| output.extend_from_slice(&bytes)),
                Some(Deferred::Request(place)) => self.continue_read(place, core),
                None => return,
            }
        }
    }
}

/// Takes a piece's answer to anything but a read, and replies when it was the last one.
fn finish_plain(
    place: u32,
    result: Result<Reply, Error>,
    connection: &mut Connection,
    shared: &mut Shared,
    core: &mut Core,
) {
    let entry = shared.table.get(place);
    if let Err(error) = result {
        entry.error.get_or_insert(error);
    }
    if entry.outstanding > 0 || !entry.submitted {
        return;
    }
    let (request, since, error) = (entry.request, entry.since, entry.error);
    let put = |output: &mut Vec<u8>| match (error, result) {
        (Some(error), _) => {
            let (code, text) = explain(error, full(error, core));
            request.reply_error(code, text, output);
        }
        (None, Ok(Reply::Extents(answer))) => {
            let state = |hole| if hole { ExtentState::Unmapped } else { ExtentState::Data };
            let extents = core.engine.extents(answer).iter();
            let extents: Vec<Extent> =
                extents.map(|extent| Extent { length_bytes: extent.length, state: state(extent.hole) }).collect();
            request.reply_block_status(&extents, output);
        }
        (None, _) if request.command == Command::BlockStatus => {
            request.reply_error(ErrorCode::InputOutput, "the extents are not known", output);
        }
        (None, _) => request.reply_done(output),
    };
    if connection.holder.is_some() {
        let mut bytes = Vec::new();
        put(&mut bytes);
        connection.deferred.push_back(Deferred::Bytes(bytes));
    } else {
        connection.output.write(put);
    }
    if let Ok(Reply::Extents(answer) | Reply::Data(answer)) = result {
        core.engine.handle(core.now, Event::Sent(answer));
    }
    shared.latencies.add(request.command, core.now - since);
    shared.table.remove(place);
    connection.requests -= 1;
}

/// Fills `runs` with the runs of data and zeroes in an answer.
fn fill_runs(segments: &[engine::DataSegment], runs: &mut Vec<Run>) {
    runs.clear();
    runs.extend(segments.iter().map(|segment| match segment.buffer {
        Some(_) => Run::Data(segment.to - segment.from),
        None => Run::Hole(segment.to - segment.from),
    }));
}

/// Returns the part of the pool that is full, if a request failed for lack of space.
fn full(error: Error, core: &Core) -> Option<Full> {
    if error == Error::NoSpace { core.engine.full() } else { None }
}

/// Logs that a request failed.
fn report(failures: &mut Failures, entry: &Entry, error: Error, core: &Core) {
    let Some(number) = failures.add(core.now) else { return };
    let request = entry.request;
    warn!(
        "{:?} of {} bytes at byte {} failed: {} (failure {number} since the start)",
        request.command,
        request.length,
        request.offset,
        explain(error, full(error, core)).1
    );
}
