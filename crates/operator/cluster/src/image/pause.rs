//! The sandbox's first process: 248 bytes of ELF that reap children and exit on SIGTERM or SIGINT.
//!
//! In the first process of a PID namespace, signals have no default action. So it makes the kernel
//! reap its children (SIGCHLD ignored), blocks the two signals and waits for them.
//!
//! Rejected: a shell, which takes a hundred times the memory for each pod.

/// rt_sigaction(SIGCHLD, SIG_IGN); rt_sigprocmask(SIG_BLOCK, {INT, TERM}); rt_sigtimedwait until
/// one comes; exit_group(0). Then the data: the sigaction and the signal set.
const X86_64: [u8; 128] = [
    0xb8, 0x0d, 0x00, 0x00, 0x00, 0xbf, 0x11, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x35, 0x47, 0x00, 0x00,
    0x00, 0x31, 0xd2, 0x41, 0xba, 0x08, 0x00, 0x00, 0x00, 0x0f, 0x05, 0xb8, 0x0e, 0x00, 0x00, 0x00,
    0x31, 0xff, 0x48, 0x8d, 0x35, 0x4f, 0x00, 0x00, 0x00, 0x31, 0xd2, 0x41, 0xba, 0x08, 0x00, 0x00,
    0x00, 0x0f, 0x05, 0xb8, 0x80, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x3d, 0x39, 0x00, 0x00, 0x00, 0x31,
    0xf6, 0x31, 0xd2, 0x41, 0xba, 0x08, 0x00, 0x00, 0x00, 0x0f, 0x05, 0x85, 0xc0, 0x78, 0xe4, 0xb8,
    0xe7, 0x00, 0x00, 0x00, 0x31, 0xff, 0x0f, 0x05, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
];

// The usual load address of static programs, above the kernel's `vm.mmap_min_addr`.
const BASE: u64 = 0x40_0000;
// An ELF header and one program header (elf(5)).
const HEADERS: u64 = 64 + 56;

/// Returns the program for this machine's processor, if there is one.
pub fn pause_program() -> Option<Vec<u8>> {
    // 62 is EM_X86_64.
    (std::env::consts::ARCH == "x86_64").then(|| build_elf(62, &X86_64))
}

/// Builds a static executable of one segment with headers and code.
fn build_elf(machine: u16, code: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, then machine, version, entry point and the offset of the program header.
    out.extend_from_slice(&2u16.to_le_bytes());
    out.extend_from_slice(&machine.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&(BASE + HEADERS).to_le_bytes());
    out.extend_from_slice(&64u64.to_le_bytes());
    out.extend_from_slice(&0u64.to_le_bytes());
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 1, 0, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    let size = HEADERS + code.len() as u64;
    // PT_LOAD with the flags PF_R and PF_X.
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&5u32.to_le_bytes());
    for word in [0, BASE, BASE, size, size, 0x1000] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(code);
    out
}
