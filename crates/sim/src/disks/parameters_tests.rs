use super::*;
use crate::disks::drive::{Drive, ReadAhead, WriteCache};
use crate::random::Random;

/// A drive of two zones in one file, another file for its seek times.
const DRIVE: &str = "
# A comment.
disksim_bus BUS0 { type = 1, Arbitration time = 0.0 } # end
disksim_disk SMALL {
   Model = dm_disk SMALL_model {
      Number of data surfaces = 2,
      Number of cylinders = 20,
      Block count = 100000,
      Layout Model = dm_layout_g1 {
         LBN-to-PBN mapping scheme = 0, Sparing scheme used = 2, Rangesize for sparing = 1,
         Zones = [
            dm_layout_g1_zone {
               First cylinder number = 0, Last cylinder number = 9, Blocks per track = 100,
               Skew for track switch = 10.0, Skew for cylinder switch = 20.0,
               Number of spares = 4, slips = [ 7, 1000 ], defects = []
            },
            dm_layout_g1_zone {
               First cylinder number = 11, Last cylinder number = 19, Blocks per track = 50,
               Number of spares = 4
            }
         ]
      },
      Mechanical Model = dm_mech_g1 {
         Access time type = trackSwitchPlusRotation,
         Seek type = extracted,
         Full seek curve = small.seek
         Head switch time = 0.5,
         Rotation speed (in rpms) = 6000
      }
   },
   Scheduler = disksim_ioqueue { Scheduling policy = 1 },
   Bulk sector transfer time = 0.1,
   Number of buffer segments = 3,
   Segment size (in blks) = 64,
   Buffer continuous read = 3,
   Fast write level = 2,
   Read hit over. after read = 0.25,
}
instantiate [ disk0 ] as SMALL
topology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_disk disk0 [] ] ]
";
const SEEKS: &str = "Seek distances measured: 3\n1,\t1.0\n5,\t3.0\n15, 4.0\n";

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("sim-parameters-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    fn load(&self, parameters: &str, seeks: &str) -> Result<Drive, Problem> {
        std::fs::write(self.0.join("small.parv"), parameters).expect("a file");
        std::fs::write(self.0.join("small.seek"), seeks).expect("a file");
        Drive::load(&self.0, "small")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_drive_is_what_its_files_say() {
    let drive = Directory::new("right").load(DRIVE, SEEKS).expect("right files");
    assert_eq!(drive.name, "SMALL");
    let geometry = &drive.geometry;
    assert_eq!((geometry.surfaces, geometry.revolution, geometry.head_switch), (2, 10_000_000, 500_000));
    assert_eq!(geometry.sectors, 10 * 196 - 2 + 9 * 96, "fewer than the block count: what the zones hold");
    assert_eq!((geometry.seek(0), geometry.seek(1), geometry.seek(3)), (0, 1_000_000, 2_000_000));
    assert_eq!((geometry.seek(10), geometry.seek(19)), (3_500_000, 4_000_000));
    assert_eq!(geometry.locate(7).place, 8, "the seventh is slipped");
    assert_eq!(geometry.zones[0].track_skew, 1_000_000);
    assert_eq!(drive.overheads.read_hit, [250_000, 0]);
    assert_eq!((drive.bus_sector, drive.segments, drive.segment_sectors), (100_000, 3, 64));
    assert_eq!((drive.read_ahead, drive.write_cache), (ReadAhead::Segment, WriteCache::On));
}

#[test]
fn a_problem_names_the_file_and_the_line() {
    let directory = Directory::new("wrong");
    let problem = |from: &str, to: &str| {
        assert!(DRIVE.contains(from), "{from}");
        let problem = directory.load(&DRIVE.replacen(from, to, 1), SEEKS).expect_err(from).to_string();
        problem.rsplit_once('/').expect("a path").1.to_owned()
    };
    assert_eq!(
        problem("surfaces = 2", "surfaces = 0"),
        "small.parv:6: 'Number of data surfaces' must be a whole number from 1 to 256"
    );
    assert_eq!(
        problem("Number of buffer", "Nr of buffer"),
        "small.parv:4: 'Number of buffer segments' is missing in the block disksim_disk SMALL"
    );
    assert_eq!(
        problem("= extracted", "= guessed"),
        "small.parv:25: 'Seek type' must be constant, linear, curve, hpl, hplplus10 or extracted"
    );
    assert_eq!(problem("Fast write level = 2", "Fast write level = {"), "small.parv:36: expected a value, found '{'");
    assert!(
        problem("cylinder number = 11", "cylinder number = 9").starts_with("small.parv:18: 'First cylinder number'")
    );
    assert!(problem("small.seek", "none.seek").starts_with("none.seek: cannot be read: "));
    assert!(
        problem("disksim_bus BUS0 { type", "source small.parv x { type").contains("more than 24 files or blocks deep")
    );
    assert!(problem("disksim_disk SMALL", "disksim_disc SMALL").contains("has no block disksim_disk"));
    for (seeks, what) in [("1,\t1.0\n1, 2.0", "small.seek:2: "), ("x", "small.seek:1: "), ("", "small.seek: ")] {
        assert!(directory.load(DRIVE, seeks).expect_err(seeks).to_string().contains(what));
    }
}

#[test]
fn seek_curves_go_through_their_points() {
    let directory = Directory::new("curves");
    let seek = |lines: &str| {
        let drive = DRIVE.replace("Seek type = extracted,", lines);
        directory.load(&drive, SEEKS).map(|drive| drive.geometry.seeks)
    };
    let lee = seek(
        "Seek type = curve, Single cylinder seek time = 2.0, Average seek time = 8.9, Full strobe seek time = 21.0,",
    );
    assert_eq!(lee.expect("right")[1], 2_000_000);
    let hpl = seek("Seek type = hpl, HPL seek equation values = [ 5, 1.0, 0.5, 2.0, 0.1, 0.9 ],").expect("right");
    assert_eq!((hpl[1], hpl[4], hpl[10]), (900_000, 2_000_000, 3_000_000));
    let line = seek("Seek type = linear, Single cylinder seek time = 1.0, Full strobe seek time = 10.0,");
    let line = line.expect("right");
    assert_eq!((line[1], line[10], line[19]), (1_000_000, 5_500_000, 10_000_000));
    assert_eq!(seek("Seek type = constant, Average seek time = 3.0,").expect("right")[7], 3_000_000);
    assert!(seek("Seek type = hpl, HPL seek equation values = [ 5 ],").is_err());
}

/// Checks that damaged bytes give a drive that works, or a problem that names the file.
#[test]
fn damaged_files_are_problems_and_never_panics() {
    let directory = Directory::new("damaged");
    let mut random = Random::new(1);
    for round in 0..200 {
        let mut text = DRIVE.as_bytes().to_vec();
        for _ in 0..=random.draw() % 3 {
            let at = (random.draw() % text.len() as u64) as usize;
            match round % 4 {
                0 => text.truncate(at.max(1)),
                1 => text[at] = b" {}[]=,#09.-eE"[(random.draw() % 14) as usize],
                2 => _ = text.remove(at),
                _ => text.insert(at, b"9{[=,-"[(random.draw() % 6) as usize]),
            }
        }
        match directory.load(&String::from_utf8_lossy(&text), SEEKS) {
            Ok(drive) => {
                for sector in [0, drive.geometry.sectors / 2, drive.geometry.sectors - 1] {
                    assert!(drive.geometry.locate(sector).sectors > 0);
                }
            }
            Err(problem) => assert!(!problem.what.is_empty() && problem.file.starts_with(&directory.0)),
        }
    }
}
