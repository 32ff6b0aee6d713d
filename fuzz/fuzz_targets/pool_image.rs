#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    lab::fuzz::disk::image(data);
});
