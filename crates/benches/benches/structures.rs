//! The engine's structures, one operation each: `cargo bench -p benches --bench structures`.

use divan::Bencher;
use engine::bench::Tables;

/// Each operation, on tables of its own that are made once; all but allocation and insertion must find what they look for.
macro_rules! operations {
    ($($name:ident $finds:expr;)*) => {$(
        #[divan::bench]
        fn $name(bencher: Bencher) {
            let mut tables = Tables::default();
            assert_eq!(tables.$name(), $finds);
            bencher.bench_local(|| tables.$name());
        }
    )*};
}

operations! {
    index_hit true;
    index_miss false;
    delta_get true;
    delta_put true;
    tree_lookup true;
    cache_hit true;
    cache_insert true;
    content_miss false;
    content_hit true;
    content_insert true;
    decode_record true;
    allocate_slot true;
}

#[divan::bench]
fn index_insert(bencher: Bencher) {
    let mut tables = Tables::default();
    bencher.bench_local(|| tables.index_insert());
}

#[divan::bench]
fn encode_record(bencher: Bencher) {
    let mut tables = Tables::default();
    bencher.bench_local(|| tables.encode_record());
}

fn main() {
    divan::main();
}
