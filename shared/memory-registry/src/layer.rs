//! A layer that is made while it is sent: a tar file of one file of noise, in a gzip of stored blocks.
//!
//! Every byte follows from the seed and its offset, so any range can be made without what stands before it.

use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::crc::Crc32;
use crate::written;

/// Tar bytes in one stored block of deflate, whose limit is 65,535.
const BLOCK_TAR_BYTES: u64 = 127 * TAR_RECORD_BYTES;
/// What deflate puts before a stored block: flags, length, inverted length.
const BLOCK_HEAD_BYTES: u64 = 5;
const GZIP_HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
const GZIP_TAIL_BYTES: u64 = 8;
const TAR_RECORD_BYTES: u64 = 512;
/// A tar file ends with two empty records.
const TAR_END_BYTES: u64 = 2 * TAR_RECORD_BYTES;
/// The noise repeats after this many bytes, but for a stamp at the start of each page.
const PAGE_BYTES: usize = 64 * 1024;

/// A layer made from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    seed: u64,
    content_bytes: u64,
    checksum: u32,
    /// Digest of the gzip file: what the registry serves it under.
    pub(crate) digest: String,
    /// Digest of the tar file: what the image's config names.
    pub(crate) diff_id: String,
}

impl Layer {
    /// Makes a layer of about `bytes` bytes as served, and hashes it once.
    pub(crate) fn make(seed: u64, bytes: u64) -> Self {
        let overhead = GZIP_HEAD.len() as u64 + GZIP_TAIL_BYTES + TAR_RECORD_BYTES + TAR_END_BYTES;
        let content_bytes = bytes.saturating_sub(overhead + bytes / BLOCK_TAR_BYTES * BLOCK_HEAD_BYTES + BLOCK_HEAD_BYTES);
        let mut layer = Self { seed, content_bytes, checksum: 0, digest: String::new(), diff_id: String::new() };
        let (mut file, mut tar, mut checksum) = (Sha256::new(), Sha256::new(), Crc32::new());
        file.update(GZIP_HEAD);
        for index in 0..layer.blocks() {
            let block = layer.block(index);
            let inner = &block[BLOCK_HEAD_BYTES as usize..];
            file.update(&block);
            tar.update(inner);
            checksum.update(inner);
        }
        layer.checksum = checksum.finish();
        file.update(layer.tail());
        layer.digest = written(&file.finalize());
        layer.diff_id = written(&tar.finalize());
        layer
    }

    /// Bytes as served.
    pub(crate) fn size(&self) -> u64 {
        GZIP_HEAD.len() as u64 + self.blocks() * BLOCK_HEAD_BYTES + self.tar_bytes() + GZIP_TAIL_BYTES
    }

    /// The bytes from `offset` to the end of the part that holds it; empty at the end.
    pub(crate) fn part_from(&self, offset: u64) -> Bytes {
        let head = GZIP_HEAD.len() as u64;
        if offset < head {
            return Bytes::copy_from_slice(&GZIP_HEAD[offset as usize..]);
        }
        let step = BLOCK_HEAD_BYTES + BLOCK_TAR_BYTES;
        let (index, within) = ((offset - head) / step, (offset - head) % step);
        let tail_start = self.size() - GZIP_TAIL_BYTES;
        if offset < tail_start {
            return Bytes::from(self.block(index)).slice(within as usize..);
        }
        Bytes::copy_from_slice(&self.tail()[(offset - tail_start).min(GZIP_TAIL_BYTES) as usize..])
    }

    fn tar_bytes(&self) -> u64 {
        TAR_RECORD_BYTES + self.content_bytes.next_multiple_of(TAR_RECORD_BYTES) + TAR_END_BYTES
    }

    fn blocks(&self) -> u64 {
        self.tar_bytes().div_ceil(BLOCK_TAR_BYTES)
    }

    fn block(&self, index: u64) -> Vec<u8> {
        let start = index * BLOCK_TAR_BYTES;
        let length = BLOCK_TAR_BYTES.min(self.tar_bytes() - start) as u16;
        let mut block = Vec::with_capacity(usize::from(length) + BLOCK_HEAD_BYTES as usize);
        block.push(u8::from(index + 1 == self.blocks()));
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        self.tar_part(start, u64::from(length), &mut block);
        block
    }

    /// Appends `length` bytes of the tar file from `start`, which stands at the start of a record.
    fn tar_part(&self, start: u64, length: u64, into: &mut Vec<u8>) {
        let end = into.len() + length as usize;
        let mut content_start = start.saturating_sub(TAR_RECORD_BYTES);
        if start == 0 {
            into.extend(self.tar_head());
        }
        while into.len() < end && content_start < self.content_bytes {
            let within = content_start as usize % PAGE_BYTES;
            let wanted = (end - into.len()).min(PAGE_BYTES - within).min((self.content_bytes - content_start) as usize);
            let from = into.len();
            into.extend_from_slice(&noise()[within..within + wanted]);
            stamp(&mut into[from..], within, self.seed, content_start / PAGE_BYTES as u64);
            content_start += wanted as u64;
        }
        into.resize(end, 0);
    }

    fn tar_head(&self) -> [u8; TAR_RECORD_BYTES as usize] {
        let mut head = [0; TAR_RECORD_BYTES as usize];
        let mut put = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, &format!("data/{:016x}.bin", self.seed));
        put(100, "0000644\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", self.content_bytes));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\x0000");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        head
    }

    fn tail(&self) -> [u8; GZIP_TAIL_BYTES as usize] {
        let mut tail = [0; GZIP_TAIL_BYTES as usize];
        tail[..4].copy_from_slice(&self.checksum.to_le_bytes());
        tail[4..].copy_from_slice(&(self.tar_bytes() as u32).to_le_bytes());
        tail
    }
}

/// Writes seed and page number over the first 16 bytes of a page, as far as `part` (which starts `within` it) holds them.
fn stamp(part: &mut [u8], within: usize, seed: u64, page: u64) {
    let mut mark = [0; 16];
    mark[..8].copy_from_slice(&seed.to_le_bytes());
    mark[8..].copy_from_slice(&page.to_le_bytes());
    for (byte, mark) in part.iter_mut().zip(mark.iter().skip(within)) {
        *byte = *mark;
    }
}

/// One page that looks random (splitmix64).
fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| {
        let word = |index: u64| {
            let mixed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        };
        (1..=PAGE_BYTES as u64 / 8).flat_map(|index| word(index).to_le_bytes()).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(layer: &Layer) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let part = layer.part_from(content.len() as u64);
            if part.is_empty() {
                return content;
            }
            content.extend_from_slice(&part);
        }
    }

    #[test]
    fn is_what_its_digest_says_from_any_offset() {
        for bytes in [0, 1, 5_000, 65_024, 65_600, 300_000] {
            let layer = Layer::make(7, bytes);
            let content = whole(&layer);
            assert_eq!(content.len() as u64, layer.size(), "{bytes}");
            assert_eq!(crate::digest_of(&content), layer.digest, "{bytes}");
            for offset in [1, 9, 10, 15, 600, content.len() - 9, content.len() - 1] {
                let part = layer.part_from(offset as u64);
                assert_eq!(&content[offset..offset + part.len()], &part[..], "{bytes} from {offset}");
            }
        }
    }

    #[test]
    fn comes_close_to_the_size_asked_for() {
        for bytes in [5_000, 1_000_000, 3_333_333] {
            assert!(Layer::make(1, bytes).size().abs_diff(bytes) < 1024, "{bytes}");
        }
    }

    #[test]
    fn differs_by_seed_alone() {
        assert_eq!(Layer::make(3, 100_000).digest, Layer::make(3, 100_000).digest);
        assert_ne!(Layer::make(3, 100_000).digest, Layer::make(4, 100_000).digest);
    }
}
