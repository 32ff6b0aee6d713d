//! NBD client: blocking, one request at a time, with structured replies and `base:allocation` where the server has them.
//!
//! The server's bytes are checked as far as they decide lengths: nothing is allocated by a length that it claims beyond the requested one, and an answer that
//! does not fit ends the connection with an error.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use anyhow::{Context, bail, ensure};
use nbd::wire::{
    ALLOCATION_CONTEXT, CHUNK_DONE, CHUNK_MAGIC, COMMAND_DISCONNECT, Chunk, CommandFlags, GREETING_MAGIC,
    HANDSHAKE_FIXED_NEWSTYLE, HANDSHAKE_NO_ZEROES, OPTION_GO, OPTION_MAGIC, OPTION_REPLY_MAGIC,
    OPTION_SET_META_CONTEXT, OPTION_STRUCTURED_REPLY, OptionReply, Reader, RequestHeader, SIMPLE_REPLY_MAGIC,
    STATUS_ZERO, TRANSMISSION_READ_ONLY, TRANSMISSION_SEND_FLUSH, TRANSMISSION_SEND_WRITE_ZEROES, put_u16, put_u32,
    put_u64,
};
use nbd::{Command, ErrorCode};

use crate::frontend::nbd::listen::Address;

/// The longest answer to an option, message or list that is taken.
const ANSWER_BYTES_MAX: u32 = 64 << 10;
/// Replies to options.
const REPLY_ACK: u32 = OptionReply::Ack as u32;
const REPLY_INFO: u32 = OptionReply::Info as u32;
const REPLY_META_CONTEXT: u32 = OptionReply::MetaContext as u32;
/// The bit of every reply that is an error.
const REPLY_ERROR: u32 = 1 << 31;
/// Chunks of structured replies.
const CHUNK_NONE: u16 = Chunk::None as u16;
const CHUNK_DATA: u16 = Chunk::OffsetData as u16;
const CHUNK_HOLE: u16 = Chunk::OffsetHole as u16;
const CHUNK_STATUS: u16 = Chunk::BlockStatus as u16;
/// The bit of every chunk that is an error.
const CHUNK_ERROR: u16 = 1 << 15;

/// A connection to an export.
pub struct Client {
    reader: BufReader<File>,
    writer: File,
    size: u64,
    flags: u16,
    has_allocation: bool,
    cookie: u64,
}

/// Part of an export that reads as zeroes, or may be data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Number of bytes.
    pub length: u64,
    /// True if the extent reads as zeroes.
    pub is_zero: bool,
}

impl Client {
    /// Connects to an export.
    pub fn connect(address: &Address, export: &str) -> anyhow::Result<Client> {
        let socket: OwnedFd = match address {
            Address::Unix(path) => UnixStream::connect(path).map(OwnedFd::from),
            Address::Tcp { host, port } => TcpStream::connect((host.as_str(), *port)).and_then(|socket| {
                socket.set_nodelay(true)?;
                Ok(OwnedFd::from(socket))
            }),
        }
        .with_context(|| format!("cannot connect to {address}"))?;
        let writer = File::from(socket);
        let reader = BufReader::with_capacity(256 << 10, writer.try_clone().context("cannot share a socket")?);
        let mut client = Client { reader, writer, size: 0, flags: 0, has_allocation: false, cookie: 0 };
        client.handshake(export).with_context(|| format!("the NBD server at {address}, export '{export}'"))?;
        Ok(client)
    }

    /// Returns the size of the export in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns true if the server refuses writes.
    pub fn is_read_only(&self) -> bool {
        self.flags & TRANSMISSION_READ_ONLY != 0
    }

    fn handshake(&mut self, export: &str) -> anyhow::Result<()> {
        let greeting = self.take(18)?;
        let mut reader = Reader::new(&greeting);
        ensure!(
            reader.u64() == Some(GREETING_MAGIC) && reader.u64() == Some(OPTION_MAGIC),
            "this is no NBD server, or one of an old kind"
        );
        let offered = reader.u16().unwrap_or(0);
        ensure!(offered & HANDSHAKE_FIXED_NEWSTYLE != 0, "the server is too old: it has no fixed newstyle handshake");
        let wanted = HANDSHAKE_FIXED_NEWSTYLE | (offered & HANDSHAKE_NO_ZEROES);
        self.writer.write_all(&u32::from(wanted).to_be_bytes())?;
        let structured = self.option(OPTION_STRUCTURED_REPLY, &[], |_, _| {}).is_ok();
        if structured {
            let mut data = Vec::new();
            put_string(&mut data, export);
            put_u32(&mut data, 1);
            put_string(&mut data, ALLOCATION_CONTEXT);
            let mut has = false;
            // A server without it answers reads, too.
            let _ = self.option(OPTION_SET_META_CONTEXT, &data, |reply, _| has |= reply == REPLY_META_CONTEXT);
            self.has_allocation = has;
        }
        let mut data = Vec::new();
        put_string(&mut data, export);
        put_u16(&mut data, 0);
        let mut about = None;
        self.option(OPTION_GO, &data, |reply, data| {
            let mut reader = Reader::new(data);
            if reply == REPLY_INFO
                && reader.u16() == Some(0)
                && let (Some(size), Some(flags)) = (reader.u64(), reader.u16())
            {
                about = Some((size, flags));
            }
        })?;
        (self.size, self.flags) = about.context("the server does not say how large the export is")?;
        Ok(())
    }

    /// Sends an option and takes its answers.
    fn option(&mut self, option: u32, data: &[u8], mut each: impl FnMut(u32, &[u8])) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        put_u64(&mut bytes, OPTION_MAGIC);
        put_u32(&mut bytes, option);
        put_u32(&mut bytes, data.len() as u32);
        bytes.extend_from_slice(data);
        self.writer.write_all(&bytes)?;
        loop {
            let header = self.take(20)?;
            let mut reader = Reader::new(&header);
            let (magic, _, reply, length) = (reader.u64(), reader.u32(), reader.u32(), reader.u32());
            let (Some(OPTION_REPLY_MAGIC), Some(reply), Some(length)) = (magic, reply, length) else {
                bail!("an answer of the handshake is not understood");
            };
            ensure!(length <= ANSWER_BYTES_MAX, "an answer of the handshake is too long");
            let data = self.take(length as usize)?;
            if reply & REPLY_ERROR != 0 {
                bail!("refused: {} (code {:#x})", String::from_utf8_lossy(&data), reply);
            }
            if reply == REPLY_ACK {
                return Ok(());
            }
            each(reply, &data);
        }
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends a request and takes its reply; a read fills `data`, and `each` gets the extents of the allocation.
    fn request(
        &mut self,
        command: Command,
        (offset, length): (u64, u32),
        payload: &[u8],
        data: &mut [u8],
        mut each: impl FnMut(u32, u32),
    ) -> anyhow::Result<()> {
        self.cookie += 1;
        let header =
            RequestHeader { flags: CommandFlags(0), command: command as u16, cookie: self.cookie, offset, length };
        let mut bytes = Vec::with_capacity(28);
        header.encode(&mut bytes);
        self.writer.write_all(&bytes)?;
        self.writer.write_all(payload)?;
        let mut failure = None;
        loop {
            let magic = self.take(4)?;
            match Reader::new(&magic).u32() {
                Some(SIMPLE_REPLY_MAGIC) => {
                    let rest = self.take(12)?;
                    let mut reader = Reader::new(&rest);
                    let error = reader.u32().unwrap_or(0);
                    ensure!(reader.u64() == Some(self.cookie), "a reply to another request");
                    if error != 0 {
                        return Err(explain(error, command, offset, ""));
                    }
                    self.reader.read_exact(data)?;
                    return Ok(());
                }
                Some(CHUNK_MAGIC) => {
                    let rest = self.take(16)?;
                    let mut reader = Reader::new(&rest);
                    let (Some(flags), Some(kind), Some(cookie), Some(length)) =
                        (reader.u16(), reader.u16(), reader.u64(), reader.u32())
                    else {
                        bail!("a reply is not understood");
                    };
                    ensure!(cookie == self.cookie, "a reply to another request");
                    if let Some(error) = self.chunk(kind, length, (command, offset), data, &mut each)? {
                        failure.get_or_insert(error);
                    }
                    if flags & CHUNK_DONE != 0 {
                        return failure.map_or(Ok(()), Err);
                    }
                }
                _ => bail!("a reply is not understood"),
            }
        }
    }

    /// Takes a chunk of a structured reply; the error that it is, if it is one.
    fn chunk(
        &mut self,
        kind: u16,
        length: u32,
        (command, start): (Command, u64),
        data: &mut [u8],
        each: &mut impl FnMut(u32, u32),
    ) -> anyhow::Result<Option<anyhow::Error>> {
        let within = |at: u64, count: usize, all: usize| -> anyhow::Result<usize> {
            let at = at.checked_sub(start).and_then(|at| usize::try_from(at).ok());
            at.filter(|at| at.checked_add(count).is_some_and(|end| end <= all))
                .context("a reply lies outside its request")
        };
        match kind {
            CHUNK_NONE if length == 0 => {}
            CHUNK_DATA if length >= 8 => {
                let at = Reader::new(&self.take(8)?).u64().unwrap_or(u64::MAX);
                let count = length as usize - 8;
                let at = within(at, count, data.len())?;
                self.reader.read_exact(&mut data[at..at + count])?;
            }
            CHUNK_HOLE if length == 12 => {
                let bytes = self.take(12)?;
                let mut reader = Reader::new(&bytes);
                let (at, count) = (reader.u64().unwrap_or(u64::MAX), reader.u32().unwrap_or(0) as usize);
                let at = within(at, count, data.len())?;
                data[at..at + count].fill(0);
            }
            CHUNK_STATUS if (4..=ANSWER_BYTES_MAX * 256).contains(&length) => {
                let bytes = self.take(length as usize)?;
                let mut reader = Reader::new(&bytes[4..]);
                while let (Some(length), Some(flags)) = (reader.u32(), reader.u32()) {
                    each(length, flags);
                }
            }
            kind if kind & CHUNK_ERROR != 0 && (6..=ANSWER_BYTES_MAX).contains(&length) => {
                let bytes = self.take(length as usize)?;
                let mut reader = Reader::new(&bytes);
                let error = reader.u32().unwrap_or(0);
                let count = usize::from(reader.u16().unwrap_or(0));
                let text = reader.bytes(count).map(String::from_utf8_lossy).unwrap_or_default();
                return Ok(Some(explain(error, command, start, &text)));
            }
            _ => bail!("a part of a reply is not understood"),
        }
        Ok(None)
    }

    /// Reads from an offset on.
    pub fn read(&mut self, offset: u64, data: &mut [u8]) -> anyhow::Result<()> {
        self.request(Command::Read, (offset, data.len() as u32), &[], data, |_, _| {})
    }

    /// Writes from an offset on.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> anyhow::Result<()> {
        self.request(Command::Write, (offset, data.len() as u32), data, &mut [], |_, _| {})
    }

    /// Makes a range zeroes; false if the server has no command for that.
    pub fn zero(&mut self, offset: u64, length: u32) -> anyhow::Result<bool> {
        if self.flags & TRANSMISSION_SEND_WRITE_ZEROES == 0 {
            return Ok(false);
        }
        self.request(Command::WriteZeroes, (offset, length), &[], &mut [], |_, _| {}).map(|()| true)
    }

    /// Makes the writes durable.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        if self.flags & TRANSMISSION_SEND_FLUSH == 0 {
            return Ok(());
        }
        self.request(Command::Flush, (0, 0), &[], &mut [], |_, _| {})
    }

    /// Asks for the first extents of the range, at least one. All of it counts as data where the server does not say.
    pub fn extents(&mut self, offset: u64, length: u32) -> anyhow::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        if self.has_allocation {
            self.request(Command::BlockStatus, (offset, length), &[], &mut [], |length, flags| {
                extents.push(Extent { length: u64::from(length), is_zero: flags & STATUS_ZERO != 0 });
            })?;
        }
        extents.retain(|extent| extent.length > 0);
        if extents.is_empty() {
            extents.push(Extent { length: u64::from(length), is_zero: false });
        }
        Ok(extents)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let header =
            RequestHeader { flags: CommandFlags(0), command: COMMAND_DISCONNECT, cookie: 0, offset: 0, length: 0 };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        // A server that is gone needs no goodbye.
        let _ = self.writer.write_all(&bytes);
    }
}

fn put_string(bytes: &mut Vec<u8>, text: &str) {
    put_u32(bytes, text.len() as u32);
    bytes.extend_from_slice(text.as_bytes());
}

/// Explains an error of the protocol, with the command and its place.
fn explain(error: u32, command: Command, offset: u64, text: &str) -> anyhow::Error {
    const NO_SPACE: u32 = ErrorCode::NoSpace as u32;
    const NOT_PERMITTED: u32 = ErrorCode::NotPermitted as u32;
    const INPUT_OUTPUT: u32 = ErrorCode::InputOutput as u32;
    let what = match error {
        NO_SPACE => "no space is left".to_string(),
        NOT_PERMITTED => "it is read-only".to_string(),
        INPUT_OUTPUT => "input/output error".to_string(),
        other => format!("error {other}"),
    };
    let more = if text.is_empty() { String::new() } else { format!(" ({text})") };
    anyhow::anyhow!("{command:?} at byte {offset} failed: {what}{more}")
}
