//! A reader of fuzzer input as a sequence of values.

/// A reader of values from bytes; where the bytes end, zeroes follow.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Returns true if no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the next `count` bytes, or all that are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count.min(self.0.len()));
        self.0 = tail;
        head
    }

    fn array<const LENGTH: usize>(&mut self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        let given = self.take(LENGTH);
        bytes[..given.len()].copy_from_slice(given);
        bytes
    }

    /// Takes the next byte.
    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Takes the next two bytes, little endian.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// Takes the next eight bytes, little endian.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
