//! Policies: which known blocks a write shares. `full` shares whatever it finds by looking up, `native` does not look.
//!
//! (POD's Select-Dedupe and iDedup decide over runs in a request; their place is here, and they see the whole piece.)

use crate::contract::Policy;

impl Policy {
    /// Whether the policy looks at what the index knows, and shares it.
    pub(crate) fn looks_up(self) -> bool {
        match self {
            Policy::Native => false,
            Policy::Full => true,
        }
    }

    /// Reads the number in the volume table.
    pub(crate) fn from_code(code: u8) -> Option<Policy> {
        match code {
            0 => Some(Policy::Native),
            1 => Some(Policy::Full),
            _ => None,
        }
    }

    /// The number in the volume table.
    pub(crate) fn code(self) -> u8 {
        match self {
            Policy::Native => 0,
            Policy::Full => 1,
        }
    }
}
