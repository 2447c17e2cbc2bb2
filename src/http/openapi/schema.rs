//! Small words for JSON schemas, and the shapes that every plane shares.

use serde_json::{Map, Value as Json, json};

/// A named shape under `components/schemas`.
pub type Component = (&'static str, Json);

/// A reference to a named shape.
pub fn of(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// An object of these members; a name that ends with `?` may be absent. Whether others may be there
/// is left open: clients tolerate them, bodies ignore them.
pub fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    let required: Vec<&str> = members
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| !name.ends_with('?'))
        .collect();
    let properties: Map<String, Json> = members
        .iter()
        .map(|(name, schema)| (name.trim_end_matches('?').to_owned(), schema.clone()))
        .collect();
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = required.into();
    }
    object
}

/// The same, where another member is refused.
pub fn closed<const N: usize>(members: [(&str, Json); N]) -> Json {
    with(object(members), "additionalProperties", false)
}

/// A schema with one more keyword.
pub fn with(mut schema: Json, keyword: &str, value: impl Into<Json>) -> Json {
    schema[keyword] = value.into();
    schema
}

/// A schema with a sentence for people.
pub fn says(schema: Json, sentence: &str) -> Json {
    with(schema, "description", sentence)
}

/// The members of both objects.
pub fn merged(mut one: Json, other: &Json) -> Json {
    for keyword in ["properties", "required"] {
        match (&mut one[keyword], &other[keyword]) {
            (Json::Object(mine), Json::Object(theirs)) => mine.extend(theirs.clone()),
            (Json::Array(mine), Json::Array(theirs)) => mine.extend(theirs.iter().cloned()),
            _ => {}
        }
    }
    one
}

/// That, or null.
pub fn nullable(schema: Json) -> Json {
    match schema.get("type").cloned() {
        Some(Json::String(kind)) if schema.get("enum").is_none() => {
            with(schema, "type", json!([kind, "null"]))
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

/// A list of such.
pub fn list(items: Json) -> Json {
    json!({"type": "array", "items": items})
}

/// One of these words.
pub fn words<T>(words: impl IntoIterator<Item = T>) -> Json
where
    T: Into<Json>,
{
    let words: Vec<Json> = words.into_iter().map(Into::into).collect();
    json!({"type": "string", "enum": words})
}

/// A text.
pub fn text() -> Json {
    json!({"type": "string"})
}

/// A boolean.
pub fn flag() -> Json {
    json!({"type": "boolean"})
}

/// An integer from `low` to `high`.
pub fn integer(low: i64, high: i64) -> Json {
    json!({"type": "integer", "minimum": low, "maximum": high})
}

/// A count.
pub fn count() -> Json {
    json!({"type": "integer", "minimum": 0})
}

/// An object of any members, kept as it is.
pub fn opaque() -> Json {
    json!({"type": "object", "additionalProperties": true})
}

/// Any JSON value, kept as it is.
pub fn any() -> Json {
    json!({})
}

/// A point in time.
pub fn time() -> Json {
    of("Time")
}

/// A public id.
pub fn id() -> Json {
    of("PublicId")
}

/// The shapes that every plane shares.
pub fn components() -> Vec<Component> {
    let step = object([("code", text()), ("path?", text())]);
    let error = object([
        (
            "code",
            says(
                text(),
                "The word that clients branch on, behind the status.",
            ),
        ),
        ("message", says(text(), "A sentence for people.")),
        (
            "request_id",
            says(text(), "The id under which this request is logged."),
        ),
        (
            "parameter?",
            says(text(), "Which parameter or member is at fault."),
        ),
        ("path?", says(text(), "Where in what was written.")),
        (
            "steps?",
            says(
                list(step),
                "Of `invalid_steps`: what is wrong with which step.",
            ),
        ),
        (
            "current_revision?",
            says(count(), "Of `stale_revision`: what it is now."),
        ),
    ]);
    vec![
        (
            "PublicId",
            json!({"type": "string", "format": "uuid",
                   "description": "A UUID of version 7; read without regard to case."}),
        ),
        (
            "TaskKey",
            json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$",
                   "description": "A task's name within its run."}),
        ),
        (
            "Time",
            json!({"type": "string", "format": "date-time",
                   "description": "UTC, in whole seconds, rounded down.",
                   "examples": ["2030-01-02T03:04:05Z"]}),
        ),
        (
            "Cursor",
            json!({"type": "string", "maxLength": 512,
                   "description": "Opaque: of one list, its direction and its host."}),
        ),
        (
            "Pagination",
            says(
                object([("next_after", nullable(of("Cursor")))]),
                "Where the next page begins; null at the end.",
            ),
        ),
        (
            "ErrorBody",
            says(error, "What is wrong, where, and what is allowed."),
        ),
        (
            "Error",
            says(
                object([("error", of("ErrorBody"))]),
                "Why a request is refused, at every door.",
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_mark_makes_a_member_optional() {
        let shape = closed([("a", text()), ("b?", nullable(flag()))]);
        let wanted = json!({"type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "string"}, "b": {"type": ["boolean", "null"]}}});
        assert_eq!(shape, wanted);
        let both = merged(shape, &object([("c", any())]));
        assert_eq!(both["required"], json!(["a", "c"]));
        assert_eq!(nullable(id())["anyOf"][1], json!({"type": "null"}));
    }
}
