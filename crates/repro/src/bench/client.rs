//! NBD client over a socket: it connects to an export, sends requests, and takes simple replies in any order.
//!
//! Numbers and headers are those of `nbd::wire`. No server data causes a panic, or an allocation above a bound.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::wire::{
    CLIENT_FLAGS_BYTES, COMMAND_DISCONNECT, Command, CommandFlags, GREETING_BYTES, GREETING_MAGIC,
    HANDSHAKE_FIXED_NEWSTYLE, HANDSHAKE_NO_ZEROES, Information, MAXIMUM_PAYLOAD_BYTES, OPTION_GO, OPTION_MAGIC,
    OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, OptionReply, Reader, RequestHeader, SIMPLE_REPLY_BYTES,
    SIMPLE_REPLY_MAGIC, TRANSMISSION_READ_ONLY, put_u16, put_u32, put_u64,
};

use super::uri::{Place, Uri};

/// Timeout after which a silent server counts as gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum data bytes of an answer in the handshake.
const MOST_OPTION_BYTES: u32 = 1 << 16;

/// Properties of an export, as the server states them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Export {
    /// Its bytes.
    pub bytes: u64,
    /// True if writes are refused.
    pub is_read_only: bool,
    /// Maximum bytes of a request.
    pub most_payload: u32,
}

/// A connection to an export.
pub struct Connection {
    reader: BufReader<Socket>,
    writer: Socket,
    /// Bytes to send next, header and payload in one piece.
    output: Vec<u8>,
    /// Properties of the export, as the server states them.
    pub export: Export,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => stream.write(buffer),
            Socket::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    fn connect(place: &Place) -> io::Result<(Socket, Socket)> {
        match place {
            Place::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok((Socket::Tcp(stream.try_clone()?), Socket::Tcp(stream)))
            }
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok((Socket::Unix(stream.try_clone()?), Socket::Unix(stream)))
            }
        }
    }
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

fn short() -> io::Error {
    wrong("the server's answer is too short")
}

impl Connection {
    /// Connects and enters transmission, with simple replies.
    pub fn open(uri: &Uri) -> Result<Connection, String> {
        let name = if uri.export.is_empty() { "the default export" } else { &uri.export };
        Connection::try_open(uri).map_err(|error| format!("{name} at {}: {error}", uri.place))
    }

    fn try_open(uri: &Uri) -> io::Result<Connection> {
        let (reader, writer) = Socket::connect(&uri.place)?;
        let export = Export { bytes: 0, is_read_only: false, most_payload: MAXIMUM_PAYLOAD_BYTES };
        let mut connection = Connection { reader: BufReader::new(reader), writer, output: Vec::new(), export };
        connection.greet()?;
        connection.go(&uri.export)?;
        Ok(connection)
    }

    fn array<const LENGTH: usize>(&mut self) -> io::Result<[u8; LENGTH]> {
        let mut bytes = [0; LENGTH];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&mut self) -> io::Result<()> {
        let sent = self.writer.write_all(&self.output);
        self.output.clear();
        sent
    }

    fn greet(&mut self) -> io::Result<()> {
        let greeting: [u8; GREETING_BYTES] = self.array()?;
        let mut fields = Reader::new(&greeting);
        if fields.u64() != Some(GREETING_MAGIC) || fields.u64() != Some(OPTION_MAGIC) {
            return Err(wrong("this is no NBD server of the newstyle kind"));
        }
        let flags = fields.u16().ok_or_else(short)?;
        if flags & HANDSHAKE_FIXED_NEWSTYLE == 0 {
            return Err(wrong("the server does not know the fixed newstyle handshake"));
        }
        put_u32(&mut self.output, u32::from(flags & (HANDSHAKE_FIXED_NEWSTYLE | HANDSHAKE_NO_ZEROES)));
        debug_assert_eq!(self.output.len(), CLIENT_FLAGS_BYTES);
        self.send()
    }

    /// Sends `NBD_OPT_GO`, with the wish to know the sizes of blocks, and reads the answer.
    fn go(&mut self, export: &str) -> io::Result<()> {
        let mut data = Vec::new();
        put_u32(&mut data, export.len() as u32);
        data.extend_from_slice(export.as_bytes());
        put_u16(&mut data, 1);
        put_u16(&mut data, Information::BlockSize as u16);
        put_u64(&mut self.output, OPTION_MAGIC);
        put_u32(&mut self.output, OPTION_GO);
        put_u32(&mut self.output, data.len() as u32);
        self.output.extend_from_slice(&data);
        self.send()?;
        loop {
            let header: [u8; OPTION_REPLY_HEADER_BYTES] = self.array()?;
            let mut fields = Reader::new(&header);
            let is_reply = fields.u64() == Some(OPTION_REPLY_MAGIC) && fields.u32() == Some(OPTION_GO);
            let (kind, length) = fields.u32().zip(fields.u32()).ok_or_else(short)?;
            if !is_reply || length > MOST_OPTION_BYTES {
                return Err(wrong("the server's answer to GO makes no sense"));
            }
            let mut data = vec![0; length as usize];
            self.reader.read_exact(&mut data)?;
            match kind {
                _ if kind == OptionReply::Ack as u32 => return Ok(()),
                _ if kind == OptionReply::Info as u32 => self.inform(&data).ok_or_else(short)?,
                _ if kind == OptionReply::UnknownExport as u32 => return Err(wrong("there is no such export")),
                _ if kind >> 31 == 1 => {
                    let why = String::from_utf8_lossy(&data).into_owned();
                    return Err(wrong(format!("the server refuses, error {}: {why}", kind & 0xffff)));
                }
                _ => {}
            }
        }
    }

    fn inform(&mut self, data: &[u8]) -> Option<()> {
        let mut fields = Reader::new(data);
        let kind = fields.u16()?;
        if kind == Information::Export as u16 {
            self.export.bytes = fields.u64()?;
            self.export.is_read_only = fields.u16()? & TRANSMISSION_READ_ONLY != 0;
        } else if kind == Information::BlockSize as u16 {
            let (_, _, most) = (fields.u32()?, fields.u32()?, fields.u32()?);
            self.export.most_payload = most.min(MAXIMUM_PAYLOAD_BYTES);
        }
        Some(())
    }

    /// Sends a request; a write's payload is what `payload` appends, `length` bytes of it.
    pub fn request(
        &mut self,
        command: Command,
        cookie: u64,
        (offset, length): (u64, u32),
        fua: bool,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        let flags = CommandFlags(if fua { CommandFlags::FORCE_UNIT_ACCESS } else { 0 });
        RequestHeader { flags, command: command as u16, cookie, offset, length }.encode(&mut self.output);
        let header = self.output.len();
        if command == Command::Write {
            payload(&mut self.output);
            debug_assert_eq!(self.output.len() - header, length as usize);
        }
        self.send()
    }

    /// Reads the next reply and returns its cookie. If `length` gives a number of bytes for the cookie, it is a read, and the bytes are put
    /// into `data`.
    pub fn reply(&mut self, data: &mut Vec<u8>, length: impl FnOnce(u64) -> Option<u32>) -> io::Result<u64> {
        let header: [u8; SIMPLE_REPLY_BYTES] = self.array()?;
        let mut fields = Reader::new(&header);
        if fields.u32() != Some(SIMPLE_REPLY_MAGIC) {
            return Err(wrong("the server sends something that is no simple reply"));
        }
        let (error, cookie) = fields.u32().zip(fields.u64()).ok_or_else(short)?;
        if error != 0 {
            return Err(wrong(format!("the server could not do a request: error {error}")));
        }
        data.clear();
        if let Some(length) = length(cookie) {
            data.resize(length as usize, 0);
            self.reader.read_exact(data)?;
        }
        Ok(cookie)
    }

    /// Flushes the answered writes to durable storage, and waits for the reply. Nothing else is in progress.
    pub fn flush(&mut self) -> io::Result<()> {
        self.request(Command::Flush, u64::MAX, (0, 0), false, |_| {})?;
        self.reply(&mut Vec::new(), |_| None).map(|_| ())
    }

    /// Disconnects from the server, and consumes the connection.
    pub fn close(mut self) {
        let flags = CommandFlags::default();
        RequestHeader { flags, command: COMMAND_DISCONNECT, cookie: 0, offset: 0, length: 0 }.encode(&mut self.output);
        // The server may be gone already.
        let _ = self.send();
    }
}
