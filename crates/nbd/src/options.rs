//! Decoders for the data of options, with their limits. They have no state.
//!
//! Invariants:
//! - every length is checked against the available bytes before it is used (CVE-2022-26495, CVE-2022-26496);
//! - decoded values borrow from the option's data; nothing is allocated.

use crate::wire::{ALLOCATION_CONTEXT, Information, MAXIMUM_STRING_BYTES, OptionReply, Reader};

/// Maximum number of queries in one option on metadata contexts.
pub const MAXIMUM_META_QUERIES: u32 = 1024;

/// Reason for the refusal of an option: the reply's type and a text for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub reply: OptionReply,
    pub message: &'static str,
}

impl Rejection {
    pub(crate) const fn invalid(message: &'static str) -> Rejection {
        Rejection { reply: OptionReply::Invalid, message }
    }

    pub(crate) const UNKNOWN_EXPORT: Rejection =
        Rejection { reply: OptionReply::UnknownExport, message: "no such export" };

    pub(crate) const SHUTDOWN: Rejection =
        Rejection { reply: OptionReply::Shutdown, message: "the server is shutting down" };
}

/// The data of `NBD_OPT_INFO` and `NBD_OPT_GO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportQuery<'a> {
    pub name: &'a str,
    pub wants_name: bool,
    pub wants_description: bool,
    pub wants_block_size: bool,
}

/// Decodes the data of `NBD_OPT_INFO` and `NBD_OPT_GO`. Requests for unknown information are ignored.
pub(crate) fn decode_export_query(data: &[u8]) -> Result<ExportQuery<'_>, Rejection> {
    const SHORT: Rejection = Rejection::invalid("the option is shorter than its fields say");
    let mut reader = Reader::new(data);
    let name_bytes = reader.length().ok_or(SHORT)?;
    let name = decode_string(reader.bytes(name_bytes).ok_or(SHORT)?)?;
    let requests = reader.u16().ok_or(SHORT)?;
    if reader.remaining() != usize::from(requests) * size_of::<u16>() {
        return Err(Rejection::invalid("the number of information requests does not fit the option's length"));
    }
    let mut query = ExportQuery { name, wants_name: false, wants_description: false, wants_block_size: false };
    while let Some(request) = reader.u16() {
        query.wants_name |= request == Information::Name as u16;
        query.wants_description |= request == Information::Description as u16;
        query.wants_block_size |= request == Information::BlockSize as u16;
    }
    Ok(query)
}

/// The data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`, reduced to the one context served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetaQuery<'a> {
    pub name: &'a str,
    /// No query at all: it means everything in a list, and nothing in a selection.
    pub is_empty: bool,
    /// `base:allocation` itself.
    pub names_allocation: bool,
    /// `base:` alone: it means all of the namespace in a list, and nothing in a selection.
    pub names_namespace: bool,
}

/// Decodes the data of `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`. Queries for unknown namespaces and
/// unknown leaves are ignored, as are queries without a namespace.
pub(crate) fn decode_meta_query(data: &[u8]) -> Result<MetaQuery<'_>, Rejection> {
    const SHORT: Rejection = Rejection::invalid("the option is shorter than its fields say");
    let mut reader = Reader::new(data);
    let name_bytes = reader.length().ok_or(SHORT)?;
    let name = decode_string(reader.bytes(name_bytes).ok_or(SHORT)?)?;
    let queries = reader.u32().ok_or(SHORT)?;
    if queries > MAXIMUM_META_QUERIES {
        return Err(Rejection { reply: OptionReply::TooBig, message: "too many queries" });
    }
    let mut meta = MetaQuery { name, is_empty: queries == 0, names_allocation: false, names_namespace: false };
    for _ in 0..queries {
        let query_bytes = reader.length().ok_or(SHORT)?;
        let query = decode_string(reader.bytes(query_bytes).ok_or(SHORT)?)?;
        meta.names_allocation |= query == ALLOCATION_CONTEXT;
        meta.names_namespace |= query == "base:";
    }
    if reader.remaining() != 0 {
        return Err(Rejection::invalid("the option is longer than its fields say"));
    }
    Ok(meta)
}

/// Decodes a string of the protocol: UTF-8, no NUL, at most 4096 bytes ("Conventions").
pub(crate) fn decode_string(bytes: &[u8]) -> Result<&str, Rejection> {
    if bytes.len() > MAXIMUM_STRING_BYTES {
        return Err(Rejection::invalid("a string is longer than 4096 bytes"));
    }
    match std::str::from_utf8(bytes) {
        Ok(string) if !string.contains('\0') => Ok(string),
        Ok(_) => Err(Rejection::invalid("a string holds a NUL")),
        Err(_) => Err(Rejection::invalid("a string is not UTF-8")),
    }
}
