//! Seeds of the fuzz targets: inputs of each target that are well-formed for the most part.

use super::pool::BLOCK;

/// Name of a file of the corpus, and its content.
pub type Seed = (String, Vec<u8>);

/// Function that tests an input.
pub type Target = fn(&[u8]);

/// Targets by the name of their directory in `fuzz/corpus`, each with the function that tests an input.
pub const TARGETS: [(&str, Target); 5] = [
    ("nbd_wire", super::protocol::wire),
    ("nbd_session", super::protocol::session),
    ("disk_decoders", super::disk::decoders),
    ("journal_replay", replay),
    ("pool_image", open_image),
];

fn replay(data: &[u8]) {
    super::disk::journal(data);
}

fn open_image(data: &[u8]) {
    super::disk::image(data);
}

/// Returns the seeds of a target; none if its name is unknown.
pub fn of(target: &str) -> Vec<Seed> {
    let bytes = match target {
        "nbd_wire" => wire(),
        "nbd_session" => session(),
        "disk_decoders" => decoders(),
        "journal_replay" => journal(),
        "pool_image" => image(),
        _ => Vec::new(),
    };
    bytes.into_iter().enumerate().map(|(number, bytes)| (format!("seed-{number:02}"), bytes)).collect()
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat()
}

fn request(command: u16, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    let header = nbd::wire::RequestHeader {
        flags: nbd::wire::CommandFlags(flags),
        command,
        cookie: 0x1234_5678_9abc_def0,
        offset,
        length,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    bytes
}

fn wire() -> Vec<Vec<u8>> {
    let context = [string("disk"), 1_u32.to_be_bytes().to_vec(), string("base:allocation")].concat();
    let information = [string("disk"), vec![0, 2, 0, 1, 0, 3]].concat();
    let options = [
        (1, b"big".to_vec()),
        (3, vec![]),
        (5, vec![]),
        (6, information.clone()),
        (7, information),
        (9, context.clone()),
        (10, context),
    ];
    let options = options.into_iter().map(|(number, data)| [vec![number], data].concat());
    options.chain([request(0, 4, 4096, 8192), request(1, 1, 0, 512)]).collect()
}

fn session() -> Vec<Vec<u8>> {
    let requests = [
        request(0, 0, 4096, 8192),
        [request(1, 1, 512, 10), vec![7; 10]].concat(),
        [request(1, 0, 1 << 20, 20), vec![7; 20]].concat(),
        request(3, 0, 0, 0),
        request(4, 0, 0, 1 << 19),
        request(6, 0x12, 100, 5000),
        request(7, 8, 0, 1 << 20),
        request(0, 4, 1, 100_000),
    ]
    .concat();
    let bye = request(2, 0, 0, 0);
    let mut seeds = Vec::new();
    for choice in [3, 7, 0x13, 0x23, 0x17, 0x83, 0x43, 5] {
        seeds.push([&[choice, 40][..], &requests, &bye].concat());
    }
    let option = |number: u32, data: &[u8]| {
        [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let haggle =
        [option(3, &[]), option(8, &[]), option(6, &[string("big"), vec![0, 0]].concat()), option(1, b"disk")].concat();
    seeds.push([&[0, 5, 0, 0, 0, 1][..], &haggle, &requests].concat());
    seeds.push([&[1, 200][..], &haggle, &requests].concat());
    // Many exports.
    seeds.push([&[9, 3][..], &haggle, &requests].concat());
    seeds
}

fn decoders() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for number in (0..80).step_by(5) {
        seeds.push([&[number % 2, number % 4, number, 16, 0][..], &[number; 24]].concat());
    }
    // Entries of the volume table of a family: parent, volume and epoch.
    for number in (8..48).step_by(4) {
        seeds
            .push([&[8, number % 4, number, 128 + number % 3 * 4, 0][..], &[number % 8, 0, 0, 0, 1, 0, 0, 0]].concat());
    }
    // The fields of a superblock: two bytes of offset.
    for (at, field) in [(88_u16, 4096_u32), (100, 16), (108, 2), (192, 20), (196, 3)] {
        seeds.push([&at.to_le_bytes()[..], &field.to_le_bytes()].concat());
    }
    seeds
}

fn journal() -> Vec<Vec<u8>> {
    let entry = |kind: u8, volume: u8, lba: u16, value: u16| {
        [&[kind, volume][..], &lba.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    let mut seeds = Vec::new();
    for marks in [0, 1, 2] {
        let records = [
            vec![3, marks],
            entry(3, 1, 30, 0),
            entry(5, 2, 0, 600),
            entry(4, 1, 2, 0),
            vec![0x42, marks],
            entry(2, 1, 7, 60),
            entry(7, 1, 0, 80),
            vec![2, marks],
            entry(1, 1, 70, 61),
            entry(6, 2, 0, 0),
        ]
        .concat();
        for how in [0, 1, 3] {
            seeds.push([&[marks & 1, how][..], &records].concat());
        }
    }
    for how in [0, 1, 3] {
        let snapshot =
            |kind, lba, value| [vec![1, 1], entry(kind, 3, lba, value), vec![1, 1], entry(kind, 5, lba, value)];
        let changes = [snapshot(3, 0, 1), snapshot(1, 1, 70), snapshot(4, 2, 0), snapshot(5, 0, 9), snapshot(6, 0, 0)];
        let deleted = [vec![1, 1], entry(6, 6, 0, 0), vec![1, 1], entry(6, 1, 0, 0)].concat();
        seeds.push([vec![8, how], deleted.clone(), changes[4].concat()].concat());
        changes.iter().for_each(|changes| seeds.push([vec![8, how], changes.concat(), deleted.clone()].concat()));
    }
    seeds.push([&[3, 0, 0, 0][..], b"OFJ1", &[1, 0, 0, 0, 9], &[0; BLOCK / 8]].concat());
    seeds.push([&[5, 3, 2, 0][..], &entry(5, 1, 0, 9)].concat());
    seeds
}

fn image() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for number in 0..16_u8 {
        let change =
            |what: u8, place: u8, at: u16, bytes: &[u8]| [&[what, place][..], &at.to_le_bytes(), bytes].concat();
        let bytes = [
            change(7, number * 5, u16::from(number) * 24, &[number, 0, 0, 0, 0, 0, 0, 0]),
            change(0, 40 + number, 16, &[number]),
            change(0xc0, number * 3, 7, &[]),
        ];
        let bytes = &bytes[..1 + usize::from(number) % 3];
        seeds.push([&[number & 3, number / 4][..], &bytes.concat()].concat());
        seeds.push([&[8, number / 4][..], &bytes.concat()].concat());
    }
    seeds
}
