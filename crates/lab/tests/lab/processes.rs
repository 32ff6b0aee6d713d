//! What holds of the command `lab` as a process.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

fn lab(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_lab")).args(arguments).output().expect("lab can be run");
    (output.status.success(), String::from_utf8(output.stdout).expect("lab prints text"))
}

#[test]
fn a_seed_has_the_same_digest_in_every_process_whatever_the_number_of_threads() {
    let digests = |threads| lab(&["digests", "--seeds", "12", "--operations", "1000", "--threads", threads]);
    let (good, one) = digests("1");
    assert!(good, "{one}");
    assert_eq!(one.lines().count(), 12);
    assert_eq!((true, one.clone()), digests("2"));
    let (_, alone) = lab(&["seed", "5", "--operations", "1000"]);
    let digest = alone.lines().last().and_then(|line| line.strip_prefix("digest: ")).expect("the digest comes last");
    assert_eq!(one.lines().nth(5), Some(format!("5 {digest}").as_str()));
}

#[test]
fn a_closed_pipe_ends_the_lab_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"));
    let lab = lab.args(["figure", "list"]).stdout(writer).stderr(Stdio::piped());
    let output = lab.spawn().and_then(|lab| lab.wait_with_output()).expect("lab can be run");
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.signal()), ("", Some(13)));
}
