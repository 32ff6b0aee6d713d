//! Tests of the command `sim` as a process.

use std::process::Command;

fn sim(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("sim can be run");
    (output.status.success(), String::from_utf8(output.stdout).expect("sim prints text"))
}

#[test]
fn a_seed_has_the_same_digest_in_every_process_whatever_the_number_of_threads() {
    let digests = |threads| sim(&["digests", "--seeds", "12", "--operations", "1000", "--threads", threads]);
    let (good, one) = digests("1");
    assert!(good, "{one}");
    assert_eq!(one.lines().count(), 12);
    assert_eq!((true, one.clone()), digests("2"));
    let (_, alone) = sim(&["seed", "5", "--operations", "1000"]);
    let digest = alone.lines().last().and_then(|line| line.strip_prefix("digest: ")).expect("the digest comes last");
    assert_eq!(one.lines().nth(5), Some(format!("5 {digest}").as_str()));
}
