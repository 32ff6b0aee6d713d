//! Parser tests with good and bad lines of every format.

use clap::ValueEnum;
use proptest::prelude::*;

use super::format::Parser;
use super::record::Line;
use super::{Format, Request, ZEROES, fiu};

/// Time, whether it writes, first block, blocks.
type Place = (u64, bool, u64, u32);

/// A good line of each format, and the request that it is, without contents.
const GOOD: [(Format, &str, Place); 9] = [
    (
        Format::Fiu,
        "89966811921625 4257 nfsd 488846200 8 W 6 0 2c4787c7671c2f638777c4ab72859ce1",
        (89_966_811_921_625, true, 61_105_775, 1),
    ),
    (
        Format::Fiu,
        "3\t89966811921625\t4257\tnfsd\t16\t16\tR\t6\t0\t2c4787c7671c2f638777c4ab72859ce12c4787c7671c2f638777c4ab72859ce1",
        (89_966_811_921_625, false, 2, 2),
    ),
    (Format::Fiu, "5 1 kworker of two words 8 8 W 6 0", (5, true, 1, 1)),
    (Format::Msr, "128166372003061629,hm,0,Read,383496192,32768,1131", (12_816_637_200_306_162_900, false, 93_627, 8)),
    (Format::CloudPhysics, "1,5633898,2a,6656,40409911", (5_633_898_000_000_000, true, 5_051_238, 3)),
    (Format::MqSim, "938513000 4 264719034 16 0", (938_513_000, true, 33_089_879, 3)),
    (
        Format::Blkparse,
        "  8,0    3        1     1.000000009   697  Q   R 223488 + 8 [kjournald]",
        (1_000_000_009, false, 27_936, 1),
    ),
    (Format::DiskSim, "12.345678 0 8 7 0", (12_345_678, true, 1, 1)),
    (Format::DiskSim, "R Hit    2992396   4  13670.00000  35942.00000", (0, false, 374_049, 1)),
];

fn request(format: Format, line: &str) -> Option<Request> {
    match Parser::new(format).line(line.as_bytes(), 2) {
        Ok(Line::Record(record)) => Some(record.request()),
        _ => None,
    }
}

#[test]
fn a_line_of_each_format_is_its_request_and_no_line_of_another() {
    for (format, line, (at, writes, block, blocks)) in GOOD {
        let request = request(format, line).unwrap_or_else(|| panic!("{line}"));
        assert_eq!((request.at, request.writes, request.block, request.blocks), (at, writes, block, blocks), "{line}");
        for other in Format::value_variants().iter().filter(|&&other| other != format) {
            // Documented: whole milliseconds of DiskSim look like MQSim's ns, and MQSim comes first.
            if (format, *other) != (Format::MqSim, Format::DiskSim) {
                assert_eq!(self::request(*other, line), None, "{line} as {}", other.name());
            }
        }
    }
}

#[test]
fn requests_cover_the_blocks_that_they_touch_and_keep_contents_only_of_whole_ones() {
    let of = |first, sectors, digests: &str| {
        let request = request(Format::Fiu, &format!("5 1 a {first} {sectors} W 6 0 {digests}")).expect("it is good");
        (request.block, request.blocks, request.contents.len())
    };
    let digest = "2c4787c7671c2f638777c4ab72859ce1";
    assert_eq!(of(16, 8, digest), (2, 1, 1));
    assert_eq!(of(16, 16, &digest.repeat(2)), (2, 2, 2));
    // One sector more, and 63 sectors in front of a partition.
    assert_eq!(of(16, 9, &digest.repeat(2)), (2, 2, 0));
    assert_eq!(of(63 + 16, 8, digest), (9, 2, 0));
    // Digests of sectors, as homes has them.
    assert_eq!(of(16, 8, &digest.repeat(8)), (2, 1, 1));
    assert_eq!(of(16, 2, &digest.repeat(2)), (2, 1, 0));
    assert_eq!(of(16, 1, digest), (2, 1, 0));
}

#[test]
fn zero_pages_are_zeroes_whichever_digest_says_so() {
    let content =
        |digests: &str| request(Format::Fiu, &format!("5 1 a 8 8 W 6 0 {digests}")).expect("it is good").contents;
    assert_eq!(content("620f0b67a91f7f74151bc5be745b7110"), [ZEROES]);
    assert_eq!(content("3DF1244F6143869F52ABF2A1D73D0C0F"), [ZEROES]);
    assert_eq!(content(&"bf619eac0cdf3f68d496ea9344137e8b".repeat(8)), [ZEROES]);
    let seven = "bf619eac0cdf3f68d496ea9344137e8b".repeat(7) + "3f4fc2833a17fd2a3dacad7c0e8ca8ad";
    assert_ne!(content(&seven), [ZEROES]);
    assert_ne!(content("bf619eac0cdf3f68d496ea9344137e8b"), [ZEROES]);
}

#[test]
fn stages_totals_discards_and_flushes_of_blkparse_are_passed_over() {
    let passed = [
        "  8,0    3        1     1.000000009   697  C   R 223488 + 8 [0]",
        "  8,0    3        1     1.000000009   697  Q   D 223488 + 8 [fstrim]",
        "  8,0    3        1     1.000000009   697  Q FWS [jbd2/sda1-8]",
        "  8,0    1        3     0.000004005   697  P   N [kjournald]",
        "  8,0    1        3     0.000004005   697  m   N cfq697 insert_request",
        "CPU0 (sda):",
        " Reads Queued:           4,       16KiB\t Writes Queued:          79,      316KiB",
        "Throughput (R/W): 0KiB/s / 91KiB/s",
    ];
    for line in passed {
        assert!(matches!(Parser::new(Format::Blkparse).line(line.as_bytes(), 7), Ok(Line::Other)), "{line}");
    }
    assert!(Parser::new(Format::Blkparse).line(b"  8,0 3 1 1.000000009 697 Q R 223488 - 8 [a]", 7).is_err());
}

#[test]
fn a_measured_request_comes_when_the_one_before_has_completed_and_the_thinking_is_over() {
    let mut parser = Parser::new(Format::DiskSim);
    let mut at = |line: &str| match parser.line(line.as_bytes(), 1) {
        Ok(Line::Record(record)) => record.at,
        other => panic!("{other:?}"),
    };
    assert_eq!(at("R Hit 8 4 13670.00000 35942.00000"), 0);
    assert_eq!(at("W Miss 8 4 1.50000 2.00000"), 49_612_000);
    assert_eq!(at("R Hit 8 4 0.0 0.0"), 49_615_500);
}

/// Makes lines that are nearly good: fields of good ones, some of them replaced.
fn nearly_good() -> impl Strategy<Value = String> {
    let odd = prop_oneof![
        Just(String::new()),
        Just("18446744073709551615".to_string()),
        Just("9007199254740993".to_string()),
        Just("-1".to_string()),
        Just("NaN".to_string()),
        Just("1e308".to_string()),
        Just("inf".to_string()),
        Just("\u{e9}\u{1f600}".to_string()),
        Just("R".to_string()),
        Just("0".to_string()),
        "[0-9a-f]{0,70}",
        "[0-9]{1,20}",
    ];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), odd), 0..4);
    (prop::sample::select(GOOD.map(|(_, line, _)| line).to_vec()), changes).prop_map(|(line, changes)| {
        let separator =
            line.chars().find(|&char| char == ',' || char == '\t').filter(|_| !line.contains("8,0")).unwrap_or(' ');
        let mut fields: Vec<String> =
            line.split(separator).filter(|field| !field.is_empty()).map(str::to_string).collect();
        for (index, odd) in changes {
            let index = index.index(fields.len());
            fields[index] = odd;
        }
        fields.join(&separator.to_string())
    })
}

proptest! {
    #[test]
    fn no_line_makes_a_reader_panic(lines in prop::collection::vec(prop_oneof![
        nearly_good().prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..200),
    ], 1..8)) {
        for &format in Format::value_variants() {
            let mut parser = Parser::new(format);
            for (line, number) in lines.iter().zip(1..) {
                if let Ok(Line::Record(record)) = parser.line(line, number) {
                    let request = record.request();
                    prop_assert!(request.blocks > 0);
                    prop_assert!(request.block.checked_add(u64::from(request.blocks)).is_some());
                    prop_assert!(request.contents.is_empty() || request.contents.len() == request.blocks as usize);
                }
            }
        }
    }

    #[test]
    fn contents_that_are_written_as_digests_are_read_as_the_same_classes(contents in prop::collection::vec(0..20_u64, 2)) {
        let read: Vec<_> = contents
            .iter()
            .map(|&content| request(Format::Fiu, &format!("5 1 a 8 8 W 6 0 {}", fiu::digest(content))).expect("it is good").contents[0])
            .collect();
        prop_assert_eq!(contents[0] == contents[1], read[0] == read[1]);
        prop_assert_eq!(contents[0] == ZEROES, read[0] == ZEROES);
    }
}
