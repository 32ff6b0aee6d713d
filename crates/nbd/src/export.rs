//! Exports: volumes that a client selects by name. [`Exports`] is the handshake's view of them.
//!
//! Invariant of [`ExportInfo`], held by its constructor: the name and the description are strings that the protocol allows. The size fits in a signed
//! 64-bit integer, because clients keep it in one (CVE-2023-5215).

use crate::wire::MAXIMUM_STRING_BYTES;

/// One export: a volume that is ready to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    name: String,
    description: String,
    size_bytes: u64,
    read_only: bool,
    is_default: bool,
    refusal: Option<String>,
}

/// Reason for which an export cannot be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidExport {
    /// The name is empty: clients send the empty name for the default export.
    EmptyName,
    /// A string is longer than 4096 bytes ("Conventions").
    StringTooLong,
    /// A string holds a NUL ("Conventions").
    StringHoldsNul,
    /// The size is 2^63 bytes or more.
    SizeTooLarge,
}

impl std::fmt::Display for InvalidExport {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            InvalidExport::EmptyName => "the name of an export is empty",
            InvalidExport::StringTooLong => "a name or description is longer than 4096 bytes",
            InvalidExport::StringHoldsNul => "a name or description holds a NUL",
            InvalidExport::SizeTooLarge => "the size of an export is 2^63 bytes or more",
        })
    }
}

impl std::error::Error for InvalidExport {}

impl ExportInfo {
    /// Checks the strings and the size, and makes a writable export that is not the default one.
    pub fn new(name: &str, description: &str, size_bytes: u64) -> Result<ExportInfo, InvalidExport> {
        if name.is_empty() {
            return Err(InvalidExport::EmptyName);
        }
        for string in [name, description] {
            if string.len() > MAXIMUM_STRING_BYTES {
                return Err(InvalidExport::StringTooLong);
            }
            if string.contains('\0') {
                return Err(InvalidExport::StringHoldsNul);
            }
        }
        if i64::try_from(size_bytes).is_err() {
            return Err(InvalidExport::SizeTooLarge);
        }
        Ok(ExportInfo {
            name: name.to_owned(),
            description: description.to_owned(),
            size_bytes,
            read_only: false,
            is_default: false,
            refusal: None,
        })
    }

    /// Refuses every command that writes with `EPERM`.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> ExportInfo {
        self.read_only = read_only;
        self
    }

    /// Makes this the default export, which the empty name selects, or not. The first default export in a list wins.
    #[must_use]
    pub fn default_export(mut self, is_default: bool) -> ExportInfo {
        self.is_default = is_default;
        self
    }

    /// Refuses to open the export, for this reason. It is still listed and described.
    #[must_use]
    pub fn refuse(mut self, mut reason: String) -> ExportInfo {
        let end = (0..=MAXIMUM_STRING_BYTES.min(reason.len())).rev().find(|&end| reason.is_char_boundary(end));
        reason.truncate(end.unwrap_or(0));
        self.refusal = Some(reason);
        self
    }

    /// Returns the reason for which the export is not opened; `None` if clients may open it.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Returns the name that clients select the export by; it is never empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text for people; it may be empty.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the size in bytes, below 2^63.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns true if commands that write are refused with `EPERM`.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// The exports that a client can select now. They may change between two calls of [`Session::receive`](crate::Session::receive).
pub trait Exports {
    /// Returns the export of this name; the empty name selects the default export, if there is one.
    fn find(&self, name: &str) -> Option<ExportInfo>;

    /// Returns the number of exports.
    fn count(&self) -> usize;

    /// Returns the names of the exports that follow `name` in the order of bytes, ascending; all of them behind the empty name. Each is one that
    /// [`ExportInfo::new`] takes.
    fn names_after<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a>;
}

impl Exports for Vec<ExportInfo> {
    fn find(&self, name: &str) -> Option<ExportInfo> {
        let selects = |export: &&ExportInfo| if name.is_empty() { export.is_default } else { export.name == name };
        self.iter().find(selects).cloned()
    }

    fn count(&self) -> usize {
        self.len()
    }

    fn names_after<'a>(&'a self, name: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        let mut names: Vec<&str> = self.iter().map(ExportInfo::name).filter(|&other| other > name).collect();
        names.sort_unstable();
        Box::new(names.into_iter())
    }
}
