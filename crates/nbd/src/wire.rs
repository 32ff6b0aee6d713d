//! The NBD wire format: constants, closed sets of codes, and the encoding of integers.
//!
//! Owns every number that the protocol fixes; no other module writes one. All integers are big-endian. Section names refer to `doc/proto.md` of the
//! NBD specification.
//!
//! Invariants:
//! - reading never panics and never reads past the bytes given: a short input is `None`;
//! - no allocation here depends on a length from the wire.

/// `NBDMAGIC`, the first eight bytes of a connection ("Newstyle negotiation").
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, in the greeting and before every option ("Newstyle negotiation").
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Magic before every reply to an option ("Fixed newstyle negotiation").
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Magic before every request ("Request message").
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Magic before every simple reply ("Simple reply message").
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Magic before every structured reply chunk ("Structured reply chunk message").
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// Bytes of the server's greeting.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes of an option before its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of an option reply before its data.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Bytes of a request before its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a structured reply chunk before its payload.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zero bytes after the answer to `NBD_OPT_EXPORT_NAME`, unless both sides set `NO_ZEROES`.
pub const EXPORT_NAME_ZEROES: usize = 124;

/// Maximum length of a string in the protocol, in bytes ("Conventions").
pub const MAXIMUM_STRING_BYTES: usize = 4096;

/// Smallest addressable length and alignment ("Size constraints").
pub const MINIMUM_BLOCK_BYTES: u32 = 1;
/// Block size from which aligned requests need no read-modify-write.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;
/// Maximum payload of a READ or a WRITE that is served.
pub const MAXIMUM_PAYLOAD_BYTES: u32 = 32 << 20;

/// Handshake flag bit 0, for both sides: options other than `EXPORT_NAME` have replies.
pub const HANDSHAKE_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag bit 1, for both sides: no padding after the answer to `EXPORT_NAME`.
pub const HANDSHAKE_NO_ZEROES: u16 = 1 << 1;

/// Transmission flag bit 0: the other bits mean something.
pub const TRANSMISSION_HAS_FLAGS: u16 = 1 << 0;
/// Transmission flag bit 1: every command that writes is refused with `EPERM`.
pub const TRANSMISSION_READ_ONLY: u16 = 1 << 1;
/// Transmission flag bit 2: `NBD_CMD_FLUSH` works.
pub const TRANSMISSION_SEND_FLUSH: u16 = 1 << 2;
/// Transmission flag bit 3: `NBD_CMD_FLAG_FUA` works.
pub const TRANSMISSION_SEND_FUA: u16 = 1 << 3;
/// Transmission flag bit 5: `NBD_CMD_TRIM` works.
pub const TRANSMISSION_SEND_TRIM: u16 = 1 << 5;
/// Transmission flag bit 6: `NBD_CMD_WRITE_ZEROES` works.
pub const TRANSMISSION_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// Transmission flag bit 7: `NBD_CMD_FLAG_DF` works; only with structured replies.
pub const TRANSMISSION_SEND_DF: u16 = 1 << 7;
/// Transmission flag bit 8: flush and FUA on one connection cover all connections.
pub const TRANSMISSION_CAN_MULTI_CONN: u16 = 1 << 8;
/// Transmission flag bit 11: `NBD_CMD_FLAG_FAST_ZERO` works.
pub const TRANSMISSION_SEND_FAST_ZERO: u16 = 1 << 11;

/// `NBD_OPT_EXPORT_NAME`: select an export; cannot report an error.
pub const OPTION_EXPORT_NAME: u32 = 1;
/// `NBD_OPT_ABORT`: end the session.
pub const OPTION_ABORT: u32 = 2;
/// `NBD_OPT_LIST`: name all exports.
pub const OPTION_LIST: u32 = 3;
/// `NBD_OPT_STARTTLS`: the client asks to begin TLS.
pub const OPTION_STARTTLS: u32 = 5;
/// `NBD_OPT_INFO`: describe an export.
pub const OPTION_INFO: u32 = 6;
/// `NBD_OPT_GO`: describe an export and enter transmission.
pub const OPTION_GO: u32 = 7;
/// `NBD_OPT_STRUCTURED_REPLY`: answer in chunks.
pub const OPTION_STRUCTURED_REPLY: u32 = 8;
/// `NBD_OPT_LIST_META_CONTEXT`: name metadata contexts.
pub const OPTION_LIST_META_CONTEXT: u32 = 9;
/// `NBD_OPT_SET_META_CONTEXT`: select metadata contexts.
pub const OPTION_SET_META_CONTEXT: u32 = 10;
/// `NBD_OPT_EXTENDED_HEADERS`: not supported here.
pub const OPTION_EXTENDED_HEADERS: u32 = 11;

/// The only metadata context served.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";
/// The identifier of [`ALLOCATION_CONTEXT`] in replies to `SET_META_CONTEXT` and `BLOCK_STATUS`.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;
/// Status bit 0 of `base:allocation`: the extent takes no space.
pub const STATUS_HOLE: u32 = 1 << 0;
/// Status bit 1 of `base:allocation`: the extent reads as zeroes.
pub const STATUS_ZERO: u32 = 1 << 1;

/// Chunk flag bit 0: the last chunk of a reply.
pub const CHUNK_DONE: u16 = 1 << 0;

/// The type of a reply to an option ("Option reply types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OptionReply {
    /// The option is complete.
    Ack = 1,
    /// One export of a list.
    Server = 2,
    /// One piece of information on an export.
    Info = 3,
    /// One metadata context.
    MetaContext = 4,
    /// Option not known here.
    Unsupported = (1 << 31) + 1,
    /// Option not allowed here and now.
    Policy = (1 << 31) + 2,
    /// Malformed or misplaced option.
    Invalid = (1 << 31) + 3,
    /// Option allowed only after `NBD_OPT_STARTTLS`.
    TlsRequired = (1 << 31) + 5,
    /// No export of this name.
    UnknownExport = (1 << 31) + 6,
    /// The server is stopping.
    Shutdown = (1 << 31) + 7,
    /// More data than the server is willing to process.
    TooBig = (1 << 31) + 9,
}

/// The kind of information in an [`OptionReply::Info`] (`NBD_INFO_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Information {
    /// Size and transmission flags.
    Export = 0,
    /// The export's own name.
    Name = 1,
    /// Text for people.
    Description = 2,
    /// Minimum block, preferred block, maximum payload.
    BlockSize = 3,
}

/// The type of a structured reply chunk ("Structured reply types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Chunk {
    /// No content; always the last.
    None = 0,
    /// A run of data.
    OffsetData = 1,
    /// A run of zeroes, not sent.
    OffsetHole = 2,
    /// Extents of one metadata context.
    BlockStatus = 5,
    /// The request failed.
    Error = (1 << 15) + 1,
    /// The request failed at an offset.
    ErrorOffset = (1 << 15) + 2,
}

/// The error values of the protocol ("Error values"); a server sends no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// `NBD_EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `NBD_EIO`: the storage failed.
    InputOutput = 5,
    /// `NBD_ENOMEM`: avoid; the specification asks servers to wait for memory instead.
    OutOfMemory = 12,
    /// `NBD_EINVAL`: malformed request, or a read beyond the end.
    Invalid = 22,
    /// `NBD_ENOSPC`: no space, or a write beyond the end.
    NoSpace = 28,
    /// `NBD_EOVERFLOW`: only for reads that may not be fragmented.
    Overflow = 75,
    /// `NBD_ENOTSUP`: only for writes of zeroes with `FAST_ZERO`.
    NotSupported = 95,
    /// `NBD_ESHUTDOWN`: the server is stopping.
    Shutdown = 108,
}

/// The commands that a caller sees ("Request types"). `NBD_CMD_DISC` ends the session and is never one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read = 0,
    /// `NBD_CMD_WRITE`.
    Write = 1,
    /// `NBD_CMD_FLUSH`.
    Flush = 3,
    /// `NBD_CMD_TRIM`.
    Trim = 4,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes = 6,
    /// `NBD_CMD_BLOCK_STATUS`.
    BlockStatus = 7,
}

/// `NBD_CMD_DISC`.
pub const COMMAND_DISCONNECT: u16 = 2;

impl Command {
    /// Decodes the number of a command; `None` if it is not served.
    pub fn from_number(number: u16) -> Option<Command> {
        Some(match number {
            0 => Command::Read,
            1 => Command::Write,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => return None,
        })
    }

    /// Returns true for the commands that change the export: WRITE, TRIM and WRITE_ZEROES.
    pub fn writes(self) -> bool {
        match self {
            Command::Write | Command::Trim | Command::WriteZeroes => true,
            Command::Read | Command::Flush | Command::BlockStatus => false,
        }
    }

    /// Returns the flags that the command may carry. FUA must be accepted on all ("Command flags", bit 0).
    pub fn permitted_flags(self) -> CommandFlags {
        let own = match self {
            Command::Read => CommandFlags::DO_NOT_FRAGMENT,
            Command::WriteZeroes => CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO,
            Command::BlockStatus => CommandFlags::ONE_EXTENT,
            Command::Write | Command::Flush | Command::Trim => 0,
        };
        CommandFlags(CommandFlags::FORCE_UNIT_ACCESS | own)
    }
}

/// The flags of a request ("Command flags").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommandFlags(pub u16);

impl CommandFlags {
    /// Bit 0, `FUA`.
    pub const FORCE_UNIT_ACCESS: u16 = 1 << 0;
    /// Bit 1, `NO_HOLE`.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Bit 2, `DF`.
    pub const DO_NOT_FRAGMENT: u16 = 1 << 2;
    /// Bit 3, `REQ_ONE`.
    pub const ONE_EXTENT: u16 = 1 << 3;
    /// Bit 4, `FAST_ZERO`.
    pub const FAST_ZERO: u16 = 1 << 4;

    /// Returns true if the reply must wait until the data that the command wrote is on stable storage.
    pub fn force_unit_access(self) -> bool {
        self.0 & Self::FORCE_UNIT_ACCESS != 0
    }

    /// Returns true if the zeroes must be fully provisioned.
    pub fn no_hole(self) -> bool {
        self.0 & Self::NO_HOLE != 0
    }

    /// Returns true if the reply may have at most one content chunk.
    pub fn do_not_fragment(self) -> bool {
        self.0 & Self::DO_NOT_FRAGMENT != 0
    }

    /// Returns true if the reply must have exactly one extent, no longer than the request.
    pub fn one_extent(self) -> bool {
        self.0 & Self::ONE_EXTENT != 0
    }

    /// Returns true if the command must fail with [`ErrorCode::NotSupported`] unless it is faster than a write.
    pub fn fast_zero(self) -> bool {
        self.0 & Self::FAST_ZERO != 0
    }

    /// Returns true if every flag that is set is also set in `permitted`.
    pub fn within(self, permitted: CommandFlags) -> bool {
        self.0 & !permitted.0 == 0
    }
}

/// The fields of a request header after its magic, unjudged ("Request message").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Command flags.
    pub flags: CommandFlags,
    /// Command number.
    pub command: u16,
    /// Cookie that the reply echoes.
    pub cookie: u64,
    /// Offset in bytes from the start of the export.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
}

impl RequestHeader {
    /// Decodes a header; `None` if it does not begin with [`REQUEST_MAGIC`].
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<RequestHeader> {
        let mut reader = Reader::new(bytes);
        if reader.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(RequestHeader {
            flags: CommandFlags(reader.u16()?),
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
        })
    }

    /// Appends the header with its magic, as a client sends it.
    pub fn encode(&self, output: &mut Vec<u8>) {
        put_u32(output, REQUEST_MAGIC);
        put_u16(output, self.flags.0);
        put_u16(output, self.command);
        put_u64(output, self.cookie);
        put_u64(output, self.offset);
        put_u32(output, self.length);
    }
}

/// A reader of integers and strings from untrusted bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Takes the next `length` bytes; `None`, and nothing consumed, if there are fewer.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(length)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const LENGTH: usize>(&mut self) -> Option<[u8; LENGTH]> {
        let (head, tail) = self.rest.split_first_chunk::<LENGTH>()?;
        self.rest = tail;
        Some(*head)
    }

    /// Takes the next two bytes as a 16-bit integer.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Takes the next four bytes as a 32-bit integer.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Takes the next eight bytes as a 64-bit integer.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes the next 32-bit integer as a length in memory; `None` also if `usize` is too small for it.
    pub fn length(&mut self) -> Option<usize> {
        self.u32().and_then(|length| usize::try_from(length).ok())
    }

    /// Returns the number of bytes that are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
}

/// Appends a 16-bit integer in big-endian order, like all NBD integers.
pub fn put_u16(output: &mut Vec<u8>, value: u16) {
    output.extend_from_slice(&value.to_be_bytes());
}

/// Appends a 32-bit integer.
pub fn put_u32(output: &mut Vec<u8>, value: u32) {
    output.extend_from_slice(&value.to_be_bytes());
}

/// Appends a 64-bit integer.
pub fn put_u64(output: &mut Vec<u8>, value: u64) {
    output.extend_from_slice(&value.to_be_bytes());
}

/// Appends the header of an option reply of `data_bytes` bytes ("Fixed newstyle negotiation").
pub fn put_option_reply(output: &mut Vec<u8>, option: u32, reply: OptionReply, data_bytes: u32) {
    put_u64(output, OPTION_REPLY_MAGIC);
    put_u32(output, option);
    put_u32(output, reply as u32);
    put_u32(output, data_bytes);
}

/// Appends a simple reply without its payload ("Simple reply message"). `None` means success.
pub fn put_simple_reply(output: &mut Vec<u8>, error: Option<ErrorCode>, cookie: u64) {
    put_u32(output, SIMPLE_REPLY_MAGIC);
    put_u32(output, error.map_or(0, |code| code as u32));
    put_u64(output, cookie);
}

/// Appends a chunk header of `payload_bytes` bytes ("Structured reply chunk message").
pub fn put_chunk(output: &mut Vec<u8>, flags: u16, chunk: Chunk, cookie: u64, payload_bytes: u32) {
    put_u32(output, CHUNK_MAGIC);
    put_u16(output, flags);
    put_u16(output, chunk as u16);
    put_u64(output, cookie);
    put_u32(output, payload_bytes);
}
