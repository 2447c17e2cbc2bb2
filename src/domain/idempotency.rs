//! Idempotency-Key and the fingerprint of what it was used for (`conventions.md` §8).

use sha2::{Digest, Sha256};

use super::json::{Canonical, Unstorable, Value};

/// The most bytes of a key, where a door says no less.
pub const KEY_BYTES: usize = 255;
/// The most bytes of a key of run create and append.
pub const RUN_KEY_BYTES: usize = 36;

/// The answer kept of an accepted envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The key it was sent under; a minted one that nobody holds, if it was sent under none.
    pub key: String,
    /// Of what was accepted.
    pub fingerprint: Vec<u8>,
    /// The receipt.
    pub body: Canonical,
}

/// Whether a text is a key: 1 to `max` visible ASCII bytes.
pub fn is_key(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

/// SHA-256 over the canonical JSON of door and path ids, then of the accepted body.
///
/// # Errors
/// When the body has no canonical form.
pub fn fingerprint(door: &str, path: &[String], body: &Value) -> Result<[u8; 32], Unstorable> {
    let ids = path
        .iter()
        .map(|id| Value::from(id.as_str()))
        .collect::<Vec<_>>();
    let place = Value::from([("door", door.into()), ("path", Value::Array(ids))]).canonical()?;
    let mut sha = Sha256::new();
    sha.update(place.as_str().as_bytes());
    sha.update(body.digest_text()?.as_bytes());
    Ok(sha.finalize().into())
}
