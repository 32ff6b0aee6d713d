//! A runner for independent runs in several threads. Each run is single-threaded and depends on its number alone, so the results do not depend on the number
//! of threads.

use std::io::IsTerminal;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between two lines of progress.
const BETWEEN_LINES: Duration = Duration::from_secs(5);
/// Time between two looks at the threads.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Returns the number of cores; 1 if it is unknown.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Keeps assertions that fail off standard error: runs report them as violations.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| ()));
}

/// Lines of progress on standard error, if that is a terminal.
pub struct Progress {
    begun: Instant,
    last: Instant,
    shows: bool,
}

impl Progress {
    /// Begins now.
    pub fn begin() -> Progress {
        let now = Instant::now();
        Progress { begun: now, last: now, shows: std::io::stderr().is_terminal() }
    }

    /// Returns the time since the beginning.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Prints a line, if the last line is some seconds old.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.shows && self.last.elapsed() >= BETWEEN_LINES {
            self.last = Instant::now();
            eprintln!("{}", line());
        }
    }

    /// Prints the pieces of work that are done, and the time left, if the last line is some seconds old.
    fn say_done(&mut self, done: u64, count: u64) {
        let left = self.left(done as f64 / count as f64);
        self.say(|| match done {
            0 => format!("0 of {count}"),
            _ => format!("{done} of {count}; about {left:?} left"),
        });
    }

    /// Estimates the time that is left when this part of all (0 to 1) is done.
    pub fn left(&self, done: f64) -> Duration {
        let all = self.elapsed().as_secs_f64() / done.max(1e-6);
        Duration::from_secs((all * (1.0 - done)) as u64)
    }
}

/// Executes `count` pieces of work in `threads` threads; with one, in that of the caller. The results are in the order of their numbers.
pub fn in_order<T: Send>(threads: usize, count: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    if threads <= 1 {
        return one_by_one(count, work);
    }
    let next = AtomicU64::new(0);
    let results = Mutex::new(Vec::new());
    let mut progress = Progress::begin();
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            results.lock().expect("no thread panics with it").push((number, result));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            std::thread::sleep(BETWEEN_LOOKS);
            let done = results.lock().expect("no thread panics with it").len();
            progress.say_done(done as u64, count);
        }
    });
    let mut results = results.into_inner().expect("no thread panics with it");
    results.sort_unstable_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Number of items that go to the threads together; `WAITING` batches may wait for a thread.
const BATCH: usize = 4096;
const WAITING: usize = 16;

/// Makes items, in the thread of the caller, and lets each state take all of them in their order, in a thread of its own.
pub fn each_takes_all<T: Send + Sync, S: Send, E>(
    states: &mut [S],
    make: impl FnOnce(&mut dyn FnMut(T)) -> Result<(), E>,
    take: impl Fn(&mut S, &T) + Sync,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let take = &take;
        let mut lines = Vec::new();
        for state in states {
            let (line, batches) = sync_channel::<Arc<Vec<T>>>(WAITING);
            lines.push(line);
            scope.spawn(move || batches.iter().for_each(|batch| batch.iter().for_each(|item| take(state, item))));
        }
        let send = |batch: Vec<T>| {
            let batch = Arc::new(batch);
            // A thread that has ended has panicked, which the scope reports.
            lines.iter().for_each(|line| _ = line.send(Arc::clone(&batch)));
        };
        let mut batch = Vec::new();
        let made = make(&mut |item| {
            batch.push(item);
            if batch.len() == BATCH {
                send(std::mem::take(&mut batch));
            }
        });
        send(batch);
        made
    })
}

fn one_by_one<T>(count: u64, work: impl Fn(u64) -> T) -> Vec<T> {
    let mut progress = Progress::begin();
    let run = |number| {
        progress.say_done(number, count);
        work(number)
    };
    (0..count).map(run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_number_of_threads() {
        let squares: Vec<u64> = (0..100).map(|number| number * number).collect();
        for threads in [1, 2, 7] {
            assert_eq!(in_order(threads, 100, |number| number * number), squares);
        }
    }

    #[test]
    fn every_state_takes_all_items_in_their_order() {
        let mut states = [Vec::new(), vec![7]];
        let make = |give: &mut dyn FnMut(u64)| {
            (0..10_000).for_each(give);
            Ok::<_, String>(())
        };
        each_takes_all(&mut states, make, |state, &item| state.push(item)).expect("nothing fails");
        let all: Vec<u64> = (0..10_000).collect();
        assert_eq!(states[0], all);
        assert_eq!(states[1][..2], [7, 0]);
        assert_eq!(states[1][1..], all);
        assert_eq!(each_takes_all(&mut states, |_| Err("no items"), |_, _: &u64| ()), Err("no items"));
    }
}
