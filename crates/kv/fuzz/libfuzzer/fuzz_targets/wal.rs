#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| kv_fuzz::wal(data));
