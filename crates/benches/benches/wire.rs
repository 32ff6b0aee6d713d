//! What the protocol takes for each request: `cargo bench -p benches --bench wire`.

use divan::{Bencher, black_box};
use nbd::wire::RequestHeader;
use nbd::{Command, CommandFlags, ExportInfo, ReadReply, Request, Run, Session, Step, Tls};

const EXPORT_NAME: u32 = 1;
const STRUCTURED_REPLY: u32 = 8;
const CLIENT_FLAGS: u32 = 3;

/// A session with structured replies that is through with its handshake.
fn session() -> (Session, Vec<ExportInfo>) {
    let exports = vec![ExportInfo::new("disk", "", 1 << 40).expect("a name and a size that are allowed")];
    let mut output = Vec::new();
    let mut session = Session::new(Tls::Unsupported, &mut output);
    let mut hello = CLIENT_FLAGS.to_be_bytes().to_vec();
    for (option, data) in [(STRUCTURED_REPLY, ""), (EXPORT_NAME, "disk")] {
        hello.extend(b"IHAVEOPT");
        hello.extend(option.to_be_bytes());
        hello.extend((data.len() as u32).to_be_bytes());
        hello.extend(data.as_bytes());
    }
    let mut input = &hello[..];
    while session.is_in_handshake() {
        let progress = session.receive(input, &exports, &mut output);
        input = &input[progress.consumed..];
    }
    (session, exports)
}

fn header(command: Command) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags: CommandFlags(0), command: command as u16, cookie: 7, offset: 1 << 20, length: 4096 }
        .encode(&mut bytes);
    bytes
}

fn request(command: Command) -> Request {
    let (mut session, exports) = session();
    match session.receive(&header(command), &exports, &mut Vec::new()).step {
        Step::Request(request) => request,
        step => panic!("not a request: {step:?}"),
    }
}

#[divan::bench]
fn receive_a_read(bencher: Bencher) {
    let (mut session, exports) = session();
    let (bytes, mut output) = (header(Command::Read), Vec::new());
    bencher.bench_local(|| session.receive(black_box(&bytes), &exports, &mut output));
}

#[divan::bench]
fn reply_to_a_write(bencher: Bencher) {
    let (request, mut output) = (request(Command::Write), Vec::with_capacity(64));
    bencher.bench_local(|| {
        output.clear();
        black_box(request).reply_done(&mut output);
    });
}

#[divan::bench]
fn reply_to_a_read(bencher: Bencher) {
    let request = request(Command::Read);
    let (mut headers, mut parts) = (Vec::with_capacity(64), Vec::with_capacity(4));
    bencher.bench_local(|| {
        headers.clear();
        parts.clear();
        let mut reply = ReadReply::new(black_box(request));
        reply.piece(&[Run::Data(4096)], &mut headers, &mut parts);
        reply.is_finished()
    });
}

fn main() {
    divan::main();
}
