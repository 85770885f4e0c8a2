//! CRC-32 as in gzip (reflected polynomial 0xEDB88320), eight bytes per step.

const POLYNOMIAL: u32 = 0xEDB8_8320;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before = tables[table - 1][index];
            tables[table][index] = (before >> 8) ^ tables[0][(before & 0xFF) as usize];
            index += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum being computed.
pub(crate) struct Crc32(u32);

impl Crc32 {
    pub(crate) fn new() -> Self {
        Self(!0)
    }

    pub(crate) fn update(&mut self, content: &[u8]) {
        let mut value = self.0;
        let (words, rest) = content.as_chunks::<8>();
        for word in words {
            let both = u64::from_le_bytes(*word) ^ u64::from(value);
            value = (0..8).fold(0, |sum, byte| sum ^ TABLES[7 - byte][(both >> (8 * byte)) as usize & 0xFF]);
        }
        for byte in rest {
            value = (value >> 8) ^ TABLES[0][((value ^ u32::from(*byte)) & 0xFF) as usize];
        }
        self.0 = value;
    }

    pub(crate) fn finish(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_equals_the_standard_check_value() {
        let mut whole = Crc32::new();
        whole.update(b"123456789");
        assert_eq!(whole.finish(), 0xCBF4_3926);
        let mut parts = Crc32::new();
        parts.update(b"1234567891234");
        parts.update(b"5678");
        let mut once = Crc32::new();
        once.update(b"12345678912345678");
        assert_eq!(parts.finish(), once.finish());
    }
}
