//! One byte range of a known whole (RFC 9110 §14, `executor.md` §9).

use std::ops::Range;

/// What a `Range` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Everything: there is no header, or it is in a unit unknown here.
    Whole,
    /// These bytes, at least one.
    Part(Range<u64>),
    /// Nothing that can be given: malformed, several ranges, or outside.
    Unsatisfiable,
}

/// Reads a `Range` header against a whole of `size` bytes.
pub fn read(header: Option<&str>, size: u64) -> Wanted {
    let Some(text) = header else {
        return Wanted::Whole;
    };
    let Some((unit, spec)) = text.split_once('=') else {
        return Wanted::Unsatisfiable;
    };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return Wanted::Whole;
    }
    part(spec.trim(), size).map_or(Wanted::Unsatisfiable, Wanted::Part)
}

fn part(spec: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    let range = match (first, last) {
        ("", "") => return None,
        ("", suffix) => size.saturating_sub(number(suffix)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(size)
        }
    };
    (!range.is_empty()).then_some(range)
}

/// Digits only; what is beyond any size counts as the end.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_read() {
        let part = Wanted::Part;
        let bad = Wanted::Unsatisfiable;
        for (header, wanted) in [
            ("bytes=0-3", part(0..4)),
            ("Bytes=0-0", part(0..1)),
            ("bytes=4-", part(4..10)),
            ("bytes=9-", part(9..10)),
            ("bytes=-3", part(7..10)),
            ("bytes=-99", part(0..10)),
            ("bytes=5-99", part(5..10)),
            ("bytes=0-99999999999999999999999", part(0..10)),
            ("bytes=10-", bad.clone()),
            ("bytes=10-11", bad.clone()),
            ("bytes=5-3", bad.clone()),
            ("bytes=-0", bad.clone()),
            ("bytes=-", bad.clone()),
            ("bytes=", bad.clone()),
            ("bytes=a-b", bad.clone()),
            ("bytes=+1-2", bad.clone()),
            ("bytes=0-1,3-4", bad.clone()),
            ("0-3", bad),
            ("items=0-3", Wanted::Whole),
        ] {
            assert_eq!(read(Some(header), 10), wanted, "{header}");
        }
        assert_eq!(read(None, 10), Wanted::Whole);
        assert_eq!(read(Some("bytes=0-"), 0), Wanted::Unsatisfiable);
        assert_eq!(read(Some("bytes=-1"), 0), Wanted::Unsatisfiable);
    }
}
