//! The one place that makes ids, tokens and other chance; seeded in tests.
//!
//! Time enters as a fact: a public id carries the millisecond it is told.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::{RngExt as _, SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};

use crate::domain::{PublicId, Timestamp};

/// Makes what must be new.
#[derive(Debug)]
pub struct Mint {
    rng: StdRng,
}

/// A secret that is shown once, beside the digest that is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The text to show.
    pub text: String,
    /// SHA-256 of the text.
    pub digest: [u8; 32],
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// SHA-256 of a claim or resolution token, as stored and compared.
pub fn token_digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

impl Mint {
    /// Real chance.
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place that chance comes from"
    )]
    pub fn new() -> Self {
        Self {
            rng: StdRng::from_rng(&mut rand::rng()),
        }
    }

    /// The same ids and tokens for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// A UUIDv7 of that moment.
    pub fn public_id(&mut self, now: Timestamp) -> PublicId {
        let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        let random: [u8; 10] = self.rng.random();
        PublicId(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// A claim or resolution token: 32 random bytes, base64url.
    pub fn token(&mut self) -> Secret {
        let bytes: [u8; 32] = self.rng.random();
        let text = URL_SAFE_NO_PAD.encode(bytes);
        let digest = token_digest(&text);
        Secret { text, digest }
    }

    /// `n` base62 characters, evenly drawn.
    pub fn base62(&mut self, n: usize) -> String {
        const ALPHABET: &[u8; 62] =
            b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
        (0..n)
            .map(|_| char::from(ALPHABET[self.rng.random_range(0..62)]))
            .collect()
    }

    /// Random bytes, for salts.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N]
    where
        rand::distr::StandardUniform: rand::distr::Distribution<[u8; N]>,
    {
        self.rng.random()
    }
}

impl Default for Mint {
    fn default() -> Self {
        Self::new()
    }
}
