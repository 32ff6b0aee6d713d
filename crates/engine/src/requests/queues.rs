//! Queues of requests that wait: to run, for space, for buffers, or until a record is durable. Each request is in one of them at most.
//!
//! A request that waits for I/O is in none: the completion queues it. Long requests wait apart, in their time slices (`time_slices.rs`).

use alloc::collections::VecDeque;
use core::mem::{swap, take};

use crate::api::RequestId;

/// Queues of waiting requests.
#[derive(Default)]
pub(crate) struct Queues {
    /// Writes of a coalesced request that was taken apart. They run before all others.
    parted: VecDeque<RequestId>,
    /// Requests that can run.
    ready: VecDeque<RequestId>,
    /// Writes that wait for space, in order.
    for_space: VecDeque<RequestId>,
    /// Memory of `for_space` while its writes run again; empty at all other times.
    retried: VecDeque<RequestId>,
    /// Requests that wait for buffers.
    for_buffers: VecDeque<RequestId>,
    /// Requests that wait until a record is durable, in the order of the records' sequence numbers.
    for_records: VecDeque<(u64, RequestId)>,
}

impl Queues {
    /// Queues a request that can run.
    #[inline]
    pub(crate) fn push_ready(&mut self, id: RequestId) {
        self.ready.push_back(id);
    }

    /// Takes the next request that can run.
    #[inline]
    pub(crate) fn pop_ready(&mut self) -> Option<RequestId> {
        self.ready.pop_front()
    }

    /// Returns one of the requests that can run, by the number of newer ones.
    pub(crate) fn newest_ready(&self, newer: usize) -> Option<RequestId> {
        self.ready.iter().nth_back(newer).copied()
    }

    /// Queues a write of a coalesced request that was taken apart.
    pub(crate) fn push_parted(&mut self, id: RequestId) {
        self.parted.push_back(id);
    }

    /// Takes the next write of a coalesced request that was taken apart.
    #[inline]
    pub(crate) fn pop_parted(&mut self) -> Option<RequestId> {
        self.parted.pop_front()
    }

    /// Lets a write wait for space, behind the others.
    pub(crate) fn wait_for_space(&mut self, id: RequestId) {
        self.for_space.push_back(id);
    }

    /// Returns true if any write waits for space.
    #[inline]
    pub(crate) fn has_waits_for_space(&self) -> bool {
        !self.for_space.is_empty()
    }

    /// Returns the number of writes that wait for space.
    pub(crate) fn waits_for_space(&self) -> usize {
        self.for_space.len()
    }

    /// Returns the write that has waited longest for space.
    pub(crate) fn first_for_space(&self) -> Option<RequestId> {
        self.for_space.front().copied()
    }

    /// Takes the write that has waited longest for space.
    pub(crate) fn pop_for_space(&mut self) -> Option<RequestId> {
        self.for_space.pop_front()
    }

    /// Takes all writes that wait for space, in order, to run them again.
    pub(crate) fn begin_retries(&mut self) -> VecDeque<RequestId> {
        let mut retried = take(&mut self.retried);
        swap(&mut self.for_space, &mut retried);
        retried
    }

    /// Puts those back that were not run, behind those that wait again.
    pub(crate) fn end_retries(&mut self, mut left: VecDeque<RequestId>) {
        self.for_space.append(&mut left);
        self.retried = left;
    }

    /// Lets a request wait for buffers, behind the others.
    pub(crate) fn wait_for_buffers(&mut self, id: RequestId) {
        self.for_buffers.push_back(id);
    }

    /// Returns the number of requests that wait for buffers.
    #[inline]
    pub(crate) fn waits_for_buffers(&self) -> usize {
        self.for_buffers.len()
    }

    /// Takes the request that has waited longest for buffers.
    pub(crate) fn pop_for_buffers(&mut self) -> Option<RequestId> {
        self.for_buffers.pop_front()
    }

    /// Puts the newest of the requests that wait for buffers before the others.
    pub(crate) fn keep_first_for_buffers(&mut self) {
        self.for_buffers.rotate_right(1);
    }

    /// Lets a request wait until the record with this sequence number is durable. No earlier request may wait for a later record.
    pub(crate) fn wait_for_record(&mut self, sequence: u64, id: RequestId) {
        debug_assert!(self.last_record().is_none_or(|last| last <= sequence));
        self.for_records.push_back((sequence, id));
    }

    /// Returns the sequence number of the first record that a request waits for.
    #[inline]
    pub(crate) fn first_record(&self) -> Option<u64> {
        self.for_records.front().map(|&(sequence, _)| sequence)
    }

    /// Returns the sequence number of the last record that a request waits for.
    #[inline]
    pub(crate) fn last_record(&self) -> Option<u64> {
        self.for_records.back().map(|&(sequence, _)| sequence)
    }

    /// Takes the next request that waits for a record up to this one.
    #[inline]
    pub(crate) fn pop_for_record(&mut self, upto: u64) -> Option<RequestId> {
        if self.first_record()? > upto {
            return None;
        }
        self.for_records.pop_front().map(|(_, id)| id)
    }

    /// Takes the requests that wait for records behind this one.
    pub(crate) fn take_for_records_after(&mut self, sequence: u64) -> VecDeque<(u64, RequestId)> {
        let first = self.for_records.partition_point(|&(waited_for, _)| waited_for <= sequence);
        self.for_records.split_off(first)
    }
}
