//! Bearer tokens: `sk-nexus-<m|x|o>1-<lookup>-<secret>` (`conventions.md` §2).
//!
//! The letter is for people and secret scanners; the stored row's plane decides.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::words::Plane;

/// Characters of the searchable part.
pub const LOOKUP_LEN: usize = 16;
/// Characters of the secret part: more than 250 bits.
pub const SECRET_LEN: usize = 43;

/// A bearer as a client sent it. Never logged: `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The searchable part.
    pub lookup: String,
    secret: String,
}

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bearer({}…)", &self.lookup[..4])
    }
}

impl Bearer {
    /// Reads a token's text; none when it has not the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("sk-nexus-")?;
        let (kind, rest) = rest.split_once('-')?;
        if !["m1", "x1", "o1"].contains(&kind) {
            return None;
        }
        let (lookup, secret) = rest.split_once('-')?;
        let base62 = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric());
        let fits = lookup.len() == LOOKUP_LEN && secret.len() == SECRET_LEN;
        (fits && base62(lookup) && base62(secret)).then(|| Self {
            lookup: lookup.to_owned(),
            secret: secret.to_owned(),
        })
    }

    /// Whether the stored salt and hash are of this bearer's secret; in constant time.
    pub fn matches(&self, salt: &[u8], hash: &[u8]) -> bool {
        secret_hash(salt, &self.secret).ct_eq(hash).into()
    }
}

/// The letter of a plane.
pub fn letter(plane: Plane) -> char {
    match plane {
        Plane::Member => 'm',
        Plane::Executor => 'x',
        Plane::Operator => 'o',
    }
}

/// SHA-256(salt + secret).
pub fn secret_hash(salt: &[u8], secret: &str) -> [u8; 32] {
    let mut sha = Sha256::new();
    sha.update(salt);
    sha.update(secret.as_bytes());
    sha.finalize().into()
}

/// A token made anew: the text to show once, and what is stored.
pub struct Minted {
    /// The whole text.
    pub text: String,
    /// The searchable part.
    pub lookup: String,
    /// 16 random bytes.
    pub salt: [u8; 16],
    /// SHA-256(salt + secret).
    pub hash: [u8; 32],
}

impl Minted {
    /// Puts together a token of that plane from random parts.
    pub fn of(plane: Plane, lookup: String, secret: &str, salt: [u8; 16]) -> Self {
        let text = format!("sk-nexus-{}1-{lookup}-{secret}", letter(plane));
        let hash = secret_hash(&salt, secret);
        Self {
            text,
            lookup,
            salt,
            hash,
        }
    }
}
