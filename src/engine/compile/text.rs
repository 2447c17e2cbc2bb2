//! Canonical text made of canonical parts.

use std::collections::BTreeMap;

use crate::domain::json::{Canonical, Value};

/// One canonical object of parts that are canonical already. The names are the grammar's own
/// words, sorted by the map and free of anything to escape. Unlike building a `Value`, it adds no
/// level to the depth of a part that was checked by itself.
pub(super) fn object_text(parts: &BTreeMap<&'static str, Canonical>) -> Canonical {
    let members: Vec<String> = parts
        .iter()
        .map(|(name, part)| format!("\"{name}\":{}", part.as_str()))
        .collect();
    Canonical::trusted(format!("{{{}}}", members.join(",")))
}

/// How many bytes the canonical text of a value has, storable or not: what cannot be stored is
/// refused where it stands, with its own code, and must still be measured.
pub(super) fn measured_len(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.len().saturating_sub(1) + sum(items.iter()),
        Value::Object(members) => {
            let names: usize = members.keys().map(|name| 1 + string_len(name)).sum();
            2 + members.len().saturating_sub(1) + names + sum(members.values())
        }
        Value::Str(text) => string_len(text),
        Value::Int(n) => n.as_str().len(),
        scalar => scalar.canonical().map_or(0, |text| text.len()),
    }
}

fn sum<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    values.map(measured_len).sum()
}

fn string_len(text: &str) -> usize {
    let escaped = |b: u8| match b {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 2,
        0x00..=0x1f => 6,
        _ => 1,
    };
    2 + text.bytes().map(escaped).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json::parse;

    #[test]
    fn a_measured_length_is_the_canonical_length() {
        for text in [
            r#"{"b":[1,2.50,-0,"a\u0001\n\"é"],"a":{},"c":[],"d":[null,true,{"k":"v","l":1e300}]}"#,
            "[]",
            "12345678901234567890123",
        ] {
            let value = parse(text.as_bytes()).unwrap();
            assert_eq!(measured_len(&value), value.canonical().unwrap().len());
        }
        assert_eq!(measured_len(&Value::from("\0")), 8);
    }
}
