#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| apiserver_fuzz::run_cbor(data));
