//! The slot of a key in a Redis Cluster: CRC16 of its hash tag, modulo 16,384.
//!
//! From the [cluster
//! specification](https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/): the
//! CRC16 is that of XMODEM (polynomial 0x1021, start 0, no reflection, no final XOR). The hash tag
//! is the text between the first `{` and the first `}` after it. If there is none, or if it is
//! empty, the whole key is hashed.

/// The number of slots in a cluster.
pub const SLOTS: u16 = 16_384;

/// The slot of a key, below [`SLOTS`].
pub fn slot(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

/// The part of a key that is hashed: its hash tag, or the whole key if it has none.
pub fn tag(key: &[u8]) -> &[u8] {
    tag_in(key).unwrap_or(key)
}

fn tag_in(key: &[u8]) -> Option<&[u8]> {
    let start = 1 + key.iter().position(|byte| *byte == b'{')?;
    let len = key[start..].iter().position(|byte| *byte == b'}')?;
    (len > 0).then(|| &key[start..start + len])
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        let [high, low] = crc.to_be_bytes();
        (u16::from(low) << 8) ^ CRC16[usize::from(high ^ byte)]
    })
}

/// The CRC16 of each byte.
const CRC16: [u16; 256] = {
    const POLYNOMIAL: u16 = 0x1021;
    let mut table = [0; 256];
    let mut byte: u16 = 0;
    while byte < 256 {
        let mut crc = byte << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ POLYNOMIAL };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_specification_holds() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"123456789"), 12_739);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn the_tag_is_between_the_first_opening_brace_and_the_next_closing_one() {
        for (key, expected) in [
            ("tg:{edge}:user_id=42:fixed:1m", "edge"),
            ("tg:{edge,tenant=acme}:x", "edge,tenant=acme"),
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
            ("foo}bar{zap}", "zap"),
            ("}{", "}{"),
            ("", ""),
        ] {
            assert_eq!(tag(key.as_bytes()), expected.as_bytes(), "{key}");
        }
    }

    #[test]
    fn keys_of_one_tag_share_a_slot() {
        assert_eq!(slot(b"tg:{edge}:a"), slot(b"tg:{edge}:b"));
        assert_eq!(slot(b"tg:{edge}:a"), slot(b"edge"));
        assert_ne!(slot(b"tg:{edge}:a"), slot(b"tg:{edge,tenant=acme}:a"));
    }
}
