//! A ustar writer with the features that an image layer needs. Times are zero, so that the same
//! content has the same digest.

const BLOCK: usize = 512;

/// An archive under construction.
pub struct Tar {
    data: Vec<u8>,
}

impl Tar {
    /// Creates an empty archive.
    pub fn new() -> Self {
        Self { data: Vec::new() }
    }

    /// Adds a directory.
    pub fn add_directory(&mut self, path: &str, mode: u32) {
        self.write_header(&format!("{path}/"), mode, 0, b'5', "");
    }

    /// Adds a file.
    pub fn add_file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.write_header(path, mode, content.len(), b'0', "");
        self.data.extend_from_slice(content);
        let padding = content.len().next_multiple_of(BLOCK) - content.len();
        self.data.resize(self.data.len() + padding, 0);
    }

    /// Adds a symbolic link.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.write_header(path, 0o777, 0, b'2', target);
    }

    /// Returns the finished archive.
    pub fn finish(mut self) -> Vec<u8> {
        // POSIX ends an archive with two blocks of zeros.
        self.data.resize(self.data.len() + 2 * BLOCK, 0);
        self.data
    }

    /// Writes a header. Paths come from this crate and are shorter than the header's limit of 100
    /// bytes.
    fn write_header(&mut self, path: &str, mode: u32, size: usize, kind: u8, target: &str) {
        let mut block = [0u8; BLOCK];
        put_field(&mut block, 0, 100, path.as_bytes());
        put_field(&mut block, 100, 8, format!("{mode:07o}").as_bytes());
        put_field(&mut block, 108, 8, b"0000000");
        put_field(&mut block, 116, 8, b"0000000");
        put_field(&mut block, 124, 12, format!("{size:011o}").as_bytes());
        put_field(&mut block, 136, 12, b"00000000000");
        // The checksum counts its own field as blanks.
        put_field(&mut block, 148, 8, b"        ");
        put_field(&mut block, 156, 1, &[kind]);
        put_field(&mut block, 157, 100, target.as_bytes());
        // The magic `ustar` with a NUL, and the version `00`.
        put_field(&mut block, 257, 8, b"ustar\x0000");
        put_field(&mut block, 265, 32, b"root");
        put_field(&mut block, 297, 32, b"root");
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        put_field(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
        self.data.extend_from_slice(&block);
    }
}

fn put_field(block: &mut [u8; BLOCK], at: usize, room: usize, value: &[u8]) {
    let length = value.len().min(room);
    block[at..at + length].copy_from_slice(&value[..length]);
}
