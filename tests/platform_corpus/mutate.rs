//! Mutants of the corpus by changes of bytes. Structure comes from the corpus.

use bytes::Bytes;
use testkit::random::SplitMix64;

/// Limit of a mutant's length.
const LARGEST: usize = 4096;

/// Endless generator of mutants, deterministic per seed.
pub struct Mutants {
    seeds: Vec<Bytes>,
    random: SplitMix64,
}

impl Mutants {
    pub fn of(seeds: Vec<Bytes>, seed: u64) -> Self {
        Self {
            seeds,
            random: SplitMix64::new(seed),
        }
    }

    /// A body of the corpus with one to three changes.
    pub fn next(&mut self) -> Bytes {
        let index = self.random.below(self.seeds.len());
        let mut body = self.seeds[index].to_vec();

        for _ in 0..=self.random.below(3) {
            self.damage(&mut body);
        }

        body.truncate(LARGEST);
        body.into()
    }

    fn damage(&mut self, body: &mut Vec<u8>) {
        let start = self.random.below(body.len() + 1);
        let end = (start + self.random.below(40)).min(body.len());
        match self.random.below(6) {
            0 if start < body.len() => body[start] ^= 1 << self.random.below(8),
            1 if start < body.len() => body[start] = self.random.number() as u8,
            2 => {
                body.drain(start..end);
            }
            3 => {
                let copy = body[start..end].to_vec();
                body.splice(start..start, copy);
            }
            4 => {
                // The rest of another body.
                let other = self.random.below(self.seeds.len());
                let from = self.random.below(self.seeds[other].len() + 1);
                body.truncate(start);
                body.extend_from_slice(&self.seeds[other][from..]);
            }
            _ => {
                let random = self.random.number().to_le_bytes();
                body.splice(start..start, random);
            }
        }
    }
}
