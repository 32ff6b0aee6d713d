//! Tests of the command `repro` as a process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn a_closed_pipe_ends_the_program_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut repro = Command::new(env!("CARGO_BIN_EXE_repro"));
    let repro = repro.args(["figure", "list"]).stdout(writer).stderr(Stdio::piped());
    let output = repro.spawn().and_then(|repro| repro.wait_with_output()).expect("repro can be run");
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.signal()), ("", Some(13)));
}
