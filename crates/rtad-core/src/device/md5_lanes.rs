//! md5 of many short messages: sixteen at a time, one per lane of the vector registers.
//!
//! md5 is a chain of 64 steps, and each step waits for the one before. One message therefore leaves
//! most of a core idle; other messages fill the gaps. A message of up to [`MAX_LANE_BYTES`] is one
//! block of md5 (RFC 1321) whatever its length, so lanes of different lengths run together. Longer
//! messages are hashed alone.
//!
//! `wide` needs no instructions beyond those of every x86-64 or AArch64 processor.

use wide::u32x16;

use super::key::DeviceKey;
use super::kind::Case;

/// Messages that are hashed together.
const LANES: usize = 16;
/// Longest message that fits one block: its end mark and its length take nine bytes.
const MAX_LANE_BYTES: usize = 55;

/// A message with its padding.
type PaddedMessage = [u8; 64];

/// Initial state.
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Constants of the 64 steps: the fractions of `|sin(step)|`.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

/// Messages and their digests, in the order of [`push`](Self::push).
#[derive(Clone)]
pub struct Md5Lanes {
    /// The lanes' blocks, word by word.
    words: [[u32; LANES]; 16],
    /// The index of the digest of each filled lane.
    indexes: [usize; LANES],
    filled: usize,
    digests: Vec<DeviceKey>,
}

impl Default for Md5Lanes {
    fn default() -> Self {
        Self {
            words: [[0; LANES]; 16],
            indexes: [0; LANES],
            filled: 0,
            digests: Vec::new(),
        }
    }
}

impl Md5Lanes {
    /// Adds a message in `case` and returns the index of its digest. [`Case::All`] counts as
    /// as-is. A message in lower or upper case has at most 128 bytes.
    #[inline]
    pub fn push(&mut self, case: Case, message: &[u8]) -> usize {
        let index = self.digests.len();
        if message.len() > MAX_LANE_BYTES {
            self.digests
                .push(case.apply(message, DeviceKey::of_canonical));
            return index;
        }
        let block = block_of(case, message);
        for (lanes, word) in self.words.iter_mut().zip(block.as_chunks().0) {
            lanes[self.filled] = u32::from_le_bytes(*word);
        }
        self.indexes[self.filled] = index;
        self.filled += 1;
        self.digests.push(DeviceKey::from_bytes([0; 16]));
        if self.filled == LANES {
            self.hash();
        }
        index
    }

    /// The digests of all messages since the last [`clear`](Self::clear).
    pub fn digests(&mut self) -> &[DeviceKey] {
        if self.filled > 0 {
            self.hash();
        }
        &self.digests
    }

    pub fn clear(&mut self) {
        self.filled = 0;
        self.digests.clear();
    }

    /// Hashes the filled lanes. The others hold earlier messages.
    fn hash(&mut self) {
        let state = compress(&self.words);
        for (lane, index) in self.indexes[..self.filled].iter().enumerate() {
            let mut digest = [0; 16];
            for (bytes, words) in digest.as_chunks_mut().0.iter_mut().zip(&state) {
                *bytes = words[lane].to_le_bytes();
            }
            self.digests[*index] = DeviceKey::from_bytes(digest);
        }
        self.filled = 0;
    }
}

/// The padded block of a short message in `case`.
#[inline]
fn block_of(case: Case, message: &[u8]) -> PaddedMessage {
    // A copy of known length stays in registers, which saves 9 ns. These are the lengths of an
    // IMEI, an Android id, a MAC, an id of 32 digits and a UUID.
    match message.len() {
        15 => block_of_known(case, message.first_chunk::<15>()),
        16 => block_of_known(case, message.first_chunk::<16>()),
        17 => block_of_known(case, message.first_chunk::<17>()),
        32 => block_of_known(case, message.first_chunk::<32>()),
        36 => block_of_known(case, message.first_chunk::<36>()),
        len => {
            let mut block = [0; 64];
            block[..len].copy_from_slice(message);
            padded(case, block, len)
        }
    }
}

#[inline]
fn block_of_known<const N: usize>(case: Case, message: Option<&[u8; N]>) -> PaddedMessage {
    let mut block = [0; 64];
    block[..N].copy_from_slice(message.expect("the length was matched"));
    padded(case, block, N)
}

#[inline(always)]
fn padded(case: Case, mut block: PaddedMessage, len: usize) -> PaddedMessage {
    // The whole block, as a known length is faster. Zeros have no case.
    match case {
        Case::AsIs | Case::All => {}
        Case::Lower => block.make_ascii_lowercase(),
        Case::Upper => block.make_ascii_uppercase(),
    }
    block[len] = 0x80;
    block[56..].copy_from_slice(&(8 * len as u64).to_le_bytes());
    block
}

/// The state after one block per lane, word by word.
fn compress(words: &[[u32; LANES]; 16]) -> [[u32; LANES]; 4] {
    let initial = INITIAL.map(u32x16::splat);
    let mut state = initial;
    // Sums of disjoint bits replace `|`: an operand that is known early is then added early, and
    // fewer operations wait for the step before.
    round(&mut state, words, 0, [7, 12, 17, 22], |x, b, c, d| {
        x + (!b & d) + (b & c)
    });
    round(&mut state, words, 1, [5, 9, 14, 20], |x, b, c, d| {
        x + (!d & c) + (b & d)
    });
    round(&mut state, words, 2, [4, 11, 16, 23], |x, b, c, d| {
        x + (b ^ (c ^ d))
    });
    round(&mut state, words, 3, [6, 10, 15, 21], |x, b, c, d| {
        x + (c ^ (b | !d))
    });
    std::array::from_fn(|word| (state[word] + initial[word]).to_array())
}

/// One of the four rounds of 16 steps. `mix` adds the round's function of three words to a sum.
#[inline(always)]
fn round(
    state: &mut [u32x16; 4],
    words: &[[u32; LANES]; 16],
    round: usize,
    [r0, r1, r2, r3]: [u32; 4],
    mix: impl Fn(u32x16, u32x16, u32x16, u32x16) -> u32x16,
) {
    /// First word of each round, and the distance to the next.
    const ORDER: [(usize, usize); 4] = [(0, 1), (1, 5), (5, 3), (0, 7)];
    let [mut a, mut b, mut c, mut d] = *state;
    let (first, distance) = ORDER[round];
    let rotated = |x: u32x16, by: u32, sum: u32x16| sum + (x << by) + (x >> (32 - by));
    for step in (0..16).step_by(4) {
        let added = |step: usize| {
            u32x16::new(words[(first + distance * step) % 16])
                + u32x16::splat(SINES[16 * round + step])
        };
        a = rotated(mix(a + added(step), b, c, d), r0, b);
        d = rotated(mix(d + added(step + 1), a, b, c), r1, a);
        c = rotated(mix(c + added(step + 2), d, a, b), r2, d);
        b = rotated(mix(b + added(step + 3), c, d, a), r3, c);
    }

    *state = [a, b, c, d];
}

/// Hides the messages and digests: they identify persons.
impl std::fmt::Debug for Md5Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Md5Lanes")
            .field("digests", &self.digests.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digests(messages: &[Vec<u8>], case: Case) -> Vec<DeviceKey> {
        let mut lanes = Md5Lanes::default();
        // Lanes keep no message of an earlier batch.
        for _ in 0..5 {
            lanes.push(Case::AsIs, &[b'x'; 55]);
        }
        lanes.clear();
        for (index, message) in messages.iter().enumerate() {
            assert_eq!(lanes.push(case, message), index);
        }
        lanes.digests().to_vec()
    }

    fn expected(messages: &[Vec<u8>]) -> Vec<DeviceKey> {
        messages
            .iter()
            .map(|message| DeviceKey::of_canonical(message))
            .collect()
    }

    #[test]
    fn every_length_has_the_md5_of_its_bytes() {
        for fill in [0, b'a', 0x80, 0xff] {
            let messages: Vec<_> = (0..=130).map(|len| vec![fill; len]).collect();
            assert_eq!(digests(&messages, Case::AsIs), expected(&messages));
            // All lanes of one length.
            for len in 0..=130 {
                let messages = vec![vec![fill; len]; LANES + 1];
                assert_eq!(digests(&messages, Case::AsIs), expected(&messages), "{len}");
            }
        }
    }

    #[test]
    fn published_digests_match() {
        // The examples of RFC 1321, A.5.
        for (message, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            (
                "abcdefghijklmnopqrstuvwxyz",
                "c3fcd3d76192e4007dfb496cca67e13b",
            ),
        ] {
            let key = DeviceKey::from_hex(digest.as_bytes()).unwrap();
            assert_eq!(digests(&[message.into()], Case::AsIs), [key]);
        }
    }

    proptest! {
        #[test]
        fn any_messages_have_the_same_digests_as_alone(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=130), 0..=40),
        ) {
            prop_assert_eq!(digests(&messages, Case::AsIs), expected(&messages));
        }

        #[test]
        fn case_is_changed_before_hashing(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..=128), 0..=40),
        ) {
            let lower: Vec<_> = messages.iter().map(|m| m.to_ascii_lowercase()).collect();
            let upper: Vec<_> = messages.iter().map(|m| m.to_ascii_uppercase()).collect();
            prop_assert_eq!(digests(&messages, Case::Lower), expected(&lower));
            prop_assert_eq!(digests(&messages, Case::Upper), expected(&upper));
        }
    }
}
