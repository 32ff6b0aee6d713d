//! Fields on disk: bits of a block that hold the code of a property.

use alloc::format;
use alloc::string::String;

use super::value::Code;

/// A part of a field: consecutive bits of little-endian bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bits {
    /// First byte.
    at: usize,
    /// First bit in that byte.
    shift: u8,
    /// Number of bits.
    count: u8,
    /// True if the number there is one less than its part of the code, and the greatest for 0.
    is_one_less: bool,
}

impl Bits {
    /// Makes a part of whole bytes, eight at most.
    pub(crate) const fn bytes(at: usize, bytes: u8) -> Bits {
        assert!(bytes >= 1 && bytes <= 8);
        Bits { at, shift: 0, count: 8 * bytes, is_one_less: false }
    }

    /// Makes a part of some bits of a byte.
    pub(crate) const fn of_byte(at: usize, shift: u8, count: u8) -> Bits {
        assert!(count >= 1 && shift + count <= 8);
        Bits { at, shift, count, is_one_less: false }
    }

    /// Makes a part of a byte that has one less than its part of the code, and 255 for 0.
    pub(crate) const fn byte_less_one(at: usize) -> Bits {
        Bits { is_one_less: true, ..Bits::bytes(at, 1) }
    }

    /// Describes the location: `bytes 36 to 39`, `bit 0 of byte 5`.
    pub(crate) fn location(self) -> String {
        let (at, first, last) = (self.at, self.shift, self.shift + self.count - 1);
        match self.count {
            8 if first == 0 => format!("byte {at}"),
            count if count > 8 => format!("bytes {at} to {}", at + self.byte_count() - 1),
            1 => format!("bit {first} of byte {at}"),
            _ => format!("bits {first} to {last} of byte {at}"),
        }
    }

    /// Returns the greatest number that the part can hold.
    fn most(self) -> Code {
        Code::MAX >> (Code::BITS - u32::from(self.count))
    }

    fn byte_count(self) -> usize {
        usize::from(self.shift + self.count).div_ceil(8)
    }
}

/// Writes a code to a field of a zeroed block: its lowest bits to the first part, the next ones to the second. A part beyond the end of the block is left out.
pub(crate) fn write(field: &[Bits], code: Code, block: &mut [u8]) {
    let mut left = code;
    for part in field {
        let number = left.wrapping_sub(part.is_one_less.into()) & part.most();
        let bytes = (number << part.shift).to_le_bytes();
        if let Some(place) = block.get_mut(part.at..part.at + part.byte_count()) {
            place.iter_mut().zip(&bytes[..part.byte_count()]).for_each(|(place, byte)| *place |= byte);
        }
        left >>= part.count;
    }
    assert!(left == 0, "a property's code fits into its field");
}

/// Reads the code in a field. A part beyond the end of the block is 0.
pub(crate) fn read(field: &[Bits], block: &[u8]) -> Code {
    field.iter().rev().fold(0, |code: Code, part| {
        let mut bytes = [0; size_of::<Code>()];
        if let Some(place) = block.get(part.at..part.at + part.byte_count()) {
            bytes[..part.byte_count()].copy_from_slice(place);
        }
        let number = (Code::from_le_bytes(bytes) >> part.shift).wrapping_add(part.is_one_less.into());
        code << part.count | number & part.most()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_reads_back_from_its_bits_and_leaves_the_others_alone() {
        let fields: [(&[Bits], Code, [u8; 10]); 6] = [
            (&[Bits::bytes(1, 8)], u64::MAX as Code - 2, [0, 0xfd, 255, 255, 255, 255, 255, 255, 255, 0]),
            (&[Bits::bytes(8, 2)], 0x1234, [0, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12]),
            (&[Bits::of_byte(3, 2, 5)], 0b10011, [0, 0, 0, 0b100_1100, 0, 0, 0, 0, 0, 0]),
            (&[Bits::byte_less_one(9)], 0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 255]),
            (&[Bits::byte_less_one(0)], 7, [6, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (&[Bits::bytes(9, 1), Bits::of_byte(0, 7, 1)], 0x134, [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x34]),
        ];
        for (field, code, expected) in fields {
            let mut block = [0; 10];
            write(field, code, &mut block);
            assert_eq!(block, expected);
            assert_eq!(read(field, &block), code);
            if field.iter().all(|part| !part.is_one_less) {
                assert_eq!(read(field, &expected.map(|byte| !byte)), !code & read(field, &[255; 10]));
            }
        }
    }

    #[test]
    fn a_part_beyond_the_end_of_a_block_is_left_out() {
        let (field, mut block) = ([Bits::bytes(1, 1), Bits::bytes(2, 2)], [0; 3]);
        write(&field, 0x123456, &mut block);
        assert_eq!((block, read(&field, &block)), ([0, 0x56, 0], 0x56));
    }

    #[test]
    fn locations_count_from_zero() {
        let described = [Bits::bytes(36, 4), Bits::bytes(14, 1), Bits::of_byte(5, 0, 1), Bits::of_byte(251, 2, 5)]
            .map(Bits::location);
        assert_eq!(described, ["bytes 36 to 39", "byte 14", "bit 0 of byte 5", "bits 2 to 6 of byte 251"]);
    }
}
